//! `cargo xtask soak`: runs all suites, or one, with fresh seeds for the requested time. The
//! summary is printed, and appended to a file if one is named.
//!
//! Each thread takes the suite that has had the least time so far, so that cheap and expensive
//! suites get equal time. A suite whose seeds enumerate cases first runs those above its floor,
//! which CI runs only in part.
//!
//! With `--site`, one site is off, and the run ends with the first seed that notices it: one for
//! the rare seeds in `mutants.rs`.
#![forbid(unsafe_code)]

use firn_base::clock::Clock;
use firn_base::exec;
use firn_base::seed::Seed;
use firn_base::site::{self, Site};
use firn_sim::{SUITES, Suite, Tally, set_child, sites};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const USAGE: &str = "\
usage: soak --minutes N [--suite NAME] [--seed X] [--threads N] [--append FILE]
       soak --minutes N --site NAME [the same]";
const SECOND_NS: u64 = 1_000_000_000;
/// The assumed duration of a seed until it is known, in nanoseconds.
const EXPECTED_NS: u64 = SECOND_NS / 100;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The parsed arguments.
#[derive(Debug)]
struct Asked {
    minutes: u64,
    suites: Vec<&'static Suite>,
    seed: u64,
    threads: usize,
    /// The site that is off while the suites run.
    site: Option<&'static Site>,
    /// The file that gets the summary too.
    append: Option<PathBuf>,
}

/// The totals of one suite.
#[derive(Debug, Clone, Default)]
struct Row {
    busy_ns: u64,
    /// Seeds that were begun.
    begun: u64,
    /// There are no more cases.
    is_exhausted: bool,
    seeds: u64,
    recoveries: u64,
    /// Distinct within their seed.
    images: u64,
    kills: u64,
}

#[derive(Debug, Default)]
struct Soak {
    rows: Vec<Row>,
    findings: Vec<String>,
}

impl Asked {
    fn run(&self, suite: &Suite, seed: u64) -> Tally {
        match self.site {
            Some(site) => site::without(site, || (suite.run)(seed)),
            None => (suite.run)(seed),
        }
    }
}

impl Soak {
    /// The suite that runs next, and its seed; `None` if no suite has any more cases, or if the
    /// search for a seed has ended.
    fn next(&mut self, asked: &Asked) -> Option<(usize, u64)> {
        if asked.site.is_some() && !self.findings.is_empty() {
            return None;
        }
        loop {
            let open = (0..self.rows.len()).filter(|&index| !self.rows[index].is_exhausted);
            let index = open.min_by_key(|&index| self.rows[index].busy_ns)?;
            let row = &mut self.rows[index];
            row.begun += 1;
            match asked.suites[index]
                .seeds
                .beyond_the_floor(asked.seed, row.begun - 1)
            {
                Some(seed) => {
                    // Added before the duration is known, so that the other threads take other
                    // suites.
                    row.busy_ns += EXPECTED_NS;
                    return Some((index, seed));
                }
                None => row.is_exhausted = true,
            }
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = match parse(&arguments) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Ok(me) = std::env::current_exe() {
        set_child(me.with_file_name("kill9_child"));
    }
    std::panic::set_hook(Box::new(|panic| PANIC.set(panic.to_string())));
    let clock = Clock::system();
    let start_ns = clock.now_ns();
    let soak = Arc::new(Mutex::new(Soak {
        rows: vec![Row::default(); asked.suites.len()],
        ..Soak::default()
    }));
    let asked = Arc::new(asked);
    let workers: Vec<_> = (0..asked.threads)
        .filter_map(|index| {
            let (asked, soak, clock) = (asked.clone(), soak.clone(), clock.clone());
            exec::spawn(&format!("soak-{index}"), move || {
                work(&asked, &soak, &clock, start_ns)
            })
            .ok()
        })
        .collect();
    for worker in workers {
        let _panicked = worker.join();
    }
    let soak = soak.lock().expect("no panic under the lock");
    let report = report(&asked, &soak, clock.now_ns() - start_ns);
    println!("{report}");
    if let Some(path) = &asked.append
        && let Err(error) = append(path, &report)
    {
        eprintln!(
            "{}: {error}; the summary above is not recorded",
            path.display()
        );
        return ExitCode::from(2);
    }
    ExitCode::from(u8::from(soak.findings.is_empty() == asked.site.is_some()))
}

fn parse(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked {
        minutes: 0,
        suites: SUITES.iter().collect(),
        seed: 0,
        threads: 0,
        site: None,
        append: None,
    };
    asked.threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    asked.seed = Seed::from_entropy().next_u64() >> 24;
    let mut words = arguments.iter();
    while let Some(name) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("`{name}` lacks a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{name}: `{value}` is not a number"))
        };
        match name.as_str() {
            "--minutes" => asked.minutes = number()?,
            "--seed" => asked.seed = number()?,
            "--threads" => asked.threads = number()?.clamp(1, 1024) as usize,
            "--suite" => {
                let known = || {
                    SUITES
                        .iter()
                        .map(|suite| suite.name)
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                let suite = Suite::named(value)
                    .ok_or_else(|| format!("no suite `{value}`; there are {}", known()))?;
                asked.suites = vec![suite];
            }
            "--site" => {
                let site = sites().into_iter().find(|site| site.name() == value);
                asked.site = Some(site.ok_or_else(|| format!("no site `{value}`"))?);
            }
            "--append" => asked.append = Some(PathBuf::from(value)),
            _ => return Err(format!("`{name}` is not known")),
        }
    }
    if asked.minutes == 0 {
        Err("--minutes N is needed".to_owned())
    } else {
        Ok(asked)
    }
}

fn work(asked: &Asked, soak: &Mutex<Soak>, clock: &Clock, start_ns: u64) {
    let end_ns = start_ns + asked.minutes * 60 * SECOND_NS;
    let mut told_ns = start_ns;
    while clock.now_ns() < end_ns {
        let next = soak.lock().expect("no panic under the lock").next(asked);
        let Some((index, seed)) = next else {
            break;
        };
        let suite = asked.suites[index];
        let begin_ns = clock.now_ns();
        let outcome = catch_unwind(AssertUnwindSafe(|| asked.run(suite, seed)));
        let now_ns = clock.now_ns();
        let mut soak = soak.lock().expect("no panic under the lock");
        let row = &mut soak.rows[index];
        row.busy_ns = row.busy_ns + (now_ns - begin_ns) - EXPECTED_NS;
        row.seeds += 1;
        match outcome {
            Ok(tally) => {
                row.recoveries += tally.recoveries;
                row.images += tally.images.len() as u64;
                row.kills += tally.kills;
            }
            Err(_) => {
                let mut finding = format!("{} seed {seed}: {}", suite.name, PANIC.take());
                if asked.site.is_none() {
                    let command = suite.as_test().replay_command(seed);
                    finding = format!("{finding}; replay: {command}");
                }
                eprintln!("\nfinding: {finding}");
                soak.findings.push(finding);
            }
        }
        let pause_ns = if std::io::stderr().is_terminal() {
            SECOND_NS
        } else {
            60 * SECOND_NS
        };
        if now_ns - told_ns > pause_ns {
            told_ns = now_ns;
            progress(&soak, (now_ns - start_ns) / SECOND_NS, asked.minutes * 60);
        }
    }
}

fn progress(soak: &Soak, seconds: u64, of: u64) {
    let sum = |what: fn(&Row) -> u64| soak.rows.iter().map(what).sum::<u64>();
    let end = if std::io::stderr().is_terminal() {
        "\r"
    } else {
        "\n"
    };
    let (seeds, images, kills) = (
        sum(|row| row.seeds),
        sum(|row| row.images),
        sum(|row| row.kills),
    );
    let findings = soak.findings.len();
    let line = format!(
        "{seconds} of {of} s: {seeds} seeds, {images} images, {kills} kills, {findings} findings"
    );
    let _unseen = write!(std::io::stderr(), "{line}  {end}");
}

/// The summary, in Markdown.
fn report(asked: &Asked, soak: &Soak, elapsed_ns: u64) -> String {
    let minutes = elapsed_ns as f64 / 60e9;
    let mut text = format!(
        "## {minutes:.0} minutes on {} threads, seeds from {}\n\n{} findings.\n\n\
         | suite | seeds | recoveries | images | kills | images/s |\n|---|---:|---:|---:|---:|---:|\n",
        asked.threads,
        asked.seed,
        soak.findings.len()
    );
    let mut sum = Row::default();
    let rows = asked.suites.iter().zip(&soak.rows);
    for (suite, row) in rows.filter(|(_, row)| row.seeds > 0) {
        let rate = row.images as f64 * 1e9 / (row.busy_ns.max(1)) as f64;
        let Row {
            seeds,
            recoveries,
            images,
            kills,
            ..
        } = row;
        let _written = writeln!(
            text,
            "| {} | {seeds} | {recoveries} | {images} | {kills} | {rate:.0} |",
            suite.name
        );
        sum = Row {
            seeds: sum.seeds + seeds,
            recoveries: sum.recoveries + recoveries,
            images: sum.images + images,
            kills: sum.kills + kills,
            ..Row::default()
        };
    }
    let Row {
        seeds,
        recoveries,
        images,
        kills,
        ..
    } = sum;
    let _written = writeln!(
        text,
        "| all | {seeds} | {recoveries} | {images} | {kills} | |"
    );
    for finding in &soak.findings {
        let _written = writeln!(text, "\n- {}", finding.replace('\n', " "));
    }
    text
}

fn append(path: &Path, report: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    write!(file, "\n{report}")
}

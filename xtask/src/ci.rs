//! `cargo xtask ci`: every check that must pass before a merge, in order, each step timed.
//!
//! A failing step ends the run with its name and exit code. Nothing is read from standard input. If
//! tests ran, the last line of the output is `N passed, N failed`, summed over all test binaries.

mod steps;
mod totals;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::tidy;
use steps::{Action, Step};
use totals::Totals;

/// The extent of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Every step, tests at their CI size.
    Full,
    /// Only the quick steps, with tests at their quick size.
    Quick,
}

struct Outcome {
    name: String,
    took: Duration,
    code: u8,
}

/// Runs the steps. The exit code is that of the failed step, or 0.
pub(crate) fn run(root: &Path, extent: Extent) -> u8 {
    let steps = match steps::all(root, extent) {
        Ok(steps) => steps,
        Err(error) => {
            eprintln!("ci: cannot list the steps: {error}");
            return 2;
        }
    };
    let mut totals = Totals::default();
    let mut outcomes = Vec::new();
    for step in &steps {
        println!("\n=== {}", step.name);
        if let Some(note) = &step.note {
            println!("{note}");
        }
        let start = Instant::now();
        let code = run_step(root, step, extent, &mut totals);
        outcomes.push(Outcome {
            name: step.name.clone(),
            took: start.elapsed(),
            code,
        });
        if code != 0 {
            break;
        }
    }
    summarize(&outcomes, steps.len(), &totals);
    outcomes.last().map_or(0, |last| last.code)
}

fn run_step(root: &Path, step: &Step, extent: Extent, totals: &mut Totals) -> u8 {
    let result = match &step.action {
        Action::Tidy => return tidy::check(root),
        Action::Plain => command(root, step, extent).status(),
        Action::Tests => run_tests(command(root, step, extent), totals),
    };
    match result {
        Ok(status) if status.success() => 0,
        Ok(status) => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
        Err(error) => {
            eprintln!("ci: cannot start `{}`: {error}", step.line.join(" "));
            1
        }
    }
}

fn command(root: &Path, step: &Step, extent: Extent) -> Command {
    let mut command = Command::new(&step.line[0]);
    command
        .args(&step.line[1..])
        .current_dir(root)
        .stdin(Stdio::null());
    // In a fresh clone incremental compilation costs more than it saves. The quick run shares the
    // build of a developer's own `cargo test`, which is incremental.
    if extent == Extent::Full {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command.envs(step.environment.iter().map(|(name, value)| (name, value)));
    command
}

/// Forwards the output as it arrives and adds up its result lines.
fn run_tests(mut command: Command, totals: &mut Totals) -> std::io::Result<ExitStatus> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut reader = BufReader::new(
        child
            .stdout
            .take()
            .ok_or_else(|| std::io::Error::other("no output to read"))?,
    );
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        totals.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    child.wait()
}

fn summarize(outcomes: &[Outcome], planned: usize, totals: &Totals) {
    println!("\n=== summary");
    for Outcome { name, took, code } in outcomes {
        let verdict = if *code == 0 {
            "ok".to_owned()
        } else {
            format!("FAILED, exit code {code}")
        };
        println!("{:>8.1} s  {name}: {verdict}", took.as_secs_f64());
    }
    let total: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    println!(
        "{:>8.1} s  in all, {} of {planned} steps",
        total.as_secs_f64(),
        outcomes.len()
    );
    if let Some(line) = totals.line() {
        println!("{line}");
    }
}

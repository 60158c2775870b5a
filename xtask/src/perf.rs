//! `cargo xtask perf`: instructions per get, put and scan, counted by callgrind, compared with the
//! checked-in figures of `perf.txt`. A slowdown of the code shows on any machine, however busy.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const FIGURES: &str = "xtask/perf.txt";
/// The fraction by which a figure may grow before it counts as a slowdown.
const TOLERANCE: f64 = 0.03;
/// The verbs, and the number of additional operations in the longer of two runs.
const VERBS: [(&str, u64); 9] = [
    ("put", 20_000),
    ("get", 100_000),
    ("get-block", 20_000),
    ("get-absent", 100_000),
    ("scan", 2_000),
    ("get-list", 20_000),
    ("scan-list", 2_000),
    ("get-sorted", 20_000),
    ("scan-sorted", 2_000),
];

/// Counts, and rewrites the figures if `update`. Returns 1 if a figure has grown, 2 if counting
/// failed.
pub(crate) fn run(root: &Path, update: bool) -> u8 {
    match counts(root).and_then(|counts| compare(root, &counts, update)) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            eprintln!("perf: {error}");
            2
        }
    }
}

fn counts(root: &Path) -> Result<BTreeMap<String, f64>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let build = "build --release -p firn-bench --example instructions --message-format short";
    let built = Command::new(cargo)
        .current_dir(root)
        .args(build.split(' '))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the program to count does not build".to_owned());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let program = target.join("release/examples/instructions");
    let mut counts = BTreeMap::new();
    for (verb, more) in VERBS {
        let few = instructions(&program, verb, 0)?;
        let many = instructions(&program, verb, more)?;
        counts.insert(
            verb.to_owned(),
            (many.saturating_sub(few)) as f64 / more as f64,
        );
    }
    Ok(counts)
}

/// Instructions of a whole run, in user mode, over all threads.
fn instructions(program: &Path, verb: &str, count: u64) -> Result<u64, String> {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([verb, &count.to_string()])
        .output()
        .map_err(|error| {
            format!("valgrind cannot be started ({error}): install the package valgrind")
        })?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected
        .filter(|_| ran.status.success())
        .ok_or_else(|| format!("callgrind of {verb} failed:\n{said}"))
}

fn compare(root: &Path, counts: &BTreeMap<String, f64>, update: bool) -> Result<bool, String> {
    let path = root.join(FIGURES);
    if update {
        let text: String = counts
            .iter()
            .map(|(verb, count)| format!("{verb} {count:.0}\n"))
            .collect();
        return std::fs::write(&path, text)
            .map(|()| true)
            .map_err(|error| format!("{FIGURES}: {error}"));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{FIGURES}: {error}"))?;
    let figure = |line: &str| {
        line.split_once(' ')
            .and_then(|(verb, count)| Some((verb.to_owned(), count.parse().ok()?)))
    };
    let figures: BTreeMap<String, f64> = text.lines().filter_map(figure).collect();
    let mut holds = true;
    for (verb, count) in counts {
        let before = figures.get(verb).copied().unwrap_or(0.0);
        let has_grown = *count > before * (1.0 + TOLERANCE);
        holds &= !has_grown;
        let change = (count / before.max(1.0) - 1.0) * 100.0;
        let verdict = if has_grown {
            "  slower: find out why, or rewrite the figures by --update"
        } else {
            ""
        };
        println!(
            "{verb:<12} {count:>8.0} instructions, {change:+6.1} % against {before:.0}{verdict}"
        );
    }
    Ok(holds)
}

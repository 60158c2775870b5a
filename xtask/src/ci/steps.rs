//! The steps of `cargo xtask ci`, in order.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use super::Extent;
use Action::{Plain, Tests, Tidy};

/// The time that all suites of `firn-sim` together may take, in seconds. It does not grow with the
/// number of profiles: a new suite takes its share from the others.
const SUITES_SECONDS: &str = "480";

/// One step: a command line, or a task of xtask itself.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) action: Action,
    pub(super) line: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    /// A line for the log, printed before the step runs.
    pub(super) note: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Tidy,
    /// A command judged by its exit code alone.
    Plain,
    /// A command whose `test result:` lines are also added up.
    Tests,
}

impl Step {
    fn new(name: &str, action: Action, line: &str) -> Step {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let word = |w: &str| {
            if w == "cargo" {
                cargo.clone()
            } else {
                w.to_owned()
            }
        };
        Step {
            name: name.to_owned(),
            action,
            line: line.split(' ').map(word).collect(),
            environment: Vec::new(),
            note: None,
        }
    }

    fn with(mut self, name: &'static str, value: &str) -> Step {
        self.environment.push((name, value.to_owned()));
        self
    }
}

/// The steps of a run of `extent`.
///
/// Steps that use the workspace's own build select no package, because cargo builds a dependency
/// again for each set of packages that wants other features of it: `cargo run --example seeds`
/// takes what the tests built, `cargo run -p firn-sim --example seeds` compiles for a minute.
pub(super) fn all(root: &Path, extent: Extent) -> io::Result<Vec<Step>> {
    let mut steps = quick(root, extent);
    if extent == Extent::Quick {
        return Ok(steps);
    }
    let micro = "cargo bench --workspace --bench micro --profile dev -- --test";
    steps.push(Step::new("micro-benches, each once", Plain, micro));
    for example in examples(root)? {
        // Not in release, because each example would be optimized over all crates again, which
        // takes a minute.
        let line = format!("cargo run --example {example}");
        steps.push(Step::new(&format!("example {example}"), Plain, &line));
    }
    steps.extend(builds_of_their_own());
    let excluded: String = unpublished(root)?
        .iter()
        .map(|name| format!(" --exclude {name}"))
        .collect();
    let package = format!("cargo package --workspace --allow-dirty --no-verify{excluded}");
    steps.push(Step::new("package", Plain, &package));
    Ok(steps)
}

/// The steps of the quick run, with tests at the size of `extent`.
fn quick(root: &Path, extent: Extent) -> Vec<Step> {
    let mut tests = Step::new("tests", Tests, "cargo test --workspace --no-fail-fast");
    if extent == Extent::Full {
        // The CI tier runs all that the quick tier does.
        let (seeds, note) = seeds(std::env::var("FIRN_SEEDS").ok(), || commit(root));
        tests = tests
            .with("FIRN_TESTS", "ci")
            .with("FIRN_BUDGET", SUITES_SECONDS)
            .with("FIRN_SEEDS", &seeds);
        tests.note = Some(note);
    }
    vec![
        Step::new("format", Plain, "cargo fmt --all --check"),
        Step::new("tidy", Tidy, "tidy"),
        Step::new(
            "lints",
            Plain,
            "cargo clippy --workspace --all-targets -- -D warnings",
        ),
        tests,
        Step::new("documentation", Plain, "cargo doc --workspace --no-deps")
            .with("RUSTDOCFLAGS", "-D warnings"),
    ]
}

/// Steps with other features, flags or profiles than those of the workspace's tests.
fn builds_of_their_own() -> Vec<Step> {
    let zstd = "cargo test -p firn-table --features zstd --no-fail-fast";
    let interleave = "cargo test -p firndb -p firn-base --lib interleave";
    let peers = "cargo test --locked --no-fail-fast --manifest-path crates/firn-peers/Cargo.toml";
    let bench = "cargo run --release -p firn-cli -- bench quick";
    vec![
        Step::new("tests with zstd", Tests, zstd),
        Step::new("interleave", Tests, interleave)
            .with("FIRN_TESTS", "ci")
            .with("RUSTFLAGS", "--cfg shuttle")
            .with("CARGO_TARGET_DIR", "target/shuttle"),
        Step::new("release build", Plain, "cargo build --release -p firn-cli"),
        Step::new("tree round trip", Plain, "scripts/tree_round_trip.sh")
            .with("FIRN_TREE_FILES", "1000"),
        Step::new("quick benchmark", Plain, bench),
        Step::new("report page", Plain, "scripts/report_page.sh"),
        Step::new("peers", Tests, peers).with("CARGO_TARGET_DIR", "target"),
        Step::new("fuzz targets", Plain, "fuzz/run all 2"),
        // Skips itself, with a message, where its virtual machine cannot run.
        Step::new("dax", Plain, "scripts/dax.sh"),
    ]
}

/// The text from which the suites draw their fresh seeds, and a line for the log that says where it
/// comes from: the environment (`set`), to repeat a run, or else the commit. Without either it is
/// empty, and the suites draw the same seeds in every such run.
fn seeds(set: Option<String>, commit: impl FnOnce() -> Result<String, String>) -> (String, String) {
    if let Some(text) = set.filter(|text| !text.is_empty()) {
        let note = format!("fresh seeds are drawn from FIRN_SEEDS={text}, as the environment says");
        return (text, note);
    }
    match commit() {
        Ok(hash) => {
            let note = format!("fresh seeds are drawn from commit {hash}");
            (hash, note)
        }
        Err(reason) => {
            let note = format!(
                "no commit to draw fresh seeds from ({reason}): they are the same as in every run \
                 without one; FIRN_SEEDS=TEXT draws others"
            );
            (String::new(), note)
        }
    }
}

/// The hash of the commit that is checked out, or the reason why git names none.
fn commit(root: &Path) -> Result<String, String> {
    let head = Command::new("git")
        .args(["rev-parse", "--verify", "HEAD"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    let (hash, complaint) = (
        String::from_utf8_lossy(&head.stdout),
        String::from_utf8_lossy(&head.stderr),
    );
    if head.status.success() && !hash.trim().is_empty() {
        Ok(hash.trim().to_owned())
    } else {
        let first = complaint.lines().next().unwrap_or("git says nothing");
        Err(first.to_owned())
    }
}

/// The names of the engine's examples, sorted.
fn examples(root: &Path) -> io::Result<Vec<String>> {
    let folder = root.join("crates/firndb/examples");
    let mut names = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".rs").map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// The packages of the workspace with `publish = false`.
fn unpublished(root: &Path) -> io::Result<Vec<String>> {
    let mut folders = vec![root.join("xtask")];
    for entry in fs::read_dir(root.join("crates"))? {
        folders.push(entry?.path());
    }
    let mut names = Vec::new();
    for folder in folders {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let in_workspace = !folder.ends_with("firn-peers");
        if in_workspace && manifest.lines().any(|l| l.trim() == "publish = false") {
            names.extend(
                folder
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_is_a_part_of_full_and_neither_publishes_xtask() {
        let root = crate::tree::workspace_root().unwrap();
        let names = |extent| {
            all(&root, extent)
                .unwrap()
                .into_iter()
                .map(|s| s.name)
                .collect::<Vec<_>>()
        };
        let (full, quick) = (names(Extent::Full), names(Extent::Quick));
        assert!(full.starts_with(&quick) && full.len() > quick.len());
        assert!(unpublished(&root).unwrap().contains(&"xtask".to_owned()));
    }

    #[test]
    fn only_the_full_run_asks_for_the_large_tier() {
        let root = crate::tree::workspace_root().unwrap();
        let environment = |extent| {
            let steps = all(&root, extent).unwrap();
            let tests = steps.into_iter().find(|step| step.name == "tests").unwrap();
            tests.environment
        };
        let of_suites = ["FIRN_TESTS", "FIRN_BUDGET", "FIRN_SEEDS"];
        let full = environment(Extent::Full);
        assert_eq!(
            full.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            of_suites
        );
        assert!(SUITES_SECONDS.parse::<u64>().is_ok());
        assert!(environment(Extent::Quick).is_empty());
    }

    #[test]
    fn the_source_of_fresh_seeds_is_always_told() {
        let commit = || Ok("c0ffee".to_owned());
        let (text, note) = seeds(None, commit);
        assert!(text == "c0ffee" && note.contains("commit c0ffee"), "{note}");
        assert_eq!(seeds(Some(String::new()), commit).0, "c0ffee");
        let (text, note) = seeds(Some("again".to_owned()), commit);
        assert!(
            text == "again" && note.contains("FIRN_SEEDS=again"),
            "{note}"
        );
        let (text, note) = seeds(None, || Err("no repository".to_owned()));
        assert!(text.is_empty() && note.contains("no repository"), "{note}");
    }

    #[test]
    fn without_a_commit_there_is_a_reason() {
        assert!(super::commit(Path::new("/proc")).is_err_and(|reason| !reason.is_empty()));
        assert!(super::commit(Path::new("/no such folder")).is_err());
    }

    #[test]
    fn steps_that_share_a_build_select_no_package() {
        let root = crate::tree::workspace_root().unwrap();
        let steps = all(&root, Extent::Full).unwrap();
        let shared = steps.iter().filter(|step| step.name.starts_with("example"));
        assert!(shared.clone().count() > 0);
        for step in shared {
            assert!(!step.line.contains(&"-p".to_owned()), "{step:?}");
        }
    }
}

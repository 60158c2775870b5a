//! The steps of `cargo xtask ci`, in order.

use std::path::Path;
use std::{fs, io};

use super::Extent;

/// One step: a command line, or a task of xtask itself.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) action: Action,
    pub(super) line: Vec<String>,
    pub(super) environment: &'static [(&'static str, &'static str)],
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
            environment: &[],
        }
    }

    fn with(self, environment: &'static [(&'static str, &'static str)]) -> Step {
        Step {
            environment,
            ..self
        }
    }
}

/// The steps of a run of `extent`.
pub(super) fn all(root: &Path, extent: Extent) -> io::Result<Vec<Step>> {
    use Action::{Plain, Tests, Tidy};
    let tests = Step::new("tests", Tests, "cargo test --workspace --no-fail-fast");
    let mut steps = vec![
        Step::new("format", Plain, "cargo fmt --all --check"),
        Step::new("tidy", Tidy, "tidy"),
        Step::new(
            "lints",
            Plain,
            "cargo clippy --workspace --all-targets -- -D warnings",
        ),
        if extent == Extent::Full {
            tests.with(&[("FIRN_TESTS", "ci")])
        } else {
            tests
        },
        Step::new("documentation", Plain, "cargo doc --workspace --no-deps")
            .with(&[("RUSTDOCFLAGS", "-D warnings")]),
    ];
    if extent == Extent::Quick {
        return Ok(steps);
    }
    steps.push(Step::new(
        "tests with zstd",
        Tests,
        "cargo test -p firn-table --features zstd --no-fail-fast",
    ));
    let micro = "cargo bench --workspace --bench micro --profile dev -- --test";
    steps.push(Step::new("micro-benches, each once", Plain, micro));
    let interleave = Step::new(
        "interleave",
        Tests,
        "cargo test -p firndb -p firn-base --lib interleave",
    );
    steps.push(interleave.with(&[
        ("FIRN_TESTS", "ci"),
        ("RUSTFLAGS", "--cfg shuttle"),
        ("CARGO_TARGET_DIR", "target/shuttle"),
    ]));
    steps.push(Step::new(
        "release build",
        Plain,
        "cargo build --release -p firn-cli",
    ));
    for example in examples(root)? {
        // Not in release, because each example would be optimized over all crates again, which
        // takes a minute.
        let line = format!("cargo run -p firndb --example {example}");
        steps.push(Step::new(&format!("example {example}"), Plain, &line));
    }
    let round_trip = Step::new("tree round trip", Plain, "scripts/tree_round_trip.sh");
    steps.push(round_trip.with(&[("FIRN_TREE_FILES", "1000")]));
    steps.push(Step::new(
        "quick benchmark",
        Plain,
        "cargo run --release -p firn-cli -- bench quick",
    ));
    steps.push(Step::new("report page", Plain, "scripts/report_page.sh"));
    let peers = "cargo test --locked --no-fail-fast --manifest-path crates/firn-peers/Cargo.toml";
    steps.push(Step::new("peers", Tests, peers).with(&[("CARGO_TARGET_DIR", "target/peers")]));
    steps.push(Step::new("fuzz targets", Plain, "fuzz/run all 2"));
    // Skips itself, with a message, where its virtual machine cannot run.
    steps.push(Step::new("dax", Plain, "scripts/dax.sh"));
    let excluded: String = unpublished(root)?
        .iter()
        .map(|name| format!(" --exclude {name}"))
        .collect();
    let package = format!("cargo package --workspace --allow-dirty --no-verify{excluded}");
    steps.push(Step::new("package", Plain, &package));
    Ok(steps)
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
        let tier = |extent| {
            all(&root, extent)
                .unwrap()
                .into_iter()
                .find(|s| s.name == "tests")
                .unwrap()
                .environment
        };
        assert_eq!(tier(Extent::Full), &[("FIRN_TESTS", "ci")]);
        assert!(tier(Extent::Quick).is_empty());
    }
}

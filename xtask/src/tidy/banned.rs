//! Calls that library code must not make, because they would bypass the clock, the executor, the
//! file layer or the log.
//!
//! Tests, the `firn` command and binaries of other crates may make them.

use super::{Finding, modules};
use crate::source::Source;
use crate::tree::{Tree, is_test_path};

struct Ban {
    call: &'static str,
    instead: &'static str,
    /// Prefixes of the paths in which the call is allowed.
    at_home: &'static [&'static str],
}

const CLOCK: &[&str] = &["crates/firn-base/src/clock.rs"];
const EXEC: &[&str] = &["crates/firn-base/src/exec.rs"];
/// The real file system, the PM backends that map files, and the crates that write reports or
/// damage files on purpose.
const FILES: &[&str] = &[
    "crates/firn-fs/src/os",
    "crates/firn-pm/src/region",
    "crates/firn-pm/src/pool/open",
    "crates/firn-bench/src/",
    "crates/firn-peers/src/",
    "crates/firn-sim/src/",
];
/// The synchronization layer itself, the layers below the engine, and code that only counts.
const SYNC: &[&str] = &[
    "crates/firn-base/src/sync",
    "crates/firn-base/src/count",
    "crates/firn-base/src/clock.rs",
    "crates/firn-base/src/site",
    "crates/firn-fs/src/",
    "crates/firn-pm/src/",
    "crates/firn-bench/src/",
    "crates/firn-sim/src/",
    // Words of a filter, to which bits are only added.
    "crates/firn-table/src/sst/filter.rs",
    // Words in raw memory, with a `point` before each access.
    "crates/firndb/src/memtable/arena.rs",
];
const TRACING: &str = "an event of `tracing`, or return the text";

const BANS: [Ban; 14] = [
    Ban {
        call: "Instant::now",
        instead: "`firn_base::clock::Clock::now_ns`",
        at_home: CLOCK,
    },
    Ban {
        call: "SystemTime",
        instead: "`firn_base::clock::Clock::unix_seconds`",
        at_home: CLOCK,
    },
    Ban {
        call: "thread::sleep",
        instead: "`firn_base::clock::Clock::sleep`",
        at_home: CLOCK,
    },
    Ban {
        call: "thread::spawn",
        instead: "`firn_base::exec::spawn`",
        at_home: EXEC,
    },
    Ban {
        call: "thread::scope",
        instead: "`firn_base::exec::spawn`",
        at_home: EXEC,
    },
    Ban {
        call: "thread::Builder",
        instead: "`firn_base::exec::spawn`",
        at_home: EXEC,
    },
    Ban {
        call: "parking_lot",
        instead: "`firn_base::sync`",
        at_home: SYNC,
    },
    Ban {
        call: "arc_swap",
        instead: "`firn_base::sync`",
        at_home: SYNC,
    },
    Ban {
        call: "sync::atomic",
        instead: "`firn_base::sync`",
        at_home: SYNC,
    },
    Ban {
        call: "std::fs",
        instead: "`firn_fs::Fs`",
        at_home: FILES,
    },
    Ban {
        call: "println!",
        instead: TRACING,
        at_home: &[],
    },
    Ban {
        call: "eprintln!",
        instead: TRACING,
        at_home: &[],
    },
    Ban {
        call: "print!",
        instead: TRACING,
        at_home: &[],
    },
    Ban {
        call: "eprint!",
        instead: TRACING,
        at_home: &[],
    },
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree
        .packages()
        .into_iter()
        .filter(|p| *p != "xtask" && *p != "crates/firn-cli")
    {
        for (path, test_only) in modules::reached(tree, package) {
            if !test_only && !is_test_path(&path) && !is_binary(&path) {
                findings.extend(check_file(&path, &tree.sources[&path]));
            }
        }
    }
    findings
}

fn is_binary(path: &str) -> bool {
    path == "crates/firn-bench/src/main.rs" || path.contains("/src/bin/")
}

fn check_file(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ban in BANS
        .iter()
        .filter(|ban| !ban.at_home.iter().any(|home| path.starts_with(home)))
    {
        let mut places: Vec<usize> = source.words(ban.call).collect();
        if ban.call == "std::fs" {
            places.extend(grouped_fs(source));
        }
        for at in places.into_iter().filter(|&at| !source.in_test(at)) {
            let message = format!(
                "`{}` is not for library code: use {}",
                ban.call, ban.instead
            );
            findings.push(Finding::new(path, source.line(at), message));
        }
    }
    findings
}

/// Offsets of `fs` inside `use std::{...};`.
fn grouped_fs(source: &Source) -> Vec<usize> {
    let mut found = Vec::new();
    for at in source.words("use std::{") {
        let end = source.code[at..]
            .find(';')
            .map_or(source.code.len(), |end| at + end);
        found.extend(
            crate::source::word_offsets(&source.code[at..end], "fs").map(|offset| at + offset),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(root: &str, text: &str) -> Vec<usize> {
        let manifest = format!("{}/Cargo.toml", root.split("/src/").next().unwrap());
        check(&Tree::planted(&[(&manifest, ""), (root, text)]))
            .iter()
            .map(|f| f.line)
            .collect()
    }

    #[test]
    fn every_ban_is_found() {
        for ban in BANS {
            assert_eq!(
                lines(
                    "crates/firndb/src/lib.rs",
                    &format!("\nfn f() {{ {}(1); }}\n", ban.call)
                ),
                [2],
                "{}",
                ban.call
            );
        }
        assert_eq!(
            lines(
                "crates/firndb/src/lib.rs",
                "use std::{\n    fs,\n    io,\n};\n"
            ),
            [2]
        );
    }

    #[test]
    fn tests_comments_binaries_and_homes_may() {
        let text = "// Instant::now\nfn f() { my_println!(); }\n#[cfg(test)]\nmod tests { fn g() { println!(); } }\n";
        assert!(lines("crates/firndb/src/lib.rs", text).is_empty());
        assert!(lines("crates/firn-cli/src/main.rs", "fn main() { println!(); }\n").is_empty());
        assert!(
            lines(
                "crates/firn-bench/src/main.rs",
                "fn main() { println!(); }\n"
            )
            .is_empty()
        );
        let tree = Tree::planted(&[
            ("crates/firn-base/Cargo.toml", ""),
            (
                "crates/firn-base/src/lib.rs",
                "mod clock;\nmod exec;\n#[cfg(test)]\nmod probe;\n",
            ),
            (
                "crates/firn-base/src/clock.rs",
                "use std::time::Instant;\nfn f() { Instant::now(); }\n",
            ),
            (
                "crates/firn-base/src/exec.rs",
                "fn f() { Instant::now(); std::thread::spawn(g); }\n",
            ),
            (
                "crates/firn-base/src/probe.rs",
                "fn f() { std::fs::read(p); }\n",
            ),
        ]);
        assert_eq!(check(&tree).len(), 1);
    }
}

//! `unsafe` is rare, listed and justified.
//!
//! 1. UNSAFE.md's table lists exactly the files that contain `unsafe` code.
//! 2. A SAFETY comment stands at most six lines above each `unsafe` block and `unsafe impl`.
//! 3. Crate roots forbid `unsafe`. Roots of crates that need some deny it, so that each use has an
//!    explicit attribute.

use std::collections::BTreeMap;

use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

const LIST: &str = "UNSAFE.md";
const COMMENT_LINES_ABOVE: usize = 6;
const DENY_NOT_FORBID: [&str; 4] = [
    "crates/firn-pm",
    "crates/firn-fs",
    "crates/firndb",
    "crates/firn-peers",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = roots(tree);
    let (listed, bad_rows) = rows(tree.texts.get(LIST).map_or("", String::as_str));
    findings.extend(bad_rows);
    for (path, source) in &tree.sources {
        let Some(first) = source.words("unsafe").next() else {
            continue;
        };
        if !listed.contains_key(path) {
            let message = format!("holds `unsafe` and is not in {LIST}: add a row, or do without");
            findings.push(Finding::new(path, source.line(first), message));
        }
        findings.extend(without_safety(path, source));
    }
    for (path, line) in &listed {
        let holds = tree
            .sources
            .get(path)
            .is_some_and(|s| s.words("unsafe").next().is_some());
        if !holds {
            findings.push(Finding::new(
                LIST,
                *line,
                format!("{path} holds no `unsafe`: drop the row"),
            ));
        }
    }
    findings
}

/// The files in the table `| file | why | test |`, with their lines.
fn rows(list: &str) -> (BTreeMap<String, usize>, Vec<Finding>) {
    let mut listed = BTreeMap::new();
    let mut findings = Vec::new();
    for (line, text) in list.lines().enumerate().map(|(i, t)| (i + 1, t.trim())) {
        let Some(row) = text.strip_prefix('|') else {
            continue;
        };
        let cells: Vec<&str> = row
            .trim_end_matches('|')
            .split('|')
            .map(|c| c.trim().trim_matches('`'))
            .collect();
        if cells[0] == "file" || cells[0].starts_with('-') {
            continue;
        }
        if cells.len() != 3 || cells.iter().any(|c| c.is_empty()) {
            findings.push(Finding::new(
                LIST,
                line,
                "a row is `| file | why | test |`, none of them empty",
            ));
        }
        listed.insert(cells[0].to_owned(), line);
    }
    (listed, findings)
}

fn without_safety(path: &str, source: &Source) -> Vec<Finding> {
    let comments: Vec<&str> = source.comments.lines().collect();
    let mut findings = Vec::new();
    for at in source.words("unsafe") {
        let next = source.code[at + "unsafe".len()..].trim_start();
        if !next.starts_with('{') && !next.starts_with("impl") {
            continue;
        }
        let line = source.line(at);
        let above = &comments[line.saturating_sub(COMMENT_LINES_ABOVE + 1)..line];
        if !above.iter().any(|comment| comment.contains("SAFETY")) {
            findings.push(Finding::new(
                path,
                line,
                "`unsafe` without a SAFETY comment above it: invariant and test",
            ));
        }
    }
    findings
}

fn roots(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in tree.packages() {
        let verb = if DENY_NOT_FORBID.contains(&folder) {
            "deny"
        } else {
            "forbid"
        };
        let attribute = format!("#![{verb}(unsafe_code)]");
        for root in super::modules::roots(tree, folder) {
            if !tree.sources[root].code.contains(&attribute) {
                findings.push(Finding::new(
                    root,
                    1,
                    format!("a crate root here says `{attribute}`"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| file | why | test |\n|---|---|---|\n";

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::planted(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn unlisted_and_unargued_unsafe_is_found() {
        let found = messages(&[
            (
                "crates/a/src/x.rs",
                "//! unsafe\nfn f() { unsafe { g() } }\n",
            ),
            (LIST, HEAD),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/x.rs:2:"));
    }

    #[test]
    fn listed_and_argued_unsafe_passes() {
        let code = "// SAFETY: invariant 1; `test_f`.\nunsafe impl Send for X {}\n#[expect(unsafe_code)]\nfn f() {}\n";
        let list = format!("{HEAD}| `crates/a/src/x.rs` | speed | `test_f` |\n");
        assert!(messages(&[("crates/a/src/x.rs", code), (LIST, &list)]).is_empty());
        let far = format!(
            "// SAFETY: no.\n{}fn f() {{ unsafe {{}} }}\n",
            "\n".repeat(6)
        );
        assert_eq!(
            messages(&[("crates/a/src/x.rs", &far), (LIST, &list)]).len(),
            1
        );
    }

    #[test]
    fn stale_and_empty_rows_are_found() {
        let list = format!("{HEAD}| crates/a/src/gone.rs | speed | |\n");
        assert_eq!(messages(&[(LIST, &list)]).len(), 2);
    }

    #[test]
    fn a_root_without_its_attribute_is_found() {
        let manifest = ("crates/firndb/Cargo.toml", "");
        assert_eq!(
            messages(&[
                manifest,
                ("crates/firndb/src/lib.rs", "#![forbid(unsafe_code)]\n")
            ])
            .len(),
            1
        );
        assert!(
            messages(&[
                manifest,
                ("crates/firndb/src/lib.rs", "#![deny(unsafe_code)]\n")
            ])
            .is_empty()
        );
        assert_eq!(
            messages(&[
                ("xtask/Cargo.toml", ""),
                ("xtask/src/main.rs", "// #![forbid(unsafe_code)]\n")
            ])
            .len(),
            1
        );
    }
}

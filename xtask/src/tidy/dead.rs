//! No dead files: every source file is compiled, every document is linked from README.md or
//! CHANGELOG.md directly or indirectly, and every link and every path of a source file leads
//! somewhere.

use std::collections::BTreeSet;

use super::{Finding, modules};
use crate::tree::{Tree, folder, join};

const DOCUMENT_ROOTS: [&str; 2] = ["README.md", "CHANGELOG.md"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = dead_sources(tree);
    findings.extend(broken_links(tree));
    findings.extend(sources_gone(tree));
    let found = documents_found(tree);
    for path in &tree.paths {
        let document = path.starts_with("docs/") || path.ends_with(".md");
        if document && !found.contains(path) {
            findings.push(Finding::new(
                path,
                1,
                "no document that README.md leads to links here",
            ));
        }
    }
    findings
}

fn dead_sources(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages() {
        let reached = modules::reached(tree, package);
        let prefix = format!("{package}/src/");
        for path in tree
            .sources
            .keys()
            .filter(|p| p.starts_with(&prefix) && !reached.contains_key(*p))
        {
            findings.push(Finding::new(
                path,
                1,
                "no `mod` leads here from the crate's root",
            ));
        }
    }
    findings
}

/// The documents reachable by links from the roots. A link to a folder also reaches the folder's
/// files that are not documents.
fn documents_found(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<String> = DOCUMENT_ROOTS.map(str::to_owned).to_vec();
    while let Some(path) = pending.pop() {
        if !found.insert(path.clone()) {
            continue;
        }
        if let Some(text) = tree.texts.get(&path).filter(|_| path.ends_with(".md")) {
            pending.extend(links(&path, text).into_iter().map(|(_, target)| target));
        }
        pending.extend(
            tree.paths
                .iter()
                .filter(|p| folder(p) == path && !p.ends_with(".md"))
                .cloned(),
        );
    }
    found
}

fn broken_links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(path, text) {
            let as_folder = format!("{target}/");
            if !tree.paths.contains(&target)
                && !tree.paths.iter().any(|p| p.starts_with(&as_folder))
            {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("a link to {target}, which is not there"),
                ));
            }
        }
    }
    findings
}

/// The paths of source files in documents, such as `read/mod.rs`, at which there is no file.
fn sources_gone(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, content) in text.lines().enumerate() {
            let quoted = content.split('`').skip(1).step_by(2);
            for named in quoted.filter(|named| is_source_path(named)) {
                let end = format!("/{named}");
                let is_there = |source: &String| source == named || source.ends_with(&end);
                if !tree.sources.keys().any(is_there) {
                    let message = format!("{named} is not there");
                    findings.push(Finding::new(path, line + 1, message));
                }
            }
        }
    }
    findings
}

fn is_source_path(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    text.ends_with(".rs") && text.contains('/') && text.chars().all(is_part)
}

/// The files that a document links to, as `[text](target)` or `[text]: target`, with their lines.
fn links(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, content) in text.lines().enumerate().map(|(i, l)| (i + 1, l)) {
        let inline = content
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', ' ']).next());
        let reference = content
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, target)| target);
        for target in inline.chain(reference) {
            let target = target.split('#').next().unwrap_or("").trim();
            if !target.is_empty() && !target.contains(':') {
                found.push((line, join(folder(path), target)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::planted(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_file_that_nothing_compiles_is_found() {
        let found = messages(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "mod b;\n"),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/dead.rs", ""),
        ]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/dead.rs:1:"));
    }

    #[test]
    fn a_document_that_nothing_leads_to_is_found() {
        let found = messages(&[
            (
                "README.md",
                "See [one](docs/one.md#part) and [the site](https://example.org/x.md).\n",
            ),
            ("docs/one.md", "![plot](plots/) and [up](../README.md)\n"),
            ("docs/plots/a.txt", ""),
            ("docs/island.md", "[self](island.md)\n"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/island.md:1:"));
    }

    #[test]
    fn a_path_to_nowhere_is_found() {
        let readme = "`a/b.rs`, `b.rs`, `gone.rs`, `<name>/b.rs`\nand `a/c.rs`\n";
        let files = [("README.md", readme), ("crates/x/src/a/b.rs", "")];
        let found = messages(&files);
        assert!(
            found.contains(&"README.md:2: a/c.rs is not there".to_owned()),
            "{found:?}"
        );
        assert_eq!(
            found.iter().filter(|m| m.contains("is not there")).count(),
            1
        );
    }

    #[test]
    fn a_link_to_nowhere_is_found() {
        let found = messages(&[("README.md", "text\n[one]: docs/none.md\n")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("README.md:2:"));
    }
}

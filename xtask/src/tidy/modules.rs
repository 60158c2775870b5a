//! The source files that a package's roots reach through `mod`, and which of them only through
//! `#[cfg(test)]`.

use std::collections::BTreeMap;

use crate::source::{Source, name_after};
use crate::tree::{Tree, folder, join};

/// The crate roots of the package in `folder`: lib.rs, main.rs and src/bin/*.rs.
pub(super) fn roots<'a>(tree: &'a Tree, folder: &str) -> Vec<&'a str> {
    let source_folder = format!("{folder}/src/");
    let is_root = |path: &str| match path.strip_prefix(&source_folder) {
        Some("lib.rs" | "main.rs") => true,
        Some(rest) => rest
            .strip_prefix("bin/")
            .is_some_and(|name| !name.contains('/') || name.ends_with("/main.rs")),
        None => false,
    };
    tree.sources
        .keys()
        .map(String::as_str)
        .filter(|path| is_root(path))
        .collect()
}

/// The files that the roots of `package` reach. The value is true if the file is compiled for tests
/// only.
pub(super) fn reached(tree: &Tree, package: &str) -> BTreeMap<String, bool> {
    let mut reached: BTreeMap<String, bool> = BTreeMap::new();
    let mut pending: Vec<(String, bool)> = roots(tree, package)
        .iter()
        .map(|r| (r.to_string(), false))
        .collect();
    while let Some((path, test_only)) = pending.pop() {
        if reached.get(&path).is_some_and(|&known| known <= test_only) {
            continue;
        }
        let Some(source) = tree.sources.get(&path) else {
            continue;
        };
        for (candidates, child_test_only) in children(&path, source) {
            if let Some(child) = candidates
                .into_iter()
                .find(|c| tree.sources.contains_key(c))
            {
                pending.push((child, test_only || child_test_only));
            }
        }
        reached.insert(path, test_only);
    }
    reached
}

/// For each `mod name;`: the candidate paths of its file, and true if the declaration is for tests
/// only.
fn children(path: &str, source: &Source) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    for at in source.words("mod") {
        let name = name_after(&source.code, at + "mod".len());
        let after = source.code[at + "mod".len()..]
            .trim_start()
            .get(name.len()..)
            .unwrap_or("");
        if name.is_empty() || !after.trim_start().starts_with(';') {
            continue;
        }
        let candidates = match path_attribute(source, at) {
            Some(named) => vec![join(folder(path), &named)],
            None => {
                let folder = child_folder(path);
                vec![
                    format!("{folder}/{name}.rs"),
                    format!("{folder}/{name}/mod.rs"),
                ]
            }
        };
        found.push((candidates, source.in_test(at)));
    }
    found
}

/// The folder that contains the modules of the file at `path`.
fn child_folder(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
        Some((folder, _)) if folder.ends_with("/src/bin") => folder,
        _ => path.trim_end_matches(".rs"),
    }
}

/// The value of `#[path = "..."]` on the line above the declaration at `at`.
fn path_attribute(source: &Source, at: usize) -> Option<String> {
    let line_start = source.text[..at].rfind('\n')?;
    let above = source.text[..line_start].lines().next_back()?;
    above
        .trim_start()
        .strip_prefix("#[path")?
        .split('"')
        .nth(1)
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_followed_through_every_form() {
        let tree = Tree::planted(&[
            ("crates/a/Cargo.toml", ""),
            (
                "crates/a/src/lib.rs",
                "pub mod b;\nmod c;\n#[cfg(test)]\nmod tests;\n// mod dead;\n#[path = \"odd.rs\"]\nmod e;\n",
            ),
            ("crates/a/src/b.rs", "pub(crate) mod d;\n"),
            ("crates/a/src/b/d.rs", ""),
            ("crates/a/src/c/mod.rs", ""),
            ("crates/a/src/odd.rs", ""),
            ("crates/a/src/tests.rs", "mod model;\n"),
            ("crates/a/src/tests/model.rs", ""),
            ("crates/a/src/dead.rs", ""),
        ]);
        let reached = reached(&tree, "crates/a");
        let test_only: Vec<&str> = reached
            .iter()
            .filter(|(_, t)| **t)
            .map(|(p, _)| p.as_str())
            .collect();
        assert_eq!(reached.len(), 7, "{reached:?}");
        assert_eq!(
            test_only,
            ["crates/a/src/tests.rs", "crates/a/src/tests/model.rs"]
        );
        assert!(!reached.contains_key("crates/a/src/dead.rs"));
    }
}

//! `cargo xtask tidy`: the rules of STYLE.md that the compiler and the lints cannot enforce.
//!
//! Each rule is a function from the tree to findings, in its own file, with a planted violation as
//! its test.

mod arrows;
mod banned;
mod dead;
mod lengths;
mod modules;
mod ratchet;
mod rooms;
mod sites;
mod text;
mod unsafe_list;
mod voice;

use std::fmt;
use std::path::Path;

use crate::tree::Tree;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            file: file.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Prints every finding. The exit code is 0 if there are none, 1 if there are some, 2 if the tree
/// cannot be read.
pub(crate) fn check(root: &Path) -> u8 {
    let Some(tree) = load(root) else { return 2 };
    let rules = [
        arrows::check,
        banned::check,
        dead::check,
        lengths::check,
        rooms::check,
        sites::check,
        text::check,
        unsafe_list::check,
        voice::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(&tree)).collect();
    findings.extend(sites::check_shipped(root));
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    for (path, lines) in lengths::to_review(&tree) {
        println!("note: {path} has {lines} lines; see whether it is still one concept");
    }
    match findings.len() {
        0 => println!("tidy: {} files, nothing to put right", tree.paths.len()),
        n => println!("tidy: {n} to put right"),
    }
    u8::from(!findings.is_empty())
}

/// Rewrites the ratchet to the current lengths, then checks.
pub(crate) fn update(root: &Path) -> u8 {
    let Some(tree) = load(root) else { return 2 };
    let text = ratchet::render(&lengths::exceptions(&tree));
    if let Err(error) = std::fs::write(root.join(ratchet::PATH), text) {
        eprintln!("xtask: cannot write {}: {error}", ratchet::PATH);
        return 2;
    }
    check(root)
}

fn load(root: &Path) -> Option<Tree> {
    Tree::load(root)
        .inspect_err(|error| eprintln!("xtask: cannot read the tree: {error}"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_print_where_to_look() {
        assert_eq!(
            Finding::new("a/b.rs", 7, "why").to_string(),
            "a/b.rs:7: why"
        );
    }
}

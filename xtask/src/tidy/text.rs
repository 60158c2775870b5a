//! Text rules: an opening line, a maximum width, meaningful names, and no loose ends.

use super::Finding;
use crate::source::{Source, word_offsets};
use crate::tree::Tree;

/// The formatter keeps code to 100 columns, but does not break a string.
const COLUMNS_MAX: usize = 120;
const COMMENT_COLUMNS_MAX: usize = 100;
const EMPTY_NAMES: [&str; 9] = [
    "util", "utils", "common", "manager", "helper", "helpers", "misc", "v1", "v2",
];
const LOOSE_ENDS: [&str; 3] = ["TODO", "FIXME", "XXX"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        findings.extend(white_space(path, text));
    }
    for (path, source) in &tree.sources {
        if !source.text.starts_with("//!") {
            findings.push(Finding::new(
                path,
                1,
                "begin with `//!`: what this file is, and its invariants",
            ));
        }
        findings.extend(wide_lines(path, source));
        findings.extend(loose_ends(path, source));
        findings.extend(empty_name(path));
    }
    findings
}

fn white_space(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in text.lines().enumerate().map(|(i, l)| (i + 1, l)) {
        if content.contains('\t') {
            findings.push(Finding::new(
                path,
                line,
                "a tab: use spaces, or `\\t` in a literal",
            ));
        }
        if content.ends_with([' ', '\r']) {
            findings.push(Finding::new(
                path,
                line,
                "white space at the end of the line",
            ));
        }
    }
    findings
}

fn wide_lines(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in source.text.lines().enumerate().map(|(i, l)| (i + 1, l)) {
        let limit = match text.trim_start().starts_with("//") {
            true => COMMENT_COLUMNS_MAX,
            false => COLUMNS_MAX,
        };
        let width = text.chars().count();
        if width > limit {
            findings.push(Finding::new(
                path,
                line,
                format!("{width} columns, the limit is {limit}"),
            ));
        }
    }
    findings
}

fn loose_ends(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for mark in LOOSE_ENDS {
        for at in word_offsets(&source.comments, mark) {
            if !has_reason(&source.comments[at + mark.len()..]) {
                let message = format!(
                    "{mark} needs a reason that a stranger can act on: `{mark}(what must happen)`"
                );
                findings.push(Finding::new(path, source.line(at), message));
            }
        }
    }
    findings
}

/// True if `(` follows immediately with more than one word before `)`, because a name alone is not
/// a reason.
fn has_reason(rest: &str) -> bool {
    let inside = rest
        .strip_prefix('(')
        .and_then(|r| r.split_once(')'))
        .map_or("", |(inside, _)| inside);
    inside.split_whitespace().count() > 1
}

/// A finding for the first part of the path that is a meaningless name.
fn empty_name(path: &str) -> Option<Finding> {
    let says_nothing = |part: &str| {
        let part = part.trim_end_matches(".rs");
        EMPTY_NAMES
            .iter()
            .any(|name| part == *name || part.strip_suffix(name).is_some_and(|p| p.ends_with('_')))
    };
    let part = path.split('/').find(|part| says_nothing(part))?;
    Some(Finding::new(
        path,
        1,
        format!("`{part}` says nothing: name the file after its one concept"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::planted(&[(path, text)]))
    }

    #[test]
    fn a_clean_file_passes() {
        let wide = format!("//! x\n// {}\n", "é".repeat(97));
        assert!(findings("crates/a/src/arena.rs", &wide).is_empty());
        assert!(findings("docs/a.md", "long ".repeat(40).trim_end()).is_empty());
    }

    #[test]
    fn each_rule_of_the_line_is_found() {
        assert_eq!(findings("a.rs", "fn f() {}\n").len(), 1);
        assert_eq!(findings("a.rs", "//! x\n\tfn f() {}\n")[0].line, 2);
        assert_eq!(findings("a.md", "text \n").len(), 1);
        assert_eq!(
            findings("a.rs", &format!("//! x\n// {}\n", "x".repeat(118)))[0].line,
            2
        );
    }

    #[test]
    fn loose_ends_need_a_reason() {
        for mark in LOOSE_ENDS {
            assert_eq!(
                findings("a.rs", &format!("//! x\n// {mark}: later\n")).len(),
                1
            );
            assert_eq!(
                findings("a.rs", &format!("//! x\n// {mark}(somebody): later\n")).len(),
                1
            );
            assert!(
                findings(
                    "a.rs",
                    &format!("//! x\n// {mark}(when Linux has it, use it)\n")
                )
                .is_empty()
            );
            assert!(findings("a.rs", &format!("//! x\nconst A: &str = \"{mark}\";\n")).is_empty());
        }
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for path in [
            "a/util.rs",
            "a/common/mod.rs",
            "a/key_helpers.rs",
            "a/sst_v2.rs",
        ] {
            assert_eq!(findings(path, "//! x\n").len(), 1, "{path}");
        }
        assert!(findings("a/commons.rs", "//! x\n").is_empty());
    }
}

//! The voice of doc comments: one that opens with a relative pronoun or a conjunction describes a
//! thing without naming it. A noun or a verb says the same sooner.

use super::Finding;
use crate::tree::Tree;

const OPENINGS: [&str; 7] = ["What", "Who", "Whether", "Of", "Those", "The others", "And"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &tree.sources {
        let mut in_doc = false;
        for (line, text) in source
            .text
            .lines()
            .enumerate()
            .map(|(i, text)| (i + 1, text.trim_start()))
        {
            let doc = text
                .strip_prefix("/// ")
                .or_else(|| text.strip_prefix("//! "));
            if let Some(opening) = doc.filter(|_| !in_doc).and_then(opening) {
                let message = format!(
                    "a doc comment opens with `{opening}`: begin with an article, a noun or a verb"
                );
                findings.push(Finding::new(path, line, message));
            }
            in_doc = text.starts_with("///") || text.starts_with("//!");
        }
    }
    findings
}

fn opening(doc: &str) -> Option<&'static str> {
    let follows = |rest: &str| rest.is_empty() || rest.starts_with([' ', ',']);
    OPENINGS
        .into_iter()
        .find(|opening| doc.strip_prefix(opening).is_some_and(follows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_a_comment_counts() {
        let text = [
            "//! A file.",
            "//! What follows is fine.",
            "",
            "/// Whether it is open.",
            "fn a() {}",
            "",
            "/// True if it is.",
            "/// Of course.",
            "fn b() {}",
            "",
            "/// Whatever.",
            "fn c() {}",
        ]
        .join("\n");
        let tree = Tree::planted(&[("crates/firn-base/src/lib.rs", text.as_str())]);
        assert_eq!(
            check(&tree)
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>(),
            [4]
        );
    }
}

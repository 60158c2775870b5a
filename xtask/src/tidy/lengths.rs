//! Lengths of files, functions, structs and traits. The limits are those of STYLE.md; the ratchet
//! lists the exceptions.

use std::collections::BTreeMap;

use super::Finding;
use super::ratchet::{self, Exceptions, Excess};
use crate::source::{Source, body_start, is_name_byte, matching_end, name_after};
use crate::tree::Tree;

const FILE_LINES_MAX: usize = 800;
const FILE_LINES_REVIEW: usize = 500;
const FUNCTION_LINES_MAX: usize = 80;
const STRUCT_FIELDS_MAX: usize = 20;
const TRAIT_METHODS_MAX: usize = 12;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    ratchet::compare(
        &exceptions(tree),
        tree.texts.get(ratchet::PATH).map_or("", String::as_str),
    )
}

/// Files long enough to deserve a review, with their number of lines.
pub(super) fn to_review(tree: &Tree) -> Vec<(&str, usize)> {
    let lengths = tree
        .sources
        .iter()
        .map(|(path, source)| (path.as_str(), source.lines_without_tests()));
    lengths
        .filter(|&(_, lines)| lines > FILE_LINES_REVIEW)
        .collect()
}

/// Every length past its limit.
pub(super) fn exceptions(tree: &Tree) -> Exceptions {
    let mut all = Exceptions::new();
    for (path, source) in &tree.sources {
        let mut add = |key: String, line: usize, length: usize, limit: usize| {
            if length > limit {
                all.insert(
                    key,
                    Excess {
                        file: path.clone(),
                        line,
                        length,
                        limit,
                    },
                );
            }
        };
        add(
            format!("file {path}"),
            1,
            source.lines_without_tests(),
            FILE_LINES_MAX,
        );
        for item in items(source, "fn", |source, open, end| {
            source.line(end - 1) + 1 - source.line(open)
        }) {
            let head = source.line(item.open) - item.line;
            add(
                format!("fn {path}::{}", item.name),
                item.line,
                item.size + head,
                FUNCTION_LINES_MAX,
            );
        }
        for item in items(source, "struct", |source, open, end| {
            fields(&source.code[open + 1..end - 1])
        }) {
            add(
                format!("fields {path}::{}", item.name),
                item.line,
                item.size,
                STRUCT_FIELDS_MAX,
            );
        }
        for item in items(source, "trait", |source, open, end| {
            methods(&source.code[open + 1..end - 1])
        }) {
            add(
                format!("methods {path}::{}", item.name),
                item.line,
                item.size,
                TRAIT_METHODS_MAX,
            );
        }
    }
    all
}

struct Item {
    name: String,
    line: usize,
    open: usize,
    size: usize,
}

/// The items that start with `keyword` and have a body, each with the size of its body. A repeated
/// name gets a number (`new#2`), so that one long function does not excuse another.
fn items(
    source: &Source,
    keyword: &str,
    size: impl Fn(&Source, usize, usize) -> usize,
) -> Vec<Item> {
    let mut found = Vec::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for at in source.words(keyword) {
        let name = name_after(&source.code, at + keyword.len());
        if name.is_empty() {
            continue; // A function pointer's type, or a macro's `fn $name`.
        }
        let Some(open) = body_start(&source.code, at) else {
            continue;
        };
        let count = seen.entry(name).or_default();
        *count += 1;
        let name = if *count == 1 {
            name.to_owned()
        } else {
            format!("{name}#{count}")
        };
        let size = size(source, open, matching_end(&source.code, open));
        found.push(Item {
            name,
            line: source.line(at),
            open,
            size,
        });
    }
    found
}

/// The number of fields in a struct's body: its parts separated by commas outside brackets of every
/// kind.
fn fields(body: &str) -> usize {
    let (mut count, mut brackets, mut angles, mut something) = (0usize, 0usize, 0usize, false);
    let mut before = b' ';
    for byte in body.bytes() {
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            b'<' if brackets == 0 => angles += 1,
            b'>' if brackets == 0 && before != b'-' => angles = angles.saturating_sub(1),
            b',' if brackets == 0 && angles == 0 => {
                count += usize::from(something);
                something = false;
            }
            _ => something |= is_name_byte(byte),
        }
        before = byte;
    }
    count + usize::from(something)
}

/// The number of methods in a trait's body: each `fn` that is not inside another body.
fn methods(body: &str) -> usize {
    let mut depth = 0usize;
    let mut count = 0;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            b'f' if depth == 0 => {
                let alone = at == 0 || !is_name_byte(body.as_bytes()[at - 1]);
                count += usize::from(alone && body[at..].starts_with("fn "));
            }
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        let tree = Tree::planted(&[("a.rs", text)]);
        exceptions(&tree)
            .iter()
            .map(|(key, excess)| format!("{key} {}", excess.length))
            .collect()
    }

    #[test]
    fn a_long_function_is_found_and_a_short_one_is_not() {
        let body = "    work();\n".repeat(78);
        assert!(keys(&format!("fn f() {{\n{body}}}\n")).is_empty());
        assert_eq!(keys(&format!("fn f() {{\n{body}\n}}\n")), ["fn a.rs::f 81"]);
        assert_eq!(keys(&format!("fn f(\n) {{\n{body}}}\n")), ["fn a.rs::f 81"]);
    }

    #[test]
    fn braces_in_strings_and_names_that_repeat() {
        let body = "    let s = \"}\"; // }\n".repeat(80);
        let text = format!(
            "impl A {{\n fn new() {{}}\n}}\nimpl B {{\n fn new() {{\n{body} }}\n}}\ntype F = fn(u8);\n"
        );
        assert_eq!(keys(&text), ["fn a.rs::new#2 82"]);
    }

    #[test]
    fn a_long_file_is_found_without_its_tests() {
        let code = "// x\n".repeat(800);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// y\n".repeat(50));
        assert!(keys(&format!("{code}{tests}")).is_empty());
        assert_eq!(keys(&format!("{code}//\n{tests}")), ["file a.rs 801"]);
    }

    #[test]
    fn wide_structs_and_traits_are_found() {
        let fields: String = (0..21)
            .map(|i| format!("    /// A map, b.\n    f{i}: Map<u8, [u8; 1 << 2]>,\n"))
            .collect();
        assert_eq!(
            keys(&format!("struct S {{\n{fields}}}\n")),
            ["fields a.rs::S 21"]
        );
        let methods: String = (0..13)
            .map(|i| format!("    fn m{i}(&self, f: fn(u8)) {{ fn inner() {{}} }}\n"))
            .collect();
        assert_eq!(
            keys(&format!("trait T {{\n{methods}}}\n")),
            ["methods a.rs::T 13"]
        );
        assert!(keys("struct S(u8);\nstruct U;\ntrait T {}\nstruct V {}\n").is_empty());
    }

    #[test]
    fn fields_are_counted_past_arrows_and_brackets() {
        assert_eq!(fields("a: Box<dyn Fn(u8, u8) -> Vec<u8>>, b: (u8, u8)"), 2);
        assert_eq!(fields(" a: u8, "), 1);
        assert_eq!(fields(""), 0);
    }
}

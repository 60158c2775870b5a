//! Splits a Rust file into code and comments, precisely enough for tidy: no parser, one pass over
//! the bytes.
//!
//! 1. `code` and `comments` have the length and the line breaks of the text. Bytes that belong to
//!    neither are blank.
//! 2. The contents of strings and character literals are in neither, so that a rule never matches
//!    its own message.
//! 3. A test region runs from `#[cfg(test)]` to the end of the item under it.

/// One Rust file, scanned.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) code: String,
    pub(crate) comments: String,
    line_starts: Vec<usize>,
    test_regions: Vec<(usize, usize)>,
}

impl Source {
    pub(crate) fn scan(text: &str) -> Source {
        let (code, comments) = split(text);
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let test_regions = test_regions(&code);
        Source {
            text: text.to_owned(),
            code,
            comments,
            line_starts,
            test_regions,
        }
    }

    /// The line, counted from 1, that contains the byte at `offset`.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// The number of lines outside test regions.
    pub(crate) fn lines_without_tests(&self) -> usize {
        let all = self.text.lines().count();
        let tests: usize = self
            .test_regions
            .iter()
            .map(|&(from, to)| self.line(to - 1) - self.line(from) + 1)
            .sum();
        all.saturating_sub(tests)
    }

    /// True if the byte at `offset` is in a test region.
    pub(crate) fn in_test(&self, offset: usize) -> bool {
        self.test_regions
            .iter()
            .any(|&(from, to)| (from..to).contains(&offset))
    }

    /// The offsets of `word` in the code, except as part of a longer name.
    pub(crate) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        word_offsets(&self.code, word)
    }
}

/// The offsets of `word` in `code` with no letter, digit or `_` on either side.
pub(crate) fn word_offsets<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let starts_in_name = word.bytes().next().is_some_and(is_name_byte);
    let ends_in_name = word.bytes().next_back().is_some_and(is_name_byte);
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let free_before = !starts_in_name || at == 0 || !is_name_byte(bytes[at - 1]);
            let after = bytes.get(at + word.len()).copied().unwrap_or(b' ');
            free_before && !(ends_in_name && is_name_byte(after))
        })
}

pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// The name at `from`, after white space; empty if something else follows.
pub(crate) fn name_after(code: &str, from: usize) -> &str {
    let rest = code[from..].trim_start();
    let end = rest
        .bytes()
        .position(|b| !is_name_byte(b))
        .unwrap_or(rest.len());
    &rest[..end]
}

/// The offset just after the bracket that closes the one at `open`; the end of the code if it is
/// never closed.
pub(crate) fn matching_end(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The offset of the first `{` after `from` outside brackets, which starts the body of an item.
/// `None` if a `;` or a closing bracket comes first.
pub(crate) fn body_start(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => return None,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

fn test_regions(code: &str) -> Vec<(usize, usize)> {
    let mut regions: Vec<(usize, usize)> = Vec::new();
    let mut marks: Vec<usize> = ["#[cfg(test)]", "#[cfg(all(test,"]
        .iter()
        .flat_map(|m| code.match_indices(m))
        .map(|(at, _)| at)
        .collect();
    marks.sort_unstable();
    for from in marks {
        if regions.last().is_some_and(|&(_, end)| from < end) {
            continue;
        }
        let mut item = from;
        while code[item..].trim_start().starts_with("#[") {
            let open = item + code[item..].find('[').unwrap_or(0);
            item = matching_end(code, open);
        }
        let end = match body_start(code, item) {
            Some(open) => matching_end(code, open),
            None => item + code[item..].find(';').map_or(0, |at| at + 1),
        };
        regions.push((from, end));
    }
    regions
}

/// The kind of text that starts at a position, with its end.
enum Piece {
    Code(usize),
    Comment(usize),
    Literal(usize),
}

fn split(text: &str) -> (String, String) {
    let blank: String = text
        .bytes()
        .map(|b| if b == b'\n' { '\n' } else { ' ' })
        .collect();
    let (mut code, mut comments) = (blank.clone(), blank);
    let mut at = 0;
    while at < text.len() {
        let (end, kept) = match next_piece(text, at) {
            Piece::Code(end) => (end, Some(&mut code)),
            Piece::Comment(end) => (end, Some(&mut comments)),
            Piece::Literal(end) => (end, None),
        };
        if let Some(kept) = kept {
            kept.replace_range(at..end, &text[at..end]);
        }
        at = end;
    }
    (code, comments)
}

fn next_piece(text: &str, at: usize) -> Piece {
    let rest = &text[at..];
    let bytes = rest.as_bytes();
    if rest.starts_with("//") {
        return Piece::Comment(at + rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Piece::Comment(at + block_comment_len(rest));
    }
    if bytes[0] == b'"' {
        return Piece::Literal(at + quoted_len(bytes, b'"'));
    }
    if bytes[0] == b'\'' {
        return match char_literal_len(rest) {
            Some(len) => Piece::Literal(at + len),
            None => Piece::Code(at + 1),
        };
    }
    if is_name_byte(bytes[0]) {
        let name_len = bytes
            .iter()
            .position(|&b| !is_name_byte(b))
            .unwrap_or(bytes.len());
        if matches!(&rest[..name_len], "r" | "br" | "cr")
            && let Some(len) = raw_string_len(&rest[name_len..])
        {
            return Piece::Literal(at + name_len + len);
        }
        return Piece::Code(at + name_len);
    }
    Piece::Code(at + 1)
}

fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..rest.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of a literal delimited by `quote`, skipping escapes.
fn quoted_len(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The length of a character literal such as `'x'` or `'\n'`. `None` for the `'a` of a lifetime or
/// a label.
fn char_literal_len(rest: &str) -> Option<usize> {
    let mut chars = rest[1..].chars();
    match chars.next()? {
        '\\' => Some(quoted_len(rest.as_bytes(), b'\'')),
        first => (chars.next()? == '\'').then(|| 2 + first.len_utf8()),
    }
}

fn raw_string_len(rest: &str) -> Option<usize> {
    let hashes = rest.bytes().take_while(|&b| b == b'#').count();
    let body = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close).map_or(body.len(), |at| at + close.len());
    Some(hashes + 1 + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_comments_and_characters_are_not_code() {
        let text = "let a = \"un\\\"safe\"; // unsafe\n\
                    let b = r#\"unsafe \"quoted\"\"#; /* un /* safe */ */ let c = 'x';\n\
                    fn f<'a>(x: &'a u8) { let q = '\\''; unsafe_code(b\"unsafe\"); }\n";
        let source = Source::scan(text);
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.words("unsafe").count(), 0);
        assert!(source.comments.contains("// unsafe"));
        assert!(source.code.contains("fn f<'a>(x: &'a u8) {"));
        assert!(source.code.contains("unsafe_code("));
        assert_eq!(source.line(text.find("fn f").unwrap()), 3);
    }

    #[test]
    fn raw_names_and_other_scripts_survive() {
        let source = Source::scan("let r#type = \"é\"; let größe = 'é'; // é\nunsafe {}\n");
        assert!(source.code.contains("r#type"));
        assert_eq!(
            source
                .words("unsafe")
                .map(|at| source.line(at))
                .collect::<Vec<_>>(),
            [2]
        );
    }

    #[test]
    fn test_regions_end_with_their_item() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n\
                    #[cfg(test)]\nmod more;\nfn d() {}\n";
        let source = Source::scan(text);
        assert!(!source.in_test(text.find("fn a").unwrap()));
        assert!(source.in_test(text.find("fn b").unwrap()));
        assert!(!source.in_test(text.find("fn c").unwrap()));
        assert!(source.in_test(text.find("mod more").unwrap()));
        assert!(!source.in_test(text.find("fn d").unwrap()));
        assert_eq!(source.lines_without_tests(), 3);
    }

    #[test]
    fn bodies_are_found_past_brackets() {
        let code = "fn f(a: [u8; 4]) -> u8 where X: Y { (1) } fn g();";
        let open = body_start(code, 0).unwrap();
        assert_eq!(&code[open..matching_end(code, open)], "{ (1) }");
        assert_eq!(body_start(code, code.find("fn g").unwrap()), None);
        assert_eq!(name_after(code, 2), "f");
    }
}

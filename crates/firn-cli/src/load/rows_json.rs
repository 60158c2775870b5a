//! JSON Lines, line by line: one object each. Lines of nothing but white space are passed over.

use super::rows::{Next, Place, Row};
use crate::encoding::Encoding;
use crate::exit::Outcome;
use firndb::Error;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

pub(super) struct JsonRows {
    input: BufReader<Box<dyn Read>>,
    place: Place,
    key: String,
    /// The field that is the value; the whole line if there is none.
    value: Option<String>,
    encoding: Encoding,
    line: Vec<u8>,
}

impl JsonRows {
    /// Reads `input`, which begins at `place`.
    pub(super) fn new(
        input: Box<dyn Read>,
        place: Place,
        key: String,
        value: Option<String>,
        encoding: Encoding,
    ) -> Self {
        Self { input: BufReader::with_capacity(256 << 10, input), place, key, value, encoding, line: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Outcome<(u64, Next)> {
        loop {
            let number = self.place.line;
            self.line.clear();
            let read = self.input.read_until(b'\n', &mut self.line);
            let bytes = read.map_err(|e| Error::from_io("read", "the file to be loaded".as_ref(), e))?;
            if bytes == 0 {
                return Ok((number, Next::End));
            }
            self.place = Place { byte: self.place.byte + bytes as u64, line: number + 1 };
            if !self.line.trim_ascii().is_empty() {
                return Ok((number, self.row().map_or_else(Next::Bad, Next::Row)));
            }
        }
    }

    fn row(&self) -> Result<Row, String> {
        let text = self.line.trim_ascii();
        let fields: HashMap<String, &RawValue> = serde_json::from_slice(text).map_err(|e| one_line(&e))?;
        let field = |name: &str| {
            let raw = fields.get(name).ok_or_else(|| format!("there is no field {name:?}"))?;
            self.decode(raw).map_err(|reason| format!("field {name:?}: {reason}"))
        };
        let value = self.value.as_deref().map_or_else(|| Ok(text.to_vec()), field)?;
        Ok(Row { key: field(&self.key)?, value })
    }

    /// A string's bytes; of any other value its JSON text.
    fn decode(&self, raw: &RawValue) -> Result<Vec<u8>, String> {
        let text = raw.get();
        if text.starts_with('"') {
            let string: String = serde_json::from_str(text).map_err(|e| one_line(&e))?;
            return self.encoding.decode(string.as_bytes());
        }
        match self.encoding {
            Encoding::Raw => Ok(text.as_bytes().to_vec()),
            other => Err(format!("not a string, so it cannot be {}", other.name())),
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }
}

/// The parser counts lines too, and knows of one only.
fn one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &'static str, value: Option<&str>, encoding: Encoding) -> Vec<String> {
        let input: Box<dyn Read> = Box::new(text.as_bytes());
        let mut rows = JsonRows::new(input, Place::START, "k".to_owned(), value.map(str::to_owned), encoding);
        let mut found = Vec::new();
        loop {
            match rows.next().unwrap() {
                (_, Next::End) => break,
                (line, Next::Bad(reason)) => found.push(format!("{line} bad: {reason}")),
                (line, Next::Row(row)) => {
                    found.push(format!("{line} {}={}", row.key.escape_ascii(), row.value.escape_ascii()))
                }
            }
        }
        assert_eq!(rows.place().byte, text.len() as u64);
        found
    }

    #[test]
    fn values_of_every_type() {
        let text = "{\"k\":\"a\",\"v\":\"x\\ty\"}\n\n{\"k\":7,\"v\":1.50}\r\n{\"k\":\"b\",\"v\":{\"w\": [null]}}";
        let found = all(text, Some("v"), Encoding::Raw);
        assert_eq!(found, ["1 a=x\\ty", "3 7=1.50", "4 b={\\\"w\\\": [null]}"]);
        assert_eq!(all("{\"k\": \"a\"} \n", None, Encoding::Raw), ["1 a={\\\"k\\\": \\\"a\\\"}"]);
        assert_eq!(all("{\"k\":\"00ff\",\"v\":\"\"}", Some("v"), Encoding::Hex), ["1 \\x00\\xff="]);
    }

    #[test]
    fn bad_lines_say_why() {
        let found = all("{\"k\":\"a\"\n{\"v\":1}\n[1]\n{\"k\":\"a\"}\n", Some("v"), Encoding::Raw);
        assert!(found[0].starts_with("1 bad: EOF") && found[0].contains("at column"), "{found:?}");
        assert!(found[2].starts_with("3 bad: invalid type"), "{found:?}");
        assert_eq!(found[3], "4 bad: there is no field \"v\"");
        let found = all("{\"k\":\"zz\",\"v\":\"\"}\n{\"k\":\"00\",\"v\":1}", Some("v"), Encoding::Hex);
        assert!(found[0].contains("not hexadecimal") && found[1].contains("cannot be hex"), "{found:?}");
    }
}

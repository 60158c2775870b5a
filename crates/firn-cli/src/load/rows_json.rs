//! JSON Lines: one object per line. Lines of only white space are empty.

use super::rows::{Extent, Next, Row, too_long};
use super::window::{Found, Window};
use crate::encoding::Encoding;
use crate::exit::Outcome;
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

pub(super) struct JsonRows {
    key: String,
    /// The field with the value; `None` for the whole line.
    value: Option<String>,
    encoding: Encoding,
}

impl JsonRows {
    pub(super) fn new(key: String, value: Option<String>, encoding: Encoding) -> Self {
        Self {
            key,
            value,
            encoding,
        }
    }

    pub(super) fn next(&self, window: &mut Window) -> Outcome<(Extent, Next)> {
        let (text, extent) = match window.find(0, |byte| byte == b'\n')? {
            Found::End(0) => return Ok((Extent::Bytes(0), Next::End)),
            Found::At(end) => (&window.view()[..end], Extent::Bytes(end + 1)),
            Found::End(end) => (&window.view()[..end], Extent::Bytes(end)),
            Found::TooFar => {
                return Ok((Extent::Line, Next::Bad(too_long(window.record_bytes_max()))));
            }
        };
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok((extent, Next::Empty));
        }
        Ok((extent, self.row(text).map_or_else(Next::Bad, Next::Row)))
    }

    fn row(&self, text: &[u8]) -> Result<Row, String> {
        // The whole line must be valid text, including fields that are not loaded.
        let text = std::str::from_utf8(text).map_err(|e| {
            format!(
                "the line is not UTF-8 from its byte {} on",
                e.valid_up_to() + 1
            )
        })?;
        let mut parser = serde_json::Deserializer::from_str(text);
        let found = Wanted {
            key: &self.key,
            value: self.value.as_deref(),
        }
        .deserialize(&mut parser);
        let (key, value) = found
            .and_then(|found| parser.end().map(|()| found))
            .map_err(|e| one_line(&e))?;
        let field = |name: &str, raw: Option<&RawValue>| {
            let raw = raw.ok_or_else(|| format!("there is no field {name:?}"))?;
            self.decode(raw)
                .map_err(|reason| format!("field {name:?}: {reason}"))
        };
        let value = match &self.value {
            Some(name) => field(name, value)?,
            None => text.as_bytes().to_vec(),
        };
        if key.is_some_and(|key| key.get() == "null") {
            // The text `null` would be the same key for all records without one.
            return Err(format!(
                "field {:?} is null: a key is a string or a number",
                self.key
            ));
        }
        Ok(Row {
            key: field(&self.key, key)?,
            value,
        })
    }

    /// The bytes of a string, or the JSON text of any other value.
    fn decode(&self, raw: &RawValue) -> Result<Vec<u8>, String> {
        let text = raw.get();
        if text.starts_with('"') {
            let string: Cow<'_, str> = serde_json::from_str(text).map_err(|e| one_line(&e))?;
            return self.encoding.decode(string.as_bytes());
        }
        match self.encoding {
            Encoding::Raw => Ok(text.as_bytes().to_vec()),
            other => Err(format!("not a string, so it cannot be {}", other.name())),
        }
    }
}

/// The fields to take from an object. A repeated field is refused, because readers differ in which
/// one they take.
struct Wanted<'a> {
    key: &'a str,
    value: Option<&'a str>,
}

type Fields<'de> = (Option<&'de RawValue>, Option<&'de RawValue>);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Fields<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Fields<'de>, A::Error> {
        let (mut key, mut value) = (None, None);
        while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
            let (is_key, is_value) = (name == self.key, Some(&*name) == self.value);
            if !is_key && !is_value {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            if (is_key && key.is_some()) || (is_value && value.is_some()) {
                return Err(serde::de::Error::custom(format_args!(
                    "the field {name:?} is there twice"
                )));
            }
            let raw: &RawValue = fields.next_value()?;
            key = if is_key { Some(raw) } else { key };
            value = if is_value { Some(raw) } else { value };
        }
        Ok((key, value))
    }
}

/// Removes the parser's line number, because the parser sees only one line.
fn one_line(error: &serde_json::Error) -> String {
    error
        .to_string()
        .replace(" at line 1 column ", " at column ")
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Parser, Rows};
    use super::*;

    fn all(text: &'static [u8], value: Option<&str>, encoding: Encoding) -> Vec<String> {
        let window = Window::new("text".into(), Box::new(text), 1 << 20);
        let json = JsonRows::new("k".to_owned(), value.map(str::to_owned), encoding);
        let mut rows = Rows::new(window, Parser::Json(json));
        let mut found = Vec::new();
        loop {
            let item = rows.next().unwrap();
            match item.next {
                Next::End => break,
                Next::Bad(reason) => found.push(format!("{} bad: {reason}", item.line)),
                Next::Row(row) => found.push(format!(
                    "{} {}={}",
                    item.line,
                    row.key.escape_ascii(),
                    row.value.escape_ascii()
                )),
                other => found.push(format!("{} {other:?}", item.line)),
            }
        }
        assert_eq!(rows.window.place().byte, text.len() as u64);
        found
    }

    #[test]
    fn values_of_every_type() {
        let text = b"{\"k\":\"a\",\"v\":\"x\\ty\"}\n \r\n{\"k\":7,\"v\":1.50}\r\n{\"k\":\"b\",\"v\":{\"w\": [null]}}";
        let found = all(text, Some("v"), Encoding::Raw);
        assert_eq!(
            found,
            [
                "1 a=x\\ty",
                "2 Empty",
                "3 7=1.50",
                "4 b={\\\"w\\\": [null]}"
            ]
        );
        assert_eq!(
            all(b"{\"k\": \"a\"} \n", None, Encoding::Raw),
            ["1 a={\\\"k\\\": \\\"a\\\"}"]
        );
        assert_eq!(
            all(b"{\"k\":\"00ff\",\"v\":\"\"}", Some("v"), Encoding::Hex),
            ["1 \\x00\\xff="]
        );
        assert_eq!(all(b"{\"k\":\"a\"}", Some("k"), Encoding::Raw), ["1 a=a"]);
    }

    #[test]
    fn bad_lines_say_why() {
        let found = all(
            b"{\"k\":\"a\"\n{\"v\":1}\n[1]\n{\"k\":\"a\"}\n",
            Some("v"),
            Encoding::Raw,
        );
        assert!(
            found[0].starts_with("1 bad: EOF") && found[0].contains("at column"),
            "{found:?}"
        );
        assert!(found[2].starts_with("3 bad: invalid type"), "{found:?}");
        assert_eq!(found[3], "4 bad: there is no field \"v\"");
        let found = all(
            b"{\"k\":\"zz\",\"v\":\"\"}\n{\"k\":\"00\",\"v\":1}",
            Some("v"),
            Encoding::Hex,
        );
        assert!(
            found[0].contains("not hexadecimal") && found[1].contains("cannot be hex"),
            "{found:?}"
        );
    }

    #[test]
    fn two_of_a_field_more_than_an_object_and_other_bytes() {
        let text = b"{\"k\":\"a\",\"k\":\"b\"}\n{\"k\":\"a\",\"\\u006b\":1}\n{\"k\":\"a\"}{\"k\":\"b\"}\n\
                     {\"k\":\"a\",\"x\":1,\"x\":2}\n{\"k\":\"a\",\"x\":\"\xff\"}\n{\"k\":\"\\ud800\"}\n\0\n";
        let found = all(text, None, Encoding::Raw);
        assert!(
            found[0].contains("\"k\" is there twice") && found[1].contains("twice"),
            "{found:?}"
        );
        assert!(found[2].contains("trailing characters"), "{found:?}");
        assert!(found[3].starts_with("4 a="), "{found:?}");
        assert!(found[4].contains("not UTF-8"), "{found:?}");
        assert!(
            found[5..].iter().all(|line| line.contains("bad: ")) && found.len() == 7,
            "{found:?}"
        );
    }
}

//! CSV and TSV, record by record.
//!
//! 1. A field is quoted as a whole or not at all: a quote within a field, or text after a closing
//!    quote, is a bad line.
//! 2. An unclosed quote makes only its own line bad; the following lines are read as if it did not
//!    exist.
//! 3. Without quoting (TSV), a quote is an ordinary byte, and a line is a record.
//! 4. A carriage return that is not followed by a line feed is data only within quotes.

use super::columns::{Chosen, Columns};
use super::rows::{Extent, Next, Row, line_breaks_within, too_long};
use super::window::{Found, Window};
use crate::encoding::Encoding;
use crate::exit::{Failure, Outcome};
use std::borrow::Cow;

/// The special characters of a format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) is_quoted: bool,
}

/// The maximum number of columns in a header line.
const COLUMNS_MAX: usize = 65_536;

pub(super) struct CsvRows {
    dialect: Dialect,
    encoding: Encoding,
    columns: Columns,
    /// The columns of key and value; `None` until the header is read.
    chosen: Option<Chosen>,
    fields: Fields,
}

/// The fields of the current record. Only key and value are kept, because a record may have any
/// number of fields.
#[derive(Default)]
struct Fields {
    count: usize,
    key: Option<Field>,
    value: Option<Field>,
    /// True if a non-empty field lies beyond the columns named by the header.
    is_beyond: bool,
    /// All fields of the header line.
    header: Vec<Field>,
}

/// A field, by its offsets relative to the place.
#[derive(Debug, Clone, Copy)]
struct Field {
    start: usize,
    end: usize,
    /// True if it contains doubled quotes.
    has_quotes: bool,
}

/// The classification of the text at the place.
enum Shape {
    Record(usize),
    Empty(usize),
    Bad(String),
    End,
}

/// The step after a field.
enum Step {
    Field(usize),
    Record(usize),
    Bad(String),
}

impl CsvRows {
    /// `chosen` are the columns found by an earlier run. Without them the header is read if one is
    /// expected.
    pub(super) fn new(
        dialect: Dialect,
        columns: Columns,
        chosen: Option<Chosen>,
        encoding: Encoding,
    ) -> Self {
        let by_number = if columns.need_header() {
            None
        } else {
            columns.by_number()
        };
        Self {
            dialect,
            encoding,
            columns,
            chosen: chosen.or(by_number),
            fields: Fields::default(),
        }
    }

    pub(super) fn chosen(&self) -> Option<Chosen> {
        self.chosen
    }

    pub(super) fn next(&mut self, window: &mut Window) -> Outcome<(Extent, Next)> {
        let shape = self.shape(window)?;
        match (shape, self.chosen) {
            (Shape::Empty(bytes), _) => Ok((Extent::Bytes(bytes), Next::Empty)),
            (Shape::End, Some(_)) => Ok((Extent::Bytes(0), Next::End)),
            (Shape::Bad(reason), Some(_)) => Ok((Extent::Line, Next::Bad(reason))),
            (Shape::Record(bytes), Some(chosen))
                if self.has_swallowed(&window.view()[..bytes], chosen) =>
            {
                let reason = "a quote is opened and closed lines later, in a record that has not the header \
                              line's fields";
                Ok((Extent::Line, Next::Bad(reason.to_owned())))
            }
            (Shape::Record(bytes), Some(chosen)) => Ok((
                Extent::Bytes(bytes),
                self.row(window.view(), chosen)
                    .map_or_else(Next::Bad, Next::Row),
            )),
            (Shape::End, None) => Err(self.columns.no_header().at(window.source())),
            // Without the header no line of the file can be interpreted.
            (Shape::Bad(reason), None) => {
                let (source, line) = (window.source(), window.place().line);
                Err(Failure::invalid(format!(
                    "{source}:{line}: in the header line, {reason}"
                )))
            }
            (Shape::Record(bytes), None) => {
                let found = self.columns.find(&self.fields.header_names(window.view()));
                self.chosen = Some(found.map_err(|failure| failure.at(window.source()))?);
                Ok((Extent::Bytes(bytes), Next::Header))
            }
        }
    }

    /// True if `record` spans several lines and its number of fields differs from the header's: its
    /// quotes enclose records.
    fn has_swallowed(&self, record: &[u8], chosen: Chosen) -> bool {
        chosen
            .columns
            .is_some_and(|columns| columns != self.fields.count)
            && line_breaks_within(record) > 0
    }

    fn row(&self, view: &[u8], chosen: Chosen) -> Result<Row, String> {
        let count = self.fields.count;
        if self.fields.is_beyond {
            // This is usually the rest of a field that should have been quoted.
            let named = chosen.columns.unwrap_or_default();
            return Err(format!(
                "the record has {count} fields, the header line {named}"
            ));
        }
        let field = |field: Option<Field>, number: usize, name: &str| {
            let field = field.ok_or_else(|| {
                format!("there is no column {number} for the {name}: the record has {count}")
            })?;
            self.encoding
                .decode(&field.text(view))
                .map_err(|reason| format!("the {name} is {reason}"))
        };
        let key = field(self.fields.key, chosen.key, "key")?;
        Ok(Row {
            key,
            value: field(self.fields.value, chosen.value, "value")?,
        })
    }

    /// Finds the fields of the record at the place.
    fn shape(&mut self, window: &mut Window) -> Outcome<Shape> {
        self.fields = Fields {
            header: std::mem::take(&mut self.fields.header),
            ..Fields::default()
        };
        self.fields.header.clear();
        match (window.byte(0)?, window.byte(1)?) {
            (None, _) => return Ok(Shape::End),
            (Some(b'\n'), _) => return Ok(Shape::Empty(1)),
            (Some(b'\r'), Some(b'\n')) => return Ok(Shape::Empty(2)),
            _ => {}
        }
        let mut at = 0;
        while at <= window.record_bytes_max() {
            let step = match window.byte(at)? {
                Some(b'"') if self.dialect.is_quoted => self.quoted(window, at + 1)?,
                _ => self.plain(window, at)?,
            };
            match step {
                Step::Field(next) => at = next,
                Step::Record(bytes) => return Ok(Shape::Record(bytes)),
                Step::Bad(reason) => return Ok(Shape::Bad(reason)),
            }
            if self.fields.header.len() > COLUMNS_MAX {
                return Ok(Shape::Bad(format!(
                    "there are more than {COLUMNS_MAX} columns"
                )));
            }
        }
        Ok(Shape::Bad(too_long(window.record_bytes_max())))
    }

    /// Reads the unquoted field that starts at `start`.
    fn plain(&mut self, window: &mut Window, start: usize) -> Outcome<Step> {
        let Dialect {
            delimiter,
            is_quoted,
        } = self.dialect;
        let is_mark = |byte| {
            byte == delimiter || matches!(byte, b'\n' | b'\r') || (is_quoted && byte == b'"')
        };
        let end = match window.find(start, is_mark)? {
            Found::At(at) if window.view()[at] == b'"' && is_quoted => {
                return Ok(Step::Bad(
                    "a quote stands within a field that is not quoted: quote the whole field, and double the quotes \
                     within it"
                        .to_owned(),
                ));
            }
            Found::At(at) | Found::End(at) => at,
            Found::TooFar => return Ok(Step::Bad(too_long(window.record_bytes_max()))),
        };
        self.fields.push(
            Field {
                start,
                end,
                has_quotes: false,
            },
            self.chosen,
        );
        self.after(window, end)
    }

    /// Reads the quoted field whose opening quote is just before `start`.
    fn quoted(&mut self, window: &mut Window, start: usize) -> Outcome<Step> {
        let (mut from, mut has_quotes) = (start, false);
        let end = loop {
            match window.find(from, |byte| byte == b'"')? {
                Found::At(at) if window.byte(at + 1)? == Some(b'"') => {
                    (from, has_quotes) = (at + 2, true)
                }
                Found::At(at) => break at,
                Found::End(_) => {
                    return Ok(Step::Bad("a quote is opened and never closed".to_owned()));
                }
                Found::TooFar => {
                    let reason = too_long(window.record_bytes_max());
                    return Ok(Step::Bad(format!(
                        "a quote is opened and not closed: {reason}"
                    )));
                }
            }
        };
        self.fields.push(
            Field {
                start,
                end,
                has_quotes,
            },
            self.chosen,
        );
        self.after(window, end + 1)
    }

    /// The step after a field that ended at `at`.
    fn after(&self, window: &mut Window, at: usize) -> Outcome<Step> {
        let (byte, next) = (window.byte(at)?, window.byte(at + 1)?);
        Ok(match (byte, next) {
            (None, _) => Step::Record(at),
            (Some(b'\n'), _) | (Some(b'\r'), None) => Step::Record(at + 1),
            (Some(b'\r'), Some(b'\n')) => Step::Record(at + 2),
            (Some(byte), _) if byte == self.dialect.delimiter => Step::Field(at + 1),
            (Some(b'\r'), Some(_)) => Step::Bad(
                "a carriage return stands within the line: if lines end with it, convert them first, as with `tr \
                 '\\r' '\\n'`"
                    .to_owned(),
            ),
            (Some(_), _) => Step::Bad("text follows a closing quote: quotes within a field must be doubled".to_owned()),
        })
    }
}

impl Fields {
    fn push(&mut self, field: Field, chosen: Option<Chosen>) {
        let number = self.count;
        self.count += 1;
        let Some(chosen) = chosen else {
            return self.header.push(field);
        };
        if number == chosen.key {
            self.key = Some(field);
        }
        if number == chosen.value {
            self.value = Some(field);
        }
        self.is_beyond |=
            chosen.columns.is_some_and(|columns| number >= columns) && field.start < field.end;
    }

    fn header_names<'a>(&self, view: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
        self.header.iter().map(|field| field.text(view)).collect()
    }
}

impl Field {
    fn text<'a>(&self, view: &'a [u8]) -> Cow<'a, [u8]> {
        let text = &view[self.start..self.end];
        if !self.has_quotes {
            return Cow::Borrowed(text);
        }
        let mut single = Vec::with_capacity(text.len());
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            single.push(*byte);
            if *byte == b'"' {
                // Skips the second quote of a pair.
                bytes.next();
            }
        }
        Cow::Owned(single)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Parser, Rows};
    use super::*;

    fn rows(text: &'static [u8], dialect: Dialect, key: &str, value: &str) -> Rows {
        let window = Window::new("text".into(), Box::new(text), 1 << 20);
        Rows::new(
            window,
            Parser::Csv(CsvRows::new(
                dialect,
                Columns::of(key, value),
                None,
                Encoding::Raw,
            )),
        )
    }

    /// Every item as a line of text.
    fn all(text: &'static [u8], dialect: Dialect, key: &str, value: &str) -> Vec<String> {
        let mut rows = rows(text, dialect, key, value);
        let mut found = Vec::new();
        loop {
            let item = rows.next().unwrap();
            match item.next {
                Next::End => break,
                Next::Row(row) => {
                    found.push(format!(
                        "{} {}={}",
                        item.line,
                        row.key.escape_ascii(),
                        row.value.escape_ascii()
                    ));
                }
                Next::Bad(reason) => found.push(format!("{} bad: {reason}", item.line)),
                other => found.push(format!("{} {other:?}", item.line)),
            }
        }
        assert_eq!(rows.window.place().byte, text.len() as u64);
        found
    }

    const CSV: Dialect = Dialect {
        delimiter: b',',
        is_quoted: true,
    };
    const TSV: Dialect = Dialect {
        delimiter: b'\t',
        is_quoted: false,
    };

    #[test]
    fn quotes_line_breaks_and_empty_lines() {
        let text = b"key,value\r\na,1\n\n\"b\nb\",\"2\r\n\"\"2\"\r\n\"\",x\nc\nd,4";
        let found = all(text, CSV, "key", "value");
        assert_eq!(
            found,
            [
                "1 Header",
                "2 a=1",
                "3 Empty",
                "4 b\\nb=2\\r\\n\\\"2",
                "7 bad: the key is empty",
                "8 bad: there is no column 1 for the value: the record has 1",
                "9 d=4"
            ]
        );
    }

    #[test]
    fn a_quote_out_of_place_costs_its_own_line_only() {
        let text =
            b"a,5\" pipe\nb,\"open\nc,3\nd,\"x\"y\ne,\"5\"\nf,\"\nlast,\"never closed\ng,7\n";
        let found = all(text, CSV, "0", "1");
        let bad: Vec<&str> = found
            .iter()
            .filter(|line| line.contains("bad"))
            .map(|line| &line[..1])
            .collect();
        let good: Vec<&str> = found
            .iter()
            .filter(|line| !line.contains("bad"))
            .map(|line| line.split(' ').nth(1).unwrap())
            .collect();
        // Line 6 opens a quote that line 7 seems to close, before more text.
        assert_eq!(
            (bad, good),
            (vec!["1", "2", "4", "6", "7"], vec!["c=3", "e=5", "g=7"]),
            "{found:?}"
        );
    }

    #[test]
    fn without_quoting_a_quote_is_a_byte() {
        let found = all(b"a\t\"x\nb\"\ty\"\r\n\"\"\t\"", TSV, "0", "1");
        assert_eq!(found, ["1 a=\\\"x", "2 b\\\"=y\\\"", "3 \\\"\\\"=\\\""]);
    }

    #[test]
    fn a_lone_carriage_return_and_a_field_too_many() {
        let found = all(b"a,1\rb,2\rc,3\nd,4\r", CSV, "0", "1");
        assert!(
            found.len() == 2 && found[0].starts_with("1 bad: a carriage return"),
            "{found:?}"
        );
        assert_eq!(found[1], "2 d=4");
        let found = all(b"k,v\na,one,\nb,one, two\n", CSV, "k", "v");
        assert_eq!(
            found[1..],
            [
                "2 a=one",
                "3 bad: the record has 3 fields, the header line 2"
            ]
        );
    }
}

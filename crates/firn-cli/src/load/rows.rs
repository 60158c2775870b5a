//! The reader of a text file's records: returns the next record, or the reason why a line is not
//! one, and its place.
//!
//! 1. Every line is one item: a record (including the lines within its quotes), a header, an empty
//!    line or a bad line.
//! 2. The place moves past an item only when the next one is requested. Until then place and hash
//!    are those before it.

use super::rows_csv::CsvRows;
use super::rows_json::JsonRows;
use super::window::Window;
use crate::exit::{Failure, Outcome};
use crate::reserved;
use firn_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde::{Deserialize, Serialize};

/// One key and its value.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// The next item in a text.
#[derive(Debug)]
pub(super) enum Next {
    Row(Row),
    /// The line with the column names.
    Header,
    /// A line without a record.
    Empty,
    /// A line that is not a record, and the reason.
    Bad(String),
    End,
}

/// An item of a text and its first line, counted from 1.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) line: u64,
    /// Line breaks within it, inside quotes.
    pub(super) inner_lines: u64,
    pub(super) next: Next,
}

/// The end of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// A number of bytes after the place.
    Bytes(usize),
    /// The end of the line at the place. The line may not be read completely yet.
    Line,
}

/// A place between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The number of bytes before it.
    pub(super) byte: u64,
    /// The number of the line that starts here, counted from 1.
    pub(super) line: u64,
}

impl Place {
    pub(super) const START: Place = Place { byte: 0, line: 1 };
}

/// The format of a text.
pub(super) enum Parser {
    Csv(CsvRows),
    Json(JsonRows),
}

/// A text, item by item.
pub(super) struct Rows {
    pub(super) window: Window,
    pub(super) parser: Parser,
    /// The item returned last.
    current: Extent,
    /// True if the place is within a line, because reading failed there.
    is_torn: bool,
}

impl Rows {
    /// Starts at the window's place.
    pub(super) fn new(window: Window, parser: Parser) -> Self {
        Self {
            window,
            parser,
            current: Extent::Bytes(0),
            is_torn: false,
        }
    }

    /// Skips the byte order mark, if there is one.
    pub(super) fn pass_mark(&mut self) -> Outcome<()> {
        const UTF_8: [u8; 3] = [0xef, 0xbb, 0xbf];
        const UTF_16: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];
        self.window.byte(UTF_8.len() - 1)?;
        let view = self.window.view();
        if UTF_16.iter().any(|mark| view.starts_with(mark)) {
            return Err(Failure::invalid(
                "the text is UTF-16: convert it first, as with `iconv -f UTF-16 -t UTF-8`",
            ));
        }
        if view.starts_with(&UTF_8) {
            self.window.pass(UTF_8.len());
            self.window.begin_line();
        }
        Ok(())
    }

    /// True if the place is between two lines, so that a load may continue from it.
    pub(super) fn is_between_lines(&self) -> bool {
        !self.is_torn
    }

    /// Moves past the current item.
    fn settle(&mut self) -> Outcome<()> {
        match std::mem::replace(&mut self.current, Extent::Bytes(0)) {
            Extent::Bytes(bytes) => self.window.pass(bytes),
            Extent::Line => {
                self.is_torn = true;
                self.window.pass_line()?;
                self.is_torn = false;
            }
        }
        Ok(())
    }

    /// The next item.
    pub(super) fn next(&mut self) -> Outcome<Item> {
        self.settle()?;
        let line = self.window.place().line;
        let (extent, next) = match &mut self.parser {
            Parser::Csv(rows) => rows.next(&mut self.window)?,
            Parser::Json(rows) => rows.next(&mut self.window)?,
        };
        self.current = extent;
        let inner_lines = match (&next, extent) {
            (Next::Row(_) | Next::Header, Extent::Bytes(bytes)) => {
                line_breaks_within(&self.window.view()[..bytes])
            }
            _ => 0,
        };
        Ok(Item {
            line,
            inner_lines,
            next: check(next),
        })
    }
}

/// The number of line breaks in `record`, without the final one.
pub(super) fn line_breaks_within(record: &[u8]) -> u64 {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Refuses a record that the database would refuse, before it enters a batch with others.
fn check(next: Next) -> Next {
    let Next::Row(row) = next else { return next };
    let bytes = row.key.len();
    if row.key.is_empty() {
        Next::Bad("the key is empty".to_owned())
    } else if bytes > KEY_BYTES_MAX {
        Next::Bad(format!(
            "the key has {bytes} bytes, the limit is {KEY_BYTES_MAX}"
        ))
    } else if row.value.len() > VALUE_BYTES_MAX {
        Next::Bad(format!(
            "the value has {} bytes, the limit is {VALUE_BYTES_MAX}",
            row.value.len()
        ))
    } else if reserved::is_reserved(&row.key) {
        Next::Bad(reserved::REFUSAL.to_owned())
    } else {
        Next::Row(row)
    }
}

/// The reason why a line longer than `bytes` is not a record.
pub(super) fn too_long(bytes: usize) -> String {
    let size = crate::byte_size::ByteSize(bytes as u64);
    format!(
        "the record does not end within {size}, the most that one may take here; a larger --memory-limit takes more"
    )
}

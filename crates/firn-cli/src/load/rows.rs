//! What the readers of text files have in common: a record or what is wrong with it, and where the next one begins.

use super::{rows_csv::CsvRows, rows_json::JsonRows};
use crate::exit::Outcome;
use crate::reserved;
use firn_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde::{Deserialize, Serialize};

/// One key and its value.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// What came next in a file.
#[derive(Debug)]
pub(super) enum Next {
    Row(Row),
    /// Why the record is none.
    Bad(String),
    End,
}

/// A place between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Bytes before it.
    pub(super) byte: u64,
    /// The number of the line that begins here, from 1.
    pub(super) line: u64,
}

impl Place {
    pub(super) const START: Place = Place { byte: 0, line: 1 };
}

/// A text file, record by record.
pub(super) enum Rows {
    Csv(CsvRows),
    Json(JsonRows),
}

impl Rows {
    /// The next record. Also, the number of the line that it began on.
    pub(super) fn next(&mut self) -> Outcome<(u64, Next)> {
        let (line, next) = match self {
            Rows::Csv(rows) => rows.next()?,
            Rows::Json(rows) => rows.next()?,
        };
        Ok(match next {
            Next::Row(row) => (line, check(row)),
            other => (line, other),
        })
    }

    /// Where the next record begins.
    pub(super) fn place(&self) -> Place {
        match self {
            Rows::Csv(rows) => rows.place(),
            Rows::Json(rows) => rows.place(),
        }
    }
}

/// Refuses what the database would refuse, before it is in a batch with others.
fn check(row: Row) -> Next {
    let bytes = row.key.len();
    if row.key.is_empty() {
        Next::Bad("the key is empty".to_owned())
    } else if bytes > KEY_BYTES_MAX {
        Next::Bad(format!("the key has {bytes} bytes, the limit is {KEY_BYTES_MAX}"))
    } else if row.value.len() > VALUE_BYTES_MAX {
        Next::Bad(format!("the value has {} bytes, the limit is {VALUE_BYTES_MAX}", row.value.len()))
    } else if reserved::is_reserved(&row.key) {
        Next::Bad(reserved::REFUSAL.to_owned())
    } else {
        Next::Row(row)
    }
}

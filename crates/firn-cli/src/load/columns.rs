//! The columns of key and value in a CSV or TSV file: by their names in the header line, or by
//! their numbers.

use super::Load;
use crate::bytes_text::escape;
use crate::exit::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A column as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Name(String),
    Number(usize),
}

/// The columns found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chosen {
    pub(super) key: usize,
    pub(super) value: usize,
    /// The number of columns in the header line, if there is one.
    pub(super) columns: Option<usize>,
}

impl Column {
    fn new(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Column::Name(text.to_owned()), Column::Number)
    }

    fn find(&self, names: &[Cow<'_, [u8]>]) -> Outcome<usize> {
        let name = match self {
            Column::Number(number) => return Ok(*number),
            Column::Name(name) => name,
        };
        let is_it = |(_, found): &(usize, &Cow<'_, [u8]>)| ***found == *name.as_bytes();
        let found: Vec<usize> = names
            .iter()
            .enumerate()
            .filter(is_it)
            .map(|(number, _)| number)
            .collect();
        match found[..] {
            [number] => Ok(number),
            [] => {
                let names: Vec<String> = names.iter().map(|name| escape(name)).collect();
                let names = names.join(", ");
                Err(Failure::invalid(format!(
                    "no column is called {name}: the header line has {names}; see --key and --value"
                )))
            }
            _ => {
                let numbers: Vec<String> = found.iter().map(usize::to_string).collect();
                Err(Failure::invalid(format!(
                    "more than one column is called {name}: give --header and the number of the one that is meant, {}",
                    numbers.join(" or ")
                )))
            }
        }
    }
}

/// The requested columns.
#[derive(Debug)]
pub(super) struct Columns {
    key: Column,
    value: Column,
    header: bool,
}

impl Columns {
    pub(super) fn new(arguments: &Load) -> Self {
        let key = arguments.key.as_deref().unwrap_or("key");
        let mut columns = Self::of(key, arguments.value.as_deref().unwrap_or("value"));
        columns.header |= arguments.header;
        columns
    }

    pub(super) fn of(key: &str, value: &str) -> Self {
        let (key, value) = (Column::new(key), Column::new(value));
        let header = matches!(key, Column::Name(_)) || matches!(value, Column::Name(_));
        Self { key, value, header }
    }

    /// True if the first line is a header.
    pub(super) fn need_header(&self) -> bool {
        self.header
    }

    /// The columns, if both are given by number.
    pub(super) fn by_number(&self) -> Option<Chosen> {
        match (&self.key, &self.value) {
            (Column::Number(key), Column::Number(value)) => Some(Chosen {
                key: *key,
                value: *value,
                columns: None,
            }),
            _ => None,
        }
    }

    /// The columns in a file whose header line has `names`.
    pub(super) fn find(&self, names: &[Cow<'_, [u8]>]) -> Outcome<Chosen> {
        Ok(Chosen {
            key: self.key.find(names)?,
            value: self.value.find(names)?,
            columns: Some(names.len()),
        })
    }

    /// The failure of a file that ends before its header.
    pub(super) fn no_header(&self) -> Failure {
        Failure::invalid(
            "the file has no header line: its first line must name the columns; see --key and --value",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_and_by_number() {
        let header = ["id", "text", "text"].map(|name| Cow::Borrowed(name.as_bytes()));
        assert_eq!(Column::new("id").find(&header).unwrap(), 0);
        assert_eq!(Column::new("7").find(&header).unwrap(), 7);
        assert!(Column::new("name").find(&header).is_err());
        assert!(Column::new("text").find(&header).is_err());
        assert_eq!(
            Columns::of("1", "0").by_number(),
            Some(Chosen {
                key: 1,
                value: 0,
                columns: None
            })
        );
    }
}

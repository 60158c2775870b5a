//! Which columns of a CSV or TSV file are key and value: by their names in the header line, or by their numbers.

use super::Load;
use crate::exit::{Failure, Outcome};
use csv::ByteRecord;

/// A column as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Name(String),
    Number(usize),
}

impl Column {
    fn new(text: &str) -> Self {
        text.parse().map_or_else(|_| Column::Name(text.to_owned()), Column::Number)
    }

    fn find(&self, header: Option<&ByteRecord>) -> Outcome<usize> {
        let name = match self {
            Column::Number(number) => return Ok(*number),
            Column::Name(name) => name,
        };
        let names: Vec<&[u8]> = header.map_or(Vec::new(), |header| header.iter().collect());
        names.iter().position(|found| *found == name.as_bytes()).ok_or_else(|| {
            let names: Vec<String> = names.iter().map(|name| crate::bytes_text::escape(name)).collect();
            let names = names.join(", ");
            Failure::invalid(format!("no column is called {name}: the header line has {names}; see --key and --value"))
        })
    }
}

/// The columns that were asked for.
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

    /// Whether the first line is a header.
    pub(super) fn need_header(&self) -> bool {
        self.header
    }

    /// The numbers of the key's and the value's column.
    pub(super) fn find(&self, header: Option<&ByteRecord>) -> Outcome<(usize, usize)> {
        Ok((self.key.find(header)?, self.value.find(header)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_and_by_number() {
        let header = ByteRecord::from(vec!["id", "text"]);
        assert_eq!(Column::new("text").find(Some(&header)).unwrap(), 1);
        assert_eq!(Column::new("7").find(None).unwrap(), 7);
        assert!(Column::new("name").find(Some(&header)).is_err());
        assert!(Column::new("text").find(None).is_err());
    }
}

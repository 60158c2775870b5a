//! CSV and TSV, record by record. Fields may be quoted; a quoted field may hold line breaks and any byte.

use super::columns::Columns;
use super::rows::{Next, Place, Row};
use crate::encoding::Encoding;
use crate::exit::Outcome;
use csv::{ByteRecord, Reader, ReaderBuilder};
use firndb::Error;
use std::io::Read;

pub(super) struct CsvRows {
    reader: Reader<Box<dyn Read>>,
    /// Where the reader began.
    start: Place,
    /// The numbers of the key's and the value's column.
    columns: (usize, usize),
    encoding: Encoding,
    record: ByteRecord,
}

impl CsvRows {
    /// Reads `input`, which begins at `start`. `found` are the columns, if they have been looked for before; otherwise
    /// the header, if there is to be one, is read now.
    pub(super) fn new(
        input: Box<dyn Read>,
        delimiter: u8,
        start: Place,
        columns: &Columns,
        found: Option<(usize, usize)>,
        encoding: Encoding,
    ) -> Outcome<Self> {
        let mut builder = ReaderBuilder::new();
        let mut reader = builder.has_headers(false).flexible(true).delimiter(delimiter).from_reader(input);
        let mut record = ByteRecord::new();
        let columns = match found {
            Some(found) => found,
            None if columns.need_header() => {
                let is_there = reader.read_byte_record(&mut record).map_err(failed)?;
                columns.find(is_there.then_some(&record))?
            }
            None => columns.find(None)?,
        };
        Ok(Self { reader, start, columns, encoding, record })
    }

    pub(super) fn columns(&self) -> (usize, usize) {
        self.columns
    }

    pub(super) fn next(&mut self) -> Outcome<(u64, Next)> {
        let line = self.place().line;
        if !self.reader.read_byte_record(&mut self.record).map_err(failed)? {
            return Ok((line, Next::End));
        }
        // Empty lines lie between the place before and the record.
        let line = self.record.position().map_or(line, |position| self.start.line + position.line() - 1);
        Ok((line, self.row().map_or_else(Next::Bad, Next::Row)))
    }

    fn row(&self) -> Result<Row, String> {
        let field = |number: usize, what: &str| {
            let field = self.record.get(number).ok_or_else(|| {
                format!("there is no column {number} for the {what}: the record has {}", self.record.len())
            })?;
            self.encoding.decode(field).map_err(|reason| format!("the {what} is {reason}"))
        };
        Ok(Row { key: field(self.columns.0, "key")?, value: field(self.columns.1, "value")? })
    }

    pub(super) fn place(&self) -> Place {
        let position = self.reader.position();
        Place { byte: self.start.byte + position.byte(), line: self.start.line + position.line() - 1 }
    }
}

fn failed(error: csv::Error) -> Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(e) => Error::from_io("read", "the file to be loaded".as_ref(), e),
        _ => Error::invalid(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &'static [u8], start: Place, found: Option<(usize, usize)>) -> CsvRows {
        let columns = Columns::of("key", "value");
        CsvRows::new(Box::new(text), b',', start, &columns, found, Encoding::Raw).unwrap()
    }

    #[test]
    fn from_any_place_the_rest_is_the_same() {
        let text = b"key,value\na,1\n\n\"b\nb\",\"2\r\n2\"\r\nc\nd,4\n";
        let mut all = rows(text, Place::START, None);
        let mut places = vec![all.place()];
        let mut found = Vec::new();
        loop {
            let (line, next) = all.next().unwrap();
            if matches!(next, Next::End) {
                break;
            }
            found.push(format!("{line} {next:?}"));
            places.push(all.place());
        }
        assert_eq!(found.len(), 4);
        assert!(found[2].contains("7 Bad(\"there is no column 1 for the value"), "{found:?}");
        for (index, place) in places.iter().enumerate() {
            let mut rest = rows(&text[place.byte as usize..], *place, Some((0, 1)));
            for expected in &found[index..] {
                let (line, next) = rest.next().unwrap();
                assert_eq!(format!("{line} {next:?}"), *expected);
            }
            assert!(matches!(rest.next().unwrap().1, Next::End));
        }
    }
}

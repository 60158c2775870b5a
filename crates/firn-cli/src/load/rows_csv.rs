//! CSV and TSV, record by record. Fields may be quoted; a quoted field may hold line breaks and any byte.

use super::columns::Columns;
use super::rows::{Next, Place, Row};
use crate::encoding::Encoding;
use crate::exit::Outcome;
use csv::{ByteRecord, Reader, ReaderBuilder};
use firndb::Error;
use std::io::{self, Read};

pub(super) struct CsvRows {
    reader: Reader<Window>,
    /// Where the reader began.
    start: Place,
    /// Where the next record begins, or the line breaks before it.
    place: Place,
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
        let window = Window { input, bytes: Vec::new(), begin: start.byte };
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).delimiter(delimiter).buffer_capacity(64 << 10);
        let reader = builder.from_reader(window);
        let mut rows = Self { reader, start, place: start, columns: (0, 0), encoding, record: ByteRecord::new() };
        rows.columns = match found {
            Some(found) => found,
            None if columns.need_header() => {
                let header = rows.read()?.map(|_line| &rows.record);
                columns.find(header)?
            }
            None => columns.find(None)?,
        };
        Ok(rows)
    }

    pub(super) fn columns(&self) -> (usize, usize) {
        self.columns
    }

    pub(super) fn next(&mut self) -> Outcome<(u64, Next)> {
        match self.read()? {
            Some(line) => Ok((line, self.row().map_or_else(Next::Bad, Next::Row))),
            None => Ok((self.place.line, Next::End)),
        }
    }

    /// Reads the next record; returns the line that it begins on, or nothing at the end.
    ///
    /// The lines are counted here: the library's count is of where it stopped, which is within a CRLF or before empty
    /// lines.
    fn read(&mut self) -> Outcome<Option<u64>> {
        let is_there = self.reader.read_byte_record(&mut self.record).map_err(failed)?;
        let end = self.start.byte + self.reader.position().byte();
        let read = self.reader.get_ref().between(self.place.byte, end);
        let breaks = read.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        let line = self.place.line + breaks.filter(|byte| **byte == b'\n').count() as u64;
        let lines = read.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.place = Place { byte: end, line: self.place.line + lines };
        self.reader.get_mut().forget_before(end);
        Ok(is_there.then_some(line))
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
        self.place
    }
}

/// The input, with what was read of it and not yet dealt with.
struct Window {
    input: Box<dyn Read>,
    bytes: Vec<u8>,
    /// Where `bytes` begin.
    begin: u64,
}

impl Window {
    fn between(&self, from: u64, to: u64) -> &[u8] {
        &self.bytes[(from - self.begin) as usize..(to - self.begin) as usize]
    }

    fn forget_before(&mut self, byte: u64) {
        const WORTH_MOVING_BYTES: u64 = 256 << 10;
        if byte - self.begin >= WORTH_MOVING_BYTES {
            self.bytes.drain(..(byte - self.begin) as usize);
            self.begin = byte;
        }
    }
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..bytes]);
        Ok(bytes)
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

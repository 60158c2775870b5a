//! Loads the records of a CSV, TSV or JSON Lines file, or of stdin.
//!
//! Steps: 1 where did an earlier run get to; 2 is the file before that place what it was; 3 go there (in stdin, which
//! cannot be gone back to, pass over as many records); 4 read, batch, commit; 5 forget the place.

use super::batcher::Batcher;
use super::columns::Columns;
use super::position::{Slot, absolute};
use super::rows::{Next, Place, Row, Rows};
use super::rows_csv::CsvRows;
use super::rows_json::JsonRows;
use super::summary::Summary;
use super::{Format, Load, open};
use crate::exit::{Failure, Outcome};
use crate::progress::{Progress, Unit};
use firndb::{Error, Options};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const TAIL_BYTES: u64 = 4096;
/// Bad lines that are named when they are passed over.
const NAMED_MAX: u64 = 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Position {
    #[serde(flatten)]
    place: Place,
    /// Records dealt with, good and bad.
    records: u64,
    bad: u64,
    /// The columns of key and value, found in a header that is not read again.
    columns: Option<(usize, usize)>,
    /// Hash of the file's last bytes before the place, or of all of stdin's records, to tell whether they are the same.
    before: Option<u64>,
}

pub(super) fn load(arguments: &Load, source: &Path, format: Format, options: Options) -> Outcome<Summary> {
    let input = Input::open(source)?;
    let durability = options.durability;
    let slot = Slot::new(&absolute(source)?, &mode(arguments, format));
    let db = open(&arguments.db, options)?;
    let earlier: Option<Position> = if arguments.restart { None } else { slot.read(&db)? };
    let rows = begin(arguments, format, &input, earlier.as_ref())?;
    let mut loading = Loading {
        source,
        input: &input,
        rows,
        batcher: Batcher::new(&db, slot, durability, earlier.is_some() || arguments.restart),
        progress: Progress::new("loading", input.bytes(), Unit::Bytes),
        records: 0,
        bad: 0,
        records_hash: 0,
    };
    let skipped = loading.resume(earlier.as_ref())?;
    loading.take_all(arguments.skip_bad)?;
    loading.batcher.finish()?;
    let (loaded, loaded_bytes) = loading.batcher.written;
    let summary = Summary {
        loaded,
        loaded_bytes,
        resumed: earlier.is_some(),
        skipped,
        bad_lines: loading.bad,
        ..Summary::default()
    };
    drop(loading);
    db.close()?;
    Ok(summary)
}

/// What makes a load another load of the same file.
fn mode(arguments: &Load, format: Format) -> String {
    let (key, value) = (&arguments.key, &arguments.value);
    format!("{} {key:?} {value:?} {} {}", format.name(), arguments.header, arguments.encoding.name())
}

fn begin(arguments: &Load, format: Format, input: &Input, earlier: Option<&Position>) -> Outcome<Rows> {
    let earlier = earlier.filter(|_| matches!(input, Input::File(_)));
    let place = earlier.map_or(Place::START, |position| position.place);
    if let Some(position) = earlier
        && input.tail(place.byte)? != position.before
    {
        let line = place.line;
        return Err(Failure::invalid(format!(
            "the file has changed before line {line}, where an earlier load stopped: use --restart to load all of it"
        )));
    }
    let (reader, encoding) = (input.reader(place.byte)?, arguments.encoding);
    let delimiter = match format {
        Format::Csv => b',',
        Format::Tsv => b'\t',
        Format::Jsonl => {
            let key = arguments.key.clone().unwrap_or_else(|| "key".to_owned());
            return Ok(Rows::Json(JsonRows::new(reader, place, key, arguments.value.clone(), encoding)));
        }
    };
    let found = earlier.and_then(|position| position.columns);
    Ok(Rows::Csv(CsvRows::new(reader, delimiter, place, &Columns::new(arguments), found, encoding)?))
}

enum Input {
    File(File),
    Stdin,
}

impl Input {
    fn open(source: &Path) -> Outcome<Self> {
        if source.as_os_str() == "-" {
            return Ok(Input::Stdin);
        }
        Ok(Input::File(File::open(source).map_err(|e| Error::from_io("open", source, e))?))
    }

    fn bytes(&self) -> Option<u64> {
        match self {
            Input::File(file) => file.metadata().ok().map(|metadata| metadata.len()),
            Input::Stdin => None,
        }
    }

    /// Reads from `byte` on.
    fn reader(&self, byte: u64) -> Outcome<Box<dyn Read>> {
        let Input::File(file) = self else { return Ok(Box::new(std::io::stdin())) };
        let mut file = file.try_clone().map_err(failed)?;
        if byte > 0 {
            file.seek(SeekFrom::Start(byte)).map_err(failed)?;
        }
        Ok(Box::new(file))
    }

    /// A hash of the last bytes before `byte`; nothing if the file is too short for it.
    fn tail(&self, byte: u64) -> Outcome<Option<u64>> {
        let Input::File(file) = self else { return Ok(None) };
        let bytes = byte.min(TAIL_BYTES);
        let mut tail = vec![0; bytes as usize];
        match file.read_exact_at(&mut tail, byte - bytes) {
            Ok(()) => Ok(Some(xxh3_64(&tail))),
            // Too short; or a pipe, which has no place to go back to and is refused when it is resumed.
            Err(_) => Ok(None),
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::from_io("read", "the file to be loaded".as_ref(), error)
}

struct Loading<'a> {
    source: &'a Path,
    input: &'a Input,
    rows: Rows,
    batcher: Batcher<'a>,
    progress: Progress,
    records: u64,
    bad: u64,
    /// Of all good records so far, if they are from stdin.
    records_hash: u64,
}

impl Loading<'_> {
    /// Goes to where the earlier run stood. Returns how many records it had loaded.
    fn resume(&mut self, earlier: Option<&Position>) -> Outcome<u64> {
        let Some(position) = earlier else { return Ok(0) };
        if matches!(self.input, Input::Stdin) {
            for _ in 0..position.records {
                if let Next::Row(row) = self.rows.next()?.1 {
                    self.hash(&row);
                }
            }
            if position.before != Some(self.records_hash) {
                return Err(Failure::invalid(
                    "stdin does not begin with the records of an earlier load that was cut short: use --restart",
                ));
            }
        }
        (self.records, self.bad) = (position.records, position.bad);
        Ok(position.records - position.bad)
    }

    fn take_all(&mut self, skip_bad: bool) -> Outcome<()> {
        loop {
            let position = self.position();
            let (line, next) = self.rows.next()?;
            match next {
                Next::End => return Ok(()),
                Next::Row(row) => {
                    self.hash(&row);
                    if !self.batcher.has_room(row.key.len() + row.value.len()) {
                        self.commit(position)?;
                    }
                    self.batcher.put(&row.key, &row.value);
                }
                Next::Bad(reason) if skip_bad => {
                    self.bad += 1;
                    self.name_bad(line, &reason);
                }
                Next::Bad(reason) => {
                    self.commit(position)?;
                    let place = self.source.display();
                    return Err(Failure::invalid(format!("{place}:{line}: {reason}")));
                }
            }
            self.records += 1;
            self.progress.set(self.rows.place().byte);
        }
    }

    fn name_bad(&self, line: u64, reason: &str) {
        if self.bad <= NAMED_MAX {
            self.progress.say(format_args!("passed over {}:{line}: {reason}", self.source.display()));
        } else if self.bad == NAMED_MAX + 1 {
            self.progress.say("passed over more bad lines; the total is at the end");
        }
    }

    fn commit(&mut self, position: Position) -> Outcome<()> {
        let before = self.input.tail(position.place.byte)?.or(position.before);
        self.batcher.commit(&Position { before, ..position })
    }

    fn hash(&mut self, row: &Row) {
        if matches!(self.input, Input::Stdin) {
            let parts = [self.records_hash, xxh3_64(&row.key), xxh3_64(&row.value)];
            self.records_hash = xxh3_64(&parts.map(u64::to_le_bytes).concat());
        }
    }

    /// Before the next record.
    fn position(&self) -> Position {
        let columns = match &self.rows {
            Rows::Csv(rows) => Some(rows.columns()),
            Rows::Json(_) => None,
        };
        let before = matches!(self.input, Input::Stdin).then_some(self.records_hash);
        Position { place: self.rows.place(), records: self.records, bad: self.bad, columns, before }
    }
}

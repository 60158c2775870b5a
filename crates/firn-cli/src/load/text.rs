//! Loads the records of a CSV, TSV or JSON Lines file, or of a stream.
//!
//! Steps: 1 find the position of an earlier run; 2 compare all bytes before it with the bytes that
//! run has read; 3 read, batch, commit; 4 compare the number of lines read with the number counted;
//! 5 delete the position.

use super::batcher::{Batcher, value_bytes_max};
use super::columns::{Chosen, Columns};
use super::input::Input;
use super::position::Slot;
use super::rows::{Item, Next, Parser, Place, Row, Rows};
use super::rows_csv::{CsvRows, Dialect};
use super::rows_json::JsonRows;
use super::summary::{Lines, Summary};
use super::window::Window;
use super::{Format, Load, open, settle};
use crate::bytes_text::escape;
use crate::encoding::Encoding;
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt;
use crate::progress::{Progress, Unit};
use firn_base::key::KEY_BYTES_MAX;
use firndb::Options;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The maximum number of skipped bad lines that are listed.
const NAMED_MAX: u64 = 20;
/// Bytes in a record for columns that are not loaded.
const OTHER_COLUMNS_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Position {
    #[serde(flatten)]
    place: Place,
    #[serde(flatten)]
    lines: Lines,
    /// The columns of key and value, found in a header that is not read again.
    columns: Option<Chosen>,
    /// The hash of all bytes before the place.
    hash: u64,
}

pub(super) fn load(
    arguments: &Load,
    source: &Path,
    format: Format,
    options: Options,
) -> Outcome<Summary> {
    let input = Input::open(source)?;
    let file_bytes = input.file_bytes;
    let slot = Slot::new(&input.name, &mode(arguments, format));
    let record_bytes_max = record_bytes_max(arguments, format, &options);
    let db = open(&arguments.db, options.clone())?;
    let earlier: Option<Position> = if arguments.restart {
        None
    } else {
        slot.read(&db)?
    };
    let window = Window::new(source.to_owned(), input.reader, record_bytes_max);
    let batcher = Batcher::new(&db, slot, &options, earlier.is_some() || arguments.restart);
    let mut loading = Loading {
        source,
        rows: Rows::new(window, parser(arguments, format, earlier.as_ref())),
        batcher: if arguments.no_overwrite {
            batcher.noting_keys()
        } else {
            batcher
        },
        progress: Progress::new("comparing", file_bytes, Unit::Bytes),
        lines: Lines::default(),
        committed: earlier
            .as_ref()
            .map_or(0, |position| position.lines.records),
    };
    loading.begin(earlier.as_ref(), file_bytes.is_some())?;
    loading.progress.rename("loading");
    let taken = loading
        .take_all(arguments.skip_bad)
        .and_then(|()| loading.check_end(file_bytes));
    let taken = taken.and_then(|()| loading.batcher.finish());
    taken.map_err(|failure| loading.explain(failure))?;
    loading.check_lines()?;
    let Loading {
        rows,
        batcher,
        progress,
        lines,
        ..
    } = loading;
    let (loaded, loaded_bytes) = batcher.written;
    drop((rows, batcher, progress));
    settle(db, loaded, arguments.no_wait)?;
    let skipped = earlier
        .as_ref()
        .map_or(0, |position| position.lines.records);
    Ok(Summary {
        loaded,
        loaded_bytes,
        resumed: earlier.is_some(),
        skipped,
        lines: Some(lines),
        ..Summary::default()
    })
}

/// The arguments that distinguish this load from other loads of the same file.
fn mode(arguments: &Load, format: Format) -> String {
    let (key, value) = (&arguments.key, &arguments.value);
    let quote = if arguments.quote { " quote" } else { "" };
    format!(
        "{} {key:?} {value:?} {} {}{quote}",
        format.name(),
        arguments.header,
        arguments.encoding.name()
    )
}

/// The maximum size in the file of a record that the database can accept, in bytes.
fn record_bytes_max(arguments: &Load, format: Format, options: &Options) -> usize {
    let decoded = value_bytes_max(options) + KEY_BYTES_MAX;
    let is_plain = arguments.encoding == Encoding::Raw && format != Format::Jsonl;
    decoded * if is_plain { 1 } else { 2 } + OTHER_COLUMNS_BYTES
}

fn parser(arguments: &Load, format: Format, earlier: Option<&Position>) -> Parser {
    let encoding = arguments.encoding;
    let dialect = match format {
        Format::Csv => Dialect {
            delimiter: b',',
            is_quoted: true,
        },
        Format::Tsv => Dialect {
            delimiter: b'\t',
            is_quoted: arguments.quote,
        },
        Format::Jsonl => {
            let key = arguments.key.clone().unwrap_or_else(|| "key".to_owned());
            return Parser::Json(JsonRows::new(key, arguments.value.clone(), encoding));
        }
    };
    let chosen = earlier.and_then(|position| position.columns);
    Parser::Csv(CsvRows::new(
        dialect,
        Columns::new(arguments),
        chosen,
        encoding,
    ))
}

struct Loading<'a> {
    source: &'a Path,
    rows: Rows,
    batcher: Batcher<'a>,
    progress: Progress,
    /// Lines processed, including those of the earlier run.
    lines: Lines,
    /// Records in the database, including those of the earlier run.
    committed: u64,
}

impl Loading<'_> {
    /// Moves to the position of the earlier run, if the bytes before it are unchanged.
    fn begin(&mut self, earlier: Option<&Position>, is_file: bool) -> Outcome<()> {
        let source = self.source.display();
        let Some(position) = earlier else {
            return self.rows.pass_mark().map_err(|failure| failure.at(source));
        };
        let window = &mut self.rows.window;
        let is_there = window.pass_to(position.place.byte, |byte| self.progress.set(byte))?;
        if !is_there || window.hash() != position.hash || window.place() != position.place {
            let line = position.place.line;
            return Err(Failure::invalid(match is_file {
                true => format!(
                    "{source} has changed before line {line}, where an earlier load of it stopped: use --restart to \
                     load all of it (records that it has no longer stay in the database)"
                ),
                false => format!(
                    "{source} does not begin with the bytes that an earlier load of it has read, up to line {line}: \
                     give the same input again, or use --restart to load all of this one"
                ),
            }));
        }
        self.lines = position.lines;
        Ok(())
    }

    fn take_all(&mut self, skip_bad: bool) -> Outcome<()> {
        loop {
            let item = self.rows.next();
            if interrupt::is_requested()
                && !matches!(
                    &item,
                    Ok(Item {
                        next: Next::End,
                        ..
                    })
                )
            {
                return Err(self.stop());
            }
            let Item {
                line,
                inner_lines,
                next,
            } = item?;
            match next {
                Next::End => return Ok(()),
                Next::Header => self.lines.header += 1,
                Next::Empty => self.lines.empty += 1,
                Next::Row(row) => match self.take(&row)? {
                    Ok(()) => self.lines.records += 1,
                    Err(reason) => self.bad(line, &reason, skip_bad)?,
                },
                Next::Bad(reason) => self.bad(line, &reason, skip_bad)?,
            }
            self.lines.inner += inner_lines;
            self.progress.set(self.rows.window.place().byte);
        }
    }

    /// Adds a record. The inner error is the reason for refusing it.
    fn take(&mut self, row: &Row) -> Outcome<Result<(), String>> {
        if self.batcher.would_overwrite(&row.key, &row.value)? {
            return Ok(Err(format!(
                "the key {} is there already, with another value",
                escape(&row.key)
            )));
        }
        let bytes = row.key.len() + row.value.len();
        if self.batcher.is_large(bytes) {
            self.commit()?;
            return self.batcher.write_alone(&row.key, &row.value);
        }
        if !self.batcher.has_room(bytes) {
            self.commit()?;
        }
        self.batcher.put(&row.key, &row.value);
        Ok(Ok(()))
    }

    fn bad(&mut self, line: u64, reason: &str, skip_bad: bool) -> Outcome<()> {
        if !skip_bad {
            self.commit()?;
            return Err(Failure::invalid(format!(
                "{}:{line}: {reason}",
                self.source.display()
            )));
        }
        self.lines.bad += 1;
        if self.lines.bad <= NAMED_MAX {
            self.progress.say(format_args!(
                "passed over {}:{line}: {reason}",
                self.source.display()
            ));
        } else if self.lines.bad == NAMED_MAX + 1 {
            self.progress
                .say("passed over more bad lines; the total is at the end");
        }
        Ok(())
    }

    /// Commits everything added so far, with the place before the current item.
    fn commit(&mut self) -> Outcome<()> {
        let columns = match &self.rows.parser {
            Parser::Csv(rows) => rows.chosen(),
            Parser::Json(_) => None,
        };
        let window = &self.rows.window;
        let position = Position {
            place: window.place(),
            lines: self.lines,
            columns,
            hash: window.hash(),
        };
        self.batcher.commit(&position)?;
        self.committed = self.lines.records;
        Ok(())
    }

    /// Commits the records read so far, because a signal asked the load to stop.
    fn stop(&mut self) -> Failure {
        // A position within a skipped line cannot be resumed from.
        let committed = if self.rows.is_between_lines() {
            self.commit()
        } else {
            Ok(())
        };
        committed
            .err()
            .unwrap_or_else(|| Failure::new(Exit::Interrupted, "interrupted"))
    }

    /// Adds to `failure` how many records are loaded and how to continue.
    fn explain(&self, failure: Failure) -> Failure {
        let advice = match failure.exit() {
            Exit::Invalid if self.committed == 0 => return failure,
            Exit::Invalid => "correct the line, or use --skip-bad, and start the same load again",
            Exit::NoSpace => "free some space, and start the same load again",
            _ => "start the same load again",
        };
        failure.and(format_args!(
            "{} records are in: {advice}, it goes on from there",
            self.committed
        ))
    }

    /// Refuses a file that ended before the size that it had when it was opened.
    fn check_end(&mut self, file_bytes: Option<u64>) -> Outcome<()> {
        let (end, opened) = (self.rows.window.place().byte, file_bytes.unwrap_or(0));
        if end >= opened {
            return Ok(());
        }
        self.commit()?;
        let message = format!(
            "{} has lost bytes while it was read: it had {opened}, now {end}",
            self.source.display()
        );
        Err(Failure::new(Exit::Io, message))
    }

    /// Compares the number of line breaks in the text with the number of lines counted.
    fn check_lines(&self) -> Outcome<()> {
        let (read, counted) = (
            self.rows.window.lines(),
            self.lines.read() + self.lines.inner,
        );
        if read == counted {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "{} has {read} lines, of which {counted} were dealt with: this is a fault of firn, please report it",
            self.source.display()
        )))
    }
}

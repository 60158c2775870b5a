//! Writes CSV, TSV or JSON Lines, so that `firn load` with the same encoding restores the same
//! bytes.

use super::{Export, Format, is_stdout};
use crate::bytes_text::escape;
use crate::encoding::Encoding;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{print, print_json};
use crate::progress::{Progress, Unit};
use crate::scan::ShownEntries;
use firndb::{Error, Options};
use serde_json::json;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub(super) fn export(arguments: &Export, file: &Path, format: Format, options: Options) -> Outcome {
    let db = arguments.open(options)?;
    let mut cursor = ShownEntries::new(db.cursor()?, false, arguments.all)?;
    let mut writer = Writer::new(open(file, arguments.force)?, format, arguments.quote);
    let progress = Progress::new("exporting", Some(super::about_entries(&db)), Unit::Entries);
    let mut records = 0u64;
    writer.header()?;
    while cursor.valid() {
        let (key, value) = (cursor.iter.key(), cursor.iter.value());
        let (key_field, value_field) = (
            field(arguments.encoding, key, key)?,
            field(arguments.encoding, key, value)?,
        );
        writer.record(&key_field, &value_field)?;
        records += 1;
        progress.add(1);
        cursor.advance()?;
    }
    writer.finish()?;
    drop(progress);
    match (is_stdout(file), arguments.json) {
        // Stdout carries only the data.
        (true, _) => {}
        (false, true) => print_json(&json!({ "records": records }))?,
        (false, false) => print(format_args!("exported {records} records"))?,
    }
    Ok(Exit::Done)
}

fn field<'a>(encoding: Encoding, key: &[u8], bytes: &'a [u8]) -> Outcome<Cow<'a, str>> {
    encoding.encode(bytes).ok_or_else(|| {
        Failure::invalid(format!(
            "the entry {} is not UTF-8 text: use --encoding hex or base64",
            escape(key)
        ))
    })
}

fn open(file: &Path, force: bool) -> Outcome<Box<dyn Write>> {
    if is_stdout(file) {
        return Ok(Box::new(std::io::stdout().lock()));
    }
    let mut options = OpenOptions::new();
    options.write(true);
    // A FIFO or a device has no contents that could be overwritten.
    let is_stream = file
        .metadata()
        .is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if is_stream {
        &mut options
    } else if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    match options.open(file) {
        Ok(opened) => Ok(Box::new(Named {
            file: opened,
            name: file.to_owned(),
        })),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(Failure::invalid(format!(
            "{} exists: use --force to overwrite it",
            file.display()
        ))),
        Err(e) => Err(Error::from_io("create", file, e).into()),
    }
}

/// A file whose name appears in errors.
struct Named {
    file: File,
    name: PathBuf,
}

impl Named {
    fn failed(&self, error: io::Error) -> io::Error {
        // Nothing shows if the reader of a named pipe has failed, so this is an error, unlike on
        // stdout.
        let kind = if error.kind() == io::ErrorKind::BrokenPipe {
            io::ErrorKind::Other
        } else {
            error.kind()
        };
        io::Error::new(kind, format!("{}: {error}", self.name.display()))
    }
}

impl Write for Named {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|e| self.failed(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|e| self.failed(e))
    }
}

enum Writer {
    Separated(Box<csv::Writer<Box<dyn Write>>>),
    /// Tab-separated, without quotes.
    Plain(BufWriter<Box<dyn Write>>),
    Json(BufWriter<Box<dyn Write>>),
}

impl Writer {
    fn new(output: Box<dyn Write>, format: Format, is_quoted: bool) -> Self {
        let separated = |delimiter, output| {
            let mut builder = csv::WriterBuilder::new();
            Writer::Separated(Box::new(
                builder
                    .delimiter(delimiter)
                    .buffer_capacity(256 << 10)
                    .from_writer(output),
            ))
        };
        match format {
            Format::Csv => separated(b',', output),
            Format::Tsv if is_quoted => separated(b'\t', output),
            Format::Tsv => Writer::Plain(BufWriter::with_capacity(256 << 10, output)),
            Format::Jsonl => Writer::Json(BufWriter::with_capacity(256 << 10, output)),
        }
    }

    fn header(&mut self) -> Outcome<()> {
        match self {
            Writer::Separated(_) | Writer::Plain(_) => self.record("key", "value"),
            Writer::Json(_) => Ok(()),
        }
    }

    fn record(&mut self, key: &str, value: &str) -> Outcome<()> {
        match self {
            Writer::Separated(writer) => {
                writer
                    .write_record([key, value])
                    .map_err(|e| match e.into_kind() {
                        csv::ErrorKind::Io(e) => Failure::from_output(e),
                        other => Failure::invalid(format!("cannot write a record: {other:?}")),
                    })
            }
            Writer::Plain(writer) => {
                if [key, value]
                    .iter()
                    .any(|field| field.contains(['\t', '\n', '\r']))
                {
                    return Err(Failure::invalid(format!(
                        "the entry {} has a tab or a line break, which TSV cannot hold: use --quote, --encoding hex or \
                         --encoding base64",
                        escape(key.as_bytes())
                    )));
                }
                writeln!(writer, "{key}\t{value}").map_err(Failure::from_output)
            }
            Writer::Json(writer) => {
                let line = json!({ "key": key, "value": value });
                writeln!(writer, "{line}").map_err(Failure::from_output)
            }
        }
    }

    fn finish(self) -> Outcome<()> {
        match self {
            Writer::Separated(mut writer) => writer.flush().map_err(Failure::from_output),
            Writer::Plain(mut writer) | Writer::Json(mut writer) => {
                writer.flush().map_err(Failure::from_output)
            }
        }
    }
}

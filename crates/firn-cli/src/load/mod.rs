//! `firn load`: from files into a database, resumable.
//!
//! Records are written in batches. Each batch also contains, in the same atomic write, the position
//! that the load has reached ([`position`]). An interrupted load continues from there.

mod batcher;
mod columns;
mod input;
mod position;
mod rows;
mod rows_csv;
mod rows_json;
mod summary;
mod text;
mod tree;
mod walk;
mod window;

pub(crate) use batcher::value_bytes_max;

use crate::encoding::Encoding;
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt;
use crate::progress::watched;
use clap::Args;
use firndb::{Db, Options};
use std::path::{Path, PathBuf};

pub(crate) const LONG_ABOUT: &str = "\
Loads a directory tree (key: the path of a file below DIR, value: its bytes) or the records of a CSV, TSV or JSON \
Lines file. Existing keys are overwritten, also by a later record of the same file, unless --no-overwrite is given; \
all others stay. The load ends with all records in tables and no merge \
due, unless --no-wait is given.

Every line of a file is a record or passed over, and the counts are printed: a header, an empty line, or, with \
--skip-bad, a bad line. A quote that is not closed or stands within a field makes its line bad. TSV has no quotes \
unless --quote is given.

A load that was cut short, by Ctrl-C, kill -9, a full disk or a bad line, goes on when it is started again with the \
same arguments, and says how many records it skipped. The position of a load is kept in the database, under a key that \
begins with \\x00firn/load/, and deleted when the load is complete: the same load then begins at the start. With \
--restart it does so at once. All bytes before the position are compared, so a file that changed there is refused; \
lines that were appended or corrected after it are loaded. A stream (-, a FIFO, <(..)) must be given again from its \
beginning.";

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Directory of the database; created if it does not exist
    pub(crate) db: PathBuf,
    /// Also create the parent directories of the database
    #[arg(long)]
    create_parents: bool,
    #[command(flatten)]
    source: Source,
    /// Key column: its name in the header line, or its number counted from 0; for JSON Lines the
    /// name of its field [default: key]
    #[arg(long, value_name = "NAME|N", conflicts_with = "tree")]
    pub(crate) key: Option<String>,
    /// Value column, given in the same way [default: value; for JSON Lines the whole line]
    #[arg(long, value_name = "NAME|N", conflicts_with = "tree")]
    pub(crate) value: Option<String>,
    /// The first line is a header even if no column is given by name
    #[arg(long, conflicts_with_all = ["tree", "jsonl"])]
    pub(crate) header: bool,
    /// Encoding of keys and values in the file
    #[arg(
        long,
        value_name = "WORD",
        default_value = "raw",
        conflicts_with = "tree"
    )]
    pub(crate) encoding: Encoding,
    /// Fields may be quoted, with quotes inside them doubled; always so in CSV
    #[arg(long, conflicts_with_all = ["tree", "jsonl"])]
    pub(crate) quote: bool,
    /// Count bad lines instead of stopping at the first
    #[arg(long, conflicts_with = "tree")]
    pub(crate) skip_bad: bool,
    /// Treat a key that already exists with another value as a bad line; costs a lookup per record
    #[arg(long, conflicts_with = "tree")]
    pub(crate) no_overwrite: bool,
    /// Start from the beginning, regardless of an earlier load
    #[arg(long)]
    pub(crate) restart: bool,
    /// End once all records are loaded, without waiting for flushes and merges
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Load the files below DIR; symbolic links, special files and empty directories are listed and
    /// left out
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Load comma-separated records, or - for stdin
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Load tab-separated records without quotes, or - for stdin
    #[arg(long, value_name = "FILE")]
    tsv: Option<PathBuf>,
    /// Load one JSON object per line, or - for stdin
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
}

/// The format of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    Tsv,
    Jsonl,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Tsv => "tsv",
            Format::Jsonl => "jsonl",
        }
    }
}

impl Load {
    pub(crate) fn run(self, options: Options) -> Outcome {
        interrupt::watch()?;
        let options = options.create_parents(self.create_parents);
        let summary = match self.text_source() {
            Some((file, format)) => text::load(&self, file, format, options)?,
            None => tree::load(&self, options)?,
        };
        if self.json {
            crate::output::print_json(&summary.report())?
        } else {
            crate::output::print(&summary)?
        }
        Ok(if summary.refused == 0 {
            Exit::Done
        } else {
            Exit::NotFound
        })
    }

    fn text_source(&self) -> Option<(&Path, Format)> {
        let source = &self.source;
        let files = [
            (&source.csv, Format::Csv),
            (&source.tsv, Format::Tsv),
            (&source.jsonl, Format::Jsonl),
        ];
        files
            .into_iter()
            .find_map(|(file, format)| Some((file.as_deref()?, format)))
    }
}

/// Opens the database for writing, creating it if necessary.
fn open(path: &Path, options: Options) -> Outcome<Db> {
    Db::open(path, options.create_if_missing(true)).map_err(Failure::from)
}

/// Flushes memtables and waits until no merge is due, unless `no_wait`. Then closes the database.
fn settle(db: Db, loaded: u64, no_wait: bool) -> Outcome<()> {
    if !interrupt::complete() || no_wait {
        return Ok(db.close()?);
    }
    let settled = watched(&db, "flushing and merging", None, |db| {
        db.flush()?;
        db.wait_idle()
    });
    let advice = "`firn compact` ends it later";
    settled.map_err(|e| {
        Failure::from(e)
            .at(format_args!(
                "all {loaded} records are in, but not all are in tables"
            ))
            .and(advice)
    })?;
    Ok(db.close()?)
}

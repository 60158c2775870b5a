//! `firn load`: from files into a database, resumable.
//!
//! Records go in by batches, and with each, in the same atomic write, the position that the load has reached
//! ([`position`]). A load that was cut short goes on from there.

mod batcher;
mod columns;
mod position;
mod rows;
mod rows_csv;
mod rows_json;
mod summary;
mod text;
mod tree;
mod walk;

use crate::encoding::Encoding;
use crate::exit::{Exit, Failure, Outcome};
use clap::Args;
use firndb::{Db, Options};
use std::path::{Path, PathBuf};

const LONG_ABOUT: &str = "\
Loads a directory tree (key: the path of a file below DIR, value: its bytes) or the records of a CSV, TSV or JSON \
Lines file. Existing keys are overwritten, all others stay.

A load that was cut short, by kill -9 or by a bad line, goes on where it was when it is started again with the same \
arguments, and says how many it skipped. Where a load stands is kept in the database, under a key that begins with \
\\x00firn/load/, and forgotten when the load is complete: the same load then loads everything anew. With --restart it \
does so at once. A file that changed before the place where its load stood is refused; what was appended since, or \
corrected behind that place, is loaded. From stdin (-) so many records are skipped as were loaded, so give it the same \
records again.";

#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct Load {
    /// Directory of the database; made if it is not there
    pub(crate) db: PathBuf,
    #[command(flatten)]
    source: Source,
    /// Key column: its name in the header line, or its number from 0; for JSON Lines its field's name [default: key]
    #[arg(long, value_name = "NAME|N", conflicts_with = "tree")]
    pub(crate) key: Option<String>,
    /// Value column likewise [default: value; for JSON Lines the whole line]
    #[arg(long, value_name = "NAME|N", conflicts_with = "tree")]
    pub(crate) value: Option<String>,
    /// The first line is a header, though no column is named
    #[arg(long, conflicts_with_all = ["tree", "jsonl"])]
    pub(crate) header: bool,
    /// How keys and values stand in the file
    #[arg(long, value_name = "WORD", default_value = "raw", conflicts_with = "tree")]
    pub(crate) encoding: Encoding,
    /// Count bad lines instead of stopping at the first
    #[arg(long, conflicts_with = "tree")]
    pub(crate) skip_bad: bool,
    /// Begin from the start, whatever an earlier load has done
    #[arg(long)]
    pub(crate) restart: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Load the files below DIR; symbolic links, special files and empty directories are named and left out
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Load comma-separated records, or - for stdin
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Load tab-separated records, or - for stdin
    #[arg(long, value_name = "FILE")]
    tsv: Option<PathBuf>,
    /// Load one JSON object per line, or - for stdin
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
}

/// What a text file's lines are.
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
        let summary = match self.text_source() {
            Some((file, format)) => text::load(&self, file, format, options)?,
            None => tree::load(&self, options)?,
        };
        if self.json {
            crate::output::print_json(&summary)?
        } else {
            crate::output::print(&summary)?
        }
        Ok(if summary.refused == 0 { Exit::Done } else { Exit::NotFound })
    }

    fn text_source(&self) -> Option<(&Path, Format)> {
        let source = &self.source;
        let files = [(&source.csv, Format::Csv), (&source.tsv, Format::Tsv), (&source.jsonl, Format::Jsonl)];
        files.into_iter().find_map(|(file, format)| Some((file.as_deref()?, format)))
    }
}

/// Opens the database to write into, making it if need be.
fn open(path: &Path, options: Options) -> Outcome<Db> {
    Db::open(path, Options { create_if_missing: true, ..options }).map_err(Failure::from)
}

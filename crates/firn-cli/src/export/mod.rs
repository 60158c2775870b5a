//! `firn export`: from a database to files.

mod directory;
mod name;
mod text;
mod tree;

use crate::encoding::Encoding;
use crate::exit::Outcome;
use clap::Args;
use firndb::{Db, Options};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Directory of the database
    pub(crate) db: PathBuf,
    #[command(flatten)]
    target: Target,
    /// Encoding of keys and values in the file; raw is for text only
    #[arg(
        long,
        value_name = "WORD",
        default_value = "raw",
        conflicts_with = "tree"
    )]
    encoding: Encoding,
    /// Quote fields where necessary, for `firn load --quote`; always done in CSV
    #[arg(long, conflicts_with_all = ["tree", "jsonl"])]
    quote: bool,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// Include the firn command's own keys
    #[arg(long)]
    all: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Write each value to the file below DIR that its key names; keys that lead elsewhere are
    /// refused and listed
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Write comma-separated records after a header line, or - for stdout
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write tab-separated records without quotes after a header line, or - for stdout
    #[arg(long, value_name = "FILE")]
    tsv: Option<PathBuf>,
    /// Write one JSON object per line, or - for stdout
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
}

/// The format of the exported entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Tsv,
    Jsonl,
}

impl Export {
    pub(crate) fn run(self, options: Options) -> Outcome {
        if let Some(directory) = &self.target.tree {
            return tree::export(&self, directory, options);
        }
        let files = [
            (&self.target.csv, Format::Csv),
            (&self.target.tsv, Format::Tsv),
            (&self.target.jsonl, Format::Jsonl),
        ];
        match files
            .into_iter()
            .find_map(|(file, format)| Some((file.as_deref()?, format)))
        {
            Some((file, format)) => text::export(&self, file, format, options),
            None => Err(crate::exit::Failure::usage(
                "give --tree, --csv, --tsv or --jsonl",
            )),
        }
    }

    fn open(&self, options: Options) -> Outcome<Db> {
        Ok(Db::open_read_only(&self.db, options)?)
    }
}

/// Approximate number of entries, including stale ones, to estimate the time left.
fn about_entries(db: &Db) -> u64 {
    let stats = db.stats();
    stats.recovery.replayed_entries + stats.levels.iter().map(|level| level.entries).sum::<u64>()
}

/// True if `file` means stdout.
fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == "-"
}

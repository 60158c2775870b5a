//! `firn export`: from a database into files.

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
    /// How keys and values stand in the file; raw is for text only
    #[arg(long, value_name = "WORD", default_value = "raw", conflicts_with = "tree")]
    encoding: Encoding,
    /// Put fields in quotes where they need it, for `firn load --quote`; always so in CSV
    #[arg(long, conflicts_with_all = ["tree", "jsonl"])]
    quote: bool,
    /// Overwrite files that are there already
    #[arg(long)]
    force: bool,
    /// Take the firn command's own keys along
    #[arg(long)]
    all: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Write each value to the file below DIR that its key names; what would land elsewhere is refused by name
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

/// What is written of each entry.
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
        let files =
            [(&self.target.csv, Format::Csv), (&self.target.tsv, Format::Tsv), (&self.target.jsonl, Format::Jsonl)];
        match files.into_iter().find_map(|(file, format)| Some((file.as_deref()?, format))) {
            Some((file, format)) => text::export(&self, file, format, options),
            None => Err(crate::exit::Failure::usage("give --tree, --csv, --tsv or --jsonl")),
        }
    }

    fn open(&self, options: Options) -> Outcome<Db> {
        Ok(Db::open_read_only(&self.db, options)?)
    }
}

/// How many entries there are, stale ones among them; for the time left.
fn about_entries(db: &Db) -> u64 {
    let stats = db.stats();
    stats.recovery.replayed_entries + stats.levels.iter().map(|level| level.entries).sum::<u64>()
}

/// Whether `file` means stdout.
fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == "-"
}

//! `firn scan` and `firn dump`: entries in key order.

use crate::bytes_text::{from_argument, show, to_json};
use crate::exit::{Exit, Outcome};
use crate::output::{Output, print, print_json};
use crate::reserved;
use clap::Args;
use firndb::{Cursor, Db, Options, ReadOptions};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// First key
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// First key not to print
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY")]
    prefix: Option<OsString>,
    /// Print at most N entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Omit the values
    #[arg(long)]
    keys_only: bool,
    /// Print the number of entries and nothing else
    #[arg(long)]
    count: bool,
    /// Also print the firn command's own keys
    #[arg(long)]
    all: bool,
    /// Keys and values are given and printed in hexadecimal; otherwise bytes that are not text are
    /// printed as \xNN
    #[arg(long)]
    hex: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl Scan {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let bounds = self.bounds()?;
        let db = Db::open_read_only(&self.db, options)?;
        let mut cursor = ShownEntries::new(db.cursor_with(bounds)?, self.reverse, self.all)?;
        let mut output = Output::new();
        let mut count = 0;
        while cursor.valid() && self.limit.is_none_or(|limit| count < limit) {
            count += 1;
            if !self.count {
                self.print(&mut output, &cursor.iter)?;
            }
            cursor.advance()?;
        }
        output.finish()?;
        match (self.count, self.json) {
            (true, true) => print_json(&json!({ "count": count }))?,
            (true, false) => print(count)?,
            (false, _) => {}
        }
        Ok(Exit::Done)
    }

    /// The intersection of --from, --to and --prefix.
    fn bounds(&self) -> Outcome<ReadOptions> {
        let key = |text: &Option<OsString>| {
            text.as_ref()
                .map(|text| from_argument(text, self.hex))
                .transpose()
        };
        let (from, to, prefix) = (key(&self.from)?, key(&self.to)?, key(&self.prefix)?);
        let behind = prefix.as_deref().and_then(firn_base::key::prefix_end);
        let upper = match (to, behind) {
            (Some(to), Some(behind)) => Some(to.min(behind)),
            (to, behind) => to.or(behind),
        };
        Ok(ReadOptions {
            lower: from.max(prefix),
            upper,
            ..ReadOptions::default()
        })
    }

    fn print(&self, output: &mut Output, iter: &Cursor) -> Outcome<()> {
        let (key, value) = (iter.key(), iter.value());
        match (self.json, self.keys_only) {
            (true, true) => output.json_line(&json!({ "key": to_json(key, self.hex) })),
            (true, false) => output.json_line(
                &json!({ "key": to_json(key, self.hex), "value": to_json(value, self.hex) }),
            ),
            (false, true) => output.line(show(key, self.hex)),
            (false, false) => output.line(format_args!(
                "{}\t{}",
                show(key, self.hex),
                show(value, self.hex)
            )),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Also print the firn command's own keys
    #[arg(long)]
    all: bool,
    /// In hexadecimal; otherwise bytes that are not text are printed as \xNN
    #[arg(long)]
    hex: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl Dump {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let db = Db::open_read_only(&self.db, options)?;
        let mut cursor = ShownEntries::new(db.cursor()?, false, self.all)?;
        let mut output = Output::new();
        while cursor.valid() {
            let (key, value) = (cursor.iter.key(), cursor.iter.value());
            if self.json {
                let (key, bytes) = (to_json(key, self.hex), value.len());
                output.json_line(
                    &json!({ "key": key, "value_bytes": bytes, "value": to_json(value, self.hex) }),
                )?;
            } else {
                let (key, bytes) = (show(key, self.hex), value.len());
                output.line(format_args!(
                    "{key} ({bytes} bytes) = {}",
                    show(value, self.hex)
                ))?;
            }
            cursor.advance()?;
        }
        output.finish()?;
        Ok(Exit::Done)
    }
}

/// Iterates over entries in one direction, skipping the command's own keys unless they are
/// requested.
pub(crate) struct ShownEntries {
    pub(crate) iter: Cursor,
    reverse: bool,
    all: bool,
}

impl ShownEntries {
    pub(crate) fn new(iter: Cursor, reverse: bool, all: bool) -> Outcome<Self> {
        let mut cursor = Self { iter, reverse, all };
        if reverse {
            cursor.iter.last()?
        } else {
            cursor.iter.first()?
        }
        cursor.pass_reserved()?;
        Ok(cursor)
    }

    pub(crate) fn valid(&self) -> bool {
        self.iter.valid()
    }

    pub(crate) fn advance(&mut self) -> Outcome<()> {
        self.step()?;
        self.pass_reserved()
    }

    fn pass_reserved(&mut self) -> Outcome<()> {
        while !self.all && self.iter.valid() && reserved::is_reserved(self.iter.key()) {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Outcome<()> {
        if self.reverse {
            self.iter.prev()?
        } else {
            self.iter.next()?
        }
        Ok(())
    }
}

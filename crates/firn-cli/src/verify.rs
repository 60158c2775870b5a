//! `firn verify` and `firn repair`.

use crate::exit::{Exit, Outcome};
use crate::output::print_json;
use crate::progress::{Progress, watched};
use crate::stats::print_report;
use clap::Args;
use firndb::{Db, Options};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let db = Db::open_read_only(&self.db, options)?;
        let report = watched(&db, "verifying", Some(db.stats().table_bytes), Db::verify)?;
        if self.json {
            print_json(&report)?
        } else {
            print_report(&report)?
        }
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let progress = Progress::spinner("repairing");
        let report = firndb::repair(&self.db, &options);
        drop(progress);
        let report = report?;
        if self.json {
            print_json(&report)?
        } else {
            print_report(&report)?
        }
        Ok(Exit::Done)
    }
}

//! `firn compact` and `firn checkpoint`.

use crate::bytes_text::from_argument;
use crate::exit::{Exit, Outcome};
use crate::progress::{Progress, watched};
use clap::Args;
use firndb::{Db, ErrorKind, Options};
use std::ffi::OsString;
use std::ops::Bound;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// First key of the range
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// First key after the range
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// The keys are given in hexadecimal
    #[arg(long)]
    hex: bool,
}

impl Compact {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let key = |text: &Option<OsString>| {
            text.as_ref()
                .map(|text| from_argument(text, self.hex))
                .transpose()
        };
        let (from, to) = (key(&self.from)?, key(&self.to)?);
        let db = Db::open(&self.db, options.create_if_missing(false))?;
        watched(&db, "compacting", None, move |db| {
            let lower = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let upper = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            db.compact_range::<&[u8]>((lower, upper))?;
            db.wait_idle()
        })?;
        db.close()?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Directory to create for the copy, which is an independent database
    target: PathBuf,
}

impl Checkpoint {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let db = match Db::open(&self.db, options.clone().create_if_missing(false)) {
            // In this case its tables are copied, and the copy shows the state at the time of this
            // open.
            Err(error) if error.kind() == ErrorKind::Locked => {
                Db::open_read_only(&self.db, options)?
            }
            opened => opened?,
        };
        let progress = Progress::spinner("writing a checkpoint");
        db.checkpoint(&self.target)?;
        drop(progress);
        db.close()?;
        Ok(Exit::Done)
    }
}

//! `firn bench cell`: one engine in one round, in a process of its own, for `firn bench ycsb`.

use crate::exit::{Exit, Outcome};
use clap::Args;
use firn_bench::{Engines, run_cell};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Cell {
    /// What to do: JSON
    spec: PathBuf,
    /// Where the result goes: JSON
    result: PathBuf,
}

impl Cell {
    pub(super) fn run(self, engines: &Engines) -> Outcome {
        // Who started this is gone only if it was killed: its databases are then nobody's.
        let _unsupported = set_parent_process_death_signal(Some(Signal::KILL));
        run_cell(engines, &self.spec, &self.result)?;
        Ok(Exit::Done)
    }
}

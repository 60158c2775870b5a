//! `firn bench cell`: one engine in one round, in its own process, for a comparison of engines.

use crate::exit::{Exit, Outcome};
use clap::Args;
use firn_bench::{Engines, run_cell};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Cell {
    /// The cell to run: JSON
    spec: PathBuf,
    /// File for the result: JSON
    result: PathBuf,
}

impl Cell {
    pub(super) fn run(self, engines: &Engines) -> Outcome {
        // The parent disappears only if it was killed. This process then has to end too, because
        // nothing would use its result or remove its databases.
        let _unsupported = set_parent_process_death_signal(Some(Signal::KILL));
        run_cell(engines, &self.spec, &self.result)?;
        Ok(Exit::Done)
    }
}

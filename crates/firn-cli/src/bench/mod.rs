//! `firn bench`: measures, and shows what came of it. `firn-peers` has the same verbs, with other engines beside
//! FirnDB.

mod cell;
mod interrupt;
mod paper;
mod place;
mod quick;
mod tables;
mod ycsb;

pub(crate) use interrupt::wait_if_interrupted;

use crate::config::Settings;
use crate::exit::Outcome;
use clap::{Args, Subcommand};
use firn_bench::Engines;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Is anything badly wrong? In a temporary directory, under three minutes
    Quick(quick::Quick),
    /// Workloads on several engines, each in a process of its own, in rounds
    Ycsb(Box<ycsb::Ycsb>),
    /// A paper's experiments, scaled down: its figures beside ours
    Paper(Box<paper::Paper>),
    /// Run one engine in one round: what `ycsb` starts
    #[command(hide = true)]
    Cell(cell::Cell),
}

impl Bench {
    /// `verbs` are the words on the command line before the kind of benchmark.
    pub(crate) fn run(self, settings: Settings, engines: &Engines, verbs: &[&str]) -> Outcome {
        match self.kind {
            Kind::Quick(quick) => quick.run(settings.into_options()?),
            Kind::Ycsb(ycsb) => ycsb.run(settings, engines, &[verbs, &["cell"]].concat()),
            Kind::Paper(paper) => paper.run(settings, engines, &[verbs, &["cell"]].concat()),
            Kind::Cell(cell) => cell.run(engines),
        }
    }
}

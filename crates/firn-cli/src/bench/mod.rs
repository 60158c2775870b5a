//! `firn bench`: measures, and shows what came of it.

mod interrupt;
mod quick;
mod tables;
mod ycsb;

pub(crate) use interrupt::wait_if_interrupted;

use crate::exit::Outcome;
use clap::{Args, Subcommand};
use firndb::Options;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Is anything badly wrong? In a temporary directory, under three minutes
    Quick(quick::Quick),
    /// Workloads over a database of your own: load, a to f, ur (uniform reads), update
    Ycsb(ycsb::Ycsb),
}

impl Bench {
    pub(crate) fn run(self, options: Options) -> Outcome {
        match self.kind {
            Kind::Quick(quick) => quick.run(options),
            Kind::Ycsb(ycsb) => ycsb.run(options),
        }
    }
}

//! `firn bench`: runs benchmarks and shows their results. `firn-peers` has the same verbs with
//! other engines next to FirnDB.

mod cell;
mod comparison;
mod interrupt;
mod paper;
mod place;
mod quick;
mod report;
mod retail;
mod tables;
mod traffic;
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
    /// Check that nothing is badly wrong; in a temporary directory, under three minutes
    Quick(quick::Quick),
    /// Workloads on several engines, each in its own process, in rounds
    Ycsb(Box<ycsb::Ycsb>),
    /// Orders with tables, secondary indexes and a life cycle, on several engines; every answer is
    /// checked
    Retail(Box<retail::Retail>),
    /// A paper's experiments, scaled down: its figures next to ours
    Paper(Box<paper::Paper>),
    /// Show a report of `ycsb` or `retail` again: as a table, a plot, a page, or without its rounds
    Report(report::Report),
    /// Run one engine in one round; started by the others
    #[command(hide = true)]
    Cell(cell::Cell),
}

impl Bench {
    /// `verbs` are the words before the kind of benchmark on the command line.
    pub(crate) fn run(self, settings: Settings, engines: &Engines, verbs: &[&str]) -> Outcome {
        match self.kind {
            Kind::Quick(quick) => quick.run(settings.into_options()?),
            Kind::Ycsb(ycsb) => ycsb.run(settings, engines, &[verbs, &["cell"]].concat()),
            Kind::Retail(retail) => retail.run(settings, engines, &[verbs, &["cell"]].concat()),
            Kind::Paper(paper) => paper.run(settings, engines, &[verbs, &["cell"]].concat()),
            Kind::Report(report) => report.run(),
            Kind::Cell(cell) => cell.run(engines),
        }
    }
}

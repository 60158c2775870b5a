//! `firn bench quick`.

use super::interrupt;
use super::place::scratch;
use super::tables::{latency_table, quick_summary};
use crate::exit::{Exit, Outcome};
use crate::output::{print, print_json};
use crate::progress::BenchProgress;
use clap::Args;
use firn_base::clock::Clock;
use firn_bench::QuickConfig;
use firndb::Options;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Quick {
    /// Parent of the temporary directory [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Records to load, with 16-byte keys and 1 KiB values
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Operations of the mixed phase and of the read phase, each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ops: u64,
    /// Updates that are durable against power loss
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    power_ops: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    threads: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Quick {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let directory = scratch(self.dir.as_deref())?;
        let config = QuickConfig {
            records: self.records,
            operations: self.ops,
            power_operations: self.power_ops,
            threads: self.threads,
            ..QuickConfig::default()
        };
        let clock = Clock::system();
        let report = firn_bench::quick(
            &config,
            directory.path(),
            options,
            &clock,
            &BenchProgress::default(),
        );
        interrupt::wait_if_interrupted();
        drop(directory);
        let report = report?;
        if self.json {
            print_json(&report)?;
        } else {
            print(latency_table(&report.phases))?;
            print(quick_summary(&report))?;
        }
        Ok(Exit::Done)
    }
}

//! `firn bench ycsb`: workloads on several engines, side by side.

use super::comparison::{Comparison, list};
use crate::config::Settings;
use crate::exit::{Failure, Outcome};
use clap::Args;
use firn_bench::{Engines, RunConfig, Sizes, Values, Workload};
use firndb::Durability;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Ycsb {
    /// Workloads in order, separated by commas. `--workloads help` lists them
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "load,a,b,c,d,e,f,u"
    )]
    workloads: Vec<String>,
    /// Records in the database after the load
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Minimum operations of each workload except a load
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ops: u64,
    /// Total operations per second of all threads; latency then counts from the time at which an
    /// operation was due. A load that is followed by other workloads runs at full speed
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Size of keys in bytes: 16, or 16-40 for sizes distributed uniformly from one to the other
    #[arg(long, value_name = "SIZES", default_value = "16")]
    key_size: Sizes,
    /// Size of values in bytes: 1024, or 100-4000
    #[arg(long, value_name = "SIZES", default_value = "1024")]
    value_size: Sizes,
    /// The fraction of a value that compression can remove, 0 to 1
    #[arg(long, value_name = "X", default_value_t = 0.5)]
    compressibility: f64,
    /// The zipfian parameter, 0 (uniform) to below 1
    #[arg(long, value_name = "X", default_value_t = 0.99)]
    theta: f64,
    /// Write the gets to FILE, which must not exist, for the example `cache_lab` of firn-bench: one
    /// engine, one round
    #[arg(long, value_name = "FILE")]
    gets_file: Option<PathBuf>,
    #[command(flatten)]
    comparison: Comparison,
}

impl Ycsb {
    /// `child` holds the arguments with which this program runs a cell.
    pub(super) fn run(self, settings: Settings, engines: &Engines, child: &[&str]) -> Outcome {
        if self.workloads == ["help"] {
            return list(Workload::names());
        }
        self.check_gets_file()?;
        let config = |durability| self.config(durability);
        self.comparison.run(settings, engines, child, config)
    }

    /// Refuses a file for gets that is there, or that several runs would have.
    fn check_gets_file(&self) -> Outcome<()> {
        let Some(file) = &self.gets_file else {
            return Ok(());
        };
        let Comparison { engines, place, .. } = &self.comparison;
        if place.rounds > 1 || engines.len() > 1 {
            return Err(Failure::invalid(
                "--gets-file takes the gets of one run: name one engine with --engines, and one round",
            ));
        }
        if file.exists() {
            let message = format!("{} is there already: name a new file", file.display());
            return Err(Failure::invalid(message));
        }
        Ok(())
    }

    fn config(&self, durability: Durability) -> Outcome<RunConfig> {
        let workloads: firndb::Result<Vec<Workload>> =
            self.workloads.iter().map(|name| name.parse()).collect();
        Ok(RunConfig {
            records: self.records,
            operations: self.ops,
            seconds_min: self.comparison.place.seconds,
            threads: self.comparison.place.threads,
            key_sizes: self.key_size,
            values: Values {
                sizes: self.value_size,
                compressibility: self.compressibility,
            },
            workloads: workloads?,
            durability,
            rate: self.rate,
            theta: self.theta,
            reopened_with: Default::default(),
            retail: None,
            gets_file: self.gets_file.clone(),
        })
    }
}

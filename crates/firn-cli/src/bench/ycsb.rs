//! `firn bench ycsb`.

use super::tables::{latency_table, resource_table};
use crate::byte_size::ByteSize;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::print;
use crate::progress::BenchProgress;
use clap::Args;
use firn_base::clock::Clock;
use firn_bench::{FirnStore, Workload, YcsbConfig, YcsbReport};
use firndb::{Db, Error, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Args)]
pub(crate) struct Ycsb {
    /// Directory of the database; made if it is not there, and kept
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Workloads in order, with commas: load, a, b, c, d, e, f, ur, update
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "load,c,ur,a")]
    workloads: Vec<Workload>,
    /// Records in the database once it is loaded; the same for every run on it
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Operations of each workload but the load
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ops: u64,
    /// Stop each workload after so many seconds, though operations are left
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Operations per second of all threads together; latency then counts from when an operation was due
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    threads: usize,
    /// Size of each key
    #[arg(long, value_name = "SIZE", default_value = "16")]
    key_size: ByteSize,
    /// Size of each value
    #[arg(long, value_name = "SIZE", default_value = "1024")]
    value_size: ByteSize,
    /// The zipfian parameter, 0 (uniform) to below 1
    #[arg(long, value_name = "X", default_value_t = 0.99)]
    theta: f64,
    /// Write the report to FILE as JSON, or to stdout, instead of the tables, if FILE is -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Ycsb {
    pub(crate) fn run(self, options: Options) -> Outcome {
        if !(0.0..1.0).contains(&self.theta) {
            return Err(Failure::usage("--theta must be at least 0 and below 1"));
        }
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return Err(Failure::usage("--rate must be above 0"));
        }
        let config = YcsbConfig {
            records: self.records,
            operations: self.ops,
            threads: self.threads,
            key_bytes: self.key_size.0 as usize,
            value_bytes: self.value_size.0 as usize,
            workloads: self.workloads,
            durability: options.durability,
            seconds_max: self.seconds,
            rate: self.rate,
            theta: self.theta,
        };
        let loads = config.workloads.contains(&Workload::Load);
        let db = Db::open(&self.db, Options { create_if_missing: loads, ..options })?;
        let store = Arc::new(FirnStore::new(&db, &self.db));
        let report = firn_bench::ycsb(store, &config, &Clock::system(), &BenchProgress::default())?;
        db.close()?;
        write(&report, self.json.as_deref())?;
        Ok(Exit::Done)
    }
}

fn write(report: &YcsbReport, json: Option<&Path>) -> Outcome<()> {
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure::invalid(format!("cannot write JSON: {e}")))?;
    if json.is_some_and(|file| file.as_os_str() == "-") {
        return print(text);
    }
    if let Some(file) = json {
        std::fs::write(file, text + "\n").map_err(|e| Error::from_io("write", file, e))?;
    }
    print(&report.engine)?;
    print(latency_table(&report.phases))?;
    print(resource_table(&report.phases))
}

//! A list of workloads over one database.

use crate::key_space::KeySpace;
use crate::phase::{Bench, Phase, Watch};
use crate::report::PhaseReport;
use crate::store::Store;
use crate::workload::Workload;
use firn_base::Result;
use firn_base::clock::Clock;
use firndb::Durability;
use serde::Serialize;
use std::sync::Arc;

/// What to run.
#[derive(Debug, Clone)]
pub struct YcsbConfig {
    /// Records in the database once it is loaded.
    pub records: u64,
    /// Operations of each workload but the load, which has one per record.
    pub operations: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// What to run, in order.
    pub workloads: Vec<Workload>,
    /// What a write must survive before it counts as done.
    pub durability: Durability,
    /// Stop each workload after so many seconds.
    pub seconds_max: Option<u64>,
    /// Operations per second, for an open loop.
    pub rate: Option<f64>,
    /// The zipfian parameter.
    pub theta: f64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct YcsbReport {
    /// What was measured.
    pub engine: String,
    /// Records asked for.
    pub records: u64,
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// The zipfian parameter.
    pub theta: f64,
    /// When the run began, in seconds since 1970.
    pub unix_seconds: u64,
    /// One report per workload.
    pub phases: Vec<PhaseReport>,
}

/// Runs the workloads of `config` on `store`, one after the other, waiting in between until the store is at rest.
///
/// # Errors
/// The first error of the store, or [`firn_base::ErrorKind::Corruption`] for the first wrong answer.
pub fn ycsb(store: Arc<dyn Store>, config: &YcsbConfig, clock: &Clock, watch: &dyn Watch) -> Result<YcsbReport> {
    let keys = KeySpace::new(config.key_bytes, config.records)?;
    let inserts = config.workloads.iter().map(|workload| workload.inserts_max(config.operations)).sum();
    let bench = Bench::new(store.clone(), keys, config.value_bytes, config.records, inserts, clock.clone())?;
    let engine = store.describe();
    let unix_seconds = clock.unix_seconds();
    let mut phases = Vec::new();
    for &workload in &config.workloads {
        let operations = if workload == Workload::Load { config.records } else { config.operations };
        let phase = Phase {
            workload,
            operations,
            threads: config.threads,
            durability: config.durability,
            seconds_max: config.seconds_max,
            rate: config.rate,
            theta: config.theta,
            settle: true,
        };
        phases.push(bench.run(&phase, watch)?);
    }
    let (records, key_bytes, value_bytes) = (config.records, config.key_bytes, config.value_bytes);
    Ok(YcsbReport { engine, records, key_bytes, value_bytes, theta: config.theta, unix_seconds, phases })
}

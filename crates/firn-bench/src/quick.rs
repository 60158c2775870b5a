//! The quick benchmark: checks in under three minutes that nothing is badly wrong on this machine.
//!
//! Steps: 1 check the free space; 2 measure a device sync; 3 load; 4 half reads, half updates; 5
//! reads only; 6 updates that survive power loss; 7 wait until the engine is at rest; 8 report what
//! is badly wrong, if anything.

mod verdict;

pub use verdict::Verdict;

use crate::firn::FirnStore;
use crate::key_space::KeySpace;
use crate::machine::{free_bytes, sync_ns};
use crate::phase::{Bench, Phase, Watch};
use crate::record::Values;
use crate::report::PhaseReport;
use crate::size::Sizes;
use crate::store::Store;
use crate::workload::Workload;
use firn_base::clock::Clock;
use firn_base::{Error, ErrorKind, Result};
use firndb::{Db, Durability, Options};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

const SYNC_ROUNDS: usize = 50;

/// The size of the benchmark.
#[derive(Debug, Clone)]
pub struct QuickConfig {
    /// Records to load.
    pub records: u64,
    /// Operations of the mixed phase and of the read phase, each.
    pub operations: u64,
    /// Updates that survive power loss.
    pub power_operations: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Length of each key, in bytes.
    pub key_bytes: usize,
    /// Length of each value, in bytes.
    pub value_bytes: usize,
}

impl Default for QuickConfig {
    fn default() -> Self {
        Self {
            records: 1_000_000,
            operations: 1_000_000,
            power_operations: 20_000,
            threads: 4,
            key_bytes: 16,
            value_bytes: 1024,
        }
    }
}

/// The result of the benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct QuickReport {
    /// The engine that was measured.
    pub engine: String,
    /// Records loaded.
    pub records: u64,
    /// Bytes of keys and values loaded.
    pub loaded_bytes: u64,
    /// Time to append and sync 4 KiB on the device, in microseconds (median), before anything else
    /// was done.
    pub device_sync_us: f64,
    /// The phases: load, mix, reads, durable updates.
    pub phases: Vec<PhaseReport>,
    /// Seconds until the engine was at rest after the last phase.
    pub settle_seconds: f64,
    /// Bytes written to storage per byte of user data, over the whole run.
    pub written_per_byte: f64,
    /// Bytes of storage in use at the end.
    pub space_bytes: u64,
    /// Bytes of storage in use per byte loaded.
    pub space_per_byte: f64,
    /// Total seconds that writers were held back.
    pub stall_seconds: f64,
    /// The assessment: is anything badly wrong?
    pub verdict: Verdict,
}

/// Peak disk space of a run of `config`, in bytes.
pub fn quick_bytes_needed(config: &QuickConfig) -> u64 {
    // Twice the data while a level is rewritten, and once more for the log and obsolete files.
    let record_bytes = (config.key_bytes + config.value_bytes) as u64;
    config
        .records
        .saturating_mul(record_bytes)
        .saturating_mul(3)
        + (256 << 20)
}

/// Runs the quick benchmark with its database in `directory`, which must exist and is kept, with
/// everything in it.
///
/// # Errors
/// [`ErrorKind::NoSpace`] before anything is written if there is too little room; the first error
/// of the engine; [`ErrorKind::Corruption`] for the first wrong answer.
pub fn quick(
    config: &QuickConfig,
    directory: &Path,
    options: Options,
    clock: &Clock,
    watch: &dyn Watch,
) -> Result<QuickReport> {
    let (free, needed) = (free_bytes(directory)?, quick_bytes_needed(config));
    if free < needed {
        let text = format!(
            "the quick benchmark needs {} MB in {}, and {} MB are free: choose another place with --dir",
            needed / 1_000_000,
            directory.display(),
            free / 1_000_000
        );
        return Err(Error::new(ErrorKind::NoSpace, text));
    }
    let device_sync_us = sync_ns(directory, SYNC_ROUNDS, clock)? as f64 / 1e3;
    let path = directory.join("db");
    let db = Db::open(&path, options.create_if_missing(true))?;
    let store: Arc<dyn Store> = Arc::new(FirnStore::new(&db, path));
    let keys = KeySpace::new(Sizes::fixed(config.key_bytes), config.records)?;
    let values = Values::new(Sizes::fixed(config.value_bytes));
    let bench = Bench::new(
        store.clone(),
        directory,
        keys,
        values,
        &[],
        config.operations,
        clock.clone(),
    )?;
    let mut phases = Vec::new();
    for phase in phases_of(config)? {
        phases.push(bench.run(&phase, watch)?);
    }
    drop(bench);
    let engine = store.describe();
    let start = clock.now_ns();
    watch.begin("settle", 0);
    let settled = store.settle();
    watch.end();
    settled?;
    let settle_seconds = (clock.now_ns() - start) as f64 / 1e9;
    let counters = store.counters();
    drop(store);
    db.close()?;
    let user_bytes: u64 = phases.iter().map(|phase| phase.user_bytes).sum();
    let loaded_bytes = config.records * (config.key_bytes + config.value_bytes) as u64;
    let mut report = QuickReport {
        engine,
        records: config.records,
        loaded_bytes,
        device_sync_us,
        phases,
        settle_seconds,
        written_per_byte: counters.written("ssd", |_| true) as f64 / user_bytes.max(1) as f64,
        space_bytes: counters.space_bytes,
        space_per_byte: counters.space_bytes as f64 / loaded_bytes.max(1) as f64,
        stall_seconds: counters.stall_seconds.unwrap_or(0.0),
        verdict: Verdict {
            ok: true,
            findings: Vec::new(),
        },
    };
    report.verdict = Verdict::of(&report, config.threads);
    Ok(report)
}

fn phases_of(config: &QuickConfig) -> Result<[Phase; 4]> {
    let phase = |workload: Workload, operations, durability| Phase {
        workload,
        operations,
        threads: config.threads,
        durability,
        seconds_min: 0,
        rate: None,
        theta: 0.99,
        settle: false,
    };
    Ok([
        phase(Workload::load(), config.records, Durability::Process),
        phase("a".parse()?, config.operations, Durability::Process),
        phase("c".parse()?, config.operations, Durability::Process),
        phase("o".parse()?, config.power_operations, Durability::Power),
    ])
}

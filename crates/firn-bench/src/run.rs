//! A sequence of workloads on one database.

use crate::engine::Setup;
use crate::gets::GetsFile;
use crate::key_space::KeySpace;
use crate::phase::{Bench, Phase, Watch};
use crate::record::Values;
use crate::report::PhaseReport;
use crate::retail::{self, Retail};
use crate::size::Sizes;
use crate::store::Store;
use crate::workload::Workload;
use firn_base::clock::Clock;
use firn_base::{Error, Result};
use firndb::Durability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// Records in the database after the load.
    pub records: u64,
    /// Operations of each workload except a load, which has one per record.
    pub operations: u64,
    /// Minimum duration of each workload except a load, in seconds.
    pub seconds_min: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Sizes of keys.
    pub key_sizes: Sizes,
    /// The properties of values.
    pub values: Values,
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// The failure that a write must survive before it counts as done.
    #[serde(with = "crate::as_word")]
    pub durability: Durability,
    /// Operations per second, for an open loop. A load followed by other workloads runs at full
    /// speed.
    pub rate: Option<f64>,
    /// The zipfian parameter.
    pub theta: f64,
    /// Options of the engine that change after each workload, in order: the database is closed and
    /// opened again with them, if there are some. They last until the next such change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reopened_with: Vec<BTreeMap<String, String>>,
    /// The retail workload instead of records that are alone; its own sizes and choices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retail: Option<Retail>,
    /// A file, not there yet, to which the gets are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gets_file: Option<PathBuf>,
}

impl RunConfig {
    /// The key space.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if the keys are too short for the number of records.
    pub fn keys(&self) -> Result<KeySpace> {
        KeySpace::new(self.key_sizes, self.records)
    }

    /// Refuses a run that is not possible, before anything is run.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] stating what is wrong.
    pub fn check(&self) -> Result<()> {
        if let Some(retail) = self.retail {
            retail.check(self)?;
        } else if self.workloads.iter().any(Workload::is_of_retail) {
            return Err(Error::invalid(
                "retail is a program of its own: run `firn bench retail`",
            ));
        }
        self.keys()?;
        self.values.check()?;
        let wrong = [
            (
                self.operations == 0,
                "a benchmark needs at least one operation",
            ),
            (self.threads == 0, "a benchmark needs at least one thread"),
            (
                self.workloads.is_empty(),
                "a benchmark needs at least one workload",
            ),
            (
                !(0.0..1.0).contains(&self.theta),
                "theta must be at least 0 and below 1",
            ),
            (
                self.retail.is_some() && !self.reopened_with.is_empty(),
                "retail is not opened again with other options",
            ),
            (
                self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0),
                "the rate must be above 0",
            ),
        ];
        wrong
            .into_iter()
            .find(|(is_wrong, _)| *is_wrong)
            .map_or(Ok(()), |(_, what)| Err(Error::invalid(what)))
    }

    /// Total bytes of keys and values after the load.
    pub fn loaded_bytes(&self) -> u64 {
        if let Some(retail) = self.retail {
            return retail.loaded_bytes();
        }
        (self.records as f64 * (self.key_sizes.mean() + self.values.sizes.mean())) as u64
    }

    /// Memory of the check of the answers, in bytes.
    pub fn checker_bytes(&self) -> u64 {
        let words = self.retail.map_or(self.records, |retail| retail.orders);
        words.saturating_mul(8)
    }

    /// The option that makes the run smaller, as advice.
    pub(crate) fn smaller(&self) -> &'static str {
        match self.retail {
            Some(_) => "fewer --orders",
            None => "fewer --records",
        }
    }

    /// Peak disk space of a run, in bytes.
    pub fn bytes_needed(&self) -> u64 {
        // Twice the data while a level is rewritten, and once more for the log and obsolete files.
        let retail = self
            .retail
            .map(|retail| retail.bytes_after(self.operations));
        let bytes = retail.unwrap_or_else(|| self.loaded_bytes());
        bytes.saturating_mul(3) + (256 << 20)
    }

    /// The phase of `workload`, which is one of this run.
    pub(crate) fn phase(&self, workload: &Workload) -> Phase {
        let is_first_of_many = workload.fills() && self.workloads.len() > 1;
        Phase {
            workload: workload.clone(),
            operations: self.operations_of(workload),
            threads: self.threads,
            durability: self.durability,
            seconds_min: self.seconds_min,
            rate: self.rate.filter(|_| !is_first_of_many),
            theta: self.theta,
            settle: !workload.reopens(),
        }
    }

    /// The operations of `workload`, which is one of this run.
    fn operations_of(&self, workload: &Workload) -> u64 {
        match () {
            () if workload.is_one_act() => 1,
            () if workload.fills() && !workload.fills_some() => {
                self.retail.map_or(self.records, |retail| retail.orders)
            }
            () => self.operations,
        }
    }

    /// True if it starts with an empty database.
    pub fn fills(&self) -> bool {
        self.workloads.first().is_some_and(Workload::fills)
    }

    /// Fills in the fields of `setup` that describe the run.
    pub fn describe_run(&self, setup: &mut Setup) {
        setup.durability = self.durability;
        let grown = self
            .retail
            .map_or(0, |retail| retail.entries_after(self.operations));
        setup.records_max = self.records.max(grown) * 2;
        setup.key_bytes_max = self.key_sizes.max();
        setup.value_bytes_max = self.values.sizes.max();
    }
}

/// Runs the workloads of `config` on `store`. After each one it waits until the store is at rest; a
/// workload that ends with a reopening gets a new store from `open` instead, and so does one
/// after which options change. Each report is passed
/// to `done` as soon as it is available.
///
/// # Errors
/// The first error of the store, or [`firn_base::ErrorKind::Corruption`] for the first wrong
/// answer.
pub fn run(
    store: Arc<dyn Store>,
    open: &dyn Fn(&Setup) -> Result<Arc<dyn Store>>,
    setup: &Setup,
    config: &RunConfig,
    clock: &Clock,
    watch: &dyn Watch,
    done: &mut dyn FnMut(PhaseReport),
) -> Result<()> {
    config.check()?;
    let gets = config.gets_file.as_deref().map(GetsFile::create);
    let gets = gets.transpose()?;
    let recorded = |store| match &gets {
        Some(gets) => gets.recording(store),
        None => store,
    };
    let open = |setup: &Setup| Ok(recorded(open(setup)?));
    let store = recorded(store);
    if let Some(retail) = config.retail {
        let of = (retail, config);
        let open = || open(setup);
        retail::run(store, &open, &setup.directory, of, clock, watch, done)?;
        return flush(gets);
    }
    let (keys, workloads) = (config.keys()?, &config.workloads);
    let mut bench = Bench::new(
        store,
        &setup.directory,
        keys,
        config.values,
        workloads,
        config.operations,
        clock.clone(),
    )?;
    let mut now = setup.clone();
    for (index, workload) in workloads.iter().enumerate() {
        let phase = config.phase(workload);
        let mut report = bench.run(&phase, watch)?;
        let changed = config.reopened_with.get(index);
        let changed = changed.filter(|options| !options.is_empty());
        if let Some(changed) = changed {
            now = setup.clone();
            now.extra.extend(changed.clone());
        }
        if workload.reopens() || changed.is_some() {
            let (again, opening) = bench.reopened(&|| open(&now), watch)?;
            (bench, report.engine.opening) = (again, Some(opening));
        }
        done(report);
    }
    flush(gets)
}

fn flush(gets: Option<GetsFile>) -> Result<()> {
    gets.map_or(Ok(()), |gets| gets.flush())
}

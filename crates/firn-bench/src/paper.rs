//! The experiments of a paper, scaled down: the varied parameter, its figure, ours next to it, and
//! why they may differ.
//!
//! An experiment is a list of variants, each a matrix of two engines: the paper's design and its
//! baseline. Facts about the papers are in `docs/benchmarks/papers.md`.

mod block;
mod lab;
mod tlsm;

use crate::cell::Cell;
use crate::record::Values;
use crate::report::{Counted, PhaseReport};
use crate::run::RunConfig;
use crate::size::Sizes;
use crate::store::OpeningStep;
use crate::summary::Spread;
use crate::workload::Workload;
use firn_base::checksum::crc32c;
use firn_base::{Error, Result};
use firndb::Durability;
use serde::Serialize;

/// A paper's evaluation.
#[derive(Debug)]
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper's title.
    pub title: &'static str,
    /// The profile that implements the paper's design.
    pub engine: &'static str,
    /// The default baseline.
    pub baseline: &'static str,
    /// The experiments, in the paper's order.
    pub experiments: &'static [Experiment],
}

/// One experiment of a paper.
#[derive(Debug)]
pub struct Experiment {
    /// The figure or table that it reproduces.
    pub id: &'static str,
    /// A description of the experiment.
    pub title: &'static str,
    /// The paper's figure, in its own terms.
    pub paper: &'static str,
    /// The reason why ours may differ.
    pub differs: &'static str,
    /// The figure that is compared.
    pub figure: Figure,
    variants: fn(&Shape) -> Result<Vec<Variant>>,
}

/// The scaled size of a run.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The divisor of the paper's number of records.
    pub scale: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Minimum duration of each workload except a load, in seconds.
    pub seconds_min: u64,
}

/// One setting of the parameter that an experiment varies.
#[derive(Debug, Clone)]
pub struct Variant {
    /// The setting, such as `40 M records`.
    pub name: String,
    /// The run. Only its last workload counts, or its load: [`Figure::is_of_load`].
    pub config: RunConfig,
    /// DRAM for each engine, in bytes.
    pub memory_bytes: u64,
    /// Options for both engines, under names shared by all engines.
    pub options: Vec<(&'static str, String)>,
    /// Options for FirnDB's profiles only, on either side.
    pub firn: Vec<(&'static str, String)>,
    /// Options for the paper's design only, if the engine is the profile that implements it.
    pub own: Vec<(&'static str, String)>,
    /// The place of the baseline's files.
    pub place: Place,
}

/// The place of an engine's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Place {
    /// The directory for databases.
    Ssd,
    /// The directory on persistent memory.
    Pm,
}

/// A figure measured in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Seconds to zero compaction debt; less is better.
    SettledSeconds,
    /// Bytes written for tables, without the log, per byte of user data; less is better.
    TableWriteAmplification,
    /// Bytes of storage at the end per byte loaded; less is better.
    SpaceAmplification,
    /// Operations per second; more is better.
    OperationsPerSecond,
    /// Latency in microseconds that 99.9 % of the operations did not exceed; less is better.
    P999,
    /// Bytes written to the SSD as counted by the kernel, because not every engine counts them;
    /// less is better.
    WrittenBytes,
    /// Blocks that were not in the block cache, per operation; less is better.
    CacheMisses,
    /// Total seconds of compactions; less is better.
    CompactionSeconds,
    /// Total seconds of compactions out of level 0; less is better.
    Level0Seconds,
    /// Bytes of the logs that hold the values of level 0, when the last operation ended; less is
    /// better.
    LogBytes,
    /// Seconds to reopen the database after the workload; less is better.
    OpeningSeconds,
    /// Operations in the slowest second divided by those in the median second; more is better.
    SlowestSecond,
    /// Mean latency of an operation in microseconds; less is better.
    MicrosPerOperation,
    /// Mean latency of an insert of the load in microseconds; less is better.
    LoadMicros,
    /// Seconds in inserts of the load that took longer than 0.5 ms, by the histogram of their
    /// latencies, because not every engine counts its stalls; less is better.
    StallSeconds,
    /// Bytes written for tables while loading, to all media: by compactions and by flushes, because
    /// LevelDB counts both together. The log is left out. An engine that counts nothing has the
    /// kernel's bytes, log included; less is better.
    CompactionBytes,
    /// Mean age in seconds of the tables of this level that compactions replaced while loading.
    TableSeconds(Depth),
}

/// A level of the tables whose ages are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Level 0.
    Zero,
    /// Level 1.
    One,
    /// Level 2.
    Two,
    /// Level 3.
    Three,
}

impl Figure {
    /// Its name and unit.
    pub fn name(self) -> &'static str {
        match self {
            Figure::SettledSeconds => "seconds until settled",
            Figure::TableWriteAmplification => "bytes written per byte, without the log",
            Figure::SpaceAmplification => "space per byte loaded",
            Figure::OperationsPerSecond => "operations/s",
            Figure::P999 => "p99.9 in us",
            Figure::WrittenBytes => "bytes written (kernel)",
            Figure::CacheMisses => "block-cache misses per operation",
            Figure::CompactionSeconds => "seconds of compactions",
            Figure::Level0Seconds => "seconds of compactions out of level 0",
            Figure::LogBytes => "bytes of logs",
            Figure::OpeningSeconds => "seconds to open",
            Figure::SlowestSecond => "slowest second by the median one",
            Figure::MicrosPerOperation => "us/operation",
            Figure::LoadMicros => "us/insert",
            Figure::StallSeconds => "seconds in inserts above 0.5 ms",
            Figure::CompactionBytes => "bytes written for tables, all media",
            Figure::TableSeconds(Depth::Zero) => "age of replaced tables of level 0 in s",
            Figure::TableSeconds(Depth::One) => "age of replaced tables of level 1 in s",
            Figure::TableSeconds(Depth::Two) => "age of replaced tables of level 2 in s",
            Figure::TableSeconds(Depth::Three) => "age of replaced tables of level 3 in s",
        }
    }

    /// True if it is a figure of the load that the run begins with, so that a run can go on with
    /// another workload for another figure.
    pub fn is_of_load(self) -> bool {
        matches!(
            self,
            Figure::LoadMicros
                | Figure::StallSeconds
                | Figure::CompactionBytes
                | Figure::TableSeconds(_)
        )
    }

    /// The phase of `cell` that it is a figure of, if the cell completed all workloads.
    fn phase_of(self, cell: &Cell) -> Option<&PhaseReport> {
        let phase = if self.is_of_load() {
            cell.phases.first()
        } else {
            cell.phases.last()
        };
        phase.filter(|_| cell.phases.len() == cell.config.workloads.len())
    }

    /// The figure in `phase` of `cell`; `None` if the engine, or the kernel, does not report it.
    fn of(self, cell: &Cell, phase: &PhaseReport) -> Option<f64> {
        let tables = || {
            let is_counted = !phase.engine.traffic.is_empty();
            is_counted.then(|| phase.engine.written("ssd", |cause| cause != "log") as f64)
        };
        Some(match self {
            Figure::SettledSeconds => phase.settled_seconds(),
            Figure::TableWriteAmplification => tables()? / phase.user_bytes.max(1) as f64,
            Figure::SpaceAmplification => {
                phase.engine.space_bytes as f64 / cell.config.loaded_bytes().max(1) as f64
            }
            Figure::OperationsPerSecond => phase.operations_per_second,
            Figure::P999 => phase.latency.p99_9_us,
            Figure::WrittenBytes => phase.written_bytes_by(Counted::Kernel)? as f64,
            Figure::CacheMisses => phase.cache_misses_per_operation()?,
            Figure::CompactionSeconds => phase.engine.compaction_seconds?,
            Figure::Level0Seconds => phase.engine.level0_seconds?,
            Figure::LogBytes => phase.engine.log_bytes? as f64,
            Figure::OpeningSeconds => phase.engine.opening.as_ref()?.seconds,
            Figure::SlowestSecond => phase.timeline.min as f64 / phase.timeline.median as f64,
            Figure::MicrosPerOperation | Figure::LoadMicros => phase.latency.mean_us,
            Figure::StallSeconds => phase.latency_by_sort.get("write")?.slow_seconds?,
            Figure::CompactionBytes => match tables() {
                Some(files) => files + phase.engine.written("pm", is_of_lists) as f64,
                None => phase.written_bytes_by(Counted::Kernel)? as f64,
            },
            Figure::TableSeconds(depth) => {
                let seconds = phase.engine.table_seconds.get(depth as usize);
                *seconds.filter(|seconds| **seconds > 0.0)?
            }
        })
        .filter(|figure| figure.is_finite())
    }
}

/// True if `owner` of persistent memory holds tables of profile `tlsm`.
fn is_of_lists(owner: &str) -> bool {
    ["skiplist", "payload"].contains(&owner)
}

/// The result of a variant.
#[derive(Debug, Clone, Serialize)]
pub struct PaperRow {
    /// The experiment's id.
    pub experiment: String,
    /// A description of the experiment.
    pub title: String,
    /// The setting of the variant.
    pub variant: String,
    /// The figure's name and unit.
    pub figure: String,
    /// The baseline's figure; `None` if it failed or does not count it.
    pub baseline: Option<Spread>,
    /// The figure of the paper's design here; `None` if it failed or does not count it.
    pub ours: Option<Spread>,
    /// CPU microseconds per operation of the baseline.
    pub baseline_cpu_us: Option<Spread>,
    /// CPU microseconds per operation of the paper's design.
    pub our_cpu_us: Option<Spread>,
    /// The steps of reopening the paper's design in its first round, if it was reopened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub opening_steps: Vec<OpeningStep>,
    /// Our figure divided by the baseline's, round by round.
    pub ratio: Option<Spread>,
    /// The paper's figure.
    pub paper: String,
    /// The reason why they may differ.
    pub differs: String,
}

impl Paper {
    /// All papers.
    pub const ALL: [&'static Paper; 3] = [&block::PAPER, &lab::PAPER, &tlsm::PAPER];

    /// The paper named `name`.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] with the names of all papers.
    pub fn named(name: &str) -> Result<&'static Paper> {
        Self::ALL
            .into_iter()
            .find(|paper| paper.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = Self::ALL.iter().map(|paper| paper.name).collect();
                Error::invalid(format!(
                    "no paper is called {name}: there are {}",
                    names.join(", ")
                ))
            })
    }
}

impl Variant {
    /// A name for the run. Variants of different experiments with the same run have the same name.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if its settings cannot be serialized.
    pub fn run_name(&self) -> Result<String> {
        let options = (&self.options, &self.firn, &self.own);
        let run = serde_json::to_vec(&(&self.config, self.memory_bytes, options, self.place));
        let run = run.map_err(|e| Error::invalid(format!("cannot write JSON: {e}")))?;
        Ok(format!("{:08x}", crc32c(&run)))
    }

    /// The options for `engine`; `design` is the profile that implements the paper's design.
    pub fn options_of(&self, engine: &str, design: &str) -> Vec<(&'static str, String)> {
        let of_firn = self.firn.iter().filter(|_| engine.starts_with("firn:"));
        let own = self.own.iter().filter(|_| engine == design);
        self.options
            .iter()
            .chain(of_firn)
            .chain(own)
            .cloned()
            .collect()
    }
}

impl Experiment {
    /// The variants to run.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if the scale is 0.
    pub fn variants(&self, shape: &Shape) -> Result<Vec<Variant>> {
        if shape.scale == 0 {
            return Err(Error::invalid("the scale must be at least 1"));
        }
        (self.variants)(shape)
    }

    /// The result of `variant` from the `cells` of a baseline and of the paper's design.
    pub fn row(&self, variant: &Variant, cells: &[Cell], baseline: &str) -> PaperRow {
        let figure = |cell: &Cell| self.figure.of(cell, self.figure.phase_of(cell)?);
        let cpu_us = |cell: &Cell| {
            self.figure
                .phase_of(cell)
                .map(PhaseReport::cpu_us_per_operation)
        };
        let of = |is_baseline: bool| {
            cells
                .iter()
                .filter(move |cell| (cell.engine == baseline) == is_baseline)
        };
        let ratio = |cell: &Cell| {
            let beside = of(true)
                .find(|other| other.round == cell.round)
                .and_then(figure)?;
            Some(figure(cell)? / beside).filter(|ratio| ratio.is_finite())
        };
        PaperRow {
            experiment: self.id.to_owned(),
            title: self.title.to_owned(),
            variant: variant.name.clone(),
            figure: self.figure.name().to_owned(),
            baseline: Spread::of(of(true).filter_map(figure)),
            ours: Spread::of(of(false).filter_map(figure)),
            baseline_cpu_us: Spread::of(of(true).filter_map(cpu_us)),
            our_cpu_us: Spread::of(of(false).filter_map(cpu_us)),
            opening_steps: of(false)
                .find_map(|cell| self.figure.phase_of(cell)?.engine.opening.as_ref())
                .map_or_else(Vec::new, |opening| opening.steps.clone()),
            ratio: Spread::of(of(false).filter_map(ratio)),
            paper: self.paper.to_owned(),
            differs: self.differs.to_owned(),
        }
    }
}

/// A run of `workloads` with the papers' common settings: process durability, default
/// compressibility of values.
fn config(
    shape: &Shape,
    records: u64,
    key: usize,
    value: usize,
    theta: f64,
    workloads: &[&str],
) -> Result<RunConfig> {
    let records = (records / shape.scale).max(1000);
    Ok(RunConfig {
        records,
        operations: records / 4,
        seconds_min: shape.seconds_min,
        threads: shape.threads,
        key_sizes: Sizes::fixed(key),
        values: Values::new(Sizes::fixed(value)),
        workloads: workloads
            .iter()
            .map(|name| name.parse())
            .collect::<Result<Vec<Workload>>>()?,
        durability: Durability::Process,
        rate: None,
        theta,
        retail: None,
    })
}

#[cfg(test)]
mod tests;

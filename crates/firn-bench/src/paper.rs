//! The experiments of a paper, scaled down: what it varied, its figure, ours beside it, and why they may differ.
//!
//! An experiment is a list of variants, each a matrix of two engines: the paper's design and what it was compared with.
//! Facts about the papers are in `docs/benchmarks/papers.md`.

mod block;
mod lab;

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
    /// What it is asked for by.
    pub name: &'static str,
    /// Which paper it is.
    pub title: &'static str,
    /// The profile that builds the paper's design.
    pub engine: &'static str,
    /// What it is compared with, unless told otherwise.
    pub baseline: &'static str,
    /// The experiments, in the paper's order.
    pub experiments: &'static [Experiment],
}

/// One of its experiments.
#[derive(Debug)]
pub struct Experiment {
    /// The figure or table it stands for.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The paper's figure, in its own terms.
    pub paper: &'static str,
    /// Why ours may differ.
    pub differs: &'static str,
    /// What of a run's last workload is compared.
    pub figure: Figure,
    variants: fn(&Shape) -> Result<Vec<Variant>>,
}

/// What a run's size is scaled to.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The paper's records are divided by this.
    pub scale: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Seconds that each workload but a load goes on at least.
    pub seconds_min: u64,
}

/// One setting of what an experiment varies.
#[derive(Debug, Clone)]
pub struct Variant {
    /// What is set, such as `40 M records`.
    pub name: String,
    /// What is run; the last workload is the one that counts.
    pub config: RunConfig,
    /// Bytes of DRAM for each engine.
    pub memory_bytes: u64,
    /// Options that both engines are given, under the names that all engines share.
    pub options: Vec<(&'static str, String)>,
    /// Options that the paper's design alone is given, if it is the profile that builds it.
    pub own: Vec<(&'static str, String)>,
}

/// A figure of a run.
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
    /// Microseconds that 99.9 % of the operations did not exceed; less is better.
    P999,
    /// Bytes written to the SSD by the kernel's count, as not every engine says what it wrote there; less is better.
    WrittenBytes,
    /// Blocks that were not in the block cache, per operation; less is better.
    CacheMisses,
    /// Seconds of compactions; less is better.
    CompactionSeconds,
    /// Seconds of compactions out of level 0; less is better.
    Level0Seconds,
    /// Bytes of the logs that level 0 has its values in, when the last operation ended; less is better.
    LogBytes,
    /// Seconds that the opening behind the workload took; less is better.
    OpeningSeconds,
    /// Operations in the slowest second by those in the median one; more is better.
    SlowestSecond,
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
        }
    }

    /// The figure in `phase` of `cell`; nothing if the engine, or the kernel, does not say.
    fn of(self, cell: &Cell, phase: &PhaseReport) -> Option<f64> {
        let tables = || {
            let is_counted = !phase.engine.traffic.is_empty();
            is_counted.then(|| phase.engine.written("ssd", |cause| cause != "log") as f64)
        };
        Some(match self {
            Figure::SettledSeconds => phase.settled_seconds(),
            Figure::TableWriteAmplification => tables()? / phase.user_bytes.max(1) as f64,
            Figure::SpaceAmplification => phase.engine.space_bytes as f64 / cell.config.loaded_bytes().max(1) as f64,
            Figure::OperationsPerSecond => phase.operations_per_second,
            Figure::P999 => phase.latency.p99_9_us,
            Figure::WrittenBytes => phase.written_bytes_by(Counted::Kernel)? as f64,
            Figure::CacheMisses => phase.cache_misses_per_operation()?,
            Figure::CompactionSeconds => phase.engine.compaction_seconds?,
            Figure::Level0Seconds => phase.engine.level0_seconds?,
            Figure::LogBytes => phase.engine.log_bytes? as f64,
            Figure::OpeningSeconds => phase.engine.opening.as_ref()?.seconds,
            Figure::SlowestSecond => phase.timeline.min as f64 / phase.timeline.median as f64,
        })
        .filter(|figure| figure.is_finite())
    }
}

/// What a variant gave.
#[derive(Debug, Clone, Serialize)]
pub struct PaperRow {
    /// The experiment's id.
    pub experiment: String,
    /// What it shows.
    pub title: String,
    /// What was set.
    pub variant: String,
    /// The figure's name and unit.
    pub figure: String,
    /// What the baseline had; nothing if it failed or does not count that.
    pub baseline: Option<Spread>,
    /// What the paper's design had here; nothing if it failed or does not count that.
    pub ours: Option<Spread>,
    /// Microseconds of CPU that an operation took the baseline.
    pub baseline_cpu_us: Option<Spread>,
    /// Microseconds of CPU that an operation took the paper's design.
    pub our_cpu_us: Option<Spread>,
    /// The steps of the opening of the paper's design in its first round, if there was one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub opening_steps: Vec<OpeningStep>,
    /// The second over the first, round by round.
    pub ratio: Option<Spread>,
    /// The paper's figure.
    pub paper: String,
    /// Why they may differ.
    pub differs: String,
}

impl Paper {
    /// The papers there are.
    pub const ALL: [&'static Paper; 2] = [&block::PAPER, &lab::PAPER];

    /// The paper of this name.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] naming those that there are.
    pub fn named(name: &str) -> Result<&'static Paper> {
        Self::ALL.into_iter().find(|paper| paper.name == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|paper| paper.name).collect();
            Error::invalid(format!("no paper is called {name}: there are {}", names.join(", ")))
        })
    }
}

impl Variant {
    /// A name for what is run, such that variants of several experiments that run the same have the same name.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if its settings cannot be written down.
    pub fn run_name(&self) -> Result<String> {
        let run = serde_json::to_vec(&(&self.config, self.memory_bytes, &self.options, &self.own));
        let run = run.map_err(|e| Error::invalid(format!("cannot write JSON: {e}")))?;
        Ok(format!("{:08x}", crc32c(&run)))
    }
}

impl Experiment {
    /// The settings to run.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] for a scale that leaves nothing.
    pub fn variants(&self, shape: &Shape) -> Result<Vec<Variant>> {
        if shape.scale == 0 {
            return Err(Error::invalid("the scale must be at least 1"));
        }
        (self.variants)(shape)
    }

    /// What `cells`, of a baseline and of the paper's design, say about `variant`.
    pub fn row(&self, variant: &Variant, cells: &[Cell], baseline: &str) -> PaperRow {
        let figure = |cell: &Cell| self.figure.of(cell, last_phase(cell)?);
        let cpu_us = |cell: &Cell| last_phase(cell).map(PhaseReport::cpu_us_per_operation);
        let of = |is_baseline: bool| cells.iter().filter(move |cell| (cell.engine == baseline) == is_baseline);
        let ratio = |cell: &Cell| {
            let beside = of(true).find(|other| other.round == cell.round).and_then(figure)?;
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
                .find_map(|cell| last_phase(cell)?.engine.opening.as_ref())
                .map_or_else(Vec::new, |opening| opening.steps.clone()),
            ratio: Spread::of(of(false).filter_map(ratio)),
            paper: self.paper.to_owned(),
            differs: self.differs.to_owned(),
        }
    }
}

/// The workload that counts, if the cell came so far.
fn last_phase(cell: &Cell) -> Option<&PhaseReport> {
    cell.phases.last().filter(|_| cell.phases.len() == cell.config.workloads.len())
}

/// A run of `workloads` as the papers have them: process durability, values that do not matter to compression.
fn config(shape: &Shape, records: u64, key: usize, value: usize, theta: f64, workloads: &[&str]) -> Result<RunConfig> {
    let records = (records / shape.scale).max(1000);
    Ok(RunConfig {
        records,
        operations: records / 4,
        seconds_min: shape.seconds_min,
        threads: shape.threads,
        key_sizes: Sizes::fixed(key),
        values: Values::new(Sizes::fixed(value)),
        workloads: workloads.iter().map(|name| name.parse()).collect::<Result<Vec<Workload>>>()?,
        durability: Durability::Process,
        rate: None,
        theta,
    })
}

#[cfg(test)]
mod tests;

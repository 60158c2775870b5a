//! The experiments of a paper, scaled down: the varied parameter, its figure, ours next to it, and
//! why they may differ.
//!
//! An experiment is a list of variants, each a matrix of two engines: the paper's design and its
//! baseline. Facts about the papers are in `docs/benchmarks/papers.md`.

mod blade;
mod block;
mod figure;
mod lab;
mod pmdb;
mod table;
mod tlsm;

use crate::cell::Cell;
use crate::record::Values;
use crate::report::PhaseReport;
use crate::run::RunConfig;
use crate::size::Sizes;
use crate::store::OpeningStep;
use crate::summary::Spread;
use crate::workload::Workload;
use firn_base::checksum::crc32c;
use firn_base::{Error, Result};
use firndb::Durability;
use serde::Serialize;

pub use figure::Figure;
pub use table::{TableExperiment, TableRun};

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
    /// The experiments that run engines, in the paper's order.
    pub experiments: &'static [Experiment],
    /// The experiments on one table alone, without an engine.
    pub tables: &'static [TableExperiment],
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
    /// Persistent memory for each engine, in bytes; `None` for that of the command line.
    pub pm_bytes: Option<u64>,
    /// Options for both engines, under names shared by all engines.
    pub options: Vec<(&'static str, String)>,
    /// Options for FirnDB's profiles only, on either side.
    pub firn: Vec<(&'static str, String)>,
    /// Options for the paper's design only, if the engine is the profile that implements it.
    pub own: Vec<(&'static str, String)>,
    /// The place of the baseline's files.
    pub place: Place,
    /// The other side of the comparison.
    pub against: Against,
}

/// The side that the paper's design is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Against {
    /// The baseline.
    Baseline,
    /// The design with other options, under this label.
    Itself(&'static str, Vec<(&'static str, String)>),
    /// Nothing.
    Nothing,
}

/// One engine of a variant: its name, with the label of its options if it is compared with itself,
/// and its options.
pub type Side = (String, Vec<(&'static str, String)>);

/// The place of an engine's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Place {
    /// The directory for databases.
    Ssd,
    /// The directory on persistent memory.
    Pm,
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
    /// True if there is no baseline.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_alone: bool,
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
    pub const ALL: [&'static Paper; 5] = [
        &block::PAPER,
        &lab::PAPER,
        &tlsm::PAPER,
        &blade::PAPER,
        &pmdb::PAPER,
    ];

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
        let sides = (options, self.pm_bytes, self.place, &self.against);
        let run = serde_json::to_vec(&(&self.config, self.memory_bytes, sides));
        let run = run.map_err(|e| Error::invalid(format!("cannot write JSON: {e}")))?;
        Ok(format!("{:08x}", crc32c(&run)))
    }

    /// True if it cannot be run without persistent memory on both sides, or on one.
    pub fn needs_pm(&self, pair: [&str; 2], design: &str) -> bool {
        let sides = self.sides(pair, design);
        let mut options = sides.iter().flat_map(|(_, options)| options);
        let is_told = self.pm_bytes.is_some() || options.any(|(name, _)| *name == "pm_bytes");
        is_told || self.place == Place::Pm
    }

    /// The engines to run: the side that is compared with, if there is one, and `engine` of
    /// `pair`, which is a baseline and the engine that stands for the design. `design` is the
    /// profile that implements the paper's design.
    pub fn sides(&self, pair: [&str; 2], design: &str) -> Vec<Side> {
        let [baseline, engine] = pair;
        let ours = (engine.to_owned(), self.options_of(engine, design));
        let other = match &self.against {
            Against::Nothing => None,
            Against::Baseline => Some((baseline.to_owned(), self.options_of(baseline, design))),
            Against::Itself(label, options) => {
                let is_changed = |name: &str| options.iter().any(|(other, _)| *other == name);
                let kept = ours.1.iter().filter(|(name, _)| !is_changed(name));
                let of_design = options.iter().filter(|_| engine == design);
                let options = kept.chain(of_design).cloned().collect();
                Some((format!("{engine}@{label}"), options))
            }
        };
        other.into_iter().chain([ours]).collect()
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

    /// The result of `variant` from the `cells` of a baseline, or of the side named so, and of the
    /// paper's design.
    pub fn row(&self, variant: &Variant, cells: &[Cell], baseline: &str) -> PaperRow {
        let figure = |cell: &Cell| self.figure.of(cell, self.figure.phase_of(cell)?);
        let cpu_us = |cell: &Cell| {
            self.figure
                .phase_of(cell)
                .map(PhaseReport::cpu_us_per_operation)
        };
        let is_alone = variant.against == Against::Nothing;
        let of = |is_baseline: bool| {
            cells
                .iter()
                .filter(move |cell| (!is_alone && cell.engine == baseline) == is_baseline)
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
            is_alone,
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
        reopened_with: Default::default(),
        retail: None,
        gets_file: None,
    })
}

#[cfg(test)]
mod tests;

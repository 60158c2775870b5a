//! Experiments on one table, which need no engine: they build and search tables in this process.

use super::PaperRow;
use crate::structure::{Built, Entries, Structure};
use crate::summary::Spread;
use firn_base::Result;
use firn_pm::Latency;
use std::path::PathBuf;

/// One experiment on tables.
#[derive(Debug)]
pub struct TableExperiment {
    /// The figure or table that it reproduces.
    pub id: &'static str,
    /// A description of the experiment.
    pub title: &'static str,
    /// The paper's figure, in its own terms.
    pub paper: &'static str,
    /// The reason why ours may differ.
    pub differs: &'static str,
    /// The name and unit of the figure that is compared.
    pub figure: &'static str,
    pub(super) figure_of: fn(&Built) -> f64,
    pub(super) variants: fn(scale: u64) -> Vec<TableVariant>,
}

/// Two structures with the same entries.
pub(super) struct TableVariant {
    pub(super) name: String,
    /// The entries, made when they are needed.
    pub(super) entries: Box<dyn Fn() -> Entries>,
    pub(super) baseline: Structure,
    pub(super) ours: Structure,
}

/// The parameters of a run of experiments on tables.
#[derive(Debug, Clone)]
pub struct TableRun {
    /// The divisor of the paper's amounts, at least 1.
    pub scale: u64,
    /// How often each structure is measured, in turn.
    pub rounds: u32,
    /// Directory for files, which are removed.
    pub directory: PathBuf,
    /// Delays of persistent memory.
    pub latency: Option<Latency>,
}

impl TableExperiment {
    /// Measures every variant.
    ///
    /// # Errors
    /// The errors of [`Entries::measure`].
    pub fn rows(&self, run: &TableRun) -> Result<Vec<PaperRow>> {
        let variants = (self.variants)(run.scale.max(1));
        variants.iter().map(|v| self.row(v, run)).collect()
    }

    fn row(&self, variant: &TableVariant, run: &TableRun) -> Result<PaperRow> {
        let entries = (variant.entries)();
        let measure = |structure| entries.measure(structure, &run.directory, run.latency);
        let (mut baseline, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..run.rounds.max(1) {
            baseline.push((self.figure_of)(&measure(variant.baseline)?));
            ours.push((self.figure_of)(&measure(variant.ours)?));
        }
        let ratios: Vec<f64> = ours.iter().zip(&baseline).map(|(a, b)| a / b).collect();
        let (first, second) = (variant.ours.name(), variant.baseline.name());
        Ok(PaperRow {
            experiment: self.id.to_owned(),
            title: self.title.to_owned(),
            variant: format!("{}: {first} against {second}", variant.name),
            figure: self.figure.to_owned(),
            is_alone: false,
            baseline: Spread::of(baseline),
            ours: Spread::of(ours),
            baseline_cpu_us: None,
            our_cpu_us: None,
            opening_steps: Vec::new(),
            ratio: Spread::of(ratios.into_iter().filter(|ratio| ratio.is_finite())),
            paper: self.paper.to_owned(),
            differs: self.differs.to_owned(),
        })
    }
}

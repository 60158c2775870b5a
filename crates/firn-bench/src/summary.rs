//! Summarizes cells: medians and spreads over rounds, and ratios within a round.

use crate::cell::Cell;
use crate::latency::Percentiles;
use crate::report::{Counted, PhaseReport};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The fraction by which the engine's and the kernel's byte counts may differ.
const AGREEMENT: f64 = 0.02;
/// Smaller differences in bytes are not reported.
const NOTED_BYTES: u64 = 64 << 20;

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median; for an even number of values the mean of the middle two.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `figures`; `None` if there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        };
        Some(Self { median, min, max })
    }
}

/// The summary of one workload on one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSummary {
    /// The workload.
    pub workload: String,
    /// The engine.
    pub engine: String,
    /// Operations per second.
    pub operations_per_second: Spread,
    /// Operations per second in operations; `None` for reports of older programs.
    #[serde(default)]
    pub operations_per_call_second: Option<Spread>,
    /// Seconds to zero compaction debt.
    pub settled_seconds: Spread,
    /// Latencies in microseconds: median, 99 %, 99.9 % and 99.99 %.
    pub latency_us: [Spread; 4],
    /// Latencies by kind of call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_by_sort: BTreeMap<String, SortLatency>,
    /// Bytes written to the SSD, to zero compaction debt; `None` if they were not counted.
    pub written_bytes: Option<Spread>,
    /// The source of that count.
    #[serde(default)]
    pub written_by: Option<Counted>,
    /// Bytes read from storage by the process, as counted by the kernel.
    pub os_read_bytes: Option<Spread>,
    /// Bytes written to the SSD per byte that the workload wrote.
    pub write_amplification: Option<Spread>,
    /// Bytes of storage in use at the end per byte of the records loaded, or of those kept if the
    /// database has grown.
    pub space_amplification: Spread,
    /// CPU microseconds per operation.
    pub cpu_us_per_operation: Spread,
    /// The largest resident set in bytes, excluding the check of the answers.
    pub peak_memory_bytes: Option<Spread>,
    /// Total seconds that writers were held back.
    pub stall_seconds: Option<Spread>,
    /// Block-cache misses per operation.
    pub cache_misses_per_operation: Option<Spread>,
    /// This engine's figures divided by those of the first engine in the same round.
    pub ratio: Option<Ratios>,
}

/// Latencies of one kind of call, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SortLatency {
    /// Arithmetic mean.
    pub mean_us: Spread,
    /// Half of the calls were no slower.
    pub p50_us: Spread,
    /// 99 % were no slower.
    pub p99_us: Spread,
    /// 99.9 % were no slower.
    pub p99_9_us: Spread,
}

/// An engine's figures divided by the first engine's, round by round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    /// Operations per second: more is better.
    pub operations_per_second: Spread,
    /// Latency that 99.9 % did not exceed: less is better.
    pub p99_9: Spread,
    /// Bytes written, both from the engines' counts or both from the kernel's: less is better.
    /// `None` if the first engine wrote none, or if they were not counted.
    pub written_bytes: Option<Spread>,
    /// Seconds to zero compaction debt: less is better.
    pub settled_seconds: Spread,
}

/// The summary of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// By workload, then engine, in the requested order.
    pub workloads: Vec<WorkloadSummary>,
    /// Ratio of operations per second, by "engine/first engine": the median over the rounds of the
    /// geometric mean over the workloads.
    pub geomean_ratio: BTreeMap<String, f64>,
    /// The same ratios with their spread.
    pub geomean_spread: BTreeMap<String, Spread>,
    /// Notes that a reader must know: failures, and counts that do not agree.
    pub notes: Vec<String>,
}

impl Summary {
    /// Summarizes `cells`. The other engines are compared with that of the first cell.
    pub fn of(cells: &[Cell]) -> Self {
        let mut summary = Self::default();
        let Some(first) = cells.first() else {
            return summary;
        };
        let mut engines: Vec<&str> = Vec::new();
        for cell in cells {
            if !engines.contains(&cell.engine.as_str()) {
                engines.push(&cell.engine);
            }
        }
        for (index, workload) in first.config.workloads.iter().enumerate() {
            for engine in &engines {
                let runs = phases(cells, engine, index);
                let base = phases(cells, engines[0], index);
                summary
                    .workloads
                    .extend(summarize(workload.name(), engine, &runs, &base, first));
            }
        }
        for engine in &engines[1..] {
            let ratios = cells
                .iter()
                .filter(|cell| cell.engine == *engine)
                .filter_map(|cell| geomean(cells, cell));
            if let Some(spread) = Spread::of(ratios) {
                let name = format!("{engine}/{}", engines[0]);
                summary.geomean_ratio.insert(name.clone(), spread.median);
                summary.geomean_spread.insert(name, spread);
            }
        }
        summary.notes = cells.iter().flat_map(notes).collect();
        summary
    }
}

/// The reports of `engine` for the workload at `index`, by round.
fn phases<'a>(cells: &'a [Cell], engine: &str, index: usize) -> BTreeMap<u32, &'a PhaseReport> {
    let of_engine = cells.iter().filter(|cell| cell.engine == engine);
    of_engine
        .filter_map(|cell| Some((cell.round, cell.phases.get(index)?)))
        .collect()
}

fn summarize(
    workload: &str,
    engine: &str,
    runs: &BTreeMap<u32, &PhaseReport>,
    base: &BTreeMap<u32, &PhaseReport>,
    any: &Cell,
) -> Option<WorkloadSummary> {
    let spread =
        |figure: &dyn Fn(&PhaseReport) -> f64| Spread::of(runs.values().map(|run| figure(run)));
    let some = |figure: &dyn Fn(&PhaseReport) -> Option<f64>| {
        Spread::of(runs.values().filter_map(|run| figure(run)))
    };
    let loaded = any.config.loaded_bytes();
    Some(WorkloadSummary {
        workload: workload.to_owned(),
        engine: engine.to_owned(),
        operations_per_second: spread(&|run| run.operations_per_second)?,
        operations_per_call_second: some(&PhaseReport::operations_per_call_second),
        settled_seconds: spread(&PhaseReport::settled_seconds)?,
        latency_us: [
            spread(&|run| run.latency.p50_us)?,
            spread(&|run| run.latency.p99_us)?,
            spread(&|run| run.latency.p99_9_us)?,
            spread(&|run| run.latency.p99_99_us)?,
        ],
        latency_by_sort: by_sort(runs),
        written_bytes: some(&|run| run.written_bytes().map(|bytes| bytes as f64)),
        written_by: first(runs)?.counted_by(),
        os_read_bytes: some(&|run| run.os_read_bytes.map(|bytes| bytes as f64)),
        write_amplification: some(&PhaseReport::write_amplification),
        space_amplification: spread(&|run| run.space_amplification(loaded))?,
        cpu_us_per_operation: spread(&PhaseReport::cpu_us_per_operation)?,
        peak_memory_bytes: some(&|run| {
            Some(
                run.peak_memory_bytes?
                    .saturating_sub(run.harness.checker_bytes) as f64,
            )
        }),
        stall_seconds: some(&|run| run.engine.stall_seconds),
        cache_misses_per_operation: some(&PhaseReport::cache_misses_per_operation),
        ratio: if std::ptr::eq(first(runs)?, first(base)?) {
            None
        } else {
            ratios(runs, base)
        },
    })
}

/// The latencies of each kind of call in `runs`.
fn by_sort(runs: &BTreeMap<u32, &PhaseReport>) -> BTreeMap<String, SortLatency> {
    let sorts: BTreeSet<&String> = runs
        .values()
        .flat_map(|run| run.latency_by_sort.keys())
        .collect();
    let of = |sort: &String| {
        let spread = |figure: fn(&Percentiles) -> f64| {
            let of_sort = |run: &&PhaseReport| run.latency_by_sort.get(sort).map(figure);
            Spread::of(runs.values().filter_map(of_sort))
        };
        Some(SortLatency {
            mean_us: spread(|latency| latency.mean_us)?,
            p50_us: spread(|latency| latency.p50_us)?,
            p99_us: spread(|latency| latency.p99_us)?,
            p99_9_us: spread(|latency| latency.p99_9_us)?,
        })
    };
    sorts
        .into_iter()
        .filter_map(|sort| Some((sort.clone(), of(sort)?)))
        .collect()
}

fn first<'a>(runs: &BTreeMap<u32, &'a PhaseReport>) -> Option<&'a PhaseReport> {
    runs.values().next().copied()
}

fn ratios(
    runs: &BTreeMap<u32, &PhaseReport>,
    base: &BTreeMap<u32, &PhaseReport>,
) -> Option<Ratios> {
    let of_some = |figure: &dyn Fn(&PhaseReport) -> Option<f64>| {
        let in_round = |(round, run): (&u32, &&PhaseReport)| {
            let beside = figure(base.get(round)?).filter(|beside| *beside > 0.0)?;
            Some(figure(run)? / beside)
        };
        Spread::of(runs.iter().filter_map(in_round))
    };
    let of = |figure: &dyn Fn(&PhaseReport) -> f64| of_some(&|run| Some(figure(run)));
    // The counts of two different sources cannot be compared.
    let all_count = runs
        .values()
        .chain(base.values())
        .all(|run| run.counted_by() == Some(Counted::Engine));
    let source = if all_count {
        Counted::Engine
    } else {
        Counted::Kernel
    };
    Some(Ratios {
        operations_per_second: of(&|run| run.operations_per_second)?,
        p99_9: of(&|run| run.latency.p99_9_us)?,
        written_bytes: of_some(&|run| run.written_bytes_by(source).map(|bytes| bytes as f64)),
        settled_seconds: of(&PhaseReport::settled_seconds)?,
    })
}

/// The geometric mean over the workloads of the ratio of `cell`'s operations per second to those of
/// the first engine in its round. `None` unless both completed all workloads.
fn geomean(cells: &[Cell], cell: &Cell) -> Option<f64> {
    let base = cells
        .iter()
        .find(|other| other.engine == cells[0].engine && other.round == cell.round)?;
    let count = cell.config.workloads.len();
    if cell.phases.len() < count || base.phases.len() < count || count == 0 {
        return None;
    }
    let pairs = cell.phases.iter().zip(&base.phases);
    let logarithms: f64 = pairs
        .map(|(run, beside)| (run.operations_per_second / beside.operations_per_second).ln())
        .sum();
    Some((logarithms / count as f64).exp())
}

fn notes(cell: &Cell) -> Vec<String> {
    let place = format!("{} round {}", cell.engine, cell.round + 1);
    let mut notes: Vec<String> = cell
        .failure
        .iter()
        .map(|failure| format!("{place} failed: {failure}"))
        .collect();
    for phase in &cell.phases {
        let counts = (
            phase.written_bytes_by(Counted::Engine),
            phase.written_bytes_by(Counted::Kernel),
        );
        let (Some(ssd), Some(seen)) = counts else {
            continue;
        };
        // The kernel counts persistent memory that is a file system's device, but not mapped
        // memory. Either count may match.
        let all = ssd + phase.engine.written("pm", |_| true);
        let counted = if all.abs_diff(seen) < ssd.abs_diff(seen) {
            all
        } else {
            ssd
        };
        let apart = counted.abs_diff(seen);
        if apart > NOTED_BYTES && apart as f64 > AGREEMENT * seen as f64 {
            let percent = (counted as f64 / seen.max(1) as f64 - 1.0) * 100.0;
            notes.push(format!(
                "{place}, {}: the engine counted {counted} bytes written, the kernel {seen} ({percent:+.1} %)",
                phase.workload
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests;

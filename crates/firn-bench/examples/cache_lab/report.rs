//! The figures, as tables in Markdown or as JSON.

use crate::costs::Costs;
use serde::Serialize;
use std::fmt::Write;

/// The misses of one candidate.
#[derive(Debug, Serialize)]
pub(crate) struct Misses {
    pub(crate) candidate: &'static str,
    pub(crate) misses_per_get: f64,
}

/// The misses of one fixed choice, if they are known.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OracleMisses {
    pub(crate) oracle: &'static str,
    pub(crate) misses_per_get: Option<f64>,
}

/// The figures of one trace.
#[derive(Debug, Serialize)]
pub(crate) struct TraceReport {
    pub(crate) trace: String,
    pub(crate) capacity_bytes: u64,
    pub(crate) gets: usize,
    /// The gets over which misses are counted.
    pub(crate) counted_gets: usize,
    pub(crate) candidates: Vec<Misses>,
    pub(crate) oracles: Vec<OracleMisses>,
}

/// All figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: &'static str,
    pub(crate) keys: u64,
    pub(crate) traces: Vec<TraceReport>,
    pub(crate) costs: Vec<Costs>,
}

const NOTES: &str = "
Misses per counted get. Each candidate may hold the same bytes of keys and values. BlockCache and
quick_cache+192 count an overhead for each entry inside that limit, the others do not.
The optimum is the best fixed choice of entries: by the true frequencies (after the move, for
`moved`), for `loop` exactly, and for `recorded` by the counted gets themselves, which no cache can
know. `+32` counts the overhead that BlockCache may have inside the limit. `most frequent` is the
choice by gets alone, whatever the size.
";

const COSTS_NOTES: &str = "
Overhead is resident memory beside keys and values, of a full cache of 256 MiB. A hit is the time
that passes, divided by the hits of all threads: with four threads on two cores at best half of the
figure for one.
";

impl Report {
    /// The tables.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(first) = self.traces.first() {
            let names = first.candidates.iter().map(|misses| misses.candidate);
            let oracles = first.oracles.iter().map(|misses| misses.oracle);
            let header = ["trace"].into_iter().chain(names).chain(oracles);
            let mut rows = vec![header.map(str::to_owned).collect()];
            rows.extend(self.traces.iter().map(TraceReport::row));
            text = table(&rows) + NOTES;
        }
        if !self.costs.is_empty() {
            let header = [
                "cache",
                "value, bytes",
                "entries",
                "overhead bytes an entry",
                "ns a hit, 1 thread",
                "ns a hit, 4 threads",
            ];
            let mut rows = vec![header.map(str::to_owned).to_vec()];
            rows.extend(self.costs.iter().map(costs_row));
            let _never_fails = write!(text, "\n{}{COSTS_NOTES}", table(&rows));
        }
        text
    }
}

impl TraceReport {
    fn row(&self) -> Vec<String> {
        let candidates = self.candidates.iter();
        let candidates = candidates.map(|misses| Some(misses.misses_per_get));
        let oracles = self.oracles.iter().map(|misses| misses.misses_per_get);
        let figures = candidates.chain(oracles).map(|figure| match figure {
            Some(figure) => format!("{figure:.4}"),
            None => "-".to_owned(),
        });
        let name = [self.trace.clone()].into_iter();
        name.chain(figures).collect()
    }
}

fn costs_row(costs: &Costs) -> Vec<String> {
    vec![
        costs.candidate.clone(),
        costs.value_bytes.to_string(),
        costs.entries.to_string(),
        format!("{:.0}", costs.overhead_bytes_an_entry),
        format!("{:.0}", costs.ns_a_hit_1_thread),
        format!("{:.0}", costs.ns_a_hit_4_threads),
    ]
}

/// A table whose first row is the header and whose columns are as wide as need be.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _never_fails = match column {
                0 => write!(text, "| {cell:width$} |"),
                _ => write!(text, " {cell:>width$} |"),
            };
        }
        text.push('\n');
        if index == 0 {
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(*width);
                let _never_fails = match column {
                    0 => write!(text, "|-{dashes}-|"),
                    _ => write!(text, "-{dashes}:|"),
                };
            }
            text.push('\n');
        }
    }
    text
}

//! Selects the numbers of a report for each plot.
//!
//! Plots over time and of percentiles show one round, not a mean of rounds, because a mean would
//! smooth away the variation that they are meant to show. It is each engine's median round, by
//! operations per second, among those that ended successfully. The caption names it.

use super::axis::{Axis, nines};
use super::chart::{self, Bar, Drawing, Group, Line};
use super::palette::Key;
use super::text::{bytes, digits, micros, thousands};
use crate::matrix::MatrixReport;
use crate::report::PhaseReport;
use crate::summary::{Spread, WorkloadSummary};
use firn_base::Result;

/// The report of an engine for one workload in its median round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    /// The engine's index in the report.
    pub(super) engine: usize,
    pub(super) name: &'a str,
    /// The round, from 0.
    pub(super) round: u32,
    pub(super) phase: &'a PhaseReport,
}

/// The median round of each engine that completed the workload at `index` in some round.
pub(super) fn shown(report: &MatrixReport, index: usize) -> Vec<Shown<'_>> {
    let median = |(engine, name): (usize, &'_ str)| {
        let of_engine = || report.cells.iter().filter(|cell| cell.engine == name);
        let any_whole = of_engine().any(|cell| cell.failure.is_none() && cell.phases.len() > index);
        let candidates = of_engine().filter(|cell| !any_whole || cell.failure.is_none());
        let mut phases: Vec<(u32, &PhaseReport)> = candidates
            .filter_map(|cell| Some((cell.round, cell.phases.get(index)?)))
            .collect();
        phases.sort_by(|a, b| {
            a.1.operations_per_second
                .total_cmp(&b.1.operations_per_second)
        });
        phases
            .get(phases.len().saturating_sub(1) / 2)
            .map(|(round, phase)| (engine, *round, *phase))
    };
    let names = report.engines.iter().enumerate();
    let with_name =
        names.filter_map(|(engine, of)| Some((of.name.as_str(), median((engine, &of.name))?)));
    with_name
        .map(|(name, (engine, round, phase))| Shown {
            engine,
            name,
            round,
            phase,
        })
        .collect()
}

/// Operations in each second.
pub(super) fn throughput(title: &str, shown: &[Shown<'_>]) -> Result<Drawing> {
    let line = |of: &Shown<'_>| {
        let seconds = &of.phase.timeline.seconds;
        // The last second is partial, so its count is not a rate. If it is the only one, the rate
        // is that of the whole phase.
        let rates: Vec<f64> = match seconds.len() {
            0 => Vec::new(),
            1 => vec![of.phase.operations_per_second],
            count => seconds[..count - 1]
                .iter()
                .map(|operations| *operations as f64)
                .collect(),
        };
        over_time(of, &rates, |rate| Some(*rate))
    };
    let lines: Vec<Line> = shown.iter().map(line).collect();
    let y = Axis::linear(
        points(&lines).map(|(_, rate)| rate).fold(0.0, f64::max),
        true,
        "",
        thousands,
    );
    chart::lines(title, &time(&lines), &y, &lines)
}

/// The 99th percentile of the latencies in each second. A second without operations is a gap.
pub(super) fn latency_over_time(title: &str, shown: &[Shown<'_>]) -> Result<Drawing> {
    let log = |us: &f64| (*us > 0.0).then(|| us.log10());
    let lines: Vec<Line> = shown
        .iter()
        .map(|of| over_time(of, &of.phase.timeline.p99_us, log))
        .collect();
    let values = shown
        .iter()
        .flat_map(|of| of.phase.timeline.p99_us.iter().copied());
    chart::lines(
        title,
        &time(&lines),
        &Axis::logarithmic(values, "", micros),
        &lines,
    )
}

/// Latency by the fraction of operations that were not slower.
pub(super) fn percentiles(title: &str, shown: &[Shown<'_>]) -> Result<Drawing> {
    let quantiles = || {
        shown
            .iter()
            .flat_map(|of| of.phase.quantiles.iter().copied())
    };
    let line = |of: &Shown<'_>| {
        let positive = of.phase.quantiles.iter().filter(|(_, us)| *us > 0.0);
        let points: Vec<(f64, f64)> = positive
            .map(|(quantile, us)| (nines(*quantile), us.log10()))
            .collect();
        Line {
            key: Key::Engine(of.engine),
            segments: vec![points],
        }
    };
    let lines: Vec<Line> = shown.iter().map(line).collect();
    let x = Axis::nines(
        quantiles()
            .map(|(quantile, _)| quantile)
            .fold(0.0, f64::max),
        "% of the operations",
    );
    chart::lines(
        title,
        &x,
        &Axis::logarithmic(quantiles().map(|(_, us)| us), "", micros),
        &lines,
    )
}

fn over_time<T>(of: &Shown<'_>, seconds: &[T], height: impl Fn(&T) -> Option<f64>) -> Line {
    let mut segments = vec![Vec::new()];
    for (second, value) in seconds.iter().enumerate() {
        match height(value) {
            Some(height) => segments
                .last_mut()
                .into_iter()
                .for_each(|line| line.push((second as f64 + 0.5, height))),
            None => segments.push(Vec::new()),
        }
    }
    segments.retain(|segment| !segment.is_empty());
    Line {
        key: Key::Engine(of.engine),
        segments,
    }
}

fn time(lines: &[Line]) -> Axis {
    let last = points(lines)
        .map(|(second, _)| second + 0.5)
        .fold(0.0, f64::max);
    Axis::linear(last, false, "seconds since the start", digits)
}

fn points(lines: &[Line]) -> impl Iterator<Item = (f64, f64)> {
    lines
        .iter()
        .flat_map(|line| &line.segments)
        .flatten()
        .copied()
}

/// Every medium and cause for which some engine wrote, in order of appearance; those of the SSD
/// first.
pub(super) fn causes(report: &MatrixReport) -> Vec<(String, String)> {
    let mut causes = Vec::new();
    let phases = report.cells.iter().flat_map(|cell| &cell.phases);
    for traffic in phases
        .flat_map(|phase| &phase.engine.traffic)
        .filter(|traffic| traffic.written_bytes > 0)
    {
        let cause = (traffic.medium.clone(), traffic.cause.clone());
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    causes.sort_by_key(|(medium, _)| medium != "ssd");
    causes
}

/// Bytes written, by the source of the count: the engine by medium and cause, the kernel for the
/// process, the block device.
pub(super) fn written(
    title: &str,
    shown: &[Shown<'_>],
    causes: &[(String, String)],
) -> Result<Drawing> {
    let groups: Vec<Group> = shown
        .iter()
        .map(|of| Group {
            name: of.name.to_owned(),
            bars: counts(of, causes),
        })
        .collect();
    let totals = groups.iter().flat_map(|group| &group.bars);
    let max = totals
        .map(|bar| bar.parts.iter().map(|(_, value)| value).sum())
        .fold(0.0, f64::max);
    chart::bars(
        title,
        &Axis::linear(max, false, "bytes written", bytes),
        &groups,
    )
}

fn counts(of: &Shown<'_>, causes: &[(String, String)]) -> Vec<Bar> {
    let traffic = &of.phase.engine.traffic;
    let mut media: Vec<&str> = vec!["ssd"];
    for (medium, _) in causes {
        if !media.contains(&medium.as_str())
            && traffic
                .iter()
                .any(|t| t.medium == *medium && t.written_bytes > 0)
        {
            media.push(medium);
        }
    }
    let by_engine = |medium: &str| {
        let here = causes
            .iter()
            .enumerate()
            .filter(|(_, (on, _))| on == medium);
        let part = |(index, (_, cause)): (usize, &(String, String))| {
            (
                Key::Cause(index),
                of.phase.engine.written(medium, |of| of == cause) as f64,
            )
        };
        let text = if traffic.is_empty() {
            "not counted".to_owned()
        } else {
            whole(of, medium)
        };
        Bar {
            label: format!("engine, {medium}"),
            parts: here.map(part).collect(),
            spread: None,
            text,
        }
    };
    let outside = |label: &str, key: Key, count: Option<u64>| Bar {
        label: label.to_owned(),
        parts: count.map(|count| (key, count as f64)).into_iter().collect(),
        spread: None,
        text: count.map_or_else(|| "not counted".to_owned(), |count| bytes(count as f64)),
    };
    let mut bars: Vec<Bar> = media.into_iter().map(by_engine).collect();
    bars.push(outside(
        "kernel, process",
        Key::Process,
        of.phase.os_written_bytes,
    ));
    bars.push(outside(
        "block device",
        Key::Device,
        of.phase.device.map(|moved| moved.written_bytes),
    ));
    bars
}

fn whole(of: &Shown<'_>, medium: &str) -> String {
    bytes(of.phase.engine.written(medium, |_| true) as f64)
}

/// One kind of amplification over the workloads: medians of all rounds.
pub(super) fn amplification(
    title: &str,
    name: &'static str,
    report: &MatrixReport,
    of: impl Fn(&WorkloadSummary) -> Option<Spread>,
) -> Result<Drawing> {
    let mut groups: Vec<Group> = Vec::new();
    let mut last = None;
    for summary in &report.summary.workloads {
        if last != Some(&summary.workload) {
            groups.push(Group {
                name: summary.workload.clone(),
                bars: Vec::new(),
            });
        }
        last = Some(&summary.workload);
        let engine = report
            .engines
            .iter()
            .position(|engine| engine.name == summary.engine);
        let (Some(engine), Some(group)) = (engine, groups.last_mut()) else {
            continue;
        };
        let median = of(summary).map(|spread| spread.median);
        group.bars.push(Bar {
            label: summary.engine.clone(),
            parts: median
                .map(|median| (Key::Engine(engine), median))
                .into_iter()
                .collect(),
            spread: None,
            text: median.map_or_else(|| "nothing written or counted".to_owned(), digits),
        });
    }
    let values = groups
        .iter()
        .flat_map(|group| &group.bars)
        .flat_map(|bar| &bar.parts);
    let max = values.map(|(_, value)| *value).fold(0.0, f64::max);
    chart::bars(title, &Axis::linear(max, false, name, digits), &groups)
}

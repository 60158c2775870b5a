//! One plot as an SVG file of its own, for documents: the throughput of engines beside that of the
//! first.
//!
//! 1. It follows the reader's light or dark mode by itself, and its background is transparent.
//! 2. The same report gives the same bytes.

use super::axis::Axis;
use super::chart::{self, Bar, Group};
use super::palette::Key;
use super::text::{date, digits, escape, shortened, thousands};
use crate::matrix::MatrixReport;
use crate::summary::{Spread, WorkloadSummary};
use firn_base::{Error, Result};

const STYLE: &str = include_str!("standalone.css");
/// The plot's width when shown, in percent of the units that it is drawn in.
const SHOWN_PERCENT: i32 = 80;
/// The height of the title and of the line below it, in units of the plot.
const HEAD: i32 = 84;
/// The axis beyond the longest bar, so that the text at its end has room.
const ROOM: f64 = 1.2;
const COMMIT_CHARACTERS: usize = 10;
const NAME_CHARACTERS: usize = 30;

/// A plot of `report`: for each workload, the operations per second of every engine as a multiple
/// of the first one's, with the spread over the rounds.
///
/// # Errors
/// If the report compares no engines, or if the plot cannot be drawn.
pub fn svg(report: &MatrixReport) -> Result<String> {
    let first = report.engines.first().map_or("", |engine| &engine.name);
    let groups = groups(report, first);
    let ends = groups.iter().flat_map(|group| &group.bars);
    let ends = ends.filter_map(|bar| bar.spread.map(|(_, max)| max));
    let max = ends.fold(0.0, f64::max);
    if max == 0.0 {
        return Err(Error::invalid(
            "the report compares no engines: it needs two that ended the same workload in the same round",
        ));
    }
    let name = "operations/s, as a multiple of the rate in brackets";
    let axis = Axis::linear(max.max(1.0) * ROOM, false, name, digits).marked(1.0);
    let title = format!("Throughput beside {}", shortened(first, NAME_CHARACTERS));
    let drawing = chart::bars(&title, &axis, &groups)?;
    Ok(with_head(&drawing.svg, &title, &about(report)))
}

/// One group a workload, with one bar for each engine but the first.
fn groups(report: &MatrixReport, first: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for summary in &report.summary.workloads {
        if summary.engine == first {
            let rate = thousands(summary.operations_per_second.median);
            groups.push(Group {
                name: format!("{} ({rate}/s)", summary.workload),
                bars: Vec::new(),
            });
            continue;
        }
        let is_it = |engine: &crate::matrix::EngineReport| engine.name == summary.engine;
        let engine = report.engines.iter().position(is_it);
        if let (Some(engine), Some(group)) = (engine, groups.last_mut()) {
            group.bars.push(bar(engine, summary));
        }
    }
    groups
}

fn bar(engine: usize, summary: &WorkloadSummary) -> Bar {
    let ratio = summary.ratio.map(|ratios| ratios.operations_per_second);
    Bar {
        label: summary.engine.clone(),
        parts: ratio
            .map(|ratio| (Key::Engine(engine), ratio.median))
            .into_iter()
            .collect(),
        spread: ratio.map(|ratio| (ratio.min, ratio.max)),
        text: ratio.map_or_else(|| "no result".to_owned(), times),
    }
}

/// A ratio with its range over the rounds, if they differ.
fn times(Spread { median, min, max }: Spread) -> String {
    match min < max {
        true => format!("{median:.2} ({min:.2}–{max:.2})"),
        false => format!("{median:.2}"),
    }
}

/// The conditions of the run in one line.
fn about(report: &MatrixReport) -> String {
    let machine = &report.machine;
    let day = date(report.unix_seconds);
    let day = day.split(' ').next().unwrap_or_default();
    let commit = machine.commit.as_deref().unwrap_or("not known");
    let commit: String = commit.chars().take(COMMIT_CHARACTERS).collect();
    format!(
        "{day}, commit {commit}, {} records, {} processors, {}",
        thousands(report.config.records as f64),
        machine.cpus,
        shortened(&machine.cpu, 30)
    )
}

/// `plot` with a style sheet, a size, and two lines of text above it.
fn with_head(plot: &str, title: &str, about: &str) -> String {
    let mut file = String::with_capacity(plot.len() + STYLE.len() + 1024);
    for line in plot.lines() {
        match line.split_once("viewBox=\"0 0 ") {
            Some((before, after)) if line.starts_with("<svg") => {
                let (size, rest) = after.split_once('"').unwrap_or((after, ""));
                let (width, height) = size.split_once(' ').unwrap_or((size, "0"));
                let number = |digits: &str| digits.parse::<i32>().unwrap_or(0);
                let (width, height) = (number(width), number(height) + HEAD);
                let shown = |units: i32| units * SHOWN_PERCENT / 100;
                file.push_str(&format!(
                    "{before}width=\"{}\" height=\"{}\" viewBox=\"0 -{HEAD} {width} {height}\"{rest}\n",
                    shown(width),
                    shown(height)
                ));
            }
            _ => {
                file.push_str(line);
                file.push('\n');
            }
        }
        if line.starts_with("<title>") {
            file.push_str(&format!(
                "<style>\n{STYLE}</style>\n<text class=\"ink title\" x=\"8\" y=\"-50\">{}</text>\n\
                 <text class=\"ink about\" x=\"8\" y=\"-16\">{}</text>\n",
                escape(title),
                escape(about)
            ));
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::tests::assert_well_formed;
    use crate::sample::{HOSTILE, empty_reports, report};

    #[test]
    fn every_workload_has_its_bars() {
        let report = report();
        let file = svg(&report).unwrap();
        assert_well_formed(&file);
        for workload in &report.config.workloads {
            let name = format!("\n{} (", workload.name());
            assert!(file.contains(&name), "{name} in {file}");
        }
        assert!(file.contains("2.22"), "{file}");
        assert!(file.contains("class=\"engine-1\""), "{file}");
        assert!(file.contains("prefers-color-scheme: dark"));
        assert!(!file.contains(HOSTILE) && !file.contains("NaN"));
    }

    #[test]
    fn the_same_report_gives_the_same_bytes() {
        assert_eq!(svg(&report()).unwrap(), svg(&report()).unwrap());
    }

    #[test]
    fn a_spread_is_drawn_and_said() {
        let mut report = report();
        let plain = svg(&report).unwrap();
        let spread = Spread {
            median: 1.5,
            min: 1.25,
            max: 1.75,
        };
        let ratios = report.summary.workloads.iter_mut();
        for ratio in ratios.filter_map(|summary| summary.ratio.as_mut()) {
            ratio.operations_per_second = spread;
        }
        let spread = svg(&report).unwrap();
        assert!(spread.contains("1.50 (1.25–1.75)"), "{spread}");
        assert!(spread.contains("<polyline class=\"ink\""), "{spread}");
        assert_ne!(plain, spread);
    }

    /// `docs/benchmarks/results.md` names the command that makes them.
    #[test]
    fn the_plots_of_the_documents_are_those_of_their_reports() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let read = |name: String| std::fs::read_to_string(folder.join(name)).unwrap();
        for name in ["classic-cloud", "block-cloud", "lab-cloud"] {
            let report = serde_json::from_str(&read(format!("{name}.json"))).unwrap();
            let drawn = svg(&report).unwrap();
            assert_well_formed(&drawn);
            assert_eq!(drawn, read(format!("{name}.svg")), "{name}");
        }
    }

    #[test]
    fn a_report_without_a_comparison_is_refused() {
        for report in empty_reports() {
            assert!(svg(&report).is_err());
        }
    }
}

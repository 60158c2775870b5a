//! Figures: a plot, its caption and its legend, with stable ids and classes, for links and for
//! tests in a browser.

use super::chart::Drawing;
use super::palette::Key;
use super::plots::{self, Shown};
use super::text::{bytes, escape};
use crate::matrix::MatrixReport;
use crate::summary::WorkloadSummary;
use firn_base::Result;

/// The text around a plot.
struct Caption<'a> {
    id: String,
    title: String,
    about: &'a str,
    legend: Vec<(Key, String)>,
}

impl Caption<'_> {
    fn figure(self, drawing: Drawing) -> String {
        let keys: Vec<String> = drawing.keys.iter().map(|key| key.class()).collect();
        let is_drawn = |(key, _): &&(Key, String)| drawing.keys.contains(key);
        let legend: String = self
            .legend
            .iter()
            .filter(is_drawn)
            .map(|(key, name)| entry(*key, name))
            .collect();
        let picture = match drawing.keys.is_empty() {
            true => "<p class=\"nothing\">There is nothing to draw.</p>".to_owned(),
            false => drawing.svg,
        };
        format!(
            "<figure id=\"{}\" data-series=\"{}\" data-keys=\"{}\">\n<figcaption><strong>{}</strong><p>{}</p>\n\
             <ul class=\"legend\">{legend}</ul></figcaption>\n{picture}</figure>\n",
            self.id,
            keys.len(),
            keys.join(" "),
            escape(&self.title),
            escape(self.about),
        )
    }
}

/// One line of a legend.
fn entry(key: Key, name: &str) -> String {
    let (class, colour) = (key.class(), key.colour());
    let colour = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
    let mark = match key {
        Key::Engine(_) => format!(
            "<line class=\"{class}\" stroke=\"{colour}\" stroke-width=\"5\" x1=\"0\" y1=\"8\" x2=\"44\" y2=\"8\"/>"
        ),
        _ => format!(
            "<rect class=\"{class}\" fill=\"{colour}\" x=\"8\" y=\"0\" width=\"28\" height=\"16\"/>"
        ),
    };
    let picture =
        format!("<svg class=\"key\" viewBox=\"0 0 44 16\" aria-hidden=\"true\">{mark}</svg>");
    format!("<li>{picture}{}</li>", escape(name))
}

/// The figures of one workload. `id` is the suffix of their ids.
pub(super) fn of_workload(
    id: &str,
    workload: &str,
    shown: &[Shown<'_>],
    causes: &[(String, String)],
) -> Result<String> {
    let lines =
        |name: &str, title: &str, about, draw: fn(&str, &[Shown<'_>]) -> Result<Drawing>| {
            let title = format!("{title}, workload {workload}");
            let legend = |of: &Shown<'_>| {
                (
                    Key::Engine(of.engine),
                    format!("{}, round {}", of.name, of.round + 1),
                )
            };
            let drawing = draw(&spoken(&title, shown), shown)?;
            let legend = shown.iter().map(legend).collect();
            Ok::<_, firn_base::Error>(
                Caption {
                    id: format!("{name}-{id}"),
                    title,
                    about,
                    legend,
                }
                .figure(drawing),
            )
        };
    let throughput = lines(
        "throughput",
        "Throughput over time",
        "Operations acknowledged in each whole second, in the engine's median round; one dot at its mean if that took \
         less than a second.",
        plots::throughput,
    )?;
    let over_time = lines(
        "latency-time",
        "Latency over time",
        "The 99th percentile of each second, to one digit, in the same round; a gap is a second without an operation.",
        plots::latency_over_time,
    )?;
    let percentiles = lines(
        "latency-percentiles",
        "Latency by percentile",
        "What a share of the operations did not exceed, in the same round; each step to the right is one more nine.",
        plots::percentiles,
    )?;
    Ok(throughput + &over_time + &percentiles + &written(id, workload, shown, causes)?)
}

fn written(
    id: &str,
    workload: &str,
    shown: &[Shown<'_>],
    causes: &[(String, String)],
) -> Result<String> {
    let title = format!("Bytes written by cause, workload {workload}");
    let drawing = plots::written(&spoken(&title, shown), shown, causes)?;
    let by_engine = causes.iter().enumerate();
    let by_engine =
        by_engine.map(|(index, (medium, cause))| (Key::Cause(index), format!("{medium}: {cause}")));
    let outside = [
        (Key::Process, "counted by the kernel"),
        (Key::Device, "counted by the block device"),
    ];
    let legend = by_engine
        .chain(outside.map(|(key, name)| (key, name.to_owned())))
        .collect();
    let about = "By the engine's own counters, to zero compaction debt, beside what the kernel counted for the process \
                 and what the block device counted, whoever wrote; same round. Neither sees persistent memory.";
    Ok(Caption {
        id: format!("written-{id}"),
        title,
        about,
        legend,
    }
    .figure(drawing))
}

/// The description of a plot for screen readers: its title and the figures it compares.
fn spoken(title: &str, shown: &[Shown<'_>]) -> String {
    let one = |of: &Shown<'_>| {
        let (rate, p99) = (
            of.phase.operations_per_second,
            super::text::micros(of.phase.latency.p99_us),
        );
        let written = of.phase.written_bytes().map_or_else(
            || "bytes written not counted".to_owned(),
            |written| format!("{} written", bytes(written as f64)),
        );
        format!(
            "{}: {rate:.0} operations/s, 99 % within {p99}, {written}",
            of.name
        )
    };
    format!(
        "{title}. {}",
        shown.iter().map(one).collect::<Vec<_>>().join("; ")
    )
}

/// The figures that span the workloads.
pub(super) fn of_all(report: &MatrixReport) -> Result<String> {
    let legend = || {
        let names = report.engines.iter().enumerate();
        names
            .map(|(index, engine)| (Key::Engine(index), engine.name.clone()))
            .collect::<Vec<_>>()
    };
    let one = |name: &str, title: &str, axis, about, of: fn(&WorkloadSummary) -> Option<_>| {
        let drawing = plots::amplification(
            &format!("{title} of each engine by workload"),
            axis,
            report,
            of,
        )?;
        let (id, title) = (format!("amplification-{name}"), title.to_owned());
        Ok::<_, firn_base::Error>(
            Caption {
                id,
                title,
                about,
                legend: legend(),
            }
            .figure(drawing),
        )
    };
    let write = one(
        "write",
        "Write amplification",
        "bytes to the SSD per byte of the workload",
        "Bytes written to the SSD per byte of keys and values that the workload wrote, by the engine's count, or by \
         the kernel's for engines that do not count; the median of all rounds.",
        |summary| summary.write_amplification,
    )?;
    let space = one(
        "space",
        "Space amplification",
        "bytes in use per byte loaded",
        "Bytes of storage in use at the end, by the file system's count, per byte of the records loaded; the median of \
         all rounds.",
        |summary| Some(summary.space_amplification),
    )?;
    Ok(write + &space)
}

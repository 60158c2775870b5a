//! A run as one self-contained page: no network, no fonts, no script except one that counts the
//! drawn figures.
//!
//! 1. Every string of the report is escaped before it is on the page.
//! 2. Figures, tables and sections have stable ids and classes: `<figure id="throughput-a"
//!    data-series="2">`. Once the page is open, the attribute `data-drawn` of the body is the
//!    number of figures in which every series is visible.
//! 3. The page's own policy refuses to fetch anything.

mod axis;
mod chart;
mod figure;
mod meanings;
mod overview;
mod palette;
mod plots;
mod standalone;
mod table;
mod text;

use crate::matrix::MatrixReport;
use crate::summary::WorkloadSummary;
use firn_base::Result;
use palette::Key;
pub use standalone::svg;
use text::{bytes, command_line, date, escape, slug};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/drawn.js");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The page of `report`.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn html(report: &MatrixReport) -> Result<String> {
    let names: Vec<&str> = report
        .engines
        .iter()
        .map(|engine| engine.name.as_str())
        .collect();
    let title = escape(&format!("{} on {}", names.join(", "), report.machine.cpu));
    let dashes = (0..names.len())
        .map(Key::Engine)
        .filter(|key| !key.dashes().is_empty());
    let dashes = dashes.map(|key| {
        format!(
            "polyline.{0}, line.{0} {{ stroke-dasharray: {1}; }}\n",
            key.class(),
            key.dashes()
        )
    });
    let sections = [
        format!("<h1>{title}</h1>\n{}", overview::overview(report)),
        notes(report),
        facts(report),
        format!(
            "<section id=\"geomean\"><h2>All workloads</h2>\n<p>Operations/s of an engine over the first one's: in \
             each round the geometric mean over the workloads, of those the median.</p>\n{}\
             <div class=\"figures\">\n{}</div>\
             </section>\n",
            table::geomeans(report),
            figure::of_all(report)?
        ),
        workloads(report)?,
        details(
            "meanings",
            "What the columns mean, and where they come from",
            &meanings::meanings(),
        ),
        details(
            "settings",
            "Settings of each engine",
            &table::settings(report),
        ),
        details("rounds", "Rounds", &table::rounds(report)),
    ];
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{}</style>\n<script>\n{SCRIPT}</script>\n</head>\n<body>\n{}</body>\n</html>\n",
        dashes.collect::<String>(),
        sections.concat()
    ))
}

fn details(id: &str, title: &str, content: &str) -> String {
    format!("<details id=\"{id}\"><summary>{title}</summary>\n{content}</details>\n")
}

/// Date, machine and parameters of the run.
fn facts(report: &MatrixReport) -> String {
    let (machine, setup) = (&report.machine, &report.setup);
    let memory = machine
        .memory_bytes
        .map_or_else(|| "unknown memory".to_owned(), |all| bytes(all as f64));
    let pm = setup.pm.as_ref().map_or_else(
        || "no persistent memory".to_owned(),
        |pm| {
            format!(
                "{} of persistent memory in {}",
                bytes(pm.bytes as f64),
                pm.directory.display()
            )
        },
    );
    let pairs = [
        ("date", date(report.unix_seconds)),
        (
            "commit",
            machine
                .commit
                .clone()
                .unwrap_or_else(|| "not known".to_owned()),
        ),
        (
            "machine",
            format!(
                "{}, {} processors, {memory}, {}",
                machine.cpu, machine.cpus, machine.os
            ),
        ),
        ("storage", machine.device.clone()),
        ("workloads", amounts(report)),
        (
            "given to all",
            format!(
                "{} of memory, {} background threads, compression {}, {} I/O, {pm}",
                bytes(setup.memory_bytes as f64),
                setup.background_threads,
                setup.compression,
                if setup.direct_io {
                    "direct"
                } else {
                    "buffered"
                },
            ),
        ),
        ("schema", report.schema.clone()),
    ];
    let rows: String = pairs
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value)))
        .collect();
    let command = escape(&command_line(&report.command));
    format!("<dl class=\"facts\">\n{rows}</dl>\n<pre id=\"command\">{command}</pre>\n")
}

/// The amounts of data and work.
fn amounts(report: &MatrixReport) -> String {
    let config = &report.config;
    let whole = |number: u64| text::whole(number as f64);
    let (keys, values) = (config.key_sizes, config.values.sizes);
    let data = match config.retail {
        Some(retail) => {
            let (orders, (rows, entries)) = (whole(retail.orders), retail.loaded_rows());
            let (rows, entries) = (whole(rows), whole(entries));
            format!("{orders} orders: {rows} rows of {values} bytes and {entries} index entries")
        }
        None => format!(
            "{} records of {keys} + {values} bytes",
            whole(config.records)
        ),
    };
    let rate = config.rate.map_or_else(String::new, |rate| {
        format!(", {rate} operations/s asked for")
    });
    let rounds = report.cells.iter().map(|cell| cell.round + 1).max();
    format!(
        "{data}, {} operations each, {} threads, durable after a {} failure{rate}, {}",
        whole(config.operations),
        config.threads,
        config.durability,
        text::rounds(rounds.unwrap_or(0)),
    )
}

/// Notes that a reader must know before looking at any figure.
fn notes(report: &MatrixReport) -> String {
    let notes: String = report
        .summary
        .notes
        .iter()
        .map(|note| format!("<li>{}</li>\n", escape(note)))
        .collect();
    match notes.is_empty() {
        true => {
            "<div id=\"notes\" class=\"none\"><strong>Notes:</strong> none. Every round ended well, and no counts of \
                 bytes contradict each other.</div>\n"
                .to_owned()
        }
        false => format!("<div id=\"notes\" role=\"note\"><strong>Notes</strong>\n<ul>\n{notes}</ul></div>\n"),
    }
}

fn workloads(report: &MatrixReport) -> Result<String> {
    let causes = plots::causes(report);
    let mut summaries = report.summary.workloads.iter().peekable();
    let mut ids: Vec<String> = Vec::new();
    let mut sections = String::new();
    for (index, workload) in report.config.workloads.iter().enumerate() {
        // A workload may occur twice. Its group ends where an engine occurs again.
        let mut group: Vec<&WorkloadSummary> = Vec::new();
        let belongs = |group: &[&WorkloadSummary], next: &WorkloadSummary| {
            next.workload == workload.name()
                && group.iter().all(|summary| summary.engine != next.engine)
        };
        while let Some(next) = summaries.next_if(|next| belongs(&group, next)) {
            group.push(next);
        }
        let mut id = slug(workload.name());
        if ids.contains(&id) {
            id = format!("{id}-{}", index + 1);
        }
        let (name, about) = (escape(workload.name()), escape(workload.about()));
        let shown = plots::shown(report, index);
        sections += &format!(
            "<section id=\"workload-{id}\"><h2>Workload {name}</h2>\n<p class=\"about\">{about}</p>\n{}\
             <div class=\"figures\">\n{}</div></section>\n",
            table::of_workload(report, index, &group) + &table::of_sorts(report, &group),
            figure::of_workload(&id, workload.name(), &shown, &causes)?
        );
        ids.push(id);
    }
    Ok(sections)
}

#[cfg(test)]
mod tests;

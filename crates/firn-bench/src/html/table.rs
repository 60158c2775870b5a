//! Tables: figures with their spread, ratios in colour and in words, settings, rounds.

use super::text::{bytes, digits, escape, micros, rounds as of_rounds, shortened, whole};
use crate::matrix::MatrixReport;
use crate::report::Counted;
use crate::summary::{Ratios, SortLatency, Spread, WorkloadSummary};
use std::collections::BTreeSet;

/// Ratios closer to 1 than this are called the same.
const SAME: f64 = 0.02;
const COLUMNS: [&str; 16] = [
    "engine",
    "operations/s",
    "ratio to the first",
    "in calls",
    "p50",
    "p99",
    "p99.9",
    "p99.99",
    "settled",
    "written, SSD",
    "write amp.",
    "read",
    "space amp.",
    "CPU/op",
    "peak memory",
    "stalls",
];

/// The table of one workload: one row per engine, from its entry in `summaries`.
pub(super) fn of_workload(
    report: &MatrixReport,
    index: usize,
    summaries: &[&WorkloadSummary],
) -> String {
    let name = report
        .config
        .workloads
        .get(index)
        .map_or("", |workload| workload.name());
    let head: String = COLUMNS
        .iter()
        .map(|column| format!("<th scope=\"col\">{column}</th>"))
        .collect();
    let row = |engine: &str| match summaries.iter().find(|summary| summary.engine == engine) {
        Some(summary) => row(summary),
        None => {
            let failure = report
                .cells
                .iter()
                .filter(|cell| cell.engine == engine)
                .find_map(|cell| cell.failure.as_ref());
            let why = failure.map_or_else(
                || "it did not run".to_owned(),
                |failure| shortened(failure, 200),
            );
            let (span, engine) = (COLUMNS.len() - 1, escape(engine));
            let why = escape(&why);
            format!(
                "<tr><th scope=\"row\">{engine}</th><td class=\"text bad\" colspan=\"{span}\">no result: {why}</td>\
                 </tr>\n"
            )
        }
    };
    let rows: String = report
        .engines
        .iter()
        .map(|engine| row(&engine.name))
        .collect();
    let rounds = of_rounds(
        report
            .cells
            .iter()
            .map(|cell| cell.round + 1)
            .max()
            .unwrap_or(0),
    );
    let caption =
        format!("Medians of {rounds}, with the least and the largest below where they differ.");
    scrolled(
        &format!("workload {name}"),
        &format!("<caption>{caption}</caption><thead><tr>{head}</tr></thead>{rows}"),
    )
}

/// The latencies of each kind of call and class of transaction in the retail workload: one row per
/// engine and kind. Other workloads have none.
pub(super) fn of_sorts(report: &MatrixReport, summaries: &[&WorkloadSummary]) -> String {
    if report.config.retail.is_none() {
        return String::new();
    }
    let head: String = ["engine", "kind", "mean", "p50", "p99", "p99.9"]
        .map(|column| format!("<th scope=\"col\">{column}</th>"))
        .concat();
    let row = |(engine, sort, of): (&str, &str, &SortLatency)| {
        let spreads = [of.mean_us, of.p50_us, of.p99_us, of.p99_9_us];
        let cells = spreads.map(|spread| cell(Some(spread), micros, ""));
        let (engine, sort, cells) = (escape(engine), escape(sort), cells.concat());
        format!("<tr><th scope=\"row\">{engine}</th><td class=\"text\">{sort}</td>{cells}</tr>\n")
    };
    let rows = summaries.iter().flat_map(|summary| {
        let sorts = summary.latency_by_sort.iter();
        sorts.map(|(sort, latency)| row((&summary.engine, sort, latency)))
    });
    let rows: String = rows.collect();
    scrolled(
        "kinds of calls",
        &format!("<thead><tr>{head}</tr></thead>{rows}"),
    )
}

fn row(of: &WorkloadSummary) -> String {
    let [p50, p99, p99_9, p99_99] = of.latency_us;
    let ratio = |choose: fn(&Ratios) -> Option<Spread>| of.ratio.as_ref().and_then(choose);
    let cells = [
        cell(Some(of.operations_per_second), whole, ""),
        match ratio(|ratios| Some(ratios.operations_per_second)) {
            Some(spread) => format!("<td>{}</td>", judged(spread, true)),
            None => "<td>1 <small>the first</small></td>".to_owned(),
        },
        cell(of.operations_per_call_second, whole, ""),
        cell(Some(p50), micros, ""),
        cell(Some(p99), micros, ""),
        cell(
            Some(p99_9),
            micros,
            &beside(ratio(|ratios| Some(ratios.p99_9))),
        ),
        cell(Some(p99_99), micros, ""),
        cell(
            Some(of.settled_seconds),
            seconds,
            &beside(ratio(|ratios| Some(ratios.settled_seconds))),
        ),
        cell(
            of.written_bytes,
            bytes,
            &(counted(of) + &beside(ratio(|ratios| ratios.written_bytes))),
        ),
        cell(of.write_amplification, digits, ""),
        cell(of.os_read_bytes, bytes, ""),
        cell(Some(of.space_amplification), digits, ""),
        cell(Some(of.cpu_us_per_operation), micros, ""),
        cell(of.peak_memory_bytes, bytes, ""),
        cell(of.stall_seconds, seconds, ""),
    ];
    format!(
        "<tr><th scope=\"row\">{}</th>{}</tr>\n",
        escape(&of.engine),
        cells.concat()
    )
}

/// The source of the bytes written, unless it is the engine.
fn counted(of: &WorkloadSummary) -> String {
    if of.written_by == Some(Counted::Kernel) {
        "<small>by the kernel</small>".to_owned()
    } else {
        String::new()
    }
}

fn seconds(number: f64) -> String {
    format!("{} s", digits(number))
}

fn cell(spread: Option<Spread>, show: fn(f64) -> String, beside: &str) -> String {
    match spread {
        Some(spread) => format!(
            "<td>{}{}{beside}</td>",
            show(spread.median),
            range(spread, show)
        ),
        None => "<td>–</td>".to_owned(),
    }
}

/// The smallest and the largest value, unless they are displayed the same.
fn range(spread: Spread, show: fn(f64) -> String) -> String {
    let (min, max) = (show(spread.min), show(spread.max));
    if min == max {
        String::new()
    } else {
        format!("<small>{min} to {max}</small>")
    }
}

fn beside(ratio: Option<Spread>) -> String {
    ratio.map_or_else(String::new, |spread| {
        format!("<small>{}</small>", judged(spread, false))
    })
}

/// A ratio and its assessment, in colour and in words.
pub(super) fn judged(ratio: Spread, more_is_better: bool) -> String {
    let (direction, is_good) = if ratio.median >= 1.0 {
        ("▲ more", more_is_better)
    } else {
        ("▼ less", !more_is_better)
    };
    let (class, words) = match is_same(ratio) {
        true => (
            "same",
            if contradicts(ratio) {
                "≈ unclear"
            } else {
                "≈ same"
            }
            .to_owned(),
        ),
        false => (
            if is_good { "good" } else { "bad" },
            format!("{direction}, {}", if is_good { "good" } else { "bad" }),
        ),
    };
    format!(
        "<span class=\"{class}\">{} {words}</span>{}",
        times(ratio.median),
        range(ratio, times)
    )
}

/// True if some rounds are above 1 and some below, so that they prove nothing.
fn contradicts(ratio: Spread) -> bool {
    ratio.min < 1.0 && ratio.max > 1.0
}

/// True if a ratio does not count as a difference.
pub(super) fn is_same(ratio: Spread) -> bool {
    (ratio.median - 1.0).abs() < SAME || contradicts(ratio)
}

fn times(ratio: f64) -> String {
    if ratio < 0.1 {
        format!("{}×", digits(ratio))
    } else {
        format!("{ratio:.2}×")
    }
}

/// The geometric means.
pub(super) fn geomeans(report: &MatrixReport) -> String {
    let row = |(pair, spread): (&String, &Spread)| {
        format!(
            "<tr><th scope=\"row\">{}</th><td class=\"text\">{}</td></tr>\n",
            escape(pair),
            judged(*spread, true)
        )
    };
    let rows: String = report.summary.geomean_spread.iter().map(row).collect();
    match (rows.is_empty(), report.engines.len()) {
        (true, 0 | 1) => "<p>One engine: nothing to compare.</p>".to_owned(),
        (true, _) => {
            "<p>No round in which two engines ended every workload: nothing to compare.</p>"
                .to_owned()
        }
        (false, _) => {
            let head = "<thead><tr><th scope=\"col\">engines</th>\
                        <th scope=\"col\" class=\"text\">operations/s</th></tr></thead>";
            scrolled("geometric means", &(head.to_owned() + &rows))
        }
    }
}

/// The settings that each engine derived from the common setup.
pub(super) fn settings(report: &MatrixReport) -> String {
    let names: BTreeSet<&String> = report
        .engines
        .iter()
        .flat_map(|engine| engine.settings.keys())
        .collect();
    let heads = report.engines.iter().map(|engine| {
        format!(
            "<th scope=\"col\" class=\"text\">{}</th>",
            escape(&engine.name)
        )
    });
    let line = |name: &str, values: Vec<&str>| {
        let values = values
            .into_iter()
            .map(|value| format!("<td class=\"text\">{}</td>", escape(value)));
        format!(
            "<tr><th scope=\"row\">{}</th>{}</tr>\n",
            escape(name),
            values.collect::<String>()
        )
    };
    let about = line(
        "what it is",
        report
            .engines
            .iter()
            .map(|engine| engine.about.as_str())
            .collect(),
    );
    let value = |name: &String| {
        let of_each = report
            .engines
            .iter()
            .map(|engine| engine.settings.get(name).map_or("–", String::as_str));
        line(name, of_each.collect())
    };
    let rows: String = names.into_iter().map(value).collect();
    let head = format!(
        "<thead><tr><th scope=\"col\">option</th>{}</tr></thead>",
        heads.collect::<String>()
    );
    scrolled("settings", &(head + &about + &rows))
}

/// Each engine in each round, and the result.
pub(super) fn rounds(report: &MatrixReport) -> String {
    let row = |cell: &crate::cell::Cell| {
        let end = match &cell.failure {
            Some(failure) => format!("<td class=\"text bad\">failed: {}</td>", escape(failure)),
            None => format!(
                "<td class=\"text\">{} workloads, all answers right</td>",
                cell.phases.len()
            ),
        };
        let sync = if cell.device_sync_us > 0.0 {
            micros(cell.device_sync_us)
        } else {
            "–".to_owned()
        };
        let (engine, described) = (escape(&cell.engine), escape(&cell.described));
        let round = cell.round + 1;
        format!(
            "<tr><th scope=\"row\">{engine}</th><td>{round}</td><td>{sync}</td>\
             <td class=\"text\">{described}</td>{end}</tr>\n"
        )
    };
    let rows: String = report.cells.iter().map(row).collect();
    let columns = [
        ("", "engine"),
        ("", "round"),
        ("", "4 KiB append and sync"),
        ("text", "says of itself"),
        ("text", "end"),
    ];
    let head = columns
        .map(|(class, column)| format!("<th scope=\"col\" class=\"{class}\">{column}</th>"))
        .concat();
    scrolled("rounds", &format!("<thead><tr>{head}</tr></thead>{rows}"))
}

/// A table that scrolls on its own if the page is narrow, also by keyboard.
pub(super) fn scrolled(name: &str, content: &str) -> String {
    let name = escape(name);
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table: {name}\">\
         <table>{content}</table></div>\n"
    )
}

//! The first section of the page: engines by workloads, and one sentence.

use super::table::{is_same, judged, scrolled};
use super::text::{digits, escape, shortened, whole};
use crate::matrix::MatrixReport;
use crate::summary::{Spread, WorkloadSummary};
use std::collections::BTreeMap;

/// The section.
pub(super) fn overview(report: &MatrixReport) -> String {
    format!(
        "<section id=\"overview\"><h2>Operations/s</h2>\n<p id=\"verdict\"><strong>{}</strong></p>\n{}</section>\n",
        escape(&sentence(report)),
        matrix(report)
    )
}

/// One row per engine, one column per workload.
fn matrix(report: &MatrixReport) -> String {
    let workloads = &report.config.workloads;
    let column = |name: &str| format!("<th scope=\"col\">{}</th>", escape(name));
    let columns: String = workloads
        .iter()
        .map(|workload| column(workload.name()))
        .collect();
    let mut rows = String::new();
    for engine in &report.engines {
        // A workload may occur twice. The summaries are in the order of the request.
        let mut summaries = report
            .summary
            .workloads
            .iter()
            .filter(|summary| summary.engine == engine.name)
            .peekable();
        let cells: String = workloads
            .iter()
            .map(|workload| cell(summaries.next_if(|summary| summary.workload == workload.name())))
            .collect();
        let overall = match geomean(report, &engine.name) {
            Some(spread) => format!("<td>{}</td>", judged(spread, true)),
            None if is_first(report, &engine.name) => {
                "<td>1 <small>the first</small></td>".to_owned()
            }
            None => "<td>–</td>".to_owned(),
        };
        rows += &format!(
            "<tr><th scope=\"row\">{}</th>{cells}{overall}</tr>\n",
            escape(&engine.name)
        );
    }
    let caption = "Medians; below, over the first engine in the same round. Last, the geometric mean \
                   over the workloads.";
    scrolled(
        "engines by workloads",
        &format!(
            "<caption>{caption}</caption><thead><tr><th scope=\"col\">engine</th>{columns}<th scope=\"col\">all</th>\
             </tr></thead>{rows}"
        ),
    )
}

fn cell(summary: Option<&WorkloadSummary>) -> String {
    let Some(summary) = summary else {
        return "<td class=\"bad\">no result</td>".to_owned();
    };
    let rate = whole(summary.operations_per_second.median);
    let ratio = summary.ratio.map(|ratios| {
        format!(
            "<small>{}</small>",
            judged(ratios.operations_per_second, true)
        )
    });
    format!("<td>{rate}{}</td>", ratio.unwrap_or_default())
}

fn is_first(report: &MatrixReport, engine: &str) -> bool {
    report
        .engines
        .first()
        .is_some_and(|first| first.name == engine)
}

fn geomean(report: &MatrixReport, engine: &str) -> Option<Spread> {
    let first = report.engines.first()?;
    report
        .summary
        .geomean_spread
        .get(&format!("{engine}/{}", first.name))
        .copied()
}

/// The result of the run in one sentence.
fn sentence(report: &MatrixReport) -> String {
    const NAME_CHARACTERS: usize = 40;
    let name = |engine: &str| shortened(engine, NAME_CHARACTERS);
    let Some(first) = report.engines.first() else {
        return "No engine was measured.".to_owned();
    };
    let count = match report.config.workloads.len() {
        1 => "the one workload".to_owned(),
        count => format!("all {count} workloads"),
    };
    if report.engines.len() == 1 {
        let failed = report
            .cells
            .iter()
            .filter(|cell| cell.failure.is_some())
            .count();
        return match failed {
            0 => format!(
                "{} ended {count}, and every answer was right.",
                name(&first.name)
            ),
            _ => format!(
                "{} failed in {failed} of {} rounds.",
                name(&first.name),
                report.cells.len()
            ),
        };
    }
    let others = report.engines[1..]
        .iter()
        .filter_map(|engine| Some((&engine.name, geomean(report, &engine.name)?)));
    let others: Vec<(&String, Spread)> = others.collect();
    let Some((best, spread)) = others
        .iter()
        .max_by(|a, b| a.1.median.total_cmp(&b.1.median))
    else {
        return format!(
            "No engine can be compared with {}: no round ended {count} in both.",
            name(&first.name)
        );
    };
    let by_workload = by_workload(report, best);
    let (best, first) = (name(best), name(&first.name));
    if is_same(*spread) {
        return format!(
            "Over {count}, {best} and {first} are equally fast, as far as the rounds agree{by_workload}."
        );
    }
    match spread.median > 1.0 {
        true => format!(
            "Over {count}, {best} is the fastest, with {} times the operations of {first}{by_workload}.",
            digits(spread.median)
        ),
        false => format!(
            "Over {count}, {first} is the fastest; {best} has {} times its operations{by_workload}.",
            digits(spread.median)
        ),
    }
}

/// The number of workloads in which `engine` is faster, the same, and slower than the first engine.
fn by_workload(report: &MatrixReport, engine: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let of_engine = report
        .summary
        .workloads
        .iter()
        .filter(|summary| summary.engine == engine);
    for ratio in of_engine.filter_map(|summary| Some(summary.ratio.as_ref()?.operations_per_second))
    {
        let word = if is_same(ratio) {
            "the same"
        } else if ratio.median > 1.0 {
            "faster"
        } else {
            "slower"
        };
        *counts.entry(word).or_default() += 1;
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|(word, count)| format!("{word} in {count}"))
        .collect();
    if parts.len() < 2 {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{empty_reports, report};

    #[test]
    fn a_row_for_each_engine_and_a_column_for_each_workload() {
        let report = report();
        let section = overview(&report);
        assert_eq!(
            section.matches("<tr><th scope=\"row\">").count(),
            report.engines.len()
        );
        assert_eq!(
            section.matches("<th scope=\"col\">").count(),
            report.config.workloads.len() + 2
        );
        assert!(section.contains("2.22× ▲ more, good"), "{section}");
    }

    #[test]
    fn the_sentence_names_the_fastest() {
        let mut report = report();
        let (first, second) = (
            report.engines[0].name.clone(),
            report.engines[1].name.clone(),
        );
        let mut says = |median: f64, min: f64, max: f64| {
            let spread = Spread { median, min, max };
            report
                .summary
                .geomean_spread
                .insert(format!("{second}/{first}"), spread);
            sentence(&report)
        };
        assert!(says(2.0, 1.9, 2.1).contains(&format!(
            "{second} is the fastest, with 2 times the operations of {first}"
        )));
        assert!(
            says(0.5, 0.4, 0.6)
                .contains(&format!("{first} is the fastest; {second} has 0.5 times"))
        );
        assert!(says(1.2, 0.9, 1.4).contains("equally fast, as far as the rounds agree"));
        report.summary.geomean_spread.clear();
        assert!(sentence(&report).starts_with("No engine can be compared with x"));
        report.engines.truncate(1);
        report.cells.retain(|cell| cell.engine == first);
        assert_eq!(
            sentence(&report),
            "x ended all 2 workloads, and every answer was right."
        );
        empty_reports()
            .iter()
            .for_each(|report| assert!(!sentence(report).is_empty()));
    }
}

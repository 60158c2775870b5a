//! The page: every figure exists, and nothing comes from a network.

use super::*;
use crate::sample::{HOSTILE, empty_reports, report};

/// The number of figures that span the workloads, and of figures per workload.
const FIGURES_OF_ALL: usize = 2;
const FIGURES: usize = 4;

fn page() -> String {
    html(&report()).unwrap()
}

/// The SVG documents of `page`.
fn pictures(page: &str) -> Vec<&str> {
    let starts = page.match_indices("<svg").map(|(at, _)| &page[at..]);
    starts
        .map(|rest| &rest[..rest.find("</svg>").unwrap() + 6])
        .collect()
}

/// Asserts that the tags of `markup` nest, attributes are quoted, and every entity ends.
pub(super) fn assert_well_formed(markup: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = markup;
    while let Some(at) = rest.find(['<', '&']) {
        let entity = rest[at..].starts_with('&');
        let end = at
            + rest[at..]
                .find(if entity { ';' } else { '>' })
                .expect("an end");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if entity {
            assert!(
                ["amp", "lt", "gt", "quot", "apos", "#39"].contains(&tag),
                "&{tag};"
            );
        } else if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            assert!(!tag.contains('<'), "{tag}");
            let name = tag.split([' ', '\n', '/']).next().unwrap();
            open.extend((!tag.ends_with('/')).then_some(name));
        }
    }
    assert!(open.is_empty(), "{open:?} in {markup}");
}

#[test]
fn strings_are_escaped_wherever_they_come() {
    let page = page();
    assert!(!page.contains(HOSTILE) && !page.contains("alert('") && !page.contains("y:&<b>"));
    assert_eq!(page.matches("<script>").count(), 1, "the page's own");
    for place in [
        "<h1>",
        "<pre id=\"command\">",
        "<li>y:&amp;&lt;b&gt; round 2 failed: a wrong answer &lt;script&gt;",
    ] {
        assert!(page.contains(place), "{place}");
    }
}

#[test]
fn every_figure_is_there_with_its_series() {
    let page = page();
    for id in ["load", "mixed-50-40-10"] {
        for (name, series) in [
            ("throughput", 2),
            ("latency-time", 2),
            ("latency-percentiles", 2),
            ("written", 4),
        ] {
            let figure = format!("<figure id=\"{name}-{id}\" data-series=\"{series}\"");
            assert!(page.contains(&figure), "{figure}");
        }
        assert!(page.contains(&format!("<section id=\"workload-{id}\">")));
    }
    for name in ["write", "space"] {
        assert!(page.contains(&format!(
            "<figure id=\"amplification-{name}\" data-series=\"2\" data-keys=\"engine-0 "
        )));
    }
    let figures = page.matches("<figure ").count();
    assert_eq!(figures, FIGURES_OF_ALL + 2 * FIGURES);
    assert_eq!(page.matches("<svg class=\"plot\"").count(), figures);
    assert_eq!(page.matches("<figcaption>").count(), figures);
}

#[test]
fn every_series_is_drawn_with_its_class() {
    let page = page();
    for figure in page.split("<figure ").skip(1) {
        let keys = figure
            .split("data-keys=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        let plot = pictures(figure)
            .into_iter()
            .find(|svg| svg.contains("class=\"plot\""))
            .unwrap();
        assert_well_formed(plot);
        assert!(
            plot.contains("<title>"),
            "a plot has a title for those who do not see it"
        );
        for key in keys.split(' ') {
            assert!(
                plot.contains(&format!(" class=\"{key}\" ")),
                "{key} in {plot}"
            );
        }
    }
    let other = pictures(&page)
        .into_iter()
        .filter(|svg| !svg.contains("class=\"plot\""));
    other.for_each(assert_well_formed);
}

#[test]
fn the_page_opens_with_the_result() {
    let page = page();
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("<h1>") < place("<section id=\"overview\">"));
    assert!(place("id=\"verdict\"") < place("aria-label=\"table: engines by workloads\""));
    assert!(place("aria-label=\"table: engines by workloads\"") < place("<dl class=\"facts\">"));
}

#[test]
fn bytes_that_nobody_counted_are_a_dash_and_no_praise() {
    let mut report = report();
    for cell in report.cells.iter_mut().filter(|cell| cell.engine != "x") {
        for phase in &mut cell.phases {
            phase.engine.traffic.clear();
        }
    }
    report.summary = crate::summary::Summary::of(&report.cells);
    assert!(
        html(&report)
            .unwrap()
            .contains("<small>by the kernel</small>")
    );
    report
        .cells
        .iter_mut()
        .flat_map(|cell| &mut cell.phases)
        .for_each(|phase| phase.os_written_bytes = None);
    report.summary = crate::summary::Summary::of(&report.cells);
    let other = report
        .summary
        .workloads
        .iter()
        .find(|summary| summary.engine != "x")
        .unwrap();
    assert!(other.written_bytes.is_none() && other.ratio.unwrap().written_bytes.is_none());
    let page = html(&report).unwrap();
    assert!(
        !page.contains("0.00×")
            && !page.contains("<td>0<")
            && !page.contains("<small>by the kernel")
    );
}

#[test]
fn nothing_is_fetched() {
    let page = page();
    for reference in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(reference), "{reference}");
    }
    let addresses = page.matches("http://").count() + page.matches("https://").count();
    assert_eq!(
        addresses,
        page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
    );
}

#[test]
fn ratios_are_judged_in_words() {
    let page = page();
    assert!(
        page.contains("2.22× ▲ more, good"),
        "of the workload that only the first round ended"
    );
    let ratio = |median: f64, min: f64, max: f64| crate::summary::Spread { median, min, max };
    assert!(table::judged(ratio(0.5, 0.5, 0.5), true).contains("bad\">0.50× ▼ less, bad"));
    assert!(table::judged(ratio(0.5, 0.4, 0.6), false).contains("good\">0.50× ▼ less, good"));
    assert!(table::judged(ratio(1.3, 0.9, 1.6), true).contains("≈ unclear"));
    assert!(table::judged(ratio(1.01, 1.0, 1.01), true).contains("≈ same"));
    assert!(table::judged(ratio(0.001234, 0.001234, 0.001234), true).contains("bad\">0.00123× "));
}

#[test]
fn the_median_round_is_shown_and_named() {
    let mut report = report();
    assert_eq!(
        plots::shown(&report, 0)
            .iter()
            .map(|of| of.round)
            .collect::<Vec<_>>(),
        [0, 0]
    );
    assert!(page().contains("x, round 1"));
    // If no round ended successfully, the rounds there are get shown.
    report.cells.retain(|cell| cell.failure.is_some());
    assert_eq!(plots::shown(&report, 0)[0].round, 1);
    assert!(plots::shown(&report, 1).is_empty());
}

#[test]
fn what_is_empty_makes_a_page() {
    for report in empty_reports() {
        let page = html(&report).unwrap();
        assert_eq!(
            page.matches("<figure ").count(),
            FIGURES_OF_ALL + 2 * FIGURES
        );
        assert!(
            page.contains("There is nothing to draw.")
                && page.contains("no result: it did not run")
        );
        pictures(&page).into_iter().for_each(assert_well_formed);
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }
    let mut none = empty_reports()[0].clone();
    (none.engines, none.config.workloads) = (Vec::new(), Vec::new());
    html(&none).unwrap();
}

#[test]
fn a_workload_that_comes_twice_has_two_sections() {
    let mut report = report();
    report.config.workloads[1] = report.config.workloads[0].clone();
    let page = html(&report).unwrap();
    assert!(page.contains("id=\"workload-load\"") && page.contains("id=\"workload-load-2\""));
}

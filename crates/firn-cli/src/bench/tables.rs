//! Benchmark reports as tables.

use crate::byte_size::ByteSize;
use crate::output::{grouped, table};
use comfy_table::{CellAlignment, Table};
use firn_bench::{
    Counted, MatrixReport, PaperRow, PhaseReport, QuickReport, Ratios, SortLatency, Spread,
    Summary, Workload, WorkloadSummary,
};
use std::fmt::Write;

/// Rate and latencies, one line per workload.
pub(super) fn latency_table(phases: &[PhaseReport]) -> Table {
    let header = [
        "workload",
        "durability",
        "operations/s",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "max",
    ];
    let rows = phases.iter().map(|phase| {
        let latency = &phase.latency;
        let quantiles = [
            latency.p50_us,
            latency.p90_us,
            latency.p99_us,
            latency.p99_9_us,
            latency.p99_99_us,
        ];
        let mut row = vec![
            described(phase),
            phase.durability.clone(),
            count(phase.operations_per_second),
        ];
        row.extend(quantiles.into_iter().chain([latency.max_us]).map(micros));
        row
    });
    table(&header, rows.collect(), true)
}

/// One line per workload and engine, with its ratio to the first engine.
pub(super) fn summary_table(summary: &Summary) -> Table {
    let header = [
        "workload",
        "engine",
        "ops/s",
        "ratio",
        "in calls",
        "p50",
        "p99",
        "p99.9",
        "p99.99",
        "settled s",
        "written",
        "ratio",
        "per byte",
        "read",
        "space",
        "CPU us",
        "memory",
        "stall s",
    ];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let bytes = |bytes: f64| ByteSize(bytes as u64).to_string();
    let rows = summary.workloads.iter().map(|row| {
        let ratio = |of: &dyn Fn(&Ratios) -> Option<Spread>| {
            or_dash(
                row.ratio
                    .as_ref()
                    .and_then(of)
                    .map(|ratio| format!("{:.2}", ratio.median)),
            )
        };
        let mut cells = vec![
            row.workload.clone(),
            row.engine.clone(),
            count(row.operations_per_second.median),
        ];
        cells.push(ratio(&|ratios| Some(ratios.operations_per_second)));
        cells.push(or_dash(
            row.operations_per_call_second
                .map(|rate| count(rate.median)),
        ));
        cells.extend(row.latency_us.map(|latency| micros(latency.median)));
        cells.extend([
            format!("{:.1}", row.settled_seconds.median),
            or_dash(
                row.written_bytes
                    .map(|written| bytes(written.median) + by_kernel(row.written_by)),
            ),
            ratio(&|ratios| ratios.written_bytes),
            or_dash(
                row.write_amplification
                    .map(|ratio| format!("{:.2}", ratio.median)),
            ),
            or_dash(row.os_read_bytes.map(|read| bytes(read.median))),
            format!("{:.2}", row.space_amplification.median),
            format!("{:.1}", row.cpu_us_per_operation.median),
            or_dash(row.peak_memory_bytes.map(|peak| bytes(peak.median))),
            or_dash(
                row.stall_seconds
                    .map(|stall| format!("{:.1}", stall.median)),
            ),
        ]);
        cells
    });
    let mut table = table(&header, rows.collect(), true);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    table
}

/// Latencies by kind of call, one line per workload, engine and kind.
pub(super) fn sorts_table(summary: &Summary) -> Table {
    let header = ["workload", "engine", "call", "mean", "p50", "p99", "p99.9"];
    let of = |row: &WorkloadSummary| {
        let line = |(sort, latency): (&String, &SortLatency)| {
            let figures = [
                latency.mean_us,
                latency.p50_us,
                latency.p99_us,
                latency.p99_9_us,
            ];
            let mut cells = vec![row.workload.clone(), row.engine.clone(), sort.clone()];
            cells.extend(figures.map(|spread| micros(spread.median)));
            cells
        };
        row.latency_by_sort.iter().map(line).collect::<Vec<_>>()
    };
    let mut table = table(
        &header,
        summary.workloads.iter().flat_map(of).collect(),
        true,
    );
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    table
}

/// The mark of a count that the kernel provides.
fn by_kernel(source: Option<Counted>) -> &'static str {
    if source == Some(Counted::Kernel) {
        " k"
    } else {
        ""
    }
}

/// A paper's experiments: the varied parameter, the result of both engines, and the paper's figure.
pub(super) fn paper_table(rows: &[PaperRow]) -> Table {
    let header = [
        "experiment",
        "varied",
        "figure",
        "baseline",
        "ours",
        "ratio",
        "CPU us",
        "our CPU us",
        "the paper",
        "why it may differ",
    ];
    let or_dash = |spread: Option<Spread>, shown: fn(f64) -> String| {
        spread.map_or_else(|| "-".to_owned(), |spread| shown(spread.median))
    };
    let row = |row: &PaperRow| {
        let steps = row
            .opening_steps
            .iter()
            .filter(|step| step.seconds >= 0.0005);
        let steps: Vec<String> = steps
            .map(|step| format!("{} {:.3}", step.step, step.seconds))
            .collect();
        // An engine may have done work that it does not count, and a table has no engine.
        let figure = |of: Option<Spread>, cpu_us: Option<Spread>| match (of, cpu_us) {
            (None, None) => "failed".to_owned(),
            _ => or_dash(of, short),
        };
        let ours = figure(row.ours, row.our_cpu_us);
        vec![
            format!("{}: {}", row.experiment, row.title),
            row.variant.clone(),
            row.figure.clone(),
            match row.is_alone {
                true => "-".to_owned(),
                false => figure(row.baseline, row.baseline_cpu_us),
            },
            if steps.is_empty() {
                ours
            } else {
                format!("{ours}: {}", steps.join(", "))
            },
            or_dash(row.ratio, |ratio| format!("{ratio:.2}")),
            or_dash(row.baseline_cpu_us, short),
            or_dash(row.our_cpu_us, short),
            row.paper.clone(),
            row.differs.clone(),
        ]
    };
    table(&header, rows.iter().map(row).collect(), false)
}

/// Whole numbers from one hundred up, otherwise two decimals.
fn short(figure: f64) -> String {
    if figure >= 100.0 {
        count(figure)
    } else {
        format!("{figure:.2}")
    }
}

/// The geometric means.
pub(super) fn ratios(summary: &Summary) -> String {
    let line = |(name, spread): (&String, &Spread)| {
        let Spread { median, min, max } = spread;
        format!(
            "operations/s, {name}, geometric mean over the workloads: {median:.3} ({min:.3} to {max:.3})"
        )
    };
    summary
        .geomean_spread
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Notes that a reader needs in addition to the figures.
pub(super) fn notes(report: &MatrixReport) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        // Writing to a `String` never fails.
        let _never_fails = writeln!(text, "{line}");
    };
    let syncs: Vec<String> = report
        .cells
        .iter()
        .map(|cell| micros(cell.device_sync_us))
        .collect();
    line(format!(
        "device sync (4 KiB, median), by cell: {}",
        syncs.join(", ")
    ));
    let checker = report
        .cells
        .iter()
        .flat_map(|cell| &cell.phases)
        .map(|phase| phase.harness.checker_bytes)
        .max();
    line(format!(
        "memory of the check, left out above: {}",
        ByteSize(checker.unwrap_or(0))
    ));
    line(
        "in calls: operations by the seconds in them, without their generation and check; written: to zero \
         compaction debt, by the engine's count, or by the kernel's for the process (k) if the engine \
         does not count all; read: by the kernel's"
            .to_owned(),
    );
    report
        .summary
        .notes
        .iter()
        .for_each(|note| line(format!("note: {note}")));
    text.push_str("every value that was read was checked");
    text
}

/// The lines below the quick benchmark's table.
pub(super) fn quick_summary(report: &QuickReport) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        // Writing to a `String` never fails.
        let _never_fails = writeln!(text, "{what:<28}{value}");
    };
    line("engine", report.engine.clone());
    line("device sync (4 KiB, median)", micros(report.device_sync_us));
    line(
        "loaded",
        format!(
            "{} records, {}",
            report.records,
            ByteSize(report.loaded_bytes)
        ),
    );
    line(
        "written per byte",
        format!("{:.2}", report.written_per_byte),
    );
    line(
        "space used",
        format!(
            "{} ({:.2} per byte)",
            ByteSize(report.space_bytes),
            report.space_per_byte
        ),
    );
    line(
        "writers held back",
        format!("{:.1} s", report.stall_seconds),
    );
    line("until at rest", format!("{:.1} s", report.settle_seconds));
    let _never_fails = write!(
        text,
        "every value that was read was checked\n{}",
        report.verdict
    );
    text
}

fn described(phase: &PhaseReport) -> String {
    let about = phase
        .workload
        .parse::<Workload>()
        .map(|workload| workload.about());
    format!("{}: {}", phase.workload, about.unwrap_or("?"))
}

/// A duration with three significant digits and a unit.
fn micros(micros: f64) -> String {
    match micros {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e4 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// `number` rounded to a whole number, in groups of three digits.
fn count(number: f64) -> String {
    grouped(number.round().max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(count(1234567.4), "1,234,567");
        assert_eq!(count(123.0), "123");
        for (us, text) in [
            (1.234, "1.23 us"),
            (123.4, "123 us"),
            (4_500.0, "4.50 ms"),
            (2e6, "2.00 s"),
        ] {
            assert_eq!(micros(us), text);
        }
    }
}

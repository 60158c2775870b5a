//! A benchmark's reports as tables.

use crate::byte_size::ByteSize;
use crate::output::table;
use comfy_table::Table;
use firn_bench::{PhaseReport, QuickReport};
use std::fmt::Write;

/// Rate and latencies, one line per workload.
pub(super) fn latency_table(phases: &[PhaseReport]) -> Table {
    let header = ["workload", "durability", "operations/s", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let rows = phases.iter().map(|phase| {
        let latency = &phase.latency;
        let quantiles = [latency.p50_us, latency.p90_us, latency.p99_us, latency.p99_9_us, latency.p99_99_us];
        let mut row = vec![described(phase), phase.durability.clone(), count(phase.operations_per_second)];
        row.extend(quantiles.into_iter().chain([latency.max_us]).map(micros));
        row
    });
    table(&header, rows.collect(), true)
}

/// What else was measured, one line per workload.
pub(super) fn resource_table(phases: &[PhaseReport]) -> Table {
    let header = [
        "workload",
        "seconds",
        "settle s",
        "min/s",
        "median/s",
        "written",
        "per byte",
        "by the OS",
        "stall s",
        "CPU s",
        "peak memory",
        "space",
    ];
    let rows = phases.iter().map(|phase| {
        let bytes = |bytes: u64| ByteSize(bytes).to_string();
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            described(phase),
            format!("{:.1}", phase.seconds),
            or_dash(phase.settle_seconds.map(|seconds| format!("{seconds:.1}"))),
            count(phase.timeline.min as f64),
            count(phase.timeline.median as f64),
            bytes(phase.written_bytes),
            or_dash(phase.written_per_byte().map(|ratio| format!("{ratio:.2}"))),
            or_dash(phase.os_written_bytes.map(bytes)),
            format!("{:.1}", phase.stall_seconds),
            format!("{:.1}", phase.cpu_seconds),
            or_dash(phase.peak_memory_bytes.map(bytes)),
            bytes(phase.space_bytes),
        ]
    });
    table(&header, rows.collect(), true)
}

/// The lines below the quick benchmark's table.
pub(super) fn quick_summary(report: &QuickReport) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        // A `String` takes everything that is written to it.
        let _never_fails = writeln!(text, "{what:<28}{value}");
    };
    line("engine", report.engine.clone());
    line("device sync (4 KiB, median)", micros(report.device_sync_us));
    line("loaded", format!("{} records, {}", report.records, ByteSize(report.loaded_bytes)));
    line("written per byte", format!("{:.2}", report.written_per_byte));
    line("space used", format!("{} ({:.2} per byte)", ByteSize(report.space_bytes), report.space_per_byte));
    line("writers held back", format!("{:.1} s", report.stall_seconds));
    line("until at rest", format!("{:.1} s", report.settle_seconds));
    text.push_str("every value that was read was checked");
    text
}

fn described(phase: &PhaseReport) -> String {
    let what = match phase.workload.as_str() {
        "load" => "load: inserts in random order",
        "a" => "a: half reads, half updates",
        "b" => "b: 95 % reads, 5 % updates",
        "c" => "c: zipfian reads",
        "ur" => "ur: uniform reads",
        "d" => "d: reads of the latest, inserts",
        "e" => "e: scans, inserts",
        "f" => "f: reads, read-modify-writes",
        "update" => "update: uniform updates",
        other => other,
    };
    what.to_owned()
}

/// Three digits and a unit.
fn micros(micros: f64) -> String {
    match micros {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e4 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A whole number in groups of three digits.
fn count(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(count(1234567.4), "1,234,567");
        assert_eq!(count(123.0), "123");
        for (us, text) in [(1.234, "1.23 us"), (123.4, "123 us"), (4_500.0, "4.50 ms"), (2e6, "2.00 s")] {
            assert_eq!(micros(us), text);
        }
    }
}

//! The verdict of the quick benchmark: is anything badly wrong?
//!
//! The bounds are wide. A slow machine may be working as intended. A finding is a figure that does
//! not fit another: writes that take many times the device's own time, or a disk that fills up with
//! bytes that no workload wrote.

use crate::quick::QuickReport;
use crate::report::PhaseReport;
use serde::{Deserialize, Serialize};

/// Maximum device syncs for a durable update at the median. With group commit an update waits for
/// one sync and takes part in the next.
const SYNCS_MAX: f64 = 8.0;
/// Maximum bytes written per byte of the workload.
const WRITTEN_PER_BYTE_MAX: f64 = 20.0;
/// Maximum bytes of storage in use per byte loaded.
const SPACE_PER_BYTE_MAX: f64 = 3.0;
/// Maximum fraction of the writing phases in which the writers of all threads are held back.
const HELD_BACK_MAX: f64 = 0.5;
/// Maximum latency in microseconds of an operation that does not wait for a sync.
const PAUSE_US_MAX: f64 = 2e6;
/// Maximum ratio of the seconds to come to rest to the seconds of all phases.
const SETTLE_MAX: f64 = 2.0;

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// True if nothing is badly wrong.
    pub ok: bool,
    /// The figures that are out of bounds, each with its bound.
    pub findings: Vec<String>,
}

impl Verdict {
    /// The verdict on `report`, ignoring the verdict in it.
    pub(crate) fn of(report: &QuickReport, threads: usize) -> Self {
        let mut findings = Vec::new();
        let mut check = |figure: f64, max: f64, text: String| {
            // A figure that is not available is not a finding.
            if figure > max && figure.is_finite() {
                findings.push(text);
            }
        };
        for phase in report
            .phases
            .iter()
            .filter(|phase| phase.durability == "power")
        {
            let syncs = phase.latency.p50_us / report.device_sync_us;
            check(
                syncs,
                SYNCS_MAX,
                format!(
                    "a durable update takes {syncs:.0} device syncs at the median; {SYNCS_MAX} would be many"
                ),
            );
        }
        for phase in report
            .phases
            .iter()
            .filter(|phase| phase.durability != "power")
        {
            let (pause, name) = (phase.latency.max_us, &phase.workload);
            check(
                pause,
                PAUSE_US_MAX,
                format!("workload {name} stood still for {:.1} s", pause / 1e6),
            );
        }
        let seconds = |phases: &mut dyn Iterator<Item = &PhaseReport>| {
            phases.map(|phase| phase.seconds).sum::<f64>()
        };
        let writing = seconds(&mut report.phases.iter().filter(|phase| phase.user_bytes > 0));
        let held_back = report.stall_seconds / (writing * threads.max(1) as f64);
        check(
            held_back,
            HELD_BACK_MAX,
            format!(
                "writers were held back {:.0} % of the time",
                held_back * 100.0
            ),
        );
        let written = report.written_per_byte;
        check(
            written,
            WRITTEN_PER_BYTE_MAX,
            format!("{written:.1} bytes were written for each byte of the workload"),
        );
        let space = report.space_per_byte;
        check(
            space,
            SPACE_PER_BYTE_MAX,
            format!("{space:.1} bytes are in use for each byte loaded"),
        );
        let settled = report.settle_seconds / seconds(&mut report.phases.iter());
        check(
            settled,
            SETTLE_MAX,
            format!(
                "it took {:.0} s more to come to rest",
                report.settle_seconds
            ),
        );
        Self {
            ok: findings.is_empty(),
            findings,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ok {
            true => f.write_str("verdict: good, nothing is badly wrong"),
            false => write!(f, "verdict: look into this: {}", self.findings.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::report;

    fn quick() -> QuickReport {
        let mut phases = report().cells.swap_remove(0).phases;
        phases
            .iter_mut()
            .for_each(|phase| phase.latency.max_us = 1000.0);
        QuickReport {
            engine: "x".into(),
            records: 1000,
            loaded_bytes: 1 << 20,
            device_sync_us: 900.0,
            phases,
            settle_seconds: 1.0,
            written_per_byte: 3.0,
            space_bytes: 1 << 20,
            space_per_byte: 1.0,
            stall_seconds: 0.5,
            verdict: Verdict {
                ok: true,
                findings: Vec::new(),
            },
        }
    }

    #[test]
    fn each_bound_has_its_finding() {
        let good = quick();
        assert_eq!(
            Verdict::of(&good, 4).to_string(),
            "verdict: good, nothing is badly wrong"
        );
        let finds = |change: &dyn Fn(&mut QuickReport), words: &str| {
            let mut report = good.clone();
            change(&mut report);
            let verdict = Verdict::of(&report, 4);
            assert!(!verdict.ok && verdict.findings.len() == 1, "{verdict}");
            assert!(
                verdict.to_string().contains(words),
                "{verdict}, without: {words}"
            );
        };
        finds(
            &|report| report.written_per_byte = 21.0,
            "21.0 bytes were written",
        );
        finds(
            &|report| report.space_per_byte = 3.5,
            "3.5 bytes are in use",
        );
        finds(&|report| report.settle_seconds = 1000.0, "1000 s more");
        finds(&|report| report.stall_seconds = 150.0, "held back");
        finds(
            &|report| report.phases[0].latency.max_us = 3e6,
            "stood still for 3.0 s",
        );
        let slow_syncs = |report: &mut QuickReport| {
            report.phases[0].durability = "power".into();
            report.phases[0].latency.p50_us = 9000.0;
        };
        finds(&slow_syncs, "10 device syncs");
    }

    #[test]
    fn figures_that_are_not_there_are_no_findings() {
        let mut report = quick();
        report.phases.clear();
        report.device_sync_us = 0.0;
        assert!(Verdict::of(&report, 0).ok);
    }
}

//! Bytes by medium and cause, by the engines' counts.

use crate::byte_size::ByteSize;
use firn_bench::{MatrixReport, Spread, Traffic};
use std::collections::BTreeMap;

/// The bytes of one direction.
type Bytes = fn(&Traffic) -> u64;

/// Bytes written and read by medium and cause: a line each per workload and engine, with the
/// medians of the rounds.
pub(super) fn traffic(report: &MatrixReport) -> String {
    let directions: [(&str, Bytes); 2] = [
        ("written", |traffic| traffic.written_bytes),
        ("read", |traffic| traffic.read_bytes),
    ];
    let mut lines = Vec::new();
    for (index, workload) in report.config.workloads.iter().enumerate() {
        for engine in &report.engines {
            let cells = report.cells.iter().filter(|c| c.engine == engine.name);
            let phases = cells.filter_map(|cell| cell.phases.get(index));
            let rounds: Vec<&[Traffic]> = phases.map(|phase| &*phase.engine.traffic).collect();
            for (direction, bytes) in directions {
                let causes = medians(&rounds, bytes);
                if !causes.is_empty() {
                    let (causes, engine) = (causes.join(", "), &engine.name);
                    lines.push(format!("{direction}, {workload}, {engine}: {causes}"));
                }
            }
        }
    }
    lines.join("\n")
}

/// The median of `bytes` over `rounds` for each medium and cause, as text. A round without a cause
/// counts as 0. A cause without bytes in any round is left out.
fn medians(rounds: &[&[Traffic]], bytes: Bytes) -> Vec<String> {
    let mut causes: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for (round, traffic) in rounds.iter().enumerate() {
        for of in *traffic {
            let cause = (of.medium.as_str(), of.cause.as_str());
            let by_round = causes
                .entry(cause)
                .or_insert_with(|| vec![0.0; rounds.len()]);
            if let Some(sum) = by_round.get_mut(round) {
                *sum += bytes(of) as f64;
            }
        }
    }
    let shown = |((medium, cause), by_round): ((&str, &str), Vec<f64>)| {
        let spread = Spread::of(by_round).filter(|spread| spread.max > 0.0)?;
        let median = ByteSize(spread.median as u64);
        Some(format!("{medium} {cause} {median}"))
    };
    causes.into_iter().filter_map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cause: &str, written_bytes: u64, read_bytes: u64) -> Traffic {
        Traffic {
            medium: "ssd".to_owned(),
            cause: cause.to_owned(),
            written_bytes,
            read_bytes,
            reads: None,
        }
    }

    #[test]
    fn a_round_without_a_cause_counts_as_nothing() {
        let (none, flush) = (of("none", 0, 0), of("flush", 10 << 20, 0));
        let compaction = of("compaction", 30 << 20, 2 << 20);
        let first = [flush.clone(), compaction, none.clone()];
        let (second, third) = ([flush.clone(), none], [flush]);
        let rounds: [&[Traffic]; 3] = [&first, &second, &third];
        let written = medians(&rounds, |traffic| traffic.written_bytes);
        let flush = format!("ssd flush {}", ByteSize(10 << 20));
        let compaction = format!("ssd compaction {}", ByteSize(0));
        assert_eq!(written, [compaction.clone(), flush]);
        let read = medians(&rounds, |traffic| traffic.read_bytes);
        assert_eq!(read, [compaction]);
        assert!(medians(&[], |traffic| traffic.read_bytes).is_empty());
    }
}

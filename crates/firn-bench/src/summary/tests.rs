//! Ratios, spreads and notes.

use super::*;
use crate::cell::CellSpec;
use crate::counters::{Counters, Traffic};
use crate::engine::{Compression, Setup};
use crate::latency::Latencies;
use crate::record::Values;
use crate::report::{Harness, Timeline};
use crate::run::RunConfig;
use crate::size::Sizes;
use crate::workload::Workload;
use firndb::Durability;

fn phase(workload: &str, rate: f64, written: u64) -> PhaseReport {
    let mut latencies = Latencies::new().unwrap();
    latencies.record((1e9 / rate) as u64);
    let traffic = Traffic {
        medium: "ssd".into(),
        cause: "flush".into(),
        written_bytes: written,
        read_bytes: 0,
        reads: None,
    };
    PhaseReport {
        workload: workload.into(),
        threads: 1,
        durability: "process".into(),
        operations: 1000,
        seconds: 1000.0 / rate,
        operations_per_second: rate,
        rate: None,
        latency: latencies.percentiles().unwrap(),
        quantiles: latencies.quantiles(),
        latency_by_sort: BTreeMap::new(),
        timeline: Timeline::new(vec![1000], vec![1.0], vec![2.0]),
        settle_seconds: Some(1.0),
        user_bytes: 1 << 20,
        engine: Counters {
            traffic: vec![traffic],
            space_bytes: 5 << 20,
            ..Counters::default()
        },
        os_written_bytes: Some(written),
        os_read_bytes: Some(7),
        device: None,
        cpu_seconds: 0.5,
        peak_memory_bytes: Some(100),
        harness: Harness {
            call_seconds: 0.25,
            checker_bytes: 40,
            kept_bytes: None,
        },
    }
}

fn cell(engine: &str, round: u32, phases: Vec<PhaseReport>) -> Cell {
    let config = RunConfig {
        records: 1000,
        operations: 1000,
        seconds_min: 0,
        threads: 1,
        key_sizes: Sizes::fixed(16),
        values: Values::new(Sizes::fixed(1024)),
        workloads: vec![Workload::load(), "a".parse().unwrap()],
        durability: Durability::Process,
        rate: None,
        theta: 0.99,
        reopened_with: Default::default(),
        retail: None,
        gets_file: None,
    };
    let setup = Setup {
        directory: "d".into(),
        memory_bytes: 1,
        compression: Compression::None,
        direct_io: true,
        background_threads: 1,
        durability: Durability::Process,
        records_max: 1,
        key_bytes_max: 1,
        value_bytes_max: 1,
        pm: None,
        extra: BTreeMap::new(),
    };
    Cell {
        phases,
        ..Cell::new(CellSpec {
            engine: engine.into(),
            round,
            setup,
            config,
        })
    }
}

#[test]
fn ratios_are_within_a_round_and_their_median_over_rounds() {
    let mut cells = Vec::new();
    // In the three rounds the second engine has 1, 4 and 2 times the load rate and the same rate in
    // the other workload.
    for (round, (base, times)) in [(100.0, 1.0), (10.0, 4.0), (50.0, 2.0)]
        .into_iter()
        .enumerate()
    {
        let round = round as u32;
        cells.push(cell(
            "x",
            round,
            vec![phase("load", base, 100), phase("a", base, 0)],
        ));
        cells.push(cell(
            "y",
            round,
            vec![phase("load", base * times, 150), phase("a", base, 0)],
        ));
    }
    let summary = Summary::of(&cells);
    assert!((summary.geomean_ratio["y/x"] - 2f64.sqrt()).abs() < 1e-9);
    let spread = summary.geomean_spread["y/x"];
    assert!((spread.min - 1.0).abs() < 1e-9 && (spread.max - 2.0).abs() < 1e-9);
    let load = &summary.workloads[1];
    assert_eq!(
        (load.workload.as_str(), load.engine.as_str()),
        ("load", "y")
    );
    assert_eq!(
        load.ratio.unwrap().operations_per_second,
        Spread {
            median: 2.0,
            min: 1.0,
            max: 4.0
        }
    );
    assert_eq!(load.ratio.unwrap().written_bytes.unwrap().median, 1.5);
    assert_eq!(load.operations_per_second.median, 100.0);
    assert_eq!(load.peak_memory_bytes.unwrap().median, 60.0);
    assert!(
        summary.workloads[0].ratio.is_none(),
        "the first engine is compared with nothing"
    );
    assert!(
        summary.workloads[3].ratio.unwrap().written_bytes.is_none(),
        "nothing was written there"
    );
    assert!(summary.notes.is_empty());
}

#[test]
fn bytes_are_the_engines_or_the_kernels_or_unknown() {
    let of = |change: &dyn Fn(&mut PhaseReport)| {
        let mut phase = phase("load", 10.0, 100);
        change(&mut phase);
        let base = || vec![self::phase("load", 10.0, 50), self::phase("a", 10.0, 1)];
        let own = vec![phase, self::phase("a", 10.0, 1)];
        let summary = Summary::of(&[cell("x", 0, base()), cell("y", 0, own)]);
        let load = summary.workloads[1].clone();
        let (bytes, ratio) = (
            load.written_bytes.map(|of| of.median),
            load.ratio.unwrap().written_bytes,
        );
        assert!(summary.notes.is_empty(), "{:?}", summary.notes);
        (
            bytes,
            load.written_by,
            ratio.map(|of| of.median),
            load.write_amplification.is_some(),
        )
    };
    let does_not_count = |phase: &mut PhaseReport, seen: Option<u64>| {
        phase.engine.traffic.clear();
        phase.os_written_bytes = seen;
    };
    let partly = |phase: &mut PhaseReport| {
        phase.engine.is_partial = true;
        phase.os_written_bytes = Some(150);
    };
    assert_eq!(
        of(&|_| {}),
        (Some(100.0), Some(Counted::Engine), Some(2.0), true)
    );
    let kernel = Some(Counted::Kernel);
    assert_eq!(
        of(&|phase| does_not_count(phase, Some(200))),
        (Some(200.0), kernel, Some(4.0), true)
    );
    assert_eq!(
        of(&partly),
        (Some(150.0), kernel, Some(3.0), true),
        "a log that is not counted"
    );
    // 0 bytes for a workload that writes: the kernel does not count there.
    for seen in [None, Some(0)] {
        assert_eq!(
            of(&|phase| does_not_count(phase, seen)),
            (None, None, None, false)
        );
    }
    let read_only = |phase: &mut PhaseReport| {
        does_not_count(phase, Some(0));
        phase.user_bytes = 0;
    };
    assert_eq!(of(&read_only), (Some(0.0), kernel, Some(0.0), false));
}

#[test]
fn a_failed_cell_leaves_the_others() {
    let phases = || vec![phase("load", 10.0, 1), phase("a", 10.0, 1)];
    let mut failed = cell("y", 0, vec![phase("load", 20.0, 1)]);
    failed.failure = Some("a wrong answer".into());
    let cells = [
        cell("x", 0, phases()),
        failed,
        cell("x", 1, phases()),
        cell("y", 1, phases()),
    ];
    let summary = Summary::of(&cells);
    assert_eq!(
        summary.geomean_ratio["y/x"], 1.0,
        "of the round in which both have all"
    );
    assert_eq!(summary.workloads[1].operations_per_second.max, 20.0);
    assert_eq!(summary.notes, ["y round 1 failed: a wrong answer"]);
}

#[test]
fn counts_that_disagree_are_noted() {
    let mut phase = phase("load", 10.0, 1 << 30);
    phase.os_written_bytes = Some((1 << 30) + (100 << 20));
    let notes = Summary::of(&[cell("x", 0, vec![phase])]).notes;
    assert!(notes.len() == 1 && notes[0].contains("-8.9 %"), "{notes:?}");
}

#[test]
fn persistent_memory_counts_where_the_kernel_sees_it() {
    for (seen, noted) in [
        (1 << 30, false),
        ((1 << 30) + (300 << 20), false),
        ((1 << 30) + (150 << 20), true),
    ] {
        let mut phase = phase("load", 10.0, 1 << 30);
        let pm = Traffic {
            medium: "pm".into(),
            cause: "flush".into(),
            written_bytes: 300 << 20,
            read_bytes: 0,
            reads: None,
        };
        phase.engine.traffic.push(pm);
        phase.os_written_bytes = Some(seen);
        assert_eq!(
            Summary::of(&[cell("x", 0, vec![phase])]).notes.len(),
            usize::from(noted)
        );
    }
}

#[test]
fn latencies_of_each_kind_of_call_have_spreads() {
    let of = |round: u32, rate: f64| {
        let mut phase = phase("load", rate, 1);
        let write = phase.latency.clone();
        phase.latency_by_sort.insert("write".into(), write);
        cell("x", round, vec![phase])
    };
    let summary = Summary::of(&[of(0, 1000.0), of(1, 500.0)]);
    let write = summary.workloads[0].latency_by_sort["write"];
    assert!((write.mean_us.min - 1000.0).abs() < 1.0 && (write.p99_us.max - 2000.0).abs() < 2.0);
}

//! A handmade report for tests: two engines, two workloads, two rounds, and a failed cell.

use crate::cell::{Cell, CellSpec};
use crate::counters::{CompactionIo, Counters, Traffic};
use crate::engine::{Compression, PmBudget, Setup};
use crate::latency::Latencies;
use crate::machine::Machine;
use crate::matrix::{EngineReport, MatrixReport, SCHEMA};
use crate::record::Values;
use crate::report::{Harness, PhaseReport, Timeline};
use crate::run::RunConfig;
use crate::size::Sizes;
use crate::store::{Opening, OpeningStep};
use crate::summary::Summary;
use crate::workload::Workload;
use firndb::Durability;
use std::collections::BTreeMap;

/// Text that must never appear unescaped on a page.
pub(crate) const HOSTILE: &str = "<script>alert('1')</script>&\"";

fn pm_bytes() -> BTreeMap<String, u64> {
    let owners = [("if_tree", 3 << 20), ("write_buffer", 5 << 20)];
    owners
        .map(|(owner, bytes)| (owner.to_owned(), bytes))
        .into()
}

fn phase(workload: &str, rate: f64, written: u64) -> PhaseReport {
    let mut latencies = Latencies::new().unwrap();
    (1..=5000u64).for_each(|step| latencies.record(step * step * (1e9 / rate) as u64 / 1000));
    let percentiles = latencies.percentiles().unwrap();
    let traffic = |medium: &str, cause: &str, written_bytes| Traffic {
        medium: medium.into(),
        cause: cause.into(),
        written_bytes,
        read_bytes: 4096,
        reads: Some(1),
    };
    let second = |second: u64| (rate * (1.0 + (second % 7) as f64 / 10.0)) as u64;
    PhaseReport {
        workload: workload.into(),
        threads: 2,
        durability: "process".into(),
        operations: 5000,
        seconds: 20.5,
        operations_per_second: rate,
        rate: None,
        latency: percentiles.clone(),
        quantiles: latencies.quantiles(),
        latency_by_sort: BTreeMap::from([("read".to_owned(), percentiles)]),
        timeline: Timeline::new(
            (0..21).map(second).collect(),
            vec![0.0, 90.0, 200.0, 0.0, 7e4],
            vec![1e5; 21],
        ),
        settle_seconds: Some(1.5),
        user_bytes: 64 << 20,
        engine: Counters {
            traffic: vec![
                traffic("pm", HOSTILE, 9 << 20),
                traffic("ssd", "flush", written),
                traffic("ssd", "log", 5),
            ],
            is_partial: false,
            stall_seconds: Some(0.25),
            cache_misses: Some(9),
            grains: [("append: cost".to_owned(), 3)].into(),
            job_bytes: [("flush".to_owned(), 7 << 20)].into(),
            hits: [("level0".to_owned(), 40), ("level2".to_owned(), 10)].into(),
            compaction_io: Some(CompactionIo {
                ended: 12,
                mean_us: 150.0,
                busy_seconds: 11.0,
                worker_seconds: 16.0,
                worker_cpu_seconds: 12.0,
            }),
            compaction_seconds: Some(2.5),
            level0_seconds: Some(1.25),
            table_seconds: vec![0.5, 4.0],
            log_bytes: Some(3 << 20),
            index_bytes: Some(2 << 20),
            pm_table_bytes: Some(6 << 20),
            pm_bytes: pm_bytes(),
            pm_search_lines: Some(90_000),
            space_bytes: 80 << 20,
            opening: Some(Opening {
                close_seconds: 0.25,
                seconds: 0.5,
                steps: vec![OpeningStep {
                    step: HOSTILE.into(),
                    seconds: 0.375,
                }],
            }),
        },
        os_written_bytes: Some(written + 4096),
        os_read_bytes: Some(7 << 20),
        device: None,
        cpu_seconds: 3.0,
        peak_memory_bytes: Some(100 << 20),
        harness: Harness {
            call_seconds: 4.0,
            checker_bytes: 40 << 20,
            kept_bytes: None,
        },
    }
}

fn config() -> RunConfig {
    RunConfig {
        records: 60_000,
        operations: 5000,
        seconds_min: 0,
        threads: 2,
        key_sizes: Sizes::fixed(16),
        values: Values::new(Sizes::fixed(1024)),
        workloads: vec![Workload::load(), "mixed:50/40/10".parse().unwrap()],
        durability: Durability::Process,
        rate: None,
        theta: 0.99,
        reopened_with: Default::default(),
        retail: None,
        gets_file: None,
    }
}

fn setup() -> Setup {
    Setup {
        directory: "/scratch".into(),
        memory_bytes: 64 << 20,
        compression: Compression::Lz4,
        direct_io: true,
        background_threads: 2,
        durability: Durability::Process,
        records_max: 120_000,
        key_bytes_max: 16,
        value_bytes_max: 1024,
        pm: Some(PmBudget {
            directory: "/dev/shm".into(),
            bytes: 1 << 30,
        }),
        extra: BTreeMap::from([("filter_bits".to_owned(), "10".to_owned())]),
    }
}

fn cell(engine: &str, round: u32, phases: Vec<PhaseReport>) -> Cell {
    let spec = CellSpec {
        engine: engine.into(),
        round,
        setup: setup(),
        config: config(),
    };
    Cell {
        phases,
        described: HOSTILE.into(),
        device_sync_us: 900.0,
        ..Cell::new(spec)
    }
}

/// A report of any `cells`.
pub(crate) fn report_of(cells: Vec<Cell>) -> MatrixReport {
    let engine = |name: &str| EngineReport {
        name: name.into(),
        about: HOSTILE.into(),
        settings: BTreeMap::from([("cache".to_owned(), HOSTILE.to_owned())]),
    };
    MatrixReport {
        schema: SCHEMA.into(),
        unix_seconds: 1_735_689_599,
        machine: Machine {
            cpu: HOSTILE.into(),
            cpus: 2,
            memory_bytes: Some(8 << 30),
            os: "Linux 6".into(),
            device: "ext4 on /dev/vda".into(),
            commit: Some("c0ffee".into()),
        },
        command: vec!["firn".into(), "bench".into(), HOSTILE.into()],
        config: config(),
        setup: setup(),
        engines: vec![engine("x"), engine("y:&<b>")],
        summary: Summary::of(&cells),
        cells,
    }
}

/// Both engines in two rounds. The second engine fails in its second round, after the load.
pub(crate) fn report() -> MatrixReport {
    let both = |rate| {
        vec![
            phase("load", rate, 200 << 20),
            phase("mixed:50/40/10", rate / 2.0, 3 << 30),
        ]
    };
    let mut failed = cell("y:&<b>", 1, vec![phase("load", 1.0, 1)]);
    failed.failure = Some(format!("a wrong answer {HOSTILE}"));
    report_of(vec![
        cell("x", 0, both(900.0)),
        cell("y:&<b>", 0, both(2000.0)),
        cell("x", 1, both(1000.0)),
        failed,
    ])
}

/// A report without cells, one whose cell ended before any workload, and one whose workloads wrote
/// nothing.
pub(crate) fn empty_reports() -> [MatrixReport; 3] {
    let mut nothing = phase("load", 10.0, 0);
    nothing.engine = Counters::default();
    nothing.timeline = Timeline::new(Vec::new(), Vec::new(), Vec::new());
    (
        nothing.quantiles,
        nothing.user_bytes,
        nothing.os_written_bytes,
    ) = (Vec::new(), 0, Some(0));
    (
        nothing.operations_per_second,
        nothing.seconds,
        nothing.cpu_seconds,
    ) = (0.0, 0.0, 0.0);
    let idle = cell("x", 0, vec![nothing.clone(), nothing]);
    [
        report_of(Vec::new()),
        report_of(vec![cell("x", 0, Vec::new())]),
        report_of(vec![idle]),
    ]
}

//! LAB-DB: "Log-Assisted B+-tree" level 0 in persistent memory (ACM TOS 20(1), article 4, 2024),
//! section 4.
//!
//! The paper's data: 90 M records of 1 KiB with keys of 8 bytes, 8 clients, theta 0.99, persistent
//! memory of 0.6 % of the data against 8.9 % for the baseline. `--scale 9` has 10 M records. The
//! design's persistent memory is set here, scaled; the baseline's comes from the command line
//! (`--pm-bytes`), 8 GB in the paper.

use super::{Against, Experiment, Figure, Paper, Place, Shape, Variant, config};
use firn_base::Result;

const RECORDS: u64 = 90_000_000;
const KEY: usize = 8;
const VALUE: usize = 1024;
const THETA: f64 = 0.99;

/// Sequential and random writes, sequential and random reads, on a full database.
const MICRO: [&str; 4] = ["overwriteseq", "overwrite", "readseq", "readrandom"];

pub(super) static PAPER: Paper = Paper {
    name: "lab",
    title: "LAB-DB (ACM TOS 2024)",
    engine: "firn:lab",
    baseline: "rocksdb-pm",
    experiments: &[
        Experiment {
            id: "fig9",
            title: "opening again after uniform updates",
            paper: "leaves 0.164 s, inner nodes 1.177 s, log 6.5 s; 11.3 s for the baseline's log (512 MB of leaves)",
            differs: "what was in the log there is not said; here it is what write buffers held",
            figure: Figure::OpeningSeconds,
            variants: |shape| ycsb(shape, &["reopen"]),
        },
        Experiment {
            id: "fig10-time",
            title: "seconds of compactions out of level 0 on A, chunks by leaves or by log",
            paper: "by log as long as by leaves once most of a tree has gone; no figure",
            differs: "one way per run, each tree's first chunk by leaves; there it is over a tree's progress",
            figure: Figure::Level0Seconds,
            variants: chunks,
        },
        Experiment {
            id: "fig10-log",
            title: "bytes of logs on A, chunks by leaves or by log",
            paper: "-11 % by log against by leaves, late in a tree's progress",
            differs: "the baseline has no such logs: compare the rows; how far a tree has come at the end is chance",
            figure: Figure::LogBytes,
            variants: chunks,
        },
        Experiment {
            id: "fig11",
            title: "sequential and random writes and reads",
            paper: "sequential reads within 4 % of the baseline; for the other three no figure",
            differs: "operations are not given; one of sequential reads is a scan of 100 entries here",
            figure: Figure::OperationsPerSecond,
            variants: |shape| ycsb(shape, &MICRO),
        },
        Experiment {
            id: "fig12",
            title: "YCSB A to F",
            paper: "A 1.94x, F 1.67x, geometric mean of B to E 1.43x, E over 1.24x",
            differs: "an hour each with 8 clients there; its own latencies make 1.79x of A",
            figure: Figure::OperationsPerSecond,
            variants: |shape| ycsb(shape, &["a", "b", "c", "d", "e", "f"]),
        },
        Experiment {
            id: "tab2",
            title: "latency of A: p99.9",
            paper: "9,404 us, 6.9 times less than the baseline",
            differs: "8 clients on 96 cores there, and a SATA SSD without a throttle",
            figure: Figure::P999,
            variants: |shape| ycsb(shape, &["a"]),
        },
        Experiment {
            id: "fig13",
            title: "bytes written to the SSD on A",
            paper: "far below the baseline; no figure",
            differs: "the same number of operations for both here, the same time there",
            figure: Figure::WrittenBytes,
            variants: |shape| ycsb(shape, &["a"]),
        },
        Experiment {
            id: "fig14",
            title: "seconds of compactions on A",
            paper: "-69 %, flushes included, which are 0.5 % of the design's",
            differs: "flushes are left out here; more operations in the same time have more compactions",
            figure: Figure::CompactionSeconds,
            variants: |shape| ycsb(shape, &["a"]),
        },
        Experiment {
            id: "fig15-theta",
            title: "A with theta varied",
            paper: "1.53x at theta 0.7",
            differs: "other values of theta are not given",
            figure: Figure::OperationsPerSecond,
            variants: thetas,
        },
        Experiment {
            id: "fig15-value",
            title: "A with values of several sizes",
            paper: "the best of all at 1,024 and 4,096 bytes; no figure",
            differs: "persistent memory stays the same there while the data grows",
            figure: Figure::OperationsPerSecond,
            variants: values,
        },
        Experiment {
            id: "fig16-random-write",
            title: "uniform updates with the log on the SSD, in what is left of 8 GB, in persistent memory",
            paper: "rest +18.6 % over the SSD; over all workloads rest +6.6 %, all +9.4 %",
            differs: "the baseline is the same in all three here: compare the rows",
            figure: Figure::OperationsPerSecond,
            variants: |shape| placements(shape, "o"),
        },
        Experiment {
            id: "fig16-a",
            title: "A with the log on the SSD, in what is left of 8 GB, in persistent memory",
            paper: "a smaller gain than with uniform writes; no figure",
            differs: "the baseline is the same in all three here: compare the rows",
            figure: Figure::OperationsPerSecond,
            variants: |shape| placements(shape, "a"),
        },
        Experiment {
            id: "fig17",
            title: "A with the design's parts one after the other",
            paper: "trees alone 1.74x, with the work on the log 1.94x",
            differs: "the paper does not part the log's buffer and chunks by log from the hot buffer",
            figure: Figure::OperationsPerSecond,
            variants: parts,
        },
        Experiment {
            id: "fig18-leaves",
            title: "A with the memory for leaves varied",
            paper: "+72 % from 128 to 512 MB",
            differs: "whether the hot buffer grew too is not said; an entry takes 16 bytes there, 20 to 32 here",
            figure: Figure::OperationsPerSecond,
            variants: leaves,
        },
        Experiment {
            id: "fig18-hot",
            title: "A with the hot buffer varied: bytes written",
            paper: "the log hardly shrinks beyond 64 MB; no figure",
            differs: "the paper counts the log's size, bytes written are counted here",
            figure: Figure::WrittenBytes,
            variants: hot_buffers,
        },
        Experiment {
            id: "tab3",
            title: "sequential and random writes and reads by one client",
            paper: "30,885, 24,241, 44,315 and 1,681/s against 28,072, 6,179, 22,816 and 2,068/s of SLM-DB",
            differs: "SLM-DB has no build here: it is the other experiments' baseline; reads are scans as in fig11",
            figure: Figure::OperationsPerSecond,
            variants: |shape| {
                ycsb(
                    &Shape {
                        threads: 1,
                        ..*shape
                    },
                    &MICRO,
                )
            },
        },
        Experiment {
            id: "fig19",
            title: "throughput over time on A",
            paper: "steady but for one dip; no figure",
            differs: "an hour there; how low the slowest second is stands for the curve, which the cells' files have",
            figure: Figure::SlowestSecond,
            variants: |shape| ycsb(shape, &["a"]),
        },
    ],
    tables: &[],
};

/// The design's use of persistent memory.
struct Memory {
    leaf_bytes: u64,
    hot_bytes: u64,
    /// Size of each half of the log's buffer, in bytes. It need not scale.
    log_half_bytes: u64,
    /// The placement of logs, and bytes for logs placed in persistent memory.
    logs: (&'static str, u64),
}

impl Memory {
    /// The paper's sizes, scaled.
    fn paper(shape: &Shape) -> Memory {
        let bytes = ((256 << 20) / shape.scale).max(1 << 20);
        Memory {
            leaf_bytes: bytes,
            hot_bytes: bytes,
            log_half_bytes: 1 << 20,
            logs: ("ssd", 0),
        }
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let Memory {
            leaf_bytes,
            hot_bytes,
            log_half_bytes,
            logs: (placement, logs_bytes),
        } = *self;
        // The directory has 24 bytes per leaf of 1,024, and allocations are rounded up.
        let pool_bytes = leaf_bytes
            + leaf_bytes / 40
            + hot_bytes
            + 2 * log_half_bytes
            + logs_bytes
            + (128 << 10);
        vec![
            ("pm_bytes", pool_bytes.to_string()),
            ("lab_tree_bytes", leaf_bytes.to_string()),
            // The paper's trees accept every write.
            ("lab_reuse_min", "0".to_owned()),
            ("lab_hot_bytes", hot_bytes.to_string()),
            ("pm_log_buffer_bytes", log_half_bytes.to_string()),
            ("lab_log_placement", placement.to_owned()),
        ]
    }
}

fn variant(
    shape: &Shape,
    name: String,
    value: usize,
    theta: f64,
    workload: &str,
    memory: &Memory,
) -> Result<Variant> {
    let config = config(shape, RECORDS, KEY, value, theta, &[workload])?;
    // The paper's machine had 16 GB of DRAM for 92.9 GB of data.
    let memory_bytes = (config.loaded_bytes() * 16 / 93).max(64 << 20);
    let options = vec![
        (
            "write_buffer_bytes",
            ((64 << 20) / shape.scale).max(1 << 20).to_string(),
        ),
        (
            "level_base_bytes",
            ((256 << 20) / shape.scale).max(4 << 20).to_string(),
        ),
    ];
    Ok(Variant {
        name,
        config,
        memory_bytes,
        pm_bytes: None,
        options,
        firn: Vec::new(),
        own: memory.options(),
        place: Place::Ssd,
        against: Against::Baseline,
    })
}

fn ycsb(shape: &Shape, workloads: &[&str]) -> Result<Vec<Variant>> {
    let of = |workload: &&str| {
        variant(
            shape,
            (*workload).to_owned(),
            VALUE,
            THETA,
            workload,
            &Memory::paper(shape),
        )
    };
    workloads.iter().map(of).collect()
}

fn chunks(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |(name, by_log_share): (&str, f64)| {
        let mut made = variant(
            shape,
            name.to_owned(),
            VALUE,
            THETA,
            "a",
            &Memory::paper(shape),
        )?;
        // About the paper's operations per record in an hour, so that trees are used up.
        made.config.operations = made.config.records;
        made.own
            .push(("lab_by_log_share", by_log_share.to_string()));
        Ok(made)
    };
    [
        ("by leaves", 0.0),
        ("by log from four fifths on", 0.2),
        ("by log", 1.0),
    ]
    .map(of)
    .into_iter()
    .collect()
}

fn thetas(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |theta: f64| {
        variant(
            shape,
            format!("theta {theta}"),
            VALUE,
            theta,
            "a",
            &Memory::paper(shape),
        )
    };
    [0.5, 0.7, 0.9, THETA].map(of).into_iter().collect()
}

fn values(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |value| {
        variant(
            shape,
            format!("{value} B"),
            value,
            THETA,
            "a",
            &Memory::paper(shape),
        )
    };
    [256, 1024, 4096].map(of).into_iter().collect()
}

fn parts(shape: &Shape) -> Result<Vec<Variant>> {
    let all = || Memory::paper(shape);
    let of = |(name, memory): (&str, Memory)| {
        variant(shape, name.to_owned(), VALUE, THETA, "a", &memory)
    };
    [
        (
            "trees, log in a file",
            Memory {
                log_half_bytes: 0,
                hot_bytes: 0,
                ..all()
            },
        ),
        (
            "and the log's buffer",
            Memory {
                hot_bytes: 0,
                ..all()
            },
        ),
        ("and the hot buffer", all()),
    ]
    .map(of)
    .into_iter()
    .collect()
}

fn placements(shape: &Shape, workload: &str) -> Result<Vec<Variant>> {
    // The paper had 8 GB, and a limit of 20 GB on logs. A sixth more than that covers logs that
    // must be placed there regardless.
    let scaled = |gb: u64| (gb << 30) / shape.scale;
    let of = |logs| {
        let memory = Memory {
            logs,
            ..Memory::paper(shape)
        };
        variant(
            shape,
            format!("log: {}", logs.0),
            VALUE,
            THETA,
            workload,
            &memory,
        )
    };
    [("ssd", 0), ("rest", scaled(8)), ("pm", scaled(24))]
        .map(of)
        .into_iter()
        .collect()
}

fn leaves(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |mb: u64| {
        let memory = Memory {
            leaf_bytes: ((mb << 20) / shape.scale).max(256 << 10),
            ..Memory::paper(shape)
        };
        variant(shape, format!("{mb} MB"), VALUE, THETA, "a", &memory)
    };
    [128, 256, 512].map(of).into_iter().collect()
}

fn hot_buffers(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |mb: u64| {
        let memory = Memory {
            hot_bytes: (mb << 20) / shape.scale,
            ..Memory::paper(shape)
        };
        variant(shape, format!("{mb} MB"), VALUE, THETA, "a", &memory)
    };
    [0, 32, 64, 128, 256].map(of).into_iter().collect()
}

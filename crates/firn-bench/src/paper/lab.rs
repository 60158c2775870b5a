//! LAB-DB: "Log-Assisted B+-tree" level 0 in persistent memory (ACM TOS 20(1), article 4, 2024), section 4.
//!
//! The paper's data: 90 M records of 1 KiB under keys of 8 bytes, 8 clients, theta 0.99, persistent memory of 0.6 % of
//! the data against 8.9 % for the baseline. `--scale 9` has 10 M records.

use super::{Experiment, Figure, Paper, Shape, Variant, config};
use firn_base::Result;

const RECORDS: u64 = 90_000_000;
const KEY: usize = 8;
const VALUE: usize = 1024;
const THETA: f64 = 0.99;

pub(super) static PAPER: Paper = Paper {
    name: "lab",
    title: "LAB-DB (ACM TOS 2024)",
    engine: "firn:lab",
    baseline: "rocksdb-pm",
    experiments: &[
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
    ],
};

fn variant(shape: &Shape, name: String, value: usize, theta: f64, workload: &str) -> Result<Variant> {
    let config = config(shape, RECORDS, KEY, value, theta, &[workload])?;
    // The paper's machine had 16 GB of DRAM for 92.9 GB of data.
    let memory_bytes = (config.loaded_bytes() * 16 / 93).max(64 << 20);
    Ok(Variant { name, config, memory_bytes, options: Vec::new() })
}

fn ycsb(shape: &Shape, workloads: &[&str]) -> Result<Vec<Variant>> {
    workloads.iter().map(|workload| variant(shape, (*workload).to_owned(), VALUE, THETA, workload)).collect()
}

fn thetas(shape: &Shape) -> Result<Vec<Variant>> {
    [0.5, 0.7, 0.9, 0.99].map(|theta| variant(shape, format!("theta {theta}"), VALUE, theta, "a")).into_iter().collect()
}

fn values(shape: &Shape) -> Result<Vec<Variant>> {
    [256, 1024, 4096].map(|value| variant(shape, format!("{value} B"), value, THETA, "a")).into_iter().collect()
}

//! BlockDB: "Reducing Write Amplification of LSM-Trees by Block-Grained Compaction" (ICDE 2022),
//! section V.
//!
//! The paper's tree: memtables and tables of 16 MB, 8 of them in level 0 and 8 in level 1, a
//! fan-out of 10, keys of 32 bytes, values of 1 KiB, a block cache of a tenth of the data. The
//! ratio of data to table size must be preserved: `--scale 8` has 2 MB tables and 5 M or 10 M
//! records.

use super::{Against, Experiment, Figure, Paper, Place, Shape, Variant, config};
use firn_base::Result;

const MILLION: u64 = 1_000_000;
const TABLE_BYTES: u64 = 16 << 20;
const KEY: usize = 32;
const VALUE: usize = 1024;
const THETA: f64 = 0.9;

pub(super) static PAPER: Paper = Paper {
    name: "block",
    title: "BlockDB (ICDE 2022)",
    engine: "firn:block",
    baseline: "firn:classic",
    experiments: &[
        Experiment {
            id: "fig5",
            title: "uniform load: running time",
            paper: "up to -28 % against LevelDB",
            differs: "the paper does not say where its clock stops, nor how many threads merged",
            figure: Figure::SettledSeconds,
            variants: loads,
        },
        Experiment {
            id: "fig7",
            title: "uniform load: write amplification",
            paper: "up to -22.7 % (40 M) and -24.2 % (80 M) against LevelDB and RocksDB",
            differs: "whether the paper counts the log is not said; it is left out here",
            figure: Figure::TableWriteAmplification,
            variants: loads,
        },
        Experiment {
            id: "fig9",
            title: "space after as many uniform updates as records",
            paper: "up to +19.6 % (40 M) and +15.6 % (80 M) against RocksDB, at the peak",
            differs: "space is that at rest here, and the paper does not say how many updates it made",
            figure: Figure::SpaceAmplification,
            variants: updates,
        },
        Experiment {
            id: "fig11",
            title: "point reads and insertions",
            paper: "RW +31.4 %, WH +36.2 % against RocksDB",
            differs: "16 clients on many cores there",
            figure: Figure::OperationsPerSecond,
            variants: |shape| mixes(shape, &["c", "rh+ins", "rw+ins", "wh+ins", "wo+ins"]),
        },
        Experiment {
            id: "fig12",
            title: "point reads and updates",
            paper: "RH +14.5 %, RW +20.6 %, WH +24.2 % against RocksDB",
            differs: "16 clients on many cores there",
            figure: Figure::OperationsPerSecond,
            variants: |shape| mixes(shape, &["c", "rh", "rw", "wh", "wo"]),
        },
        Experiment {
            id: "fig14",
            title: "block-cache misses, point reads and updates",
            paper: "RH up to -7.9 %, RW -10.9 %, WH -10.2 % against the others",
            differs: "entries that are read often are cached without their block here; inserts or updates is not said",
            figure: Figure::CacheMisses,
            variants: |shape| mixes(shape, &["rh", "rw", "wh"]),
        },
        Experiment {
            id: "fig16",
            title: "scans of 1 to 100 and insertions",
            paper: "the shortest running time in all four mixes; no figure",
            differs: "16 clients on many cores there",
            figure: Figure::OperationsPerSecond,
            variants: |shape| mixes(shape, &["scanro", "scanrh", "scanba", "scanwh"]),
        },
        Experiment {
            id: "fig17",
            title: "table size varied: running time of a load",
            paper: "up to -43.6 %",
            differs: "the paper does not list its sizes",
            figure: Figure::SettledSeconds,
            variants: table_sizes,
        },
        Experiment {
            id: "fig18",
            title: "table size varied: write amplification of a load",
            paper: "up to -32 %",
            differs: "the paper does not list its sizes",
            figure: Figure::TableWriteAmplification,
            variants: table_sizes,
        },
    ],
    tables: &[],
};

/// The paper's tree with tables of `table_bytes`, scaled, running `workloads`.
fn variant(
    shape: &Shape,
    name: String,
    records: u64,
    table_bytes: u64,
    workloads: &[&str],
) -> Result<Variant> {
    let config = config(shape, records, KEY, VALUE, THETA, workloads)?;
    let table_bytes = (table_bytes / shape.scale).max(64 << 10);
    let cache_bytes = config.loaded_bytes() / 10;
    let options = vec![
        ("write_buffer_bytes", table_bytes.to_string()),
        ("table_bytes", table_bytes.to_string()),
        ("level_base_bytes", (8 * table_bytes).to_string()),
        ("level0_trigger", "8".to_owned()),
        ("level0_slow", "12".to_owned()),
        ("level0_stop", "16".to_owned()),
        ("block_cache_bytes", cache_bytes.to_string()),
        // All tables, because they are small and there are thousands of them.
        ("max_open_files", "100000".to_owned()),
    ];
    // Memtables and the cache, and the same amount again for I/O buffers, indexes and filters.
    let memory_bytes = (cache_bytes + 3 * table_bytes) * 2 + (64 << 20);
    Ok(Variant {
        name,
        config,
        memory_bytes,
        pm_bytes: None,
        options,
        firn: Vec::new(),
        own: Vec::new(),
        place: Place::Ssd,
        against: Against::Baseline,
    })
}

fn loads(shape: &Shape) -> Result<Vec<Variant>> {
    [40, 80]
        .map(|millions| {
            variant(
                shape,
                format!("{millions} M"),
                millions * MILLION,
                TABLE_BYTES,
                &["load"],
            )
        })
        .into_iter()
        .collect()
}

fn updates(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |millions: u64| {
        let mut made = variant(
            shape,
            format!("{millions} M"),
            millions * MILLION,
            TABLE_BYTES,
            &["load", "o"],
        )?;
        made.config.operations = made.config.records;
        Ok(made)
    };
    [40, 80].map(of).into_iter().collect()
}

fn mixes(shape: &Shape, workloads: &[&str]) -> Result<Vec<Variant>> {
    let of = |workload: &&str| {
        variant(
            shape,
            (*workload).to_owned(),
            40 * MILLION,
            TABLE_BYTES,
            &[workload],
        )
    };
    workloads.iter().map(of).collect()
}

fn table_sizes(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |mb: u64| {
        variant(
            shape,
            format!("tables of {mb} MB"),
            40 * MILLION,
            mb << 20,
            &["load"],
        )
    };
    [2, 8, 16, 32].map(of).into_iter().collect()
}

//! The runs of the experiments: sizes, options and workloads of each.

use crate::paper::{Against, Place, Shape, Variant, config};
use firn_base::Result;

const MB: u64 = 1 << 20;
const MILLION: u64 = 1_000_000;
const KEY: usize = 16;
/// The values of most experiments, in bytes.
const VALUE: usize = 512;
/// The sizes of values, in bytes, each with the millions of records that the paper loads.
const SIZES: [(usize, u64); 3] = [(128, 400), (512, 100), (1024, 50)];
/// The paper's data, by which it measures persistent memory, in bytes.
const DATA_BYTES: u64 = 50_000_000_000;
/// Persistent memory in percent of the data.
const PM_PERCENT: u64 = 10;
/// The zipfian parameter of YCSB. All runs have it, so that they share their loads.
const THETA: f64 = 0.99;
/// Bytes of a table and of a write buffer, at any scale: the structure of a partition.
const TABLE_BYTES: u64 = 2 * MB;
const CACHE_BYTES: u64 = 8 * MB;
const MEMORY_BYTES: u64 = 64 * MB;
/// The largest block of the engine, in KiB. The paper has one of 64.
const BLOCK_KIB_MAX: u64 = 32;
/// The least persistent memory at any scale.
const PM_BYTES_MIN: u64 = 32 * MB;
/// The least records of a scan or mix for each operation, because a scan takes long.
const RECORDS_PER_SCAN: u64 = 20;
const RECORDS_PER_MIXED: u64 = 8;
/// Inserts, then reads of a fifth of the keys.
const PUT_GET: [&str; 2] = ["fillrandom", "readrandom"];
const RECORDS_PER_GET: u64 = 5;

type Options = Vec<(&'static str, String)>;

/// A setting of an experiment, before scaling.
struct Run {
    name: String,
    value: usize,
    workloads: Vec<&'static str>,
    /// Records for each operation of a workload that is not a load.
    records_per_operation: u64,
    pm_percent: u64,
    own: Options,
    against: Against,
}

impl Run {
    fn new(name: impl Into<String>, workloads: &[&'static str], records_per_operation: u64) -> Run {
        Run {
            name: name.into(),
            value: VALUE,
            workloads: workloads.to_vec(),
            records_per_operation,
            pm_percent: PM_PERCENT,
            own: Vec::new(),
            against: Against::Baseline,
        }
    }

    /// The design with options `own`, compared with itself under `label` with options `other`.
    fn beside(self, own: Options, label: &'static str, other: Options) -> Run {
        Run {
            own,
            against: Against::Itself(label, other),
            ..self
        }
    }

    fn variant(self, shape: &Shape) -> Result<Variant> {
        let sizes = SIZES.iter().find(|(value, _)| *value == self.value);
        let records = sizes.map_or(100, |(_, millions)| *millions) * MILLION;
        // The paper has one client.
        let shape = Shape {
            threads: 1,
            ..*shape
        };
        let workloads = &self.workloads;
        let mut config = config(&shape, records, KEY, self.value, THETA, workloads)?;
        config.operations = (config.records / self.records_per_operation).max(100);
        Ok(Variant {
            name: self.name,
            config,
            memory_bytes: MEMORY_BYTES,
            pm_bytes: Some(pm_bytes(&shape, self.pm_percent)),
            options: vec![option("table_bytes", TABLE_BYTES)],
            // An engine of another kind has its indexes and filters in its cache.
            firn: vec![
                option("block_cache_bytes", CACHE_BYTES),
                option("row_cache", false),
                option("background_workers", 1),
                option("max_open_files", 100_000),
            ],
            own: [
                option("pmdb_table_bytes", TABLE_BYTES),
                option("pmdb_buffer_bytes", TABLE_BYTES),
            ]
            .into_iter()
            .chain(self.own)
            .collect(),
            place: Place::Ssd,
            against: self.against,
        })
    }
}

/// Persistent memory of so many percent of the data.
fn pm_bytes(shape: &Shape, percent: u64) -> u64 {
    (DATA_BYTES / 100 * percent / shape.scale).max(PM_BYTES_MIN)
}

fn option(name: &'static str, value: impl ToString) -> (&'static str, String) {
    (name, value.to_string())
}

fn all(shape: &Shape, runs: impl IntoIterator<Item = Run>) -> Result<Vec<Variant>> {
    runs.into_iter().map(|run| run.variant(shape)).collect()
}

/// Inserts and reads by the size of values.
pub(super) fn values(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |(value, _): (usize, u64)| Run {
        value,
        ..Run::new(format!("{value} B"), &PUT_GET, RECORDS_PER_GET)
    };
    all(shape, SIZES.map(of))
}

/// The space after inserts and reads of the default values.
pub(super) fn space(shape: &Shape) -> Result<Vec<Variant>> {
    let run = Run::new(format!("{VALUE} B"), &PUT_GET, RECORDS_PER_GET);
    all(shape, [run])
}

/// Range queries, each on a copy of one loaded database.
pub(super) fn scans(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |(name, workload): (&str, &'static str)| Run::new(name, &[workload], RECORDS_PER_SCAN);
    let queries = [
        ("Seek", "seekrandom"),
        ("Range8", "scan8"),
        ("Range64", "scan64"),
    ];
    all(shape, queries.map(of))
}

/// Mixes by their share of writes; reads and scans have the rest in equal parts.
pub(super) fn mixed_writes(shape: &Shape) -> Result<Vec<Variant>> {
    let mixes = [
        ("writes: 0.2", "mixed:20/40/40"),
        ("writes: 0.4", "mixed:40/30/30"),
        ("writes: 0.6", "mixed:60/20/20"),
        ("writes: 0.8", "mixed:80/10/10"),
    ];
    let of = |(name, mix): (&str, &'static str)| Run::new(name, &[mix], RECORDS_PER_MIXED);
    all(shape, mixes.map(of))
}

/// Mixes of reads and scans by their share of scans.
pub(super) fn mixed_scans(shape: &Shape) -> Result<Vec<Variant>> {
    let mixes = [
        ("scans: 0.2", "mixed:0/80/20"),
        ("scans: 0.4", "mixed:0/60/40"),
        ("scans: 0.6", "mixed:0/40/60"),
        ("scans: 0.8", "mixed:0/20/80"),
    ];
    let of = |(name, mix): (&str, &'static str)| Run::new(name, &[mix], RECORDS_PER_SCAN);
    all(shape, mixes.map(of))
}

/// A close and an open after a load and updates.
pub(super) fn recovery(shape: &Shape) -> Result<Vec<Variant>> {
    all(shape, [Run::new("reopen", &["reopen"], 4)])
}

/// Inserts and reads with slower persistent memory.
pub(super) fn latencies(shape: &Shape) -> Result<Vec<Variant>> {
    let delays = |read_ns: u32, write_ns: u32| {
        vec![
            option("pm_read_ns", read_ns),
            option("pm_write_ns", write_ns),
        ]
    };
    let of = |(read_ns, write_ns): (u32, u32)| {
        let name = format!("{read_ns}/{write_ns} ns against 100/200");
        let run = Run::new(name, &PUT_GET, RECORDS_PER_GET);
        run.beside(delays(read_ns, write_ns), "100-200-ns", delays(100, 200))
    };
    all(shape, [(200, 500), (500, 900)].map(of))
}

/// Inserts and reads by the size of persistent memory.
pub(super) fn pm_sizes(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |percent: u64| Run {
        pm_percent: percent,
        ..Run::new(format!("{percent} %"), &PUT_GET, RECORDS_PER_GET)
    };
    all(shape, [5, PM_PERCENT, 20].map(of))
}

/// Workloads by `max_io`.
fn by_max_io(shape: &Shape, workloads: &[&'static str], each: u64) -> Result<Vec<Variant>> {
    let of = |(more, less, label): (u32, u32, &'static str)| {
        let max_io = |count: u32| vec![option("pmdb_max_io", count)];
        let run = Run::new(format!("{more} against {less}"), workloads, each);
        run.beside(max_io(more), label, max_io(less))
    };
    all(shape, [(10, 1, "max_io-1"), (20, 10, "max_io-10")].map(of))
}

/// Inserts and reads by `max_io`.
pub(super) fn max_io(shape: &Shape) -> Result<Vec<Variant>> {
    by_max_io(shape, &PUT_GET, RECORDS_PER_GET)
}

/// Inserts and short scans by `max_io`.
pub(super) fn max_io_scans(shape: &Shape) -> Result<Vec<Variant>> {
    by_max_io(shape, &["fillrandom", "scan8"], RECORDS_PER_SCAN)
}

/// As many uniform updates as there are records, by the share of hidden entries.
pub(super) fn invalid_shares(shape: &Shape) -> Result<Vec<Variant>> {
    let share = |share: f64| vec![option("pmdb_invalid_share", share)];
    let run = Run::new("0.5 against 0.3", &["fillrandom", "overwrite"], 1);
    all(shape, [run.beside(share(0.5), "0.3", share(0.3))])
}

/// Inserts and reads by the size of blocks.
pub(super) fn block_sizes(shape: &Shape) -> Result<Vec<Variant>> {
    let blocks = |kib: u64| vec![option("block_bytes", kib << 10)];
    let of = |kib: u64| {
        let name = format!("{kib} KiB against 4");
        let run = Run::new(name, &PUT_GET, RECORDS_PER_GET);
        run.beside(blocks(kib), "4-KiB", blocks(4))
    };
    all(shape, [16, BLOCK_KIB_MAX].map(of))
}

/// Inserts with partitions and with one, whose buffers are as large as fit.
pub(super) fn one_partition(shape: &Shape) -> Result<Vec<Variant>> {
    // The engine wants room for two of them in half of it.
    let buffer = pm_bytes(shape, PM_PERCENT) / 4 / MB * MB;
    // The limits allow a second partition at a size that none reaches.
    let one = vec![
        option("partitions_max", 2),
        option("partition_bytes", u64::MAX),
        option("pmdb_buffer_bytes", buffer.min(64 * MB)),
    ];
    let run = Run::new("partitions against one", &["fillrandom"], 1);
    all(shape, [run.beside(Vec::new(), "one-partition", one)])
}

/// YCSB, each workload on a copy of one loaded database.
pub(super) fn ycsb(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |workload: &'static str| {
        let records = if workload == "e" { RECORDS_PER_SCAN } else { 4 };
        Run::new(workload, &[workload], records)
    };
    all(shape, ["a", "b", "c", "d", "e", "f"].map(of))
}

//! The experiments that run an engine: sizes, options and workloads of each.

use crate::paper::{Against, Place, Shape, Variant, config};
use crate::retail::Retail;
use crate::run::RunConfig;
use firn_base::Result;
use firndb::Durability;

const GB: u64 = 1_000_000_000;
const MB: u64 = 1 << 20;
/// Bytes of a key. The paper does not say.
const KEY: usize = 16;
const VALUE: usize = 1024;
/// The zipfian parameter of YCSB.
const THETA: f64 = 0.99;
/// The skews of the paper; 1 is not a zipfian parameter here.
const SKEWS: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, THETA];
/// The paper's data and persistent memory, in bytes.
const FULL_BYTES: u64 = 200 * GB;
const PM_BYTES: u64 = 80 * GB;
/// Orders of 100 KB in the paper's data, and its transactions.
const ORDERS: u64 = 2_000_000;
const TRANSACTIONS: u64 = 1_000_000;

type Options = Vec<(&'static str, String)>;

/// A setting of an experiment, before scaling.
struct Run {
    name: String,
    /// Bytes of keys and values that are loaded.
    bytes: u64,
    value: usize,
    theta: f64,
    workloads: Vec<&'static str>,
    /// Operations of the workloads; a quarter of the records if `None`.
    operations: Option<u64>,
    clients: Option<usize>,
    pm_bytes: u64,
    own: Options,
    against: Against,
    /// The least persistent memory at any scale: enough for write buffers and logs.
    pm_bytes_min: u64,
    /// Options that change after each workload.
    reopened_with: Vec<Options>,
}

impl Run {
    fn new(name: impl Into<String>, bytes: u64, workloads: &[&'static str]) -> Run {
        Run {
            name: name.into(),
            bytes,
            value: VALUE,
            theta: 0.0,
            workloads: workloads.to_vec(),
            operations: None,
            clients: None,
            pm_bytes: PM_BYTES,
            pm_bytes_min: 64 * MB,
            own: Vec::new(),
            against: Against::Baseline,
            reopened_with: Vec::new(),
        }
    }

    fn variant(self, shape: &Shape) -> Result<Variant> {
        let shape = Shape {
            threads: self.clients.unwrap_or(shape.threads),
            ..*shape
        };
        let records = self.bytes / (KEY + self.value) as u64;
        let mut config = config(
            &shape,
            records,
            KEY,
            self.value,
            self.theta,
            &self.workloads,
        )?;
        if let Some(operations) = self.operations {
            config.operations = (operations / shape.scale).max(1000);
        }
        let owned = |(name, value): (&str, String)| (name.to_owned(), value);
        let changed = self.reopened_with.into_iter();
        config.reopened_with = changed
            .map(|options| options.into_iter().map(owned).collect())
            .collect();
        let pm_bytes = (self.pm_bytes / shape.scale).max(self.pm_bytes_min);
        let pool = option("pm_bytes", pm_bytes);
        Ok(Variant {
            own: [pool].into_iter().chain(self.own).collect(),
            against: self.against,
            ..on(&shape, self.name, config)
        })
    }
}

/// A variant of `config` with the paper's memory and write buffers.
fn on(shape: &Shape, name: String, config: RunConfig) -> Variant {
    let write_buffer_bytes = (64 * MB / shape.scale).max(MB);
    // The share of DRAM in the LAB-DB paper. This one has more DRAM than half of its data.
    let share_bytes = config.loaded_bytes() * 16 / 93;
    Variant {
        name,
        config,
        memory_bytes: share_bytes.max(4 * write_buffer_bytes + 64 * MB),
        pm_bytes: None,
        options: vec![("write_buffer_bytes", write_buffer_bytes.to_string())],
        firn: Vec::new(),
        own: Vec::new(),
        place: Place::Ssd,
        against: Against::Baseline,
    }
}

fn all(shape: &Shape, runs: impl IntoIterator<Item = Run>) -> Result<Vec<Variant>> {
    runs.into_iter().map(|run| run.variant(shape)).collect()
}

fn option(name: &'static str, value: impl ToString) -> (&'static str, String) {
    (name, value.to_string())
}

/// The design without persistent memory.
fn without_pm() -> Against {
    Against::Itself("ssd", vec![option("pm_bytes", 0)])
}

/// The design without merges within persistent memory and without models.
fn without_models() -> Against {
    Against::Itself(
        "no-models",
        vec![
            option("blade_models", "off"),
            option("blade_internal", false),
        ],
    )
}

/// Options with which nothing is merged until a compaction by hand. An open would merge as many
/// tables of level 0 as stop writers.
fn by_hand() -> Options {
    vec![
        option("blade_models", "off"),
        option("blade_unsorted_max", 256),
        option("level0_rest", 1000),
        option("level0_trigger", 1000),
        option("level0_slow", 2000),
        option("level0_stop", 3000),
    ]
}

/// A threshold of persistent memory from which tables leave for the SSD.
fn evict_share(share: f64) -> Options {
    vec![option("blade_evict_share", share)]
}

/// A major compaction of 2 GB: half of them are loaded and leave for the SSD, as many are
/// written over them and stay in persistent memory, and then these leave too.
fn major(shape: &Shape, name: String, value: usize, own: Options) -> Run {
    /// Bytes of an entry beside its key and value, at most.
    const ENTRY: u64 = 30;
    let record = (KEY + value) as u64;
    let records = GB / record;
    // A sub-task has at least two tables, so there are as many at any scale.
    let table_bytes = option("table_bytes", (8 * MB / shape.scale).max(MB / 4));
    Run {
        value,
        clients: Some(1),
        operations: Some(records),
        pm_bytes: records * (record + ENTRY) / 4 * 5,
        pm_bytes_min: 20 * MB,
        own: [by_hand(), evict_share(0.1), vec![table_bytes], own].concat(),
        // Without models all tables leave, once the threshold is passed.
        reopened_with: vec![evict_share(0.95), evict_share(0.1)],
        ..Run::new(name, GB, &["load", "o", "rest"])
    }
}

pub(super) fn threads(shape: &Shape) -> Result<Vec<Variant>> {
    let options = |threads: u32| {
        vec![
            option("background_workers", threads),
            option("compaction_concurrency", "threads"),
        ]
    };
    let of = |threads: u32| Run {
        against: match threads {
            1 => Against::Nothing,
            _ => Against::Itself("one-thread", options(1)),
        },
        ..major(shape, format!("threads: {threads}"), 256, options(threads))
    };
    all(shape, (1..=5).map(of))
}

pub(super) fn majors(shape: &Shape) -> Result<Vec<Variant>> {
    let tasks = |workers: u32, concurrency: &str| {
        vec![
            option("background_workers", workers),
            option("compaction_io_depth", 4),
            option("compaction_concurrency", concurrency),
        ]
    };
    // Four tasks are four threads, or two coroutines on each of two workers.
    let pairs = [
        ("coroutines", 4, "threads"),
        ("flush-coroutine", 4, "threads"),
        ("flush-coroutine", 2, "coroutines"),
    ];
    let of = |value: usize| {
        pairs.map(|(ours, workers, other)| {
            let name = format!("{value} B, {ours} against {other}");
            Run {
                against: Against::Itself(other, tasks(workers, other)),
                ..major(shape, name, value, tasks(2, ours))
            }
        })
    };
    all(shape, [32, 64, 128, 256, 512].into_iter().flat_map(of))
}

pub(super) fn updates(shape: &Shape) -> Result<Vec<Variant>> {
    let record = (KEY + VALUE) as u64;
    let of = |theta: f64| Run {
        theta,
        clients: Some(1),
        operations: Some(20 * GB / record),
        // The tables, and a merge of all of them.
        pm_bytes: 44 * GB,
        own: vec![
            option("blade_internal", false),
            option("blade_evict_share", 0.95),
        ],
        against: Against::Nothing,
        ..Run::new(
            format!("skew {theta}"),
            95 * GB / 10,
            &["fillzipf", "compact"],
        )
    };
    all(shape, SKEWS.map(of))
}

pub(super) fn merges(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |(value, name): (usize, &str)| Run {
        value,
        clients: Some(1),
        pm_bytes: 4 * GB,
        own: by_hand(),
        against: without_pm(),
        ..Run::new(format!("{name} against the SSD"), GB, &["load", "compact"])
    };
    let sizes = [
        (512, "512 B"),
        (1 << 10, "1 KB"),
        (4 << 10, "4 KB"),
        (16 << 10, "16 KB"),
        (64 << 10, "64 KB"),
    ];
    all(shape, sizes.map(of))
}

pub(super) fn mixes(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |(name, against)| Run {
        operations: Some(10_000_000),
        // All that is written stays in persistent memory.
        pm_bytes: 30 * GB,
        against,
        ..Run::new(name, 5 * GB, &["load", "rw"])
    };
    let no_merges = Against::Itself("no-merges", vec![option("blade_internal", false)]);
    let others = [
        ("against no merges", no_merges),
        ("against the SSD", without_pm()),
    ];
    all(shape, others.map(of))
}

pub(super) fn reads_beside(shape: &Shape) -> Result<Vec<Variant>> {
    let run = Run {
        clients: Some(shape.threads.max(2)),
        operations: Some(100_000),
        pm_bytes: 4 * GB,
        own: by_hand(),
        against: without_pm(),
        ..Run::new("against the SSD", GB, &["load", "u", "compact"])
    };
    all(shape, [run])
}

pub(super) fn fills(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |theta: f64| Run {
        theta,
        operations: Some(FULL_BYTES / (KEY + VALUE) as u64),
        ..Run::new(format!("skew {theta}"), FULL_BYTES, &["fillzipf"])
    };
    let no_models = Run {
        against: without_models(),
        name: "skew 0 against no models".to_owned(),
        ..of(0.0)
    };
    all(shape, SKEWS.map(of).into_iter().chain([no_models]))
}

pub(super) fn hits(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |theta: f64| Run {
        theta,
        against: without_models(),
        ..Run::new(
            format!("skew {theta} against no models"),
            FULL_BYTES,
            &["rw"],
        )
    };
    all(shape, SKEWS.map(of))
}

pub(super) fn ycsb(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |workload: &'static str| Run {
        theta: THETA,
        ..Run::new(workload, FULL_BYTES, &[workload])
    };
    all(shape, ["load", "a", "b", "c", "d", "e", "f"].map(of))
}

/// The retail workload with options `own` of the design.
fn orders(shape: &Shape, name: &str, own: Options, against: Against) -> Result<Variant> {
    let scaled = |amount: u64| amount / shape.scale;
    let retail = Retail {
        orders: scaled(ORDERS).max(64 * shape.threads as u64),
        seed: 1,
    };
    let transactions = scaled(TRANSACTIONS).max(1000);
    let config = retail.config(
        transactions,
        shape.threads,
        shape.seconds_min,
        Durability::Process,
    );
    let pool = option("pm_bytes", scaled(PM_BYTES).max(64 * MB));
    Ok(Variant {
        own: [pool].into_iter().chain(own).collect(),
        against,
        ..on(shape, name.to_owned(), config)
    })
}

pub(super) fn ablation(shape: &Shape) -> Result<Vec<Variant>> {
    let parts = |merges: bool, arrangement: &str, concurrency: &str| {
        vec![
            option("blade_internal", merges),
            option("blade_models", if merges { "costs" } else { "off" }),
            option("blade_arrangement", arrangement),
            option("compaction_concurrency", concurrency),
        ]
    };
    // The paper's PMB-P: tables in persistent memory, and nothing else.
    let pm_alone = || parts(false, "array", "threads");
    let ssd = [option("pm_bytes", 0), option("blade_internal", true)];
    let ssd = Against::Itself(
        "ssd",
        pm_alone()
            .into_iter()
            .filter(|(name, _)| *name != "blade_internal")
            .chain(ssd)
            .collect(),
    );
    let against_pm = || Against::Itself("pm", pm_alone());
    [
        ("PMB-P against PMBlade-SSD", pm_alone(), ssd),
        (
            "PMB-PI against PMB-P",
            parts(true, "array", "threads"),
            against_pm(),
        ),
        (
            "PMB-PIC against PMB-P",
            parts(true, "grouped", "threads"),
            against_pm(),
        ),
        (
            "PM-Blade against PMB-P",
            parts(true, "grouped", "flush-coroutine"),
            against_pm(),
        ),
    ]
    .into_iter()
    .map(|(name, own, against)| orders(shape, name, own, against))
    .collect()
}

pub(super) fn retail(shape: &Shape) -> Result<Vec<Variant>> {
    Ok(vec![orders(
        shape,
        "retail",
        Vec::new(),
        Against::Baseline,
    )?])
}

//! TLSM: "TLSM: Tiered Log-Structured Merge-Tree Utilizing Non-Volatile Memory" (IEEE Access 8,
//! 2020), sections III and V.
//!
//! The paper's tree is LevelDB's: write buffers of 4 MB (64 MB for large values), tables of 2 MB, a
//! level 1 of 10 MB, no filter, keys of 16 bytes. Those sizes are fixed in LevelDB, so only the
//! data is scaled, and with it the pool: `--scale 4` has at most 3 GB. The baseline LevelDB-NVM is
//! the baseline with its files in the directory on persistent memory.

use super::figure::Depth;
use super::{Against, Experiment, Figure, Paper, Place, Shape, Variant, config};
use firn_base::Result;

const GB: u64 = 1_000_000_000;
const KEY: usize = 16;
const THETA: f64 = 0.99;
const MB: u64 = 1 << 20;
/// The default size of values, in bytes.
const SMALL: usize = 100;
/// Values of YCSB: ten fields of 100 bytes.
const YCSB: usize = 1000;
/// Data of most experiments, in GB.
const FULL_GB: u64 = 12;

const MICRO: [&str; 2] = ["fillrandom", "readrandom"];
const TIERINGS: [&str; 3] = ["none", "lru", "3"];

/// A difference common to all experiments that fill a database.
const FILL: &str = "each key is written once here, keys are drawn with repetition there; persistent memory is DRAM \
                    without the paper's 100 and 450 ns";

pub(super) static PAPER: Paper = Paper {
    name: "tlsm",
    title: "TLSM (IEEE Access 2020)",
    engine: "firn:tlsm",
    baseline: "leveldb",
    experiments: &[
        Experiment {
            id: "tab1",
            title: "random inserts, baseline on the SSD: write stall",
            paper: "about 15 min of LevelDB at 8 GB; other values are in an image",
            differs: "the baseline alone there; stalls are inserts above 0.5 ms here",
            figure: Figure::StallSeconds,
            variants: |shape| {
                let of = |gb| Run::new(gb).on(Place::Ssd).named(format!("{gb} GB"));
                all(shape, [2, 4, 8].map(of))
            },
        },
        Experiment {
            id: "tab2-0",
            title: "random inserts, tables of level 0: mean age when they are replaced",
            paper: "in an image: short down to level 2 or 3, long on level 4",
            differs: "LevelDB reports none: `--baseline firn:classic`; ages are in whole seconds",
            figure: Figure::TableSeconds(Depth::Zero),
            variants: lifetimes,
        },
        Experiment {
            id: "tab2-1",
            title: "random inserts, tables of level 1: mean age when they are replaced",
            paper: "in an image: short down to level 2 or 3, long on level 4",
            differs: "LevelDB reports none: `--baseline firn:classic`; ages are in whole seconds",
            figure: Figure::TableSeconds(Depth::One),
            variants: lifetimes,
        },
        Experiment {
            id: "tab2-2",
            title: "random inserts, tables of level 2: mean age when they are replaced",
            paper: "in an image: short down to level 2 or 3, long on level 4",
            differs: "LevelDB reports none: `--baseline firn:classic`; ages are in whole seconds",
            figure: Figure::TableSeconds(Depth::Two),
            variants: lifetimes,
        },
        Experiment {
            id: "tab2-3",
            title: "random inserts, tables of level 3: mean age when they are replaced",
            paper: "in an image: short down to level 2 or 3, long on level 4",
            differs: "LevelDB reports none: `--baseline firn:classic`; ages are in whole seconds",
            figure: Figure::TableSeconds(Depth::Three),
            variants: lifetimes,
        },
        Experiment {
            id: "fig5a",
            title: "random inserts, the design's parts one after the other: latency",
            paper: "up to -34 %; -20 % from ps+bac to all; ps alone behind LevelDB-NVM",
            differs: FILL,
            figure: Figure::LoadMicros,
            variants: parts,
        },
        Experiment {
            id: "fig5b",
            title: "random reads, the design's parts one after the other: latency",
            paper: "up to -57 %; all slightly behind ps and ps+bac",
            differs: "a node has the prefix of its key here, so not every step reads the entry",
            figure: Figure::MicrosPerOperation,
            variants: parts,
        },
        Experiment {
            id: "fig5c",
            title: "random inserts by tiering: latency",
            paper: "none, lru, leveled in increasing order, lru as none up to 8 GB; no figure",
            differs: "the baseline is not in the paper's figure: compare the rows; lru evicts before the pool is full",
            figure: Figure::LoadMicros,
            variants: tierings,
        },
        Experiment {
            id: "fig5d",
            title: "random reads by tiering: latency",
            paper: "none, lru, leveled in increasing order; no figure",
            differs: "as in fig5c; files are read past the page cache here, which held them all there",
            figure: Figure::MicrosPerOperation,
            variants: tierings,
        },
        Experiment {
            id: "fig5e",
            title: "random inserts, values of 100 to 1,600 bytes: latency",
            paper: "about -75 %",
            differs: FILL,
            figure: Figure::LoadMicros,
            variants: small_values,
        },
        Experiment {
            id: "fig5f",
            title: "random reads, values of 100 to 1,600 bytes: latency",
            paper: "about -76 %",
            differs: "LevelDB 1.23 here, 1.20 there; values are checked here",
            figure: Figure::MicrosPerOperation,
            variants: small_values,
        },
        Experiment {
            id: "fig5g",
            title: "random inserts, values of 1 to 16 KB: latency",
            paper: "up to -90 %",
            differs: FILL,
            figure: Figure::LoadMicros,
            variants: large_values,
        },
        Experiment {
            id: "fig5h",
            title: "random reads, values of 1 to 16 KB: latency",
            paper: "about -72 %",
            differs: "LevelDB 1.23 here, 1.20 there; values are checked here",
            figure: Figure::MicrosPerOperation,
            variants: large_values,
        },
        Experiment {
            id: "fig6a",
            title: "YCSB load and A to F by tiering: operations per second",
            paper: "none, lru, leveled, LevelDB-NVM in decreasing order; no figure",
            differs: "clients are not given there; a load comes to rest before the workload here",
            figure: Figure::OperationsPerSecond,
            variants: ycsb,
        },
        Experiment {
            id: "fig6b",
            title: "YCSB load and A to F by tiering: latency",
            paper: "load -16 to -25 %, A -9 to -22, B -18 to -31, C -22 to -31, D -11 to -18, \
                    E -22 to -33, F -9 to -23",
            differs: "clients are not given there; a load comes to rest before the workload here",
            figure: Figure::MicrosPerOperation,
            variants: ycsb,
        },
        Experiment {
            id: "fig7a",
            title: "random inserts, baseline on the SSD and in persistent memory: write stall",
            paper: "about 20 min of LevelDB-SSD at 10 GB, the others far less",
            differs: "how the paper counts stalls is not said; they are inserts above 0.5 ms here",
            figure: Figure::StallSeconds,
            variants: stalls,
        },
        Experiment {
            id: "fig7b",
            title: "random inserts by tiering: bytes written by compactions",
            paper: "none up to -18 % of lru and -36 % of leveled",
            differs: "flushes are counted too; the amount of data is not given: the rows of fig5c at 12 GB",
            figure: Figure::CompactionBytes,
            variants: |shape| all(shape, TIERINGS.map(|tiering| tiered(tiering, FULL_GB))),
        },
        Experiment {
            id: "fig7c",
            title: "random inserts, levels in persistent memory varied: latency",
            paper: "down to level 3 the best; no figure",
            differs: "the amount of data is not given; the baseline is not in the paper's figure",
            figure: Figure::LoadMicros,
            variants: levels,
        },
        Experiment {
            id: "fig7d",
            title: "random reads, levels in persistent memory varied: latency",
            paper: "down to level 3 the best; no figure",
            differs: "the amount of data is not given; the baseline is not in the paper's figure",
            figure: Figure::MicrosPerOperation,
            variants: levels,
        },
    ],
    tables: &[],
};

/// A setting of an experiment.
struct Run {
    name: String,
    /// Keys and values in GB, before scaling.
    gb: u64,
    value: usize,
    write_buffer_bytes: u64,
    tiering: &'static str,
    build: &'static str,
    place: Place,
    /// `None` for one client.
    clients: Option<usize>,
    workloads: Vec<&'static str>,
}

impl Run {
    /// The whole design without tiering and the baseline in persistent memory, with `gb` GB of
    /// small values.
    fn new(gb: u64) -> Run {
        Run {
            name: String::new(),
            gb,
            value: SMALL,
            write_buffer_bytes: 4 * MB,
            tiering: "none",
            build: "ps+bac+pb",
            place: Place::Pm,
            clients: None,
            workloads: MICRO.to_vec(),
        }
    }

    fn named(self, name: String) -> Run {
        Run { name, ..self }
    }

    fn on(self, place: Place) -> Run {
        Run { place, ..self }
    }

    /// Bytes of the pool. A node, and what an entry has beside its key and value, take about 40
    /// bytes a record; a third of the data is for garbage and for compactions in flight.
    fn pool_bytes(&self, shape: &Shape, records: u64) -> u64 {
        let least = 4 * self.write_buffer_bytes + 64 * MB;
        match self.tiering {
            // The paper's capacity, for 12 GB of data.
            "lru" => (8 * GB / shape.scale).max(least),
            _ => records * (KEY + self.value) as u64 / 100 * 136 + records * 40 + least,
        }
    }

    fn variant(self, shape: &Shape) -> Result<Variant> {
        let records = self.gb * GB / (KEY + self.value) as u64;
        let shape = Shape {
            threads: self.clients.unwrap_or(1),
            ..*shape
        };
        let config = config(&shape, records, KEY, self.value, THETA, &self.workloads)?;
        let pool_bytes = self.pool_bytes(&shape, config.records);
        let text = |number: u64| number.to_string();
        Ok(Variant {
            name: self.name,
            config,
            memory_bytes: 4 * self.write_buffer_bytes + 64 * MB,
            pm_bytes: None,
            options: vec![
                ("write_buffer_bytes", text(self.write_buffer_bytes)),
                ("filter_bits", text(0)),
            ],
            // LevelDB's tree, and nothing that it does not have.
            firn: vec![
                ("table_bytes", text(2 * MB)),
                ("level_base_bytes", text(10 * MB)),
                ("level0_trigger", text(4)),
                ("level0_slow", text(8)),
                ("level0_stop", text(12)),
                ("row_cache", false.to_string()),
            ],
            own: vec![
                ("pm_bytes", text(pool_bytes)),
                ("tlsm_tiering", self.tiering.to_owned()),
                ("tlsm_build", self.build.to_owned()),
            ],
            place: self.place,
            against: Against::Baseline,
        })
    }
}

fn all(shape: &Shape, runs: impl IntoIterator<Item = Run>) -> Result<Vec<Variant>> {
    runs.into_iter().map(|run| run.variant(shape)).collect()
}

fn tiering_name(tiering: &str) -> String {
    match tiering {
        "none" | "lru" => tiering.to_owned(),
        level => format!("leveled({level})"),
    }
}

fn tiered(tiering: &'static str, gb: u64) -> Run {
    let run = Run {
        tiering,
        ..Run::new(gb)
    };
    run.named(format!("{}, {gb} GB", tiering_name(tiering)))
}

fn parts(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |(build, gb): (&'static str, u64)| {
        let run = Run {
            build,
            ..Run::new(gb)
        };
        run.named(format!("{build}, {gb} GB"))
    };
    let sizes = [2, 4, 8];
    let builds = ["ps", "ps+bac", "ps+bac+pb"];
    let each = sizes.into_iter().flat_map(|gb| builds.map(|b| (b, gb)));
    all(shape, each.map(of))
}

fn lifetimes(shape: &Shape) -> Result<Vec<Variant>> {
    let run = Run {
        tiering: "lru",
        ..Run::new(100).on(Place::Ssd)
    };
    all(shape, [run.named("lru, 100 GB".to_owned())])
}

fn tierings(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |gb| TIERINGS.map(|tiering| tiered(tiering, gb));
    all(shape, [4, 8, FULL_GB].into_iter().flat_map(of))
}

fn values(shape: &Shape, sizes: [usize; 5], write_buffer_bytes: u64) -> Result<Vec<Variant>> {
    let of = |value| Run {
        value,
        write_buffer_bytes,
        name: format!("{value} B"),
        ..Run::new(FULL_GB)
    };
    all(shape, sizes.map(of))
}

fn small_values(shape: &Shape) -> Result<Vec<Variant>> {
    values(shape, [100, 200, 400, 800, 1600], 4 * MB)
}

fn large_values(shape: &Shape) -> Result<Vec<Variant>> {
    values(shape, [1, 2, 4, 8, 16].map(|kb| kb << 10), 64 * MB)
}

fn ycsb(shape: &Shape) -> Result<Vec<Variant>> {
    let of = |(workload, tiering): (&'static str, &'static str)| Run {
        value: YCSB,
        tiering,
        name: format!("{workload}, {}", tiering_name(tiering)),
        clients: Some(shape.threads),
        // Each workload has a database of its own.
        workloads: match workload {
            "load" => vec![workload],
            _ => vec!["load", workload],
        },
        ..Run::new(FULL_GB)
    };
    let workloads = ["load", "a", "b", "c", "d", "e", "f"];
    let each = workloads
        .into_iter()
        .flat_map(|workload| TIERINGS.map(|tiering| (workload, tiering)));
    all(shape, each.map(of))
}

fn stalls(shape: &Shape) -> Result<Vec<Variant>> {
    let places = [(Place::Ssd, "SSD"), (Place::Pm, "PM")];
    let of = |gb: u64| {
        places.map(|(place, name)| {
            let name = format!("baseline on {name}, {gb} GB");
            Run::new(gb).on(place).named(name)
        })
    };
    all(shape, [5, 10].into_iter().flat_map(of))
}

fn levels(shape: &Shape) -> Result<Vec<Variant>> {
    all(shape, ["1", "2", "3"].map(|level| tiered(level, FULL_GB)))
}

//! The workloads: their mix of operations, and the records that they access.
//!
//! Load and A to F are YCSB's (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC
//! 2010). `u` and `o` read and update uniformly. Names such as `readrandom` match the `db_bench`
//! benchmarks of the same name. `rh` to `wo` and `scanrh` to `scanwh` are the BlockDB paper's mixes
//! of reads or scans and writes (its table III and section V-G). `mixed:P/G/S` is the mix of the
//! PMDB paper: puts, gets and scans of 8 entries in these percentages, where 1 % of the keys get
//! half of the accesses.

use crate::zipf::Zipf;
use firn_base::seed::Seed;
use firn_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Workload {
    name: String,
    /// Each kind of operation with its percentage.
    mix: Vec<(Action, u64)>,
    reach: Reach,
    /// Minimum and maximum number of entries of a scan.
    scan_entries: (u64, u64),
    /// The action of thread 0 instead of the mix.
    beside: Option<Action>,
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Loads the next record of the order.
    Load,
    Read,
    /// Reads a key that was never written.
    ReadMissing,
    Update,
    Insert,
    Scan,
    /// Continues from the end of the thread's last scan.
    ScanOn,
    /// Reads, then updates.
    Modify,
    Delete,
    /// Compacts all records by hand.
    Compact,
    /// Waits until the store is at rest.
    Settle,
}

/// The distribution of accesses over the records.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reach {
    /// Each once, in key order.
    Ascending,
    Uniform,
    Zipf,
    Latest,
    /// The given percentage of the records gets the given percentage of the accesses.
    Hot(u64, u64),
}

/// Name, description, mix, distribution, scan entries.
type Row = (
    &'static str,
    &'static str,
    &'static [(Action, u64)],
    Reach,
    (u64, u64),
);

const REOPEN: &str = "reopen";
const YCSB_SCAN: (u64, u64) = (1, 100);

const ROWS: &[Row] = &[
    (
        "load",
        "inserts in random order",
        &[(Action::Load, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "a",
        "half reads, half updates",
        &[(Action::Read, 50), (Action::Update, 50)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "b",
        "95 % reads, 5 % updates",
        &[(Action::Read, 95), (Action::Update, 5)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "c",
        "zipfian reads",
        &[(Action::Read, 100)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "d",
        "reads of the latest, inserts",
        &[(Action::Read, 95), (Action::Insert, 5)],
        Reach::Latest,
        YCSB_SCAN,
    ),
    (
        "e",
        "scans of 1 to 100, inserts",
        &[(Action::Scan, 95), (Action::Insert, 5)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "f",
        "reads, read-modify-writes",
        &[(Action::Read, 50), (Action::Modify, 50)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "u",
        "uniform reads",
        &[(Action::Read, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "o",
        "uniform updates",
        &[(Action::Update, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        REOPEN,
        "uniform updates, then closed and opened again",
        &[(Action::Update, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "fillseq",
        "inserts in the order of keys",
        &[(Action::Load, 100)],
        Reach::Ascending,
        YCSB_SCAN,
    ),
    (
        "fillrandom",
        "inserts in random order",
        &[(Action::Load, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "overwrite",
        "uniform updates",
        &[(Action::Update, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "overwriteseq",
        "updates in the order of keys",
        &[(Action::Update, 100)],
        Reach::Ascending,
        YCSB_SCAN,
    ),
    (
        "readseq",
        "scans of 100, each on from the last",
        &[(Action::ScanOn, 100)],
        Reach::Ascending,
        (100, 100),
    ),
    (
        "readrandom",
        "uniform reads",
        &[(Action::Read, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "readmissing",
        "uniform reads of absent keys",
        &[(Action::ReadMissing, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "seekrandom",
        "uniform seeks",
        &[(Action::Scan, 100)],
        Reach::Uniform,
        (1, 1),
    ),
    (
        "fillzipf",
        "zipfian writes into an empty database",
        &[(Action::Load, 100)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "compact",
        "one compaction by hand, uniform reads beside it",
        &[(Action::Read, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "rest",
        "until nothing is left to compact, uniform reads beside it",
        &[(Action::Read, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "readwhilewriting",
        "uniform reads, one thread updates",
        &[(Action::Read, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "deleterandom",
        "uniform deletes",
        &[(Action::Delete, 100)],
        Reach::Uniform,
        YCSB_SCAN,
    ),
    (
        "rh",
        "80 % reads, 20 % updates",
        &[(Action::Read, 80), (Action::Update, 20)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "rw",
        "half reads, half updates",
        &[(Action::Read, 50), (Action::Update, 50)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "wh",
        "20 % reads, 80 % updates",
        &[(Action::Read, 20), (Action::Update, 80)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "wo",
        "zipfian updates",
        &[(Action::Update, 100)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "rh+ins",
        "80 % reads, 20 % inserts",
        &[(Action::Read, 80), (Action::Insert, 20)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "rw+ins",
        "half reads, half inserts",
        &[(Action::Read, 50), (Action::Insert, 50)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "wh+ins",
        "20 % reads, 80 % inserts",
        &[(Action::Read, 20), (Action::Insert, 80)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "wo+ins",
        "inserts",
        &[(Action::Insert, 100)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "scanro",
        "scans of 1 to 100",
        &[(Action::Scan, 100)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "scanrh",
        "80 % scans, 20 % inserts",
        &[(Action::Scan, 80), (Action::Insert, 20)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "scanba",
        "half scans, half inserts",
        &[(Action::Scan, 50), (Action::Insert, 50)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "scanwh",
        "20 % scans, 80 % inserts",
        &[(Action::Scan, 20), (Action::Insert, 80)],
        Reach::Zipf,
        YCSB_SCAN,
    ),
    (
        "scan8",
        "uniform scans of 8",
        &[(Action::Scan, 100)],
        Reach::Uniform,
        (8, 8),
    ),
    (
        "scan64",
        "uniform scans of 64",
        &[(Action::Scan, 100)],
        Reach::Uniform,
        (64, 64),
    ),
    (
        "scan100",
        "uniform scans of 100",
        &[(Action::Scan, 100)],
        Reach::Uniform,
        (100, 100),
    ),
    (
        "scanafterdelete",
        "uniform scans of 100 over what was left",
        &[(Action::Scan, 100)],
        Reach::Uniform,
        (100, 100),
    ),
];

/// The two workloads of [`crate::Retail`]. Their choices are its own.
const RETAIL: [Row; 2] = [
    (
        "retail-load",
        "orders and their updates",
        &[(Action::Load, 100)],
        Reach::Latest,
        YCSB_SCAN,
    ),
    (
        "retail",
        "updates of orders together with index queries (35 %) and key queries (15 %)",
        &[(Action::Modify, 50), (Action::Scan, 35), (Action::Read, 15)],
        Reach::Latest,
        YCSB_SCAN,
    ),
];

impl Workload {
    /// The load and the transactions of the retail workload.
    pub fn retail() -> Vec<Self> {
        RETAIL.iter().map(Self::of).collect()
    }

    /// True if it is one of [`Workload::retail`].
    pub(crate) fn is_of_retail(&self) -> bool {
        RETAIL.iter().any(|row| row.0 == self.name)
    }

    /// The workload that inserts every record once, in random order.
    pub fn load() -> Self {
        Self::of(&ROWS[0])
    }

    /// Every name with its description.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        ROWS.iter()
            .map(|row| (row.0, row.1))
            .chain([("mixed:P/G/S", "puts, gets, scans of 8 in percent, 1 % hot")])
    }

    fn of(row: &Row) -> Self {
        Self {
            name: row.0.to_owned(),
            mix: row.2.to_vec(),
            reach: row.3,
            scan_entries: row.4,
            beside: match row.0 {
                "readwhilewriting" => Some(Action::Update),
                "compact" => Some(Action::Compact),
                "rest" => Some(Action::Settle),
                _ => None,
            },
        }
    }

    /// The name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A short description.
    pub fn about(&self) -> &'static str {
        let mut known = ROWS.iter().chain(&RETAIL);
        known
            .find(|row| row.0 == self.name)
            .map_or("puts, gets, scans of 8; 1 % of the keys get half", |row| {
                row.1
            })
    }

    /// True if it fills an empty database: one operation per record, or
    /// [`Workload::fills_some`].
    pub fn fills(&self) -> bool {
        self.mix[0].0 == Action::Load
    }

    /// True if it fills an empty database by operations that choose their records, so that some
    /// records are written several times and others never.
    pub fn fills_some(&self) -> bool {
        self.fills() && self.reach == Reach::Zipf
    }

    /// True if it has one act of the first thread, a compaction or a rest, and lasts as long as
    /// that.
    pub(crate) fn is_one_act(&self) -> bool {
        matches!(self.beside, Some(Action::Compact | Action::Settle))
    }

    /// True if the database is closed and reopened after it, with its log as it is then.
    pub fn reopens(&self) -> bool {
        self.name == REOPEN
    }

    /// True if it removes records.
    pub fn deletes(&self) -> bool {
        self.mix[0].0 == Action::Delete
    }

    /// The maximum number of inserts of new records among `operations`.
    pub(crate) fn inserts_max(&self, operations: u64) -> u64 {
        let percent: u64 = self
            .mix
            .iter()
            .filter(|(action, _)| *action == Action::Insert)
            .map(|(_, p)| p)
            .sum();
        // Allows for chance, and for some seconds beyond the operations.
        if percent == 0 {
            0
        } else {
            operations / 50 * (percent + 1) + 1000
        }
    }

    /// The next action of thread `thread`.
    pub(crate) fn action(&self, thread: u64, seed: &mut Seed) -> Action {
        if let Some(action) = self.beside.filter(|_| thread == 0) {
            return action;
        }
        let mut at = seed.below(100);
        for (action, percent) in &self.mix {
            match at.checked_sub(*percent) {
                Some(rest) => at = rest,
                None => return *action,
            }
        }
        self.mix[0].0
    }

    pub(crate) fn scan_entries(&self, seed: &mut Seed) -> u64 {
        let (min, max) = self.scan_entries;
        min + seed.below(max - min + 1)
    }

    pub(crate) fn choice(&self, records: u64, theta: f64) -> Choice {
        match self.reach {
            Reach::Ascending => Choice::Ascending,
            Reach::Uniform => Choice::Uniform,
            Reach::Zipf => Choice::Zipf(Zipf::new(records, theta)),
            Reach::Latest => Choice::Latest(Zipf::new(records, theta)),
            Reach::Hot(keys, accesses) => Choice::Hot {
                records: (records * keys / 100).max(1),
                percent: accesses,
            },
        }
    }

    /// Parses `P/G/S` of `mixed:P/G/S`.
    fn mixed(text: &str) -> Option<Self> {
        let percents: Vec<u64> = text
            .split('/')
            .map(|part| part.parse().ok())
            .collect::<Option<_>>()?;
        let [put, get, scan] = percents[..] else {
            return None;
        };
        if put.checked_add(get)?.checked_add(scan)? != 100 {
            return None;
        }
        Some(Self {
            name: format!("mixed:{text}"),
            mix: vec![
                (Action::Update, put),
                (Action::Read, get),
                (Action::Scan, scan),
            ],
            reach: Reach::Hot(1, 50),
            scan_entries: (8, 8),
            beside: None,
        })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl From<Workload> for String {
    fn from(workload: Workload) -> Self {
        workload.name
    }
}

impl TryFrom<String> for Workload {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for Workload {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut rows = ROWS.iter().chain(&RETAIL);
        let known = rows.find(|row| row.0 == text).map(Self::of);
        let mixed = || text.strip_prefix("mixed:").and_then(Self::mixed);
        known.or_else(mixed).ok_or_else(|| {
            let names: Vec<&str> = Self::names().map(|(name, _)| name).collect();
            Error::invalid(format!(
                "no workload is called {text}: there are {}",
                names.join(", ")
            ))
        })
    }
}

/// The distribution from which a rank among the records is chosen.
#[derive(Debug)]
pub(crate) enum Choice {
    /// Not chosen: one after the other.
    Ascending,
    Uniform,
    Zipf(Zipf),
    /// Rank 0 is the newest record.
    Latest(Zipf),
    /// The first `records` get `percent` of the accesses, all others the rest.
    Hot {
        records: u64,
        percent: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for row in ROWS {
            assert_eq!(row.0.parse::<Workload>().unwrap().name(), row.0);
            assert_eq!(
                row.2.iter().map(|(_, percent)| percent).sum::<u64>(),
                100,
                "{}",
                row.0
            );
        }
        assert_eq!(
            "mixed:50/40/10".parse::<Workload>().unwrap().to_string(),
            "mixed:50/40/10"
        );
        for text in ["z", "mixed:50/40/11", "mixed:50/50", "mixed:"] {
            assert!(
                text.parse::<Workload>()
                    .unwrap_err()
                    .to_string()
                    .contains("load, a, b"),
                "{text}"
            );
        }
    }

    #[test]
    fn shares_are_as_said() {
        let mut seed = Seed::new(3);
        let named = |name: &str| name.parse::<Workload>().unwrap();
        for (workload, action, percent) in [
            (named("a"), Action::Update, 50),
            (named("b"), Action::Update, 5),
            (named("e"), Action::Insert, 5),
            (named("mixed:20/30/50"), Action::Scan, 50),
            (named("mixed:20/30/50"), Action::Read, 30),
        ] {
            let found = (0..10_000)
                .filter(|_| workload.action(1, &mut seed) == action)
                .count();
            assert!(
                found.abs_diff(percent * 100) < 200,
                "{found} of 10000 for {percent} %"
            );
        }
        let beside = named("readwhilewriting");
        assert!((0..100).all(|_| beside.action(0, &mut seed) == Action::Update));
        assert!((0..100).all(|_| beside.action(1, &mut seed) == Action::Read));
        assert!((0..1000).all(|_| (1..=100).contains(&named("e").scan_entries(&mut seed))));
    }
}

//! The workloads: which share of the operations is of which sort, and which records they meet. After YCSB (Cooper et
//! al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010), with a uniform read beside its zipfian one.

use crate::zipf::Zipf;
use firn_base::seed::Seed;
use firn_base::{Error, Result};
use std::str::FromStr;

/// A workload, by the letter that YCSB gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Inserts every record once, in random order.
    Load,
    /// Half reads, half updates, zipfian.
    A,
    /// 95 % reads, 5 % updates, zipfian.
    B,
    /// Reads only, zipfian.
    C,
    /// Reads only, uniform.
    UniformRead,
    /// 95 % reads of mostly the latest records, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 entries from a zipfian start, 5 % inserts.
    E,
    /// Half reads, half reads followed by an update of the same record, zipfian.
    F,
    /// Updates only, uniform.
    Update,
}

/// What one operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Update,
    Insert,
    Scan,
    Modify,
}

impl Workload {
    /// Every workload with the name it is asked for by.
    pub const NAMES: [(&'static str, Workload); 9] = [
        ("load", Workload::Load),
        ("a", Workload::A),
        ("b", Workload::B),
        ("c", Workload::C),
        ("ur", Workload::UniformRead),
        ("d", Workload::D),
        ("e", Workload::E),
        ("f", Workload::F),
        ("update", Workload::Update),
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, workload)| *workload == self).map_or("", |(name, _)| name)
    }

    /// Whether it writes at all.
    pub fn writes(self) -> bool {
        !matches!(self, Workload::C | Workload::UniformRead)
    }

    /// How many of `operations` are inserts of new records, at most.
    pub(crate) fn inserts_max(self, operations: u64) -> u64 {
        if matches!(self, Workload::D | Workload::E) { operations / 10 + 1000 } else { 0 }
    }

    pub(crate) fn action(self, seed: &mut Seed) -> Action {
        let (often, seldom, percent) = match self {
            Workload::Load => return Action::Insert,
            Workload::C | Workload::UniformRead => return Action::Read,
            Workload::Update => return Action::Update,
            Workload::A => (Action::Read, Action::Update, 50),
            Workload::B => (Action::Read, Action::Update, 5),
            Workload::D => (Action::Read, Action::Insert, 5),
            Workload::E => (Action::Scan, Action::Insert, 5),
            Workload::F => (Action::Read, Action::Modify, 50),
        };
        if seed.below(100) < percent { seldom } else { often }
    }

    pub(crate) fn choice(self, records: u64, theta: f64) -> Choice {
        match self {
            Workload::Load | Workload::UniformRead | Workload::Update => Choice::Uniform,
            Workload::D => Choice::Latest(Zipf::new(records, theta)),
            _ => Choice::Zipf(Zipf::new(records, theta)),
        }
    }
}

impl FromStr for Workload {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = match text {
            "u-read" | "read-uniform" => "ur",
            "read-zipf" => "c",
            other => other,
        };
        let found = Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, workload)| *workload);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            Error::invalid(format!("no workload is called {text}: there are {}", names.join(", ")))
        })
    }
}

/// How a rank among the records is chosen.
#[derive(Debug)]
pub(crate) enum Choice {
    Uniform,
    Zipf(Zipf),
    /// Rank 0 is the newest record.
    Latest(Zipf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (name, workload) in Workload::NAMES {
            assert_eq!(name.parse::<Workload>().unwrap(), workload);
            assert_eq!(workload.name(), name);
        }
        assert_eq!("u-read".parse::<Workload>().unwrap(), Workload::UniformRead);
        assert!("z".parse::<Workload>().unwrap_err().to_string().contains("load, a, b"));
    }

    #[test]
    fn shares_are_as_said() {
        let mut seed = Seed::new(3);
        for (workload, action, percent) in
            [(Workload::A, Action::Update, 50), (Workload::B, Action::Update, 5), (Workload::E, Action::Insert, 5)]
        {
            let found = (0..10_000).filter(|_| workload.action(&mut seed) == action).count();
            assert!(found.abs_diff(percent * 100) < 200, "{found} of 10000 for {percent} %");
        }
    }
}

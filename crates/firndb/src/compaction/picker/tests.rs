//! Pickers as text: the files in `cases/` hold states and the plans that are picked for them.
//!
//! ```text
//! # A title. Each case begins with one, and with an empty state.
//! limits: level0_trigger=4         changes of `Limits::tiny`
//! facts: at_rest inputs=2          changes of the facts
//! border: m                        partitions end before this key
//! ranges: d p                      ranges inside them end before these keys
//! level 0: new:a-z a-c/40          tables, newest first in level 0
//! busy: a-c                        tables that running jobs have
//! wanted: k ...                    the borders that are wanted
//! pick                             a question
//! => size: copy a-c + b-d -> 1     its answer: the inputs, then the tables that they overlap
//! ```
//!
//! A table is `[name:]first-last[/KiB][,list][,pm][,dead=KiB][,superseded=KiB][,deletes=n]`, of 10
//! KiB and ten entries, and is called by its name or else by its keys. `facts: pm=KiB tiering=lru`
//! gives lists that much persistent memory, of which those of the state take their size and
//! `other=KiB` more. `facts: sorted=KiB` does the same for sorted tables, those with `pm`;
//! `hits=KEY/n` and `wasted=KEY/n` are reads of the partition that holds the key. `stacks=n` lets
//! ranges have stacks of n tables and a base, and be divided at a table's worth of bytes. To change
//! the answers of all cases, run the tests with `FIRN_REWRITE=1` and read the difference.

use super::*;
use crate::blade::{Costs, SortedFacts};
use crate::compaction::plan::{Border, BusyTables, How, Medium, Plan};
use crate::compaction::pm_store::PmFacts;
use crate::manifest::{Edit, Level, PartId, Place, RangeBorders, TableMeta, Version};
use crate::options::tuning::{BladeModels, BladeTuning, PmdbTuning, Tiering, TlsmTuning, Tuning};
use crate::read::memtables::Memtables;
use crate::read::state::ReadState;
use crate::read::table_run::{TableCache, TableRun};
use crate::tlsm::ListFacts;
use firn_base::{FileId, Limits, SeqNo};
use firn_pm::{Extent, GRANULE_BYTES};
use firn_table::pm_skiplist::ListPlace;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// A case: the state that its lines have described so far.
struct Case {
    limits: Limits,
    facts: Vec<(String, String)>,
    borders: Vec<String>,
    ranges: Vec<String>,
    tables: Vec<(Level, TableMeta)>,
    names: BTreeMap<FileId, String>,
    busy: Vec<String>,
    wanted: Vec<String>,
}

/// A place in a pool that nothing reads.
fn place_of_test(id: u64) -> ListPlace {
    let first = Extent::new(id * GRANULE_BYTES, GRANULE_BYTES);
    ListPlace { first }
}

/// `name=value`, or a name alone, which is true.
fn setting(word: &str) -> (String, String) {
    let (name, value) = word.split_once('=').unwrap_or((word, "1"));
    (name.to_owned(), value.to_owned())
}

impl Case {
    fn new() -> Case {
        Case {
            limits: Limits::tiny(),
            facts: Vec::new(),
            borders: Vec::new(),
            ranges: Vec::new(),
            tables: Vec::new(),
            names: BTreeMap::new(),
            busy: Vec::new(),
            wanted: Vec::new(),
        }
    }

    fn limit(&mut self, name: &str, value: &str) {
        let number: u64 = value.parse().unwrap();
        match name {
            "level0_trigger" => self.limits.level0_trigger = number as usize,
            "level0_slow" => self.limits.level0_slow = number as usize,
            "level0_rest" => self.limits.level0_rest = number as usize,
            "levels" => self.limits.levels = number as usize,
            "partitions_max" => self.limits.partitions_max = number as usize,
            "table_kib" => self.limits.table_bytes = number << 10,
            "partition_kib" => self.limits.partition_bytes = number << 10,
            _ => panic!("unknown limit {name}"),
        }
    }

    /// Adds tables of `level`. Each is older than those before it.
    fn level(&mut self, level: Level, words: &[&str]) {
        for word in words {
            let (name, rest) = match word.split_once(':') {
                Some((name, rest)) => (Some(name), rest),
                None => (None, *word),
            };
            let mut parts = rest.split(',');
            let head = parts.next().unwrap();
            let (keys, kib) = head.split_once('/').unwrap_or((head, "10"));
            let (first, last) = keys.split_once('-').unwrap();
            let id = 100 - self.tables.len() as u64;
            let mut meta = TableMeta::of_test(id, first, last, kib.parse().unwrap());
            for (name, value) in parts.map(setting) {
                let number: u64 = value.parse().unwrap();
                match name.as_str() {
                    "list" => meta.place = Place::List(place_of_test(id)),
                    "pm" => meta.place = Place::Sorted(place_of_test(id).first),
                    "dead" => meta.dead_bytes = number << 10,
                    "superseded" => meta.superseded_bytes = number << 10,
                    "hides" => meta.hides = number,
                    "deletes" => meta.deletes = number,
                    _ => panic!("unknown word {name}"),
                }
            }
            let old = self.names.insert(meta.id, name.unwrap_or(keys).to_owned());
            assert!(old.is_none());
            self.tables.push((level, meta));
        }
    }

    fn state(&self) -> ReadState {
        let cuts = self.borders.iter().enumerate();
        let edit = Edit {
            id: 1,
            add: self.tables.clone(),
            cuts_added: cuts
                .map(|(i, key)| (key.clone().into_bytes(), PartId(i as u32 + 1)))
                .collect(),
            ranges: RangeBorders {
                added: self
                    .ranges
                    .iter()
                    .map(|key| key.clone().into_bytes())
                    .collect(),
                dropped: Vec::new(),
            },
            ..Edit::default()
        };
        let mut version = Version::default();
        version.apply(&edit).unwrap();
        let tables = TableCache::of_test();
        let levels = self
            .stacks()
            .map_or(self.limits.levels, |stacks| stacks.levels());
        ReadState::new(Memtables::none(), &version, &tables, levels).with_heat()
    }

    fn stacks(&self) -> Option<PmdbTuning> {
        let fact = self.facts.iter().find(|(fact, _)| fact == "stacks")?;
        Some(PmdbTuning {
            max_io: fact.1.parse().unwrap(),
            range_tables: 1,
            ..PmdbTuning::default()
        })
    }

    fn named<'a>(&self, state: &'a ReadState, name: &str) -> (Level, &'a TableRun) {
        let found = state
            .tables()
            .find(|(_, run)| self.names[&run.meta.id] == name);
        let (level, run) = found.unwrap_or_else(|| panic!("no table {name}"));
        (level, run)
    }

    /// Passes the facts to `see`.
    fn with_facts<T>(&self, state: &ReadState, see: impl FnOnce(&Facts<'_>) -> T) -> T {
        let mut busy = BusyTables::default();
        for name in &self.busy {
            let (level, run) = self.named(state, name);
            busy.take(level, run);
        }
        let wanted = self.wanted.iter().map(|cut| cut.as_bytes().into());
        let wanted: WantedCuts = wanted.collect();
        let (tuning, stacks) = (Tuning::default(), self.stacks());
        let pm = self.lists(state).map(PmFacts::Lists);
        let pm = pm.or_else(|| self.sorted(state).map(PmFacts::Sorted));
        let mut facts = Facts {
            pm: pm.as_ref(),
            limits: &self.limits,
            busy: &busy,
            flushes: Flushes::default(),
            visible: SeqNo(0),
            oldest: SeqNo::MAX,
            seek: None,
            appends: false,
            dead_share_max: 0.2,
            evicting: false,
            tuning: &tuning,
            ranges: stacks.as_ref(),
            chunk_bytes: 0,
            wanted: &wanted,
            sizes: Sizes::of(&self.limits),
            buffer_bytes: 0,
            level0_inputs_max: usize::MAX,
            at_rest: false,
            idle: false,
        };
        for (name, value) in &self.facts {
            match name.as_str() {
                "at_rest" => facts.at_rest = true,
                "idle" => facts.idle = true,
                "appends" => facts.appends = true,
                "flushing" => facts.flushes.running = true,
                "inputs" => facts.level0_inputs_max = value.parse().unwrap(),
                "buffer" => facts.buffer_bytes = value.parse::<u64>().unwrap() << 10,
                "leaving" => facts.evicting = true,
                "pm" | "tiering" | "other" | "sorted" | "evicting" | "models" | "no_internal"
                | "stacks" => {}
                "hits" | "wasted" => {
                    let (key, count) = value.split_once('/').unwrap();
                    let heat = state.part(key.as_bytes()).heat.as_ref().unwrap();
                    let count = count.parse().unwrap();
                    match name.as_str() {
                        "hits" => (0..count).for_each(|_| heat.searched(1, true)),
                        _ => heat.searched(count + 1, false),
                    }
                }
                "oldest" => facts.oldest = SeqNo(value.parse().unwrap()),
                "seek" => {
                    let (level, run) = self.named(state, value);
                    facts.seek = Some((level, run.meta.id));
                }
                _ => panic!("unknown fact {name}"),
            }
        }
        see(&facts)
    }

    /// The sorted tables' part of persistent memory, if the facts have one.
    fn sorted(&self, state: &ReadState) -> Option<SortedFacts> {
        let fact = |name: &str| self.facts.iter().find(|(fact, _)| fact == name);
        let kib: u64 = fact("sorted")?.1.parse().unwrap();
        let tables = state.tables().filter(|(_, run)| !run.meta.is_file());
        Some(SortedFacts {
            tuning: BladeTuning {
                models: match fact("models").map(|(_, models)| models.as_str()) {
                    Some("paper") => BladeModels::Paper,
                    Some("off") => BladeModels::Off,
                    _ => BladeModels::Costs,
                },
                internal: fact("no_internal").is_none(),
                ..BladeTuning::default()
            },
            capacity_bytes: kib << 10,
            table_bytes: 8 << 20,
            used_bytes: tables.map(|(_, run)| run.meta.bytes()).sum(),
            now_ns: 0,
            ssd_read_ns: 100_000.0,
            is_evicting: fact("evicting").is_some(),
            costs: Costs {
                internal_byte: 1.0,
                major_byte: 10.0,
                between_majors: 1e9,
            },
        })
    }

    /// The lists' part of persistent memory, if the facts have one.
    fn lists(&self, state: &ReadState) -> Option<ListFacts> {
        let fact = |name: &str| {
            let found = self.facts.iter().find(|(fact, _)| fact == name);
            found.map(|(_, value)| value.as_str())
        };
        let bytes = |name: &str| fact(name).map_or(0, |kib| kib.parse::<u64>().unwrap() << 10);
        fact("pm")?;
        let tiering = match fact("tiering").unwrap_or("lru") {
            "lru" => Tiering::Lru,
            "none" => Tiering::None,
            deepest => Tiering::Leveled(deepest.parse().unwrap()),
        };
        let lists = state.tables().filter(|(_, run)| !run.meta.is_file());
        let lists: u64 = lists.map(|(_, run)| run.meta.bytes()).sum();
        Some(ListFacts {
            tuning: TlsmTuning {
                tiering,
                ..TlsmTuning::default()
            },
            capacity_bytes: bytes("pm"),
            unit_bytes: 1 << 10,
            node_bytes: 0,
            chunk_bytes: lists + bytes("other"),
            may_promote: true,
            is_full: false,
        })
    }

    fn told(&self, state: &ReadState, plan: Option<Plan>) -> String {
        let Some(plan) = plan else {
            return "nothing".to_owned();
        };
        let names = |upper: bool| {
            let of = plan
                .tables
                .iter()
                .filter(|(level, _)| (*level < plan.level) == upper);
            let names: Vec<&str> = of.map(|(_, run)| &*self.names[&run.meta.id]).collect();
            names.join(" ")
        };
        let mut out = String::new();
        if state.parts.len() > 1 {
            let id = plan.part.map_or(0, |part| part.0);
            write!(out, "partition {id}, ").unwrap();
        }
        write!(out, "{}: ", plan.reason.name()).unwrap();
        let key = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let keys = |keys: &[Box<[u8]>]| keys.iter().map(|k| key(k)).collect::<Vec<_>>().join(" ");
        match &plan.border {
            Some(Border::Add(cut)) => return out + "divide at " + &key(cut),
            Some(Border::Drop(cut)) => return out + "join at " + &key(cut),
            Some(Border::AddRanges(cuts)) => return out + "ranges at " + &keys(cuts),
            Some(Border::DropRanges(cuts)) => return out + "no ranges at " + &keys(cuts),
            None => {}
        }
        let how = match plan.how {
            How::Copy => "copy",
            How::Append => "append",
            How::Move => "move",
            How::Insert => "insert",
            How::Border => "border",
            How::Index => "index",
        };
        let (upper, same) = (names(true), names(false));
        let sides = [upper, same].into_iter().filter(|side| !side.is_empty());
        let inputs = sides.collect::<Vec<_>>().join(" + ");
        write!(out, "{how} {inputs} -> ").unwrap();
        match &plan.by_range {
            None => write!(out, "{}", plan.level).unwrap(),
            Some(by) => {
                let levels: Vec<String> = by.levels.iter().map(Level::to_string).collect();
                out += &levels.join(" ");
            }
        }
        match plan.medium {
            Medium::Pm => out + " in PM",
            Medium::Ssd => out,
        }
    }

    /// The answer to `question`.
    fn answer(&self, question: &str) -> String {
        let state = self.state();
        let words: Vec<&str> = question.split(' ').collect();
        self.with_facts(&state, |facts| match words[..] {
            ["pick"] => self.told(&state, pick(&state, facts)),
            // `manual LEVEL FROM TO`, with `after KEY` for the next step.
            ["manual", level, from, to, ref after @ ..] => {
                let level = (PartId(0), Level(level.parse().unwrap()));
                let after = after.get(1).map(|key| key.as_bytes());
                let range = (from.as_bytes(), Some(to.as_bytes()));
                self.told(&state, pick_manual(&state, level, range, after, facts))
            }
            ["rewrite", from, to] => {
                let range = (from.as_bytes(), Some(to.as_bytes()));
                let plan = pick_manual_rewrite(&state, PartId(0), range, None, facts);
                self.told(&state, plan)
            }
            ["wanted"] => {
                let wanted = wanted(&state, &facts.sizes, facts.wanted);
                let keys = wanted.iter().map(|cut| String::from_utf8_lossy(cut));
                match keys.collect::<Vec<_>>().join(" ") {
                    none if none.is_empty() => "nothing".to_owned(),
                    keys => keys,
                }
            }
            ["debt"] => {
                let debt = debt(
                    &state,
                    &self.limits,
                    facts.tuning,
                    facts.ranges,
                    0,
                    facts.pm,
                );
                format!("{} KiB over the targets", debt.bytes >> 10)
            }
            _ => panic!("unknown question {question}"),
        })
    }

    /// Takes a line that describes the state.
    fn take(&mut self, line: &str) {
        let (what, rest) = line.split_once(':').unwrap();
        let words: Vec<&str> = rest.split_whitespace().collect();
        match what.split_once(' ') {
            Some(("level", level)) => self.level(Level(level.parse().unwrap()), &words),
            _ => match what {
                "limits" => words
                    .iter()
                    .map(|word| setting(word))
                    .for_each(|(name, value)| {
                        self.limit(&name, &value);
                    }),
                "facts" => self.facts = words.iter().map(|word| setting(word)).collect(),
                "border" => self.borders = words.iter().map(|&key| key.to_owned()).collect(),
                "ranges" => self.ranges = words.iter().map(|&key| key.to_owned()).collect(),
                "busy" => self.busy = words.iter().map(|&name| name.to_owned()).collect(),
                "wanted" => self.wanted = words.iter().map(|&key| key.to_owned()).collect(),
                _ => panic!("unknown line {line}"),
            },
        }
    }
}

/// Runs the cases of a file, and compares the answers.
fn run(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/compaction/picker/cases")
        .join(name);
    let expected = std::fs::read_to_string(&path).unwrap();
    let (mut case, mut found) = (Case::new(), String::new());
    for line in expected.lines().filter(|line| !line.starts_with("=> ")) {
        writeln!(found, "{line}").unwrap();
        if line.starts_with('#') {
            case = Case::new();
        } else if line.contains(": ") || line.ends_with(':') {
            case.take(line);
        } else if !line.is_empty() {
            writeln!(found, "=> {}", case.answer(line)).unwrap();
        }
    }
    if std::env::var_os("FIRN_REWRITE").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    for (at, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{name}:{}", at + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
}

#[test]
fn leveled() {
    run("leveled.txt");
}

#[test]
fn space() {
    run("space.txt");
}

#[test]
fn tiering() {
    run("tiering.txt");
}

#[test]
fn costs() {
    run("costs.txt");
}

#[test]
fn ranges() {
    run("ranges.txt");
}

#[test]
fn partitions() {
    run("partitions.txt");
}

//! Media that lie: every byte of a small database damaged, logs and manifests cut at every byte,
//! files extended, blocks misplaced. The contents that come back are right or there is an error;
//! nothing is silently wrong, and nothing panics.
//!
//! A seed selects a golden database (closed or not, with a pool or without, of profile `classic` or
//! `lab`, one of many) and a shard of its places. The seeds with the same database number are
//! exhaustive together. Each database of `classic` is accompanied by one of `block` in which a
//! table grew, and each of `lab` with a pool by those of the profiles whose tables are in one; this
//! way the seeds of the other profiles keep their meaning.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::machine::{Machine, fingerprint};
use crate::model::{Death, History, Map};
use crate::session::Session;
use crate::setup::Setup;
use crate::tally::Tally;
use firn_base::FileId;
use firn_base::count::IoCounters;
use firn_base::seed::{Seed, mix};
use firn_base::site;
use firn_fs::{OpenMode, SimFs};
use firn_pm::sim::{Mode, SimRegion};
use firn_table::BlockCache;
use firn_table::TableContext;
use firn_table::sst::Sst;
use firndb::{Db, Durability, ErrorKind, Profile};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// The databases per number: closed or not, with a pool or without, of one profile or the other.
const KINDS: u64 = 8;
/// A prime, so that each shard hits different bytes of every header, record and block.
const SHARDS: u64 = 251;
/// The seeds that are exhaustive together.
pub(crate) const ALL_SEEDS: u64 = KINDS * SHARDS;
const BYTES_MAX: u64 = 48 << 10;
/// The pool's header line and session word: any damage there is refused.
const POOL_HEADER_BYTES: usize = 72;

/// A small database with tables on two levels, or with one that grew, and a log with later writes,
/// all acknowledged.
struct Golden {
    setup: Setup,
    machine: Machine,
    now: Map,
    /// The length of the last log before the last writes and after each, and the contents at that
    /// point.
    steps: Vec<(u64, Map)>,
    closed: bool,
    /// For each table, the bytes of its newest state. All others are unused.
    live: BTreeMap<PathBuf, Vec<Range<u64>>>,
}

/// The damage that is inflicted.
#[derive(Debug)]
enum Damage {
    Flip(PathBuf, usize, u32),
    FlipMemory(usize, u32),
    Cut(PathBuf, u64),
    Extend(PathBuf, Vec<u8>),
    Misplace(PathBuf, usize, usize),
}

/// The number of a golden database, and the site that was off when it was built: a run with all
/// sites on must not meet a database built without one.
type Key = (u64, Option<&'static str>);

thread_local! {
    static LAST: RefCell<Option<(Key, Rc<[Golden]>)>> = const { RefCell::new(None) };
}

/// Bytes of a pool for what is above the files.
fn bytes_above(profile: Profile) -> u64 {
    match profile {
        Profile::Lab => 48 << 10,
        // So little that some tables leave for files.
        Profile::Tlsm | Profile::Blade => 128 << 10,
        _ => 0,
    }
}

fn has_pool(number: u64) -> bool {
    number / 2 % 2 == 1
}

/// The databases with this number, and the shard of this seed.
fn golden(seed: u64) -> (Rc<[Golden]>, u64) {
    let (number, shard) = (
        seed / (KINDS * SHARDS) * KINDS + seed % KINDS,
        seed / KINDS % SHARDS,
    );
    let key = (number, site::off());
    let known = LAST.with_borrow(|last| {
        last.as_ref()
            .filter(|last| last.0 == key)
            .map(|last| last.1.clone())
    });
    let golden = known.unwrap_or_else(|| {
        let profiles: &[Profile] = match (number / 4 % 2 == 1, has_pool(number)) {
            (true, true) => &[Profile::Lab, Profile::Tlsm, Profile::Blade],
            (true, false) => &[Profile::Lab],
            (false, _) => &[Profile::Classic, Profile::Block],
        };
        profiles
            .iter()
            .map(|&profile| Golden::new(number, profile))
            .collect()
    });
    LAST.set(Some((key, golden.clone())));
    (golden, shard)
}

/// Damages one bit of every byte of files and memory.
pub(crate) fn bit_exhaust(seed: u64) -> Tally {
    let (golden, shard) = golden(seed);
    golden
        .iter()
        .map(|golden| bits(golden, seed, shard))
        .fold(Tally::default(), Tally::and)
}

fn bits(golden: &Golden, seed: u64, shard: u64) -> Tally {
    let files = golden.machine.fs.files();
    let read = files
        .iter()
        .filter(|(path, _)| !["LOCK", "OPTIONS"].iter().any(|name| path.ends_with(name)));
    let bit = |byte: u64| mix(seed ^ byte) as u32 % 8;
    let memory = golden
        .machine
        .memory
        .as_ref()
        .map_or(0, |memory| memory.durable().len() as u64);
    // The memory first, so that the seeds that hit its header do not depend on the files' lengths.
    let in_memory = (0..memory).map(|byte| Damage::FlipMemory(byte as usize, bit(byte)));
    let in_file = |path: &PathBuf, byte: u64| Damage::Flip(path.clone(), byte as usize, bit(byte));
    let in_files = read.flat_map(|(path, len)| (0..*len).map(move |byte| in_file(path, byte)));
    let all: Vec<Damage> = in_memory.chain(in_files).collect();
    golden.check_shard(&all, shard)
}

/// Cuts logs and manifests at every byte, extends every file, and swaps blocks of 4 KiB.
pub(crate) fn cut_extend(seed: u64) -> Tally {
    let (golden, shard) = golden(seed);
    golden
        .iter()
        .map(|golden| cuts(golden, shard))
        .fold(Tally::default(), Tally::and)
}

fn cuts(golden: &Golden, shard: u64) -> Tally {
    let fs = &golden.machine.fs;
    let mut garbage = vec![0; 5000];
    Seed::new(1).fill(&mut garbage);
    let mut all = Vec::new();
    for (path, len) in fs.files() {
        let name = path.to_string_lossy();
        if name.ends_with("LOCK") || name.ends_with("OPTIONS") {
            continue;
        }
        if path == last_log(fs) || name.contains("MANIFEST-") {
            all.extend((0..len).map(|cut| Damage::Cut(path.clone(), cut)));
        }
        let own = fs.read_file(&path).unwrap();
        if !name.ends_with("CURRENT") {
            let more = [
                vec![0; 1],
                vec![0; 4096],
                garbage.clone(),
                own[own.len() / 2..].to_vec(),
                own.clone(),
            ];
            all.extend(
                more.into_iter()
                    .map(|more| Damage::Extend(path.clone(), more)),
            );
        }
        let blocks = len.div_ceil(4096) as usize;
        let pairs = (0..=blocks)
            .flat_map(|a| (0..blocks).map(move |b| (a, b)))
            .filter(|(a, b)| a != b);
        all.extend(pairs.map(|(source, target)| Damage::Misplace(path.clone(), source, target)));
    }
    golden.check_shard(&all, shard)
}

impl Golden {
    fn new(number: u64, profile: Profile) -> Golden {
        let (closed, pool) = (number.is_multiple_of(2), has_pool(number));
        let grows_small = profile == Profile::Block;
        let (keys, value_bytes_max) = (40, 120);
        let small = Setup {
            profile,
            pool,
            grows_small,
            keys,
            value_bytes_max,
            ..Setup::small()
        };
        let setup = Setup {
            write_buffer_bytes: 6 << 10,
            ..small
        };
        let memory = pool.then(|| SimRegion::new((40 << 10) + bytes_above(profile), Mode::Adr));
        let machine = Machine::of(setup.file_system(1), memory);
        let mut random = Seed::new(3 + number / KINDS);
        let mut session = Session::open(&setup, &machine, History::default()).unwrap();
        let write = |session: &mut Session, random: &mut Seed| {
            let (key, mut value) = (setup.key(random), setup.value(random));
            value.truncate(300);
            let change = (key, (!random.one_in(6)).then_some(value));
            session.write(vec![change], Durability::Power).unwrap();
        };
        for round in 0..4 {
            for _ in 0..30 {
                write(&mut session, &mut random);
            }
            session.db().flush().unwrap();
            if grows_small {
                session.db().wait_idle().unwrap();
            } else if round == 1 {
                session.db().compact().unwrap();
            }
        }
        session.db().wait_idle().unwrap();
        let grown_tables: u64 = session
            .db()
            .stats()
            .levels
            .iter()
            .map(|level| level.growth.grown_tables)
            .sum();
        assert_eq!(
            grown_tables > 0,
            grows_small,
            "{:?}",
            session.db().stats().levels
        );
        // The first write starts the log.
        let mut steps = vec![(0, session.history.now().clone())];
        for _ in 0..12 {
            write(&mut session, &mut random);
            let log = last_log(&machine.fs);
            steps.push((machine.fs.len(&log).unwrap(), session.history.now().clone()));
        }
        let now = session.history.now().clone();
        if closed {
            session.release();
            drop(session);
        }
        let machine = machine.die(Death::Kill, &mut random);
        let bytes: u64 = machine.fs.files().iter().map(|(_, len)| len).sum();
        assert!(
            bytes <= BYTES_MAX,
            "{bytes} bytes are too many for an exhaustive suite"
        );
        let live = live_bytes(&machine.fs);
        Golden {
            setup,
            machine,
            now,
            steps,
            closed,
            live,
        }
    }

    fn check_shard(&self, all: &[Damage], shard: u64) -> Tally {
        let mut tally = Tally::default();
        for damage in all.iter().skip(shard as usize).step_by(SHARDS as usize) {
            let damaged = self.machine.duplicate();
            let damaged = self.inflict(damage, damaged);
            tally.recovered(fingerprint(&damaged));
            self.check(&damaged, damage);
        }
        tally
    }

    fn inflict(&self, damage: &Damage, machine: Machine) -> Machine {
        let own = |path: &Path| self.machine.fs.read_file(path).unwrap();
        match damage {
            Damage::Flip(path, byte, bit) => machine.fs.flip(path, *byte, *bit).unwrap(),
            Damage::Cut(path, len) => machine.fs.cut(path, *len as usize).unwrap(),
            Damage::Extend(path, more) => machine.fs.extend(path, more).unwrap(),
            Damage::Misplace(path, source, target) => machine
                .fs
                .misplace(path, &own(path), *source, *target)
                .unwrap(),
            Damage::FlipMemory(byte, bit) => {
                let mut image = machine.memory.as_ref().unwrap().durable();
                image[*byte] ^= 1 << bit;
                return Machine::of(machine.fs, Some(SimRegion::from_image(image, Mode::Adr)));
            }
        }
        machine
    }

    /// Opens a damaged copy and reads everything. Contents returned without an error must be
    /// allowed.
    fn check(&self, damaged: &Machine, damage: &Damage) {
        let (options, _, _) = self.setup.options(&damaged.fs, damaged.memory.as_ref());
        let what = self.name(damage);
        let db = match Db::open(Session::dir(), options) {
            Ok(db) => db,
            Err(error) => {
                let kind = error.kind();
                let torn_end = matches!(damage, Damage::Cut(path, len)
                    if !self.closed && !self.setup.pool && is_log(path) && *len >= self.steps[1].0);
                assert!(!torn_end, "{what}: a torn end is no damage: {error:?}");
                let known = matches!(
                    kind,
                    ErrorKind::Corruption | ErrorKind::Incompatible | ErrorKind::Invalid
                );
                assert!(known, "{what}: open: {error:?}");
                return;
            }
        };
        // With a pool the bytes that were cut off may still exist.
        let known_whole = self.closed && !self.setup.pool;
        assert!(
            !matches!(damage, Damage::Cut(path, _) if known_whole && is_log(path)),
            "{what}: opened, as if whole"
        );
        let in_header = matches!(damage, Damage::FlipMemory(byte, _) if *byte < POOL_HEADER_BYTES);
        assert!(!in_header, "{what}: a damaged pool was opened");
        let right = self.allowed(damage).into_iter().any(|map| shows(&db, map));
        assert!(right, "{what}: wrong values without an error");
        match db.verify() {
            Err(error) => assert_eq!(
                error.kind(),
                ErrorKind::Corruption,
                "{what}: verify: {error}"
            ),
            Ok(_) => assert!(!self.must_be_noticed(damage), "{what}: nobody noticed"),
        }
    }

    /// True if the damage must be noticed: every byte of CURRENT, of a table's newest state and of
    /// a log with a known end is covered by a checksum. A table that grew contains other bytes too,
    /// and zeros that fill its last sector.
    fn must_be_noticed(&self, damage: &Damage) -> bool {
        let Damage::Flip(path, byte, _) = damage else {
            return false;
        };
        let is_live = self
            .live
            .get(path)
            .is_some_and(|live| live.iter().any(|range| range.contains(&(*byte as u64))));
        path.ends_with("CURRENT") || is_live || self.closed && !self.setup.pool && is_log(path)
    }

    /// The contents that may be seen. The end of a log that was not closed is known only from the
    /// log itself: its last frame may be taken for a torn one, and a cut log ends at the cut.
    fn allowed(&self, damage: &Damage) -> Vec<&Map> {
        let before = &self.steps[self.steps.len() - 2].1;
        match damage {
            _ if self.closed => vec![&self.now],
            Damage::Flip(path, ..) if is_log(path) => vec![&self.now, before],
            Damage::FlipMemory(..) => vec![&self.now, before],
            Damage::Misplace(path, ..) if is_log(path) => [&self.now]
                .into_iter()
                .chain(self.steps.iter().map(|(_, map)| map))
                .collect(),
            Damage::Cut(path, len) if is_log(path) && !self.setup.pool => {
                let whole = self.steps.iter().rfind(|(end, _)| end <= len);
                vec![&whole.expect("the first step has length 0").1]
            }
            _ => vec![&self.now],
        }
    }

    fn name(&self, damage: &Damage) -> String {
        let Setup { profile, pool, .. } = self.setup;
        let database = format!("{profile}, closed: {}, pool: {pool}", self.closed);
        match damage {
            Damage::Extend(path, more) => format!(
                "{database}, {} with {} bytes more",
                path.display(),
                more.len()
            ),
            damage => format!("{database}, {damage:?}"),
        }
    }
}

fn live_bytes(fs: &SimFs) -> BTreeMap<PathBuf, Vec<Range<u64>>> {
    let files = fs.files();
    let tables = files
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "sst"));
    let of = |path: &PathBuf| {
        let (file, id) = (
            fs.open(path, OpenMode::Read).unwrap(),
            FileId(path.file_stem().unwrap().to_str().unwrap().parse().unwrap()),
        );
        let extent = Sst::find_extent(&*file, id).unwrap();
        let context = TableContext::new(
            Arc::new(BlockCache::new(0)),
            Arc::new(IoCounters::default()),
        );
        Sst::open(file, id, extent, context)
            .unwrap()
            .live()
            .collect()
    };
    tables.map(|(path, _)| (path.clone(), of(path))).collect()
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn last_log(fs: &SimFs) -> PathBuf {
    let files = fs.files();
    let logs = files.iter().filter(|(path, _)| is_log(path));
    logs.map(|(path, _)| path.clone())
        .next_back()
        .expect("a log")
}

/// True if everything that can be read without an error matches `map`.
fn shows(db: &Db, map: &Map) -> bool {
    let gets = map.iter().all(|(key, value)| match db.get(key) {
        Ok(got) => got.is_some_and(|got| got == value[..]),
        Err(error) => error.kind() == ErrorKind::Corruption,
    });
    let absent = (0..60u32)
        .map(|n| format!("k{n:04}").into_bytes())
        .filter(|key| !map.contains_key(key));
    let absent = absent
        .into_iter()
        .all(|key| !matches!(db.get(&key), Ok(Some(_))));
    gets && absent && scan_is_right(db, map, true) && scan_is_right(db, map, false)
}

fn scan_is_right(db: &Db, map: &Map, forward: bool) -> bool {
    let mut want: Vec<_> = map.iter().collect();
    if !forward {
        want.reverse();
    }
    let Ok(mut iter) = db.cursor() else {
        return true;
    };
    let mut moved = if forward { iter.first() } else { iter.last() };
    for (key, value) in want {
        match moved {
            Err(error) => return error.kind() == ErrorKind::Corruption,
            Ok(()) if !iter.valid() || iter.key() != key || iter.value() != value => return false,
            Ok(()) => {}
        }
        moved = if forward { iter.next() } else { iter.prev() };
    }
    moved.is_err() || !iter.valid()
}

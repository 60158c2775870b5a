//! Media that lie: every byte of a small database damaged, logs and manifests cut and extended at every byte. What
//! comes back is right or is an error; nothing is silently wrong, and nothing panics.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::{Seed, mix};
use firn_fs::{Fs, SimFs};
use firn_sim::{History, Map, Session, Setup, Tier, each_seed};
use firndb::{Db, Durability, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A small database with tables on two levels and a log with writes behind them, all acknowledged.
struct Golden {
    setup: Setup,
    fs: SimFs,
    now: Map,
    /// The length of the last log before the last writes and after each, and the contents then.
    steps: Vec<(u64, Map)>,
}

impl Golden {
    fn new(closed: bool) -> Golden {
        let setup = Setup { write_buffer_bytes: 6 << 10, keys: 40, value_bytes_max: 120, ..Setup::small() };
        let (fs, mut random) = (setup.file_system(1), Seed::new(3));
        let mut session = Session::open(&setup, &fs, None, History::default()).unwrap();
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
            if round == 1 {
                session.db().compact_range(None, None).unwrap();
            }
        }
        session.db().wait_idle().unwrap();
        // The first write begins the log.
        let mut steps = vec![(0, session.history.now().clone())];
        for _ in 0..12 {
            write(&mut session, &mut random);
            let log = last_log(&fs);
            steps.push((fs.len(&log).unwrap(), session.history.now().clone()));
        }
        let now = session.history.now().clone();
        if closed {
            session.release();
            drop(session);
        }
        let fs = fs.kill();
        let bytes: u64 = fs.files().iter().map(|(_, len)| len).sum();
        assert!(bytes <= 48 << 10, "{bytes} bytes are too many for an exhaustive test");
        Golden { setup, fs, now, steps }
    }

    /// Opens a damaged copy and reads all of it. What it shows must be one of `allowed`, as far as there is no error.
    fn check(&self, damaged: &SimFs, allowed: &[&Map], what: &str) {
        let (options, _, _) = self.setup.options(damaged, None);
        let db = match Db::open(Session::dir(), options) {
            Ok(db) => db,
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::Corruption | ErrorKind::Incompatible), "{what}: open: {error:?}");
                return;
            }
        };
        let right = allowed.iter().any(|map| shows(&db, map));
        assert!(right, "{what}: wrong values without an error");
        if let Err(error) = db.verify() {
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: verify: {error}");
        }
    }

    fn check_flip(&self, path: &Path, byte: usize, bit: u32, closed: bool) {
        let damaged = self.fs.duplicate();
        damaged.flip(path, byte, bit).unwrap();
        // Of a log that was not closed, the last frame's end is only known from the frame itself.
        let before = &self.steps[self.steps.len() - 2].1;
        let mut allowed = vec![&self.now];
        let name = path.to_string_lossy();
        if !closed && name.ends_with(".log") {
            allowed.push(before);
        }
        self.check(&damaged, &allowed, &format!("{name} byte {byte} bit {}", bit % 8));
    }
}

fn last_log(fs: &SimFs) -> PathBuf {
    let files = fs.files();
    let logs = files.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "log"));
    logs.map(|(path, _)| path.clone()).next_back().expect("a log")
}

fn manifest(fs: &SimFs) -> PathBuf {
    let files = fs.files();
    let named = |path: &Path| path.to_string_lossy().contains("MANIFEST-");
    files.iter().map(|(path, _)| path.clone()).find(|path| named(path)).expect("a manifest")
}

/// Whether all that can be read without an error is what `map` says.
fn shows(db: &Db, map: &Map) -> bool {
    let gets = map.iter().all(|(key, value)| match db.get(key) {
        Ok(got) => got.is_some_and(|got| got == value[..]),
        Err(error) => error.kind() == ErrorKind::Corruption,
    });
    let absent = (0..60u32).map(|n| format!("k{n:04}").into_bytes()).filter(|key| !map.contains_key(key));
    let absent = absent.into_iter().all(|key| !matches!(db.get(&key), Ok(Some(_))));
    gets && absent && scan_is_right(db, map, true) && scan_is_right(db, map, false)
}

fn scan_is_right(db: &Db, map: &Map, forward: bool) -> bool {
    let mut want: Vec<_> = map.iter().collect();
    if !forward {
        want.reverse();
    }
    let Ok(mut iter) = db.iter() else { return true };
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

/// `bit_exhaust`: one bit of every byte.
#[test]
fn every_byte_is_checked() {
    for closed in [true, false] {
        let golden = Arc::new(Golden::new(closed));
        let mut places = Vec::new();
        for (path, len) in golden.fs.files() {
            let read = !["LOCK", "OPTIONS"].iter().any(|name| path.ends_with(name));
            places.extend((0..if read { len } else { 0 }).map(|byte| (path.clone(), byte as usize)));
        }
        let stride = if Tier::get() == Tier::Ci { 1 } else { 11 };
        let count = (places.len() / stride) as u64;
        println!("bit_exhaust: {count} of {} bytes", places.len());
        each_seed("damage", count, move |seed| {
            let (path, byte) = &places[seed as usize * stride + mix(seed) as usize % stride];
            golden.check_flip(path, *byte, (mix(seed) >> 32) as u32, closed);
        });
    }
}

/// `cut_extend`, the log: a log that was not closed ends where it is cut, at the last whole frame; of one that was
/// closed the manifest knows better.
#[test]
fn a_log_is_cut_at_every_byte() {
    let golden = Arc::new(Golden::new(false));
    let log = last_log(&golden.fs);
    let len = golden.fs.len(&log).unwrap();
    assert_eq!(len, golden.steps.last().unwrap().0, "all steps are in one log");
    let first = golden.steps[1].0;
    each_seed("damage", len - first, move |seed| {
        let cut = first + seed;
        let damaged = golden.fs.duplicate();
        damaged.cut(&log, cut as usize).unwrap();
        let whole = golden.steps.iter().rfind(|(end, _)| *end <= cut).expect("the first step is whole");
        golden.check(&damaged, &[&whole.1], &format!("log cut to {cut}"));
        let (options, _, _) = golden.setup.options(&damaged, None);
        Db::open(Session::dir(), options).expect("a torn end is no damage");
    });

    let golden = Arc::new(Golden::new(true));
    let log = last_log(&golden.fs);
    let len = golden.fs.len(&log).unwrap();
    each_seed("damage", len, move |cut| {
        let damaged = golden.fs.duplicate();
        damaged.cut(&log, cut as usize).unwrap();
        let (options, _, _) = golden.setup.options(&damaged, None);
        let kind = Db::open(Session::dir(), options).map_err(|error| error.kind()).err();
        assert_eq!(kind, Some(ErrorKind::Corruption), "a closed log cut to {cut} of {len}");
    });
}

/// `cut_extend`, the manifest: an error, or all that was there. A manifest that ends at a record's border is that of an
/// earlier time; it is found out because files of that time are missing, or because a log says that a record named it.
#[test]
fn a_manifest_is_cut_at_every_byte() {
    for closed in [true, false] {
        let golden = Arc::new(Golden::new(closed));
        let path = manifest(&golden.fs);
        let len = golden.fs.len(&path).unwrap();
        each_seed("damage", len, move |cut| {
            let damaged = golden.fs.duplicate();
            damaged.cut(&path, cut as usize).unwrap();
            golden.check(&damaged, &[&golden.now], &format!("manifest cut to {cut} of {len}"));
        });
    }
}

#[test]
fn what_is_behind_the_end_does_not_matter() {
    for closed in [true, false] {
        let golden = Golden::new(closed);
        for (path, _) in golden.fs.files() {
            if ["LOCK", "OPTIONS", "CURRENT"].iter().any(|name| path.ends_with(name)) {
                continue;
            }
            let own = golden.fs.read_file(&path).unwrap();
            let mut garbage = vec![0; 5000];
            Seed::new(1).fill(&mut garbage);
            for more in [&[0; 1][..], &[0; 4096], &garbage, &own[own.len() / 2..], &own] {
                let damaged = golden.fs.duplicate();
                damaged.extend(&path, more).unwrap();
                let what = format!("{} with {} bytes more", path.display(), more.len());
                golden.check(&damaged, &[&golden.now], &what);
            }
        }
    }
}

/// Blocks of 4 KiB in the wrong place, and old ones.
#[test]
fn misplaced_blocks_are_noticed() {
    for closed in [true, false] {
        let golden = Golden::new(closed);
        for (path, len) in golden.fs.files() {
            if ["LOCK", "OPTIONS"].iter().any(|name| path.ends_with(name)) {
                continue;
            }
            let own = golden.fs.read_file(&path).unwrap();
            let blocks = len.div_ceil(4096) as usize;
            for (source, target) in (0..=blocks).flat_map(|a| (0..blocks).map(move |b| (a, b))).filter(|(a, b)| a != b)
            {
                let damaged = golden.fs.duplicate();
                damaged.misplace(&path, &own, source, target).unwrap();
                let what = format!("{} block {source} over {target}", path.display());
                let log = path.extension().is_some_and(|extension| extension == "log");
                let mut allowed = vec![&golden.now];
                if log && !closed {
                    allowed.extend(golden.steps.iter().map(|(_, map)| map));
                }
                golden.check(&damaged, &allowed, &what);
            }
        }
    }
}

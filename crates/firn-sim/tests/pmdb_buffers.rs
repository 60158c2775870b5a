//! Damage to write buffers in persistent memory: verify finds it, reads report it, and repair
//! loses no more than the damaged entries. The pool is a file, so bytes rot under an open database.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_base::site::TEST;
use firn_base::{Kind, SeqNo};
use firn_fs::SimFs;
use firn_pm::{Owner, Pool};
use firn_table::pm_buffer::{
    BufferDirectory, ENTRY_HEADER_BYTES, NamedBuffer, PmBuffer, StagedEntries, walk,
};
use firndb::{
    Backend, Db, ErrorKind, Options, PmConfig, PmdbTuning, Profile, RepairReport, repair,
    repair_dry_run,
};
use rig::{DIR, Rig};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A place in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Committed(usize),
    /// A byte of the line of a buffer: of its first word, its extent, its number or its end.
    Line(usize),
    /// A byte of an entry: of its header, its key or its value.
    Head,
    Key,
    Value,
}

const LINE: [Place; 4] = [
    Place::Line(0),
    Place::Line(13),
    Place::Line(33),
    Place::Line(41),
];
const PLACES: [Place; 9] = [
    Place::Committed(0),
    Place::Committed(1),
    LINE[0],
    LINE[1],
    LINE[2],
    LINE[3],
    Place::Head,
    Place::Key,
    Place::Value,
];

/// A pool of a database that was killed or is open.
struct PoolFile(PathBuf);

impl PoolFile {
    fn config(&self) -> PmConfig {
        PmConfig::at(&self.0, Backend::Emulated, 4 << 20)
    }

    fn open(&self) -> Arc<Pool> {
        let uuid = fs::read(&self.0).unwrap()[16..32].try_into().unwrap();
        Arc::new(Pool::open_read_only(&self.config(), uuid).unwrap())
    }

    fn flip(&self, at: usize) {
        let mut options = File::options();
        let file = options.read(true).write(true).open(&self.0).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at as u64).unwrap();
    }

    /// The buffer with the newest entries but one, and those: offset, key, number.
    fn buffer(&self) -> (NamedBuffer, Vec<(u64, Vec<u8>, u64)>) {
        let pool = self.open();
        let directory = BufferDirectory::find(&pool).unwrap().unwrap();
        let committed = directory.committed().unwrap();
        let walked = |named: NamedBuffer| {
            let mut entries = Vec::new();
            walk(&pool, &named, 0, committed, |entry| {
                entries.push((entry.at, entry.key.to_vec(), entry.tag.seqno().0));
                Ok(())
            })
            .unwrap();
            (named, entries)
        };
        let named = directory.named().unwrap().into_iter();
        let mut all: Vec<_> = named.map(|named| walked(named.unwrap())).collect();
        all.retain(|(_, entries)| !entries.is_empty());
        all.sort_by_key(|(_, entries)| entries[0].2);
        all.pop().unwrap();
        all.pop().unwrap()
    }

    /// Where a place of that buffer is, of the entry in its middle. With its key.
    fn find(&self, place: Place) -> (usize, Vec<u8>) {
        let (named, entries) = self.buffer();
        let root = self.open().root().find(Owner::WriteBuffer, 0).copied();
        let directory = root.unwrap().extent.unwrap().offset.get() as usize;
        let (at, key, _) = &entries[entries.len() / 2];
        let entry = (named.extent.offset.get() + at) as usize;
        let at = match place {
            Place::Committed(line) => directory + line * 64 + 2,
            Place::Line(byte) => directory + (named.line as usize + 2) * 64 + byte,
            Place::Head => entry + 9,
            Place::Key => entry + ENTRY_HEADER_BYTES + 1,
            Place::Value => entry + ENTRY_HEADER_BYTES + key.len() + 50,
        };
        (at, key.clone())
    }
}

/// A database with entries in tables, and in several buffers 700 newer ones and tombstones.
fn filled(pool: &PoolFile) -> Rig {
    let mut rig = empty(pool);
    rig.put(300, 500);
    rig.db.flush().unwrap();
    rig.settle();
    rig.delete_some();
    rig.put(700, 1_000_000);
    rig
}

fn empty(pool: &PoolFile) -> Rig {
    Rig::new(Profile::Pmdb, |options| {
        options.pm = Some(pool.config());
        options.row_cache = false;
        options.tuning.pmdb = PmdbTuning {
            buffer_bytes: Some(16 << 10),
            ..PmdbTuning::default()
        };
    })
}

fn contents(db: &Db) -> Map {
    let all = db.iter().map(|entry| entry.unwrap());
    all.map(|(key, value)| (key, value.to_vec())).collect()
}

/// A database that was killed, to be copied.
struct Killed {
    dir: tempfile::TempDir,
    fs: SimFs,
    options: Options,
    model: Map,
    in_tables: Map,
}

/// A copy of it that is damaged and repaired.
struct Copy {
    _dir: tempfile::TempDir,
    fs: SimFs,
    pool: PoolFile,
    options: Options,
}

impl Killed {
    fn new() -> Killed {
        let dir = tempfile::tempdir().unwrap();
        let pool = PoolFile(dir.path().join("open"));
        let rig = filled(&pool);
        let newest = pool.buffers_keys();
        assert!(newest.len() > 500, "{} entries in buffers", newest.len());
        Killed::of(&rig, dir, newest)
    }

    /// The database of `rig`, with its pool in `dir`, as it would be after a kill. Of `newest`, the
    /// last versions are in buffers.
    fn of(rig: &Rig, dir: tempfile::TempDir, newest: BTreeSet<Vec<u8>>) -> Killed {
        fs::copy(dir.path().join("open"), dir.path().join("pool")).unwrap();
        let mut in_tables = rig.model.clone();
        in_tables.retain(|key, _| !newest.contains(key));
        Killed {
            dir,
            fs: rig.fs.kill(),
            options: rig.options.clone(),
            model: rig.model.clone(),
            in_tables,
        }
    }

    fn copy(&self) -> Copy {
        let dir = tempfile::tempdir().unwrap();
        let pool = PoolFile(dir.path().join("pool"));
        fs::copy(self.dir.path().join("pool"), &pool.0).unwrap();
        let fs = self.fs.duplicate();
        let mut options = self.options.clone();
        options.environment.fs = Some(Arc::new(fs.clone()));
        options.pm = Some(pool.config());
        Copy {
            _dir: dir,
            fs,
            pool,
            options,
        }
    }
}

impl PoolFile {
    /// The keys of all entries in buffers.
    fn buffers_keys(&self) -> BTreeSet<Vec<u8>> {
        let pool = self.open();
        let directory = BufferDirectory::find(&pool).unwrap().unwrap();
        let committed = directory.committed().unwrap();
        let mut keys = BTreeSet::new();
        for named in directory.named().unwrap() {
            walk(&pool, &named.unwrap(), 0, committed, |entry| {
                keys.insert(entry.key.to_vec());
                Ok(())
            })
            .unwrap();
        }
        keys
    }
}

impl Copy {
    /// Appends an entry with the next number to the newest buffer, and does not commit it. Returns
    /// the place of the buffer's end in the directory, and its line.
    fn append_uncommitted(&self, key: &[u8]) -> (usize, u32) {
        let uuid = self.pool.open().uuid();
        let pool = Arc::new(Pool::open_or_create(&self.pool.config(), uuid).unwrap());
        let directory = BufferDirectory::find(&pool).unwrap().unwrap();
        let committed = directory.committed().unwrap();
        let mut newest = None;
        for named in directory.named().unwrap() {
            let named = named.unwrap();
            pool.claim(named.extent, Owner::WriteBuffer).unwrap();
            let mut last = SeqNo(0);
            let end = walk(&pool, &named, 0, committed, |entry| {
                last = entry.tag.seqno();
                Ok(())
            });
            newest = newest.max(Some((last, named.line, end.unwrap(), named.id)));
        }
        let (_, line, end, id) = newest.unwrap();
        let named = directory.named().unwrap().into_iter().flatten();
        let extent = named
            .filter(|named| named.line == line)
            .last()
            .unwrap()
            .extent;
        let buffer = PmBuffer::new(pool.clone(), id, line, extent, end).unwrap();
        let mut staged = StagedEntries::default();
        staged.add(Kind::Put, key, b"uncommitted");
        let next = SeqNo(committed.0 + 1);
        let (_, flushed) = buffer.append(&mut staged, next).unwrap();
        let _fenced = pool.fence(&TEST, flushed);
        let root = pool.root().find(Owner::WriteBuffer, 0).copied();
        let directory = root.unwrap().extent.unwrap().offset.get() as usize;
        (directory + (line as usize + 2) * 64 + 41, line)
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = self.fs.files().into_iter();
        files
            .map(|(path, _)| (path.clone(), self.fs.read_file(&path).unwrap()))
            .collect()
    }

    /// Repairs it after a dry run, which must say the same and change nothing.
    fn repair(&self) -> RepairReport {
        let before = (self.files(), fs::read(&self.pool.0).ok());
        let dry = repair_dry_run(DIR, &self.options).unwrap();
        assert!(before == (self.files(), fs::read(&self.pool.0).ok()));
        let report = repair(DIR, &self.options).unwrap();
        let told = |report: &RepairReport| {
            let counts = (report.buffer_entries, report.buffer_entries_lost);
            (counts, report.buffers_damaged.clone(), report.newest_lost)
        };
        assert_eq!(told(&dry), told(&report));
        report
    }

    /// The contents after a repair. No buffers are in the pool any more, and everything works.
    fn contents(&self) -> Map {
        if self.pool.0.exists() {
            let root = self.pool.open().root().find(Owner::WriteBuffer, 0).copied();
            assert_eq!(root, None, "the pool has write buffers");
        }
        let db = Db::open(DIR, self.options.clone()).unwrap();
        db.verify().unwrap();
        let found = contents(&db);
        db.put(b"new", b"value").unwrap();
        db.close().unwrap();
        let db = Db::open(DIR, self.options.clone()).unwrap();
        assert_eq!(db.get(b"new").unwrap().unwrap(), &b"value"[..]);
        db.verify().unwrap();
        found
    }
}

#[test]
fn verify_finds_every_kind_of_damage() {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolFile(dir.path().join("pool"));
    let rig = filled(&pool);
    let (report, damages) = rig.db.find_damage().unwrap();
    assert!(damages.is_empty(), "{damages:?}");
    assert!(report.entries > 900, "{report:?}");
    for place in PLACES {
        let (at, key) = pool.find(place);
        pool.flip(at);
        let (_, damages) = rig.db.find_damage().unwrap();
        pool.flip(at);
        let [damage] = &damages[..] else {
            panic!("{place:?}: {damages:?}");
        };
        let says = match place {
            Place::Committed(_) => "a committed sequence number",
            Place::Line(0) => "a free line, or one that names a buffer",
            Place::Line(13) => "the extent of a buffer with its checksum",
            Place::Line(33) => "the number that a buffer was noted with",
            Place::Line(_) => "the end that a buffer was noted with",
            Place::Head | Place::Key => "a committed entry",
            Place::Value => "a value with its checksum",
        };
        let told = damage.error.to_string();
        assert!(told.contains(says), "{place:?}: {told}");
        match (place, &damage.keys) {
            (Place::Committed(_), keys) => assert_eq!(*keys, None),
            (Place::Line(_), Some((least, most))) => assert!(*least < key && key < *most),
            (_, Some(keys)) => assert_eq!((&keys.0, &keys.1), (&key, &key)),
            (_, None) => panic!("{place:?}: no keys"),
        }
    }
    rig.check();
}

#[test]
fn a_damaged_value_is_not_returned_and_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolFile(dir.path().join("pool"));
    let rig = filled(&pool);
    let (at, damaged) = pool.find(Place::Value);
    pool.flip(at);
    for (key, value) in &rig.model {
        match rig.db.get(key) {
            Ok(found) => assert!(*key != damaged && found.unwrap() == value[..]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!(*key == damaged && error.to_string().contains("write buffer"));
            }
        }
    }
    let mut cursor = rig.db.cursor().unwrap();
    let met = cursor.seek(&damaged);
    assert_eq!(met.unwrap_err().kind(), ErrorKind::Corruption);
    drop(cursor);
    let error = rig.db.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(
        rig.db.get(&damaged).unwrap_err().kind(),
        ErrorKind::Corruption
    );
    // The buffer was kept.
    pool.flip(at);
    assert_eq!(
        rig.db.get(&damaged).unwrap().unwrap(),
        rig.model[&damaged][..]
    );
}

#[test]
fn a_repair_loses_only_what_is_damaged() {
    let killed = Killed::new();
    let whole = killed.copy();
    let report = whole.repair();
    assert!(report.buffers_damaged.is_empty(), "{report:?}");
    assert!(report.buffer_entries >= 700, "{report:?}");
    assert!(whole.contents() == killed.model);
    for place in PLACES {
        let copy = killed.copy();
        let (at, key) = copy.pool.find(place);
        let (_, entries) = copy.pool.buffer();
        copy.pool.flip(at);
        let report = copy.repair();
        assert_eq!(report.buffers_damaged.len(), 1, "{place:?}: {report:?}");
        let (lost, values) = match place {
            Place::Line(13) => (entries.iter().map(|(_, key, _)| key).collect(), 0),
            Place::Head | Place::Key => (vec![&key], 0),
            Place::Value => (vec![&key], 1),
            Place::Committed(_) | Place::Line(_) => (vec![], 0),
        };
        let numbers = lost.len() as u64 - values;
        let found = (report.buffer_entries_lost, report.values_lost);
        assert_eq!(found, (numbers, values), "{place:?}: {report:?}");
        // A repair of what was repaired takes nothing from the pool.
        let again = repair(DIR, &copy.options).unwrap();
        assert_eq!((again.buffer_entries, again.newest_lost), (0, false));
        let lost: BTreeSet<&Vec<u8>> = lost.into_iter().collect();
        let found = copy.contents();
        for key in killed.model.keys().chain(found.keys()) {
            let is_right = found.get(key) == killed.model.get(key);
            assert!(is_right || lost.contains(key), "{place:?}: {key:?}");
        }
    }
}

#[test]
fn a_repair_without_the_committed_number_or_the_manifest_takes_all_entries() {
    let killed = Killed::new();
    let copy = killed.copy();
    for place in [Place::Committed(0), Place::Committed(1)] {
        // Not through `find`, which needs the number.
        let (at, _) = killed.copy().pool.find(place);
        copy.pool.flip(at);
    }
    let report = copy.repair();
    assert_eq!(
        (report.buffers_damaged.len(), report.buffer_entries_lost),
        (2, 0)
    );
    assert!(copy.contents() == killed.model);
    let copy = killed.copy();
    copy.fs.cut(&Path::new(DIR).join("CURRENT"), 3).unwrap();
    let report = copy.repair();
    assert!(
        !report.manifest_read && report.buffer_entries >= 700,
        "{report:?}"
    );
    assert!(copy.contents() == killed.model);
}

#[test]
fn a_repair_without_the_pool_says_that_the_newest_entries_are_lost() {
    let killed = Killed::new();
    let mut copy = killed.copy();
    let pm = copy.options.pm.take();
    let error = repair(DIR, &copy.options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("the newest entries"), "{error}");
    copy.options.pm = pm;
    fs::remove_file(&copy.pool.0).unwrap();
    let report = copy.repair();
    assert!(
        report.newest_lost && report.pool_lost.is_some(),
        "{report:?}"
    );
    let found = copy.contents();
    for (key, value) in &killed.in_tables {
        assert_eq!(found.get(key), Some(value), "{key:?}");
    }
    assert!(found.len() < killed.model.len());
}

/// A buffer that a cursor holds is still there after a flush, with an entry that was deleted since.
#[test]
fn a_repair_leaves_out_entries_that_were_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolFile(dir.path().join("open"));
    let mut rig = empty(&pool);
    rig.put(100, 1_000_000);
    rig.db.put(b"gone", b"value").unwrap();
    let mut held = rig.db.cursor().unwrap();
    held.seek(b"gone").unwrap();
    assert!(held.valid());
    for _ in 0..2 {
        rig.db.flush().unwrap();
        rig.db.compact().unwrap();
        rig.db.delete(b"gone").unwrap();
    }
    rig.db.flush().unwrap();
    rig.db.compact().unwrap();
    rig.settle();
    let left = pool.buffers_keys();
    assert!(left.contains(&b"gone"[..]), "{} keys", left.len());
    let killed = Killed::of(&rig, dir, BTreeSet::new());
    drop(held);
    let copy = killed.copy();
    let report = copy.repair();
    let counts = (report.buffer_entries, report.buffer_entries_lost);
    assert_eq!(counts, (0, 0), "{report:?}");
    assert!(copy.contents() == killed.model);
}

#[test]
fn a_read_only_open_checks_the_words_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolFile(dir.path().join("pool"));
    let rig = filled(&pool);
    let reader = Db::open_read_only(DIR, rig.options.clone()).unwrap();
    reader.verify().unwrap();
    assert!(contents(&reader) == rig.model);
    let (at, _) = pool.find(Place::Committed(1));
    pool.flip(at);
    let error = reader.verify().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(
        error.to_string().contains("a committed sequence number"),
        "{error}"
    );
}

/// A group that a cut left behind the end of a buffer is none, although its numbers were given to
/// other entries, and the end is lost.
#[test]
fn a_repair_without_the_end_of_a_buffer_prefers_entries_that_were_acknowledged() {
    let copy = Killed::new().copy();
    let (at, line) = copy.append_uncommitted(b"phantom");
    let db = Db::open(DIR, copy.options.clone()).unwrap();
    (0..9u8).for_each(|n| db.put([b'n', n], b"value").unwrap());
    let mut options = copy.options.clone();
    let fs = copy.fs.kill();
    options.environment.fs = Some(Arc::new(fs));
    copy.pool.flip(at);
    drop(db);
    let report = repair(DIR, &options).unwrap();
    assert_eq!(report.buffers_damaged.len(), 1, "line {line}: {report:?}");
    assert_eq!(report.buffer_entries_lost, 0, "{report:?}");
    let db = Db::open(DIR, options).unwrap();
    assert_eq!(db.get(b"phantom").unwrap(), None);
    for n in 0..9u8 {
        assert_eq!(db.get([b'n', n]).unwrap().unwrap(), &b"value"[..]);
    }
}

/// A buffer of a database without a manifest must not bring back what an older one left in the same
/// place.
#[test]
fn after_a_repair_without_a_manifest_no_buffer_has_the_id_of_an_older_one() {
    let killed = Killed::new();
    let copy = killed.copy();
    let (before, _) = copy.pool.buffer();
    copy.fs.cut(&Path::new(DIR).join("CURRENT"), 3).unwrap();
    copy.repair();
    let db = Db::open(DIR, copy.options.clone()).unwrap();
    for n in 0..400u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    let (after, _) = copy.pool.buffer();
    assert!(after.id.0 > before.id.0 + (1 << 31), "{after:?}");
}

//! Profile `tlsm` with a pool that is missing, of another database or of an earlier time, or whose
//! lists are damaged: a head, a node, an entry, a filter, and a `next` that leads in a circle. Each
//! case gives a specific error. `repair` brings back what verifies and names the rest.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firndb::{Backend, Db, ErrorKind, Options, PmConfig, Profile, RepairReport, repair};
use std::collections::BTreeMap;
use std::path::PathBuf;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const POOL_BYTES: u64 = 4 << 20;
const UNIT: usize = 4096;
/// The place of `next` in the head of a segment.
const NEXT_AT: usize = 40;
const KEYS: u32 = 1200;

/// A database whose entries are in two lists: the older one of level 1 has several segments.
struct Case {
    dir: tempfile::TempDir,
    model: Model,
}

impl Case {
    fn new() -> Case {
        let dir = tempfile::tempdir().unwrap();
        let model = Model::new();
        let mut case = Case { dir, model };
        let db = case.open().unwrap();
        let mut put = |number: u32, round: u8| {
            let (key, value) = (format!("key{number:05}"), vec![round; 20]);
            db.put(&key, &value).unwrap();
            case.model.insert(key.into_bytes(), value);
        };
        (0..KEYS).for_each(|number| put(number, 1));
        db.flush().unwrap();
        db.compact().unwrap();
        (0..50).for_each(|number| put(number * 20, 2));
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let lists = db.stats().tlsm.unwrap().lists;
        assert!(lists[0] == 1 && lists[1] >= 1, "{lists:?}");
        db.close().unwrap();
        case
    }

    /// A copy of database and pool, because each open writes to both.
    fn copy(&self) -> Case {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("db")).unwrap();
        for entry in std::fs::read_dir(self.db()).unwrap() {
            let from = entry.unwrap().path();
            if from.is_file() {
                let to = dir.path().join("db").join(from.file_name().unwrap());
                std::fs::copy(&from, to).unwrap();
            }
        }
        std::fs::copy(self.pool(), dir.path().join("pool")).unwrap();
        let model = self.model.clone();
        Case { dir, model }
    }

    fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    fn pool(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    fn options(&self) -> Options {
        let pm = PmConfig::at(self.pool(), Backend::Emulated, POOL_BYTES);
        let mut options = Options::tiny().profile(Profile::Tlsm).pm(Some(pm));
        options.tuning.tlsm.unit_bytes = Some(UNIT as u64);
        // Everything is one list of its level.
        options.limits.table_bytes = 1 << 20;
        options.limits.level_base_bytes = 1 << 20;
        options.write_buffer_bytes = Some(256 << 10);
        options
    }

    fn open(&self) -> firndb::Result<Db> {
        Db::open(self.db(), self.options())
    }

    /// The kind of the error of an open, whose message must contain `says`.
    fn refused(&self, says: &str) -> ErrorKind {
        let error = self.open().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        error.kind()
    }

    fn repair(&self) -> RepairReport {
        repair(self.db(), &self.options()).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.pool()).unwrap()
    }

    /// The places of the heads of segments, in every list that was ever there.
    fn heads(&self) -> Vec<usize> {
        let bytes = self.bytes();
        let heads = (0..bytes.len()).step_by(UNIT);
        heads
            .filter(|&at| bytes[at..].starts_with(b"firnlist"))
            .collect()
    }

    /// Writes `bytes` into the pool at `at`.
    fn patch(&self, at: usize, bytes: &[u8]) {
        let mut pool = self.bytes();
        pool[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(self.pool(), pool).unwrap();
    }

    /// The error of an open and a verification; `None` if nothing is wrong.
    fn damage(&self) -> Option<firndb::Error> {
        self.open().and_then(|db| db.verify().map(drop)).err()
    }

    fn contents(&self) -> Model {
        let db = self.open().unwrap();
        db.verify().unwrap();
        let all = db.iter().map(|entry| entry.unwrap());
        all.map(|(key, value)| (key, value.to_vec())).collect()
    }

    /// Repairs, and checks that nothing is there that was not written, and that what is gone was
    /// reported.
    fn check_repair(&self) -> (RepairReport, Model) {
        let report = self.repair();
        let found = self.contents();
        let is_known = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            let last = &self.model[key];
            // An entry that was lost leaves the one before it.
            value == last || *value == [1; 20]
        };
        assert!(found.iter().all(is_known), "{report:?}");
        let named = report.tables_lost.len() + report.tables_damaged.len();
        assert!(found == self.model || named > 0, "{report:?}");
        (report, found)
    }
}

#[test]
fn a_pool_that_is_missing() {
    let case = Case::new();
    let aside = case.dir.path().join("aside");
    std::fs::rename(case.pool(), &aside).unwrap();
    assert_eq!(case.refused("pool"), ErrorKind::Corruption);
    assert!(!case.pool().exists(), "nothing was made in its place");
    let error = Db::open(case.db(), case.options().pm(None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    std::fs::rename(&aside, case.pool()).unwrap();
    assert!(case.contents() == case.model);
    // Nothing else has the entries of lists, so each is named.
    std::fs::remove_file(case.pool()).unwrap();
    let report = case.repair();
    assert!(report.pool_lost.is_some(), "{report:?}");
    assert_eq!(report.tables_lost.len(), 2, "{report:?}");
    assert!(report.tables_lost[0].starts_with("list "), "{report:?}");
}

#[test]
fn a_pool_of_another_database() {
    let (case, other) = (Case::new(), Case::new());
    let (mine, others) = (case.bytes(), other.bytes());
    case.patch(0, &others);
    assert_eq!(
        case.refused("belongs to the database"),
        ErrorKind::Incompatible
    );
    assert!(case.bytes() == others, "it was written to");
    case.patch(0, &mine);
    assert!(case.contents() == case.model);
}

/// It has none of the lists that were written since.
#[test]
fn a_pool_of_an_earlier_time() {
    let case = Case::new();
    let earlier = case.bytes();
    let db = case.open().unwrap();
    db.put(b"later", b"value").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let now = case.bytes();
    case.patch(0, &earlier);
    assert_eq!(case.refused("pool"), ErrorKind::Corruption);
    case.patch(0, &now);
    let db = case.open().unwrap();
    assert_eq!(db.get(b"later").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Fields of heads, nodes and refs.
#[test]
fn a_segment_that_is_damaged() {
    let case = Case::new();
    let (whole, heads) = (case.bytes(), case.heads());
    let mut found = 0;
    for at in &heads {
        for within in [0, 9, 12, 20, 24, 28, 34, 37, 70, 100, 500] {
            let case = case.copy();
            case.patch(at + within, &[!whole[at + within]]);
            if let Some(error) = case.damage() {
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Corruption, "{within}: {text}");
                assert!(text.contains("list") || text.contains("segment"), "{text}");
                found += 1;
            } else {
                assert!(case.contents() == case.model, "{at} {within}");
            }
        }
    }
    // Five segments of 1,200 nodes and one of 50 are in use; others are free again.
    assert!(heads.len() > 6 && found >= 6 * 10, "{found} of {heads:?}");
}

#[test]
fn a_next_that_leads_astray() {
    let case = Case::new();
    let heads = case.heads();
    let mut found = Vec::new();
    for &at in &heads {
        // To itself, to other segments, to what is no segment, outside, and nowhere.
        for next in [at, heads[0], heads[heads.len() - 1], 70 * UNIT, 1 << 40, 0] {
            let case = case.copy();
            case.patch(at + NEXT_AT, &(next as u64).to_le_bytes());
            if let Some(error) = case.damage() {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{next}: {error}");
                found.push(at);
            } else {
                assert!(case.contents() == case.model, "{at} {next}");
            }
        }
    }
    found.dedup();
    assert!(found.len() >= 6, "{found:?} of {heads:?}");
    // A circle in one list: the entries of the other come back.
    case.patch(found[0] + NEXT_AT, &(found[0] as u64).to_le_bytes());
    let (report, _) = case.check_repair();
    assert_eq!(report.tables_lost.len(), 1, "{report:?}");
}

/// One entry is lost. The others of its list come back.
#[test]
fn an_entry_that_is_damaged() {
    let case = Case::new();
    let bytes = case.bytes();
    let mut hits = bytes
        .windows(8)
        .enumerate()
        .filter(|(_, window)| *window == b"key00007");
    let is_found = |at: usize| {
        case.patch(at + 12, b"x");
        match case.damage() {
            Some(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{error}"),
            None => {
                case.patch(0, &bytes);
                return false;
            }
        }
        true
    };
    assert!(hits.any(|(at, _)| is_found(at)), "the entry that is in use");
    let error = case.open().unwrap().get(b"key00007").unwrap_err();
    assert!(error.to_string().contains("list"), "{error}");
    let (report, found) = case.check_repair();
    assert_eq!((report.blocks_lost, report.tables_damaged.len()), (1, 1));
    assert_eq!(found.len(), case.model.len() - 1);
    assert!(!found.contains_key(&b"key00007"[..]));
}

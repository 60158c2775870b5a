//! Profile `lab` with a pool that is missing, too small, damaged, of another database or of an
//! earlier time, or without a log that leaves point to. Each case gives a specific error. `repair`
//! recovers everything that logs and leaves still contain and reports the losses.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firndb::{
    Backend, Db, ErrorKind, LabTuning, Options, PmConfig, Profile, RepairReport, Tuning, repair,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const POOL_BYTES: u64 = 1 << 20;
const PAGE: usize = 4096;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database whose newest entries are in leaves, with their values in several logs.
struct Case {
    dir: tempfile::TempDir,
    model: Model,
}

impl Case {
    fn new() -> Case {
        let mut case = Case {
            dir: tempfile::tempdir().unwrap(),
            model: Model::new(),
        };
        let db = case.open().unwrap();
        for round in 0..4_u8 {
            for i in 0..100_u32 {
                let (key, value) = (
                    format!("key{i:03}{round}").into_bytes(),
                    vec![round; 50 + i as usize],
                );
                db.put(&key, &value).unwrap();
                case.model.insert(key, value);
            }
            db.flush().unwrap();
        }
        let tier = db.stats().lab.unwrap();
        assert!(
            tier.mutable_entries == 400 && db.stats().logs > 3,
            "{tier:?}"
        );
        db.close().unwrap();
        case
    }

    fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    fn pool(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    fn options(&self) -> Options {
        let lab = LabTuning {
            tree_bytes: Some(256 << 10),
            leaf_bytes: 512,
            hot_bytes: Some(0),
            reuse_min: 0.0,
            rest_share: 1.0,
            log_share_max: 10.0,
            ..LabTuning::default()
        };
        Options::tiny()
            .profile(Profile::Lab)
            .pm(Some(PmConfig::at(
                self.pool(),
                Backend::Emulated,
                POOL_BYTES,
            )))
            .tuning(Tuning {
                lab,
                ..Tuning::default()
            })
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

    fn flip(&self, path: &Path, at: &[usize]) {
        let mut bytes = std::fs::read(path).unwrap();
        at.iter().for_each(|&at| bytes[at] ^= 0x10);
        std::fs::write(path, bytes).unwrap();
        assert!(path.starts_with(self.dir.path()));
    }

    /// The contents of the database, which must be sound.
    fn contents(&self) -> Model {
        let db = self.open().unwrap();
        db.verify().unwrap();
        let all = db.iter().map(|entry| entry.unwrap());
        all.map(|(key, value)| (key, value.to_vec())).collect()
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
    // Without the pool, the logs still contain all entries of the leaves.
    std::fs::remove_file(case.pool()).unwrap();
    let report = case.repair();
    assert!(report.pool_lost.is_some(), "{report:?}");
    assert!(case.contents() == case.model, "{report:?}");
}

#[test]
fn a_pool_that_is_too_small() {
    let dir = tempfile::tempdir().unwrap();
    let case = Case {
        dir,
        model: Model::new(),
    };
    let pm = Some(PmConfig::at(case.pool(), Backend::Emulated, 20 << 10));
    let error = Db::open(case.db(), case.options().pm(pm)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("raise pm.size"), "{error}");
    assert!(
        !case.pool().exists() && !case.db().exists(),
        "a first open that fails leaves nothing behind"
    );
    case.open().unwrap().put(b"k", b"v").unwrap();
    assert_eq!(
        case.contents(),
        Model::from([(b"k".to_vec(), b"v".to_vec())])
    );
}

#[test]
fn a_pool_of_another_database() {
    let (case, other) = (Case::new(), Case::new());
    let (mine, others) = (
        std::fs::read(case.pool()).unwrap(),
        std::fs::read(other.pool()).unwrap(),
    );
    std::fs::write(case.pool(), &others).unwrap();
    assert_eq!(
        case.refused("belongs to the database"),
        ErrorKind::Incompatible
    );
    assert_eq!(
        std::fs::read(case.pool()).unwrap(),
        others,
        "it was written to"
    );
    std::fs::write(case.pool(), mine).unwrap();
    assert!(case.contents() == case.model);
}

#[test]
fn a_pool_of_an_earlier_time() {
    let case = Case::new();
    let earlier = std::fs::read(case.pool()).unwrap();
    let db = case.open().unwrap();
    db.put(b"later", b"value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let now = std::fs::read(case.pool()).unwrap();
    std::fs::write(case.pool(), earlier).unwrap();
    assert_eq!(case.refused("pool"), ErrorKind::Corruption);
    std::fs::write(case.pool(), now).unwrap();
    assert_eq!(
        case.open().unwrap().get(b"later").unwrap().as_deref(),
        Some(&b"value"[..])
    );
}

/// Header and roots: nothing in the pool can be trusted, and the logs contain all of it.
#[test]
fn a_pool_whose_first_pages_are_damaged() {
    for at in [&[20_usize][..], &[PAGE + 100, 2 * PAGE + 100]] {
        let case = Case::new();
        case.flip(&case.pool(), at);
        assert!(
            matches!(
                case.refused("pool"),
                ErrorKind::Corruption | ErrorKind::Incompatible
            ),
            "{at:?}"
        );
        let report = case.repair();
        assert!(report.pool_lost.is_some(), "{report:?}");
        // An unreadable pool is kept for whatever tool can read it. The user decides when to remove
        // it.
        std::fs::remove_file(case.pool()).unwrap();
        assert!(case.contents() == case.model, "{at:?}: {report:?}");
    }
}

#[test]
fn a_leaf_that_is_damaged() {
    let case = Case::new();
    let bytes = std::fs::read(case.pool()).unwrap();
    let keys = bytes
        .windows(7)
        .enumerate()
        .filter(|(_, window)| window == b"key0000");
    // Some hits may be in leaves that were replaced.
    let is_found = |at: usize| {
        case.flip(&case.pool(), &[at + 2]);
        let verified = case.open().and_then(|db| db.verify().map(drop));
        match &verified {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{error}"),
            Ok(()) => case.flip(&case.pool(), &[at + 2]),
        }
        verified.is_err()
    };
    assert!(keys.map(|(at, _)| at).any(is_found), "a leaf's first key");
    let report = case.repair();
    assert!(
        report.leaves_lost == 1 && report.pool_lost.is_none(),
        "{report:?}"
    );
    assert!(
        case.contents() == case.model,
        "the logs have it: {report:?}"
    );
}

#[test]
fn a_log_that_leaves_point_to_is_gone() {
    let case = Case::new();
    let logs = || {
        let names = std::fs::read_dir(case.db())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut logs: Vec<PathBuf> = names
            .filter(|path| path.extension().is_some_and(|ext| ext == "log"))
            .collect();
        logs.sort();
        logs
    };
    let lost = logs()[1].clone();
    std::fs::remove_file(&lost).unwrap();
    assert_eq!(
        case.refused(&lost.file_name().unwrap().to_string_lossy()),
        ErrorKind::Corruption
    );
    let report = case.repair();
    assert_eq!(report.values_lost, 100, "{report:?}");
    let found = case.contents();
    assert!(
        found.len() == 300 && found.iter().all(|(key, value)| case.model[key] == *value),
        "{report:?}"
    );
}

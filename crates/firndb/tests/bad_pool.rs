//! Profile `lab` with a pool that is missing, too small, damaged, of another database or of an
//! earlier time, or without a log that leaves point to. Each case gives a specific error. `repair`
//! recovers everything that logs and leaves still contain and reports the losses.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::Model;
use self::rig::pools::Case;
use firndb::{Backend, Db, ErrorKind, LabTuning, Options, PmConfig, Profile, Tuning};
use std::path::{Path, PathBuf};

const POOL_BYTES: u64 = 1 << 20;
const PAGE: usize = 4096;

fn options(pool: &Path) -> Options {
    let lab = LabTuning {
        tree_bytes: Some(256 << 10),
        leaf_bytes: 512,
        hot_bytes: Some(0),
        reuse_min: 0.0,
        rest_share: 1.0,
        log_share_max: 10.0,
        ..LabTuning::default()
    };
    let pm = PmConfig::at(pool, Backend::Emulated, POOL_BYTES);
    let tuning = Tuning {
        lab,
        ..Tuning::default()
    };
    Options::tiny()
        .profile(Profile::Lab)
        .pm(Some(pm))
        .tuning(tuning)
}

/// A database whose newest entries are in leaves, with their values in several logs.
fn leaves() -> Case {
    let mut case = Case::empty(options);
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
    let tier = db.stats().design.lab.unwrap();
    assert!(
        tier.mutable_entries == 400 && db.stats().logs > 3,
        "{tier:?}"
    );
    db.close().unwrap();
    case
}

fn flip(case: &Case, at: &[usize]) {
    let bytes = case.bytes();
    at.iter()
        .for_each(|&at| case.patch(at, &[bytes[at] ^ 0x10]));
}

#[test]
fn a_pool_that_is_missing() {
    let case = leaves();
    case.lose_pool();
    // Without the pool, the logs still contain all entries of the leaves.
    let report = case.repair();
    assert!(report.pool_lost.is_some(), "{report:?}");
    assert!(case.contents() == case.model, "{report:?}");
}

#[test]
fn a_pool_that_is_too_small() {
    let case = Case::empty(options);
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
    leaves().refuse_pool_of(&leaves());
}

#[test]
fn a_pool_of_an_earlier_time() {
    leaves().refuse_earlier_pool(|db| db.flush().unwrap());
}

/// Header and roots: nothing in the pool can be trusted, and the logs contain all of it.
#[test]
fn a_pool_whose_first_pages_are_damaged() {
    for at in [&[20_usize][..], &[PAGE + 100, 2 * PAGE + 100]] {
        let case = leaves();
        flip(&case, at);
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
    let case = leaves();
    let bytes = std::fs::read(case.pool()).unwrap();
    let keys = bytes
        .windows(7)
        .enumerate()
        .filter(|(_, window)| window == b"key0000");
    // Some hits may be in leaves that were replaced.
    let is_found = |at: usize| {
        flip(&case, &[at + 2]);
        let verified = case.open().and_then(|db| db.verify().map(drop));
        match &verified {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{error}"),
            Ok(()) => flip(&case, &[at + 2]),
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
    let case = leaves();
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

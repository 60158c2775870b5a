//! Profile `tlsm` with a pool that is missing, of another database or of an earlier time, or whose
//! lists are damaged: a head, a node, an entry, a filter, and a `next` that leads in a circle. Each
//! case gives a specific error. `repair` brings back what verifies and names the rest.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::Model;
use self::rig::pools::Case;
use firndb::{Backend, ErrorKind, Options, PmConfig, Profile, RepairReport};
use std::path::Path;

const POOL_BYTES: u64 = 4 << 20;
const UNIT: usize = 4096;
/// The place of `next` in the head of a segment.
const NEXT_AT: usize = 40;
const KEYS: u32 = 1200;

fn options(pool: &Path) -> Options {
    let pm = PmConfig::at(pool, Backend::Emulated, POOL_BYTES);
    let mut options = Options::tiny().profile(Profile::Tlsm).pm(Some(pm));
    options.tuning.tlsm.unit_bytes = Some(UNIT as u64);
    // Everything is one list of its level.
    options.limits.table_bytes = 1 << 20;
    options.limits.level_base_bytes = 1 << 20;
    options.write_buffer_bytes = Some(256 << 10);
    options
}

/// A database whose entries are in two lists: the older one of level 1 has several segments.
fn two_lists() -> Case {
    let (case, stats) = Case::in_two_tables(options, KEYS);
    let lists = stats.design.tlsm.unwrap().lists;
    assert!(lists[0] == 1 && lists[1] >= 1, "{lists:?}");
    case
}

/// The places of the heads of segments, in every list that was ever there.
fn heads(case: &Case) -> Vec<usize> {
    let bytes = case.bytes();
    let heads = (0..bytes.len()).step_by(UNIT);
    heads
        .filter(|&at| bytes[at..].starts_with(b"firnlist"))
        .collect()
}

/// Repairs, and checks that nothing is there that was not written, and that what is gone was
/// reported.
fn check_repair(case: &Case) -> (RepairReport, Model) {
    let report = case.repair();
    let found = case.contents();
    let is_known = |(key, value): (&Vec<u8>, &Vec<u8>)| {
        // An entry that was lost leaves the one before it.
        *value == case.model[key] || *value == [1; 20]
    };
    assert!(found.iter().all(is_known), "{report:?}");
    let named = report.tables_lost.len() + report.tables_damaged.len();
    assert!(found == case.model || named > 0, "{report:?}");
    (report, found)
}

#[test]
fn a_pool_that_is_missing() {
    let case = two_lists();
    case.lose_pool();
    // Nothing else has the entries of lists, so each is named.
    let report = case.repair();
    assert!(report.pool_lost.is_some(), "{report:?}");
    assert_eq!(report.tables_lost.len(), 2, "{report:?}");
    assert!(report.tables_lost[0].starts_with("list "), "{report:?}");
}

#[test]
fn a_pool_of_another_database() {
    two_lists().refuse_pool_of(&two_lists());
}

/// It has none of the lists that were written since.
#[test]
fn a_pool_of_an_earlier_time() {
    two_lists().refuse_earlier_pool(|db| db.compact().unwrap());
}

/// Fields of heads, nodes and refs.
#[test]
fn a_segment_that_is_damaged() {
    let case = two_lists();
    let (whole, heads) = (case.bytes(), heads(&case));
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
    let case = two_lists();
    let heads = heads(&case);
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
    let (report, _) = check_repair(&case);
    assert_eq!(report.tables_lost.len(), 1, "{report:?}");
}

/// One entry is lost. The others of its list come back.
#[test]
fn an_entry_that_is_damaged() {
    let case = two_lists();
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
    let (report, found) = check_repair(&case);
    assert_eq!((report.blocks_lost, report.tables_damaged.len()), (1, 1));
    assert_eq!(found.len(), case.model.len() - 1);
    assert!(!found.contains_key(&b"key00007"[..]));
}

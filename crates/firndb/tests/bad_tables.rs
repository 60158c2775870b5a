//! Profile `blade` with a pool that is missing, of another database or of an earlier time, or whose
//! tables are damaged: a header, a group, a value, and what is searched. Each case gives a specific
//! error. `repair` brings back what verifies and names the rest.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::pools::Case;
use firndb::{Backend, ErrorKind, Options, PmConfig, Profile};
use std::path::Path;

const POOL_BYTES: u64 = 4 << 20;
const GRANULE: usize = 4096;
const KEYS: u32 = 1200;

fn options(pool: &Path) -> Options {
    let pm = PmConfig::at(pool, Backend::Emulated, POOL_BYTES);
    let mut options = Options::tiny().profile(Profile::Blade).pm(Some(pm));
    options.tuning.blade.table_bytes = Some(256 << 10);
    // Everything is one table of its level.
    options.limits.table_bytes = 1 << 20;
    options.memory_limit_bytes = 4 << 20;
    options.write_buffer_bytes = Some(256 << 10);
    options
}

/// A database whose entries are in two tables: a merged one, and a flushed one above it.
fn two_tables() -> Case {
    let (case, stats) = Case::in_two_tables(options, KEYS);
    let tables = stats.design.blade.unwrap();
    let count = (tables.unsorted_tables, tables.sorted_tables);
    assert_eq!(count, (1, 1), "{tables:?}");
    case
}

/// The places of headers of tables that were ever there.
fn headers(case: &Case) -> Vec<usize> {
    let bytes = case.bytes();
    let headers = (0..bytes.len()).step_by(GRANULE);
    headers
        .filter(|&at| bytes[at..].starts_with(b"firntabl"))
        .collect()
}

#[test]
fn a_pool_that_is_missing() {
    let case = two_tables();
    case.lose_pool();
    // Nothing else has the entries of its tables, so each is named.
    let report = case.repair();
    assert!(report.pool_lost.is_some(), "{report:?}");
    assert_eq!(report.tables_lost.len(), 2, "{report:?}");
    assert!(
        report.tables_lost[0].contains("in persistent memory"),
        "{report:?}"
    );
}

#[test]
fn a_pool_of_another_database() {
    two_tables().refuse_pool_of(&two_tables());
}

/// It has none of the tables that were written since.
#[test]
fn a_pool_of_an_earlier_time() {
    two_tables().refuse_earlier_pool(|db| db.compact().unwrap());
}

/// Bytes of headers and of groups.
#[test]
fn a_table_that_is_damaged() {
    let case = two_tables();
    let (whole, headers) = (case.bytes(), headers(&case));
    let mut found = 0;
    for at in &headers {
        for within in [0, 9, 13, 14, 20, 30, 40, 90, 96, 117, 130, 140, 160, 300] {
            let case = case.copy();
            case.patch(at + within, &[!whole[at + within]]);
            if let Some(error) = case.damage() {
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Corruption, "{within}: {text}");
                assert!(text.contains("table"), "{text}");
                found += 1;
            } else {
                assert!(case.contents() == case.model, "{at} {within}");
            }
        }
    }
    // Two tables are in use; others are free again.
    assert!(found >= 2 * 12, "{found} of {headers:?}");
}

/// One value is lost. The others of its table come back.
#[test]
fn a_value_that_is_damaged() {
    let case = two_tables();
    let bytes = case.bytes();
    // Values of a group follow each other: this is in the middle of the merged table's.
    let values = bytes.windows(40).enumerate();
    let hits = values.filter(|(_, window)| *window == [1; 40]);
    let damaged = |(at, _): (usize, &[u8])| {
        let copy = case.copy();
        copy.patch(at + 25, b"x");
        let found = copy.damage().map(|error| error.kind());
        (found == Some(ErrorKind::Corruption)).then_some(copy)
    };
    // Every some hundred bytes, because tables that are gone have such values, too.
    let case = hits.step_by(300).find_map(damaged).expect("a value in use");
    let report = case.repair();
    assert_eq!(
        (report.blocks_lost, report.tables_damaged.len()),
        (1, 1),
        "{report:?}"
    );
    let found = case.contents();
    let lost = case
        .model
        .iter()
        .filter(|(key, value)| found.get(*key) != Some(*value));
    assert_eq!(lost.count(), 1);
}

/// Without the manifest all tables are looked for that are there.
#[test]
fn a_manifest_that_is_lost() {
    let case = two_tables();
    std::fs::remove_file(case.db().join("CURRENT")).unwrap();
    let report = case.repair();
    assert!(report.tables_whole >= 2, "{report:?}");
    assert!(case.contents() == case.model);
}

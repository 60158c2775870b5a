//! Each suite of the table, at the size of its tier; and that a run is a function of its seed.

use firn_sim::{SUITES, Suite, Tier, each_seed, trace};

fn suite(name: &str) {
    let (seeds, tally) = Suite::named(name).unwrap_or_else(|| panic!("no suite {name}")).test();
    println!("suite {name}: {seeds} seeds, {tally}");
}

#[test]
fn joint() {
    suite("joint");
}

#[test]
fn creation_cut() {
    suite("creation_cut");
}

#[test]
fn recovery_cut() {
    suite("recovery_cut");
}

#[test]
fn dir_exhaust() {
    suite("dir_exhaust");
}

#[test]
fn unsynced_ends() {
    suite("unsynced_ends");
}

#[test]
fn io_countdown() {
    suite("io_countdown");
}

#[test]
fn io_several() {
    suite("io_several");
}

#[test]
fn fsync_fail() {
    suite("fsync_fail");
}

#[test]
fn disk_cap() {
    suite("disk_cap");
}

#[test]
fn read_faults() {
    suite("read_faults");
}

#[test]
fn bit_exhaust() {
    suite("bit_exhaust");
}

#[test]
fn cut_extend() {
    suite("cut_extend");
}

#[test]
fn model() {
    suite("model");
}

/// One seed, one trace: every operation, with its bytes and its outcome.
#[test]
fn one_seed_one_run() {
    each_seed("determinism", Tier::get().scale(20), |seed| {
        assert_eq!(trace(seed), trace(seed), "the run depends on more than its seed");
    });
}

/// The tests of this file are the table.
#[test]
fn no_suite_is_forgotten() {
    let source = include_str!("suites.rs");
    for suite in SUITES {
        assert!(source.contains(&format!("suite(\"{}\")", suite.name)), "no test runs suite {}", suite.name);
    }
}

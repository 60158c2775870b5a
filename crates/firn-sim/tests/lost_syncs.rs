//! The joint suite judged: with the syncs of one sort of file lost, some seed must notice. A suite that does not is
//! blind to what that sync is for.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_fs::{Fault, FaultKind, OpKind};
use firn_sim::joint_against;
use std::panic::catch_unwind;

/// Seeds within which a lost sync must be noticed.
const SEEDS: u64 = 1500;

fn noticed(op: OpKind, suffix: &str) -> Option<u64> {
    let fault = Fault::for_ever(FaultKind::LostSync).on(op).at(suffix);
    let notices = |seed: &u64| catch_unwind(|| joint_against(*seed, std::slice::from_ref(&fault))).is_err();
    (0..SEEDS).find(notices)
}

#[test]
fn of_the_log() {
    println!("noticed by seed {:?}", noticed(OpKind::Sync, ".log").expect("blind"));
}

#[test]
fn of_tables() {
    println!("noticed by seed {:?}", noticed(OpKind::Sync, ".sst").expect("blind"));
}

#[test]
fn of_all_files_but_those() {
    // The suffix of a manifest is its number; the first of a database has number 2.
    println!("noticed by seed {:?}", noticed(OpKind::Sync, "MANIFEST-000002").expect("blind"));
}

#[test]
fn of_current() {
    println!("noticed by seed {:?}", noticed(OpKind::Sync, "CURRENT.new").expect("blind"));
}

#[test]
fn of_the_directory() {
    println!("noticed by seed {:?}", noticed(OpKind::SyncDir, "/db").expect("blind"));
}

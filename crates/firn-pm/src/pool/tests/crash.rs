//! Suites pm_init and pm_double over the pool itself, and its mutants: create, open, commit, free
//! and grow, cut at every fence or store. Recovery finds the old root or the new one, whole, and
//! the space adds up.

use super::*;
use crate::sim::{CrashImage, Explorer, Mode, SimRegion};
use firn_base::Result;
use firn_base::site::TEST;
use std::cell::Cell;

const BYTES: u64 = 64 << 10;

fn pattern(edit: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (firn_base::seed::mix((edit << 32) | (at / 8)) >> (at % 8 * 8)) as u8)
        .collect()
}

/// Opens the pool, then runs edits 1 to `edits`. Each edit is one operation: it writes a new extent
/// of `130 + edit * step` bytes and names it, and drops and frees the extent of three edits ago.
/// The growth before edit 3 is an operation too.
fn script(sim: &SimRegion, edits: u64, step: u64) -> Result<()> {
    let pool = Pool::open_simulated(sim, UUID)?;
    pool.finish_recovery()?;
    sim.end_operation();
    for edit in 1..=edits {
        if edit == 3 {
            pool.grow(BYTES + 4 * G)?;
            sim.end_operation();
        }
        let len = 130 + edit * step;
        let extent = pool.alloc(len, Owner::Test)?;
        let bytes = pattern(edit, len as usize);
        let fenced = match edit % 2 {
            0 => {
                let dirty = pool.store(extent.offset, &bytes)?;
                pool.fence(&TEST, pool.flush(&TEST, dirty))
            }
            _ => pool.write_durable(&TEST, extent.offset, &[&bytes[..70], &bytes[70..]])?,
        };
        let mut dropped = None;
        pool.commit_with(fenced, |root| {
            root.applied_edit = edit;
            root.set(RootEntry {
                owner: Owner::Test,
                kind: edit as u16,
                word: len,
                extent: Some(extent),
            });
            dropped = edit
                .checked_sub(3)
                .and_then(|old| root.remove(Owner::Test, old as u16));
            Ok(())
        })?;
        if let Some(extent) = dropped.and_then(|entry| entry.extent) {
            pool.free(extent)?;
        }
        pool.check()?;
        sim.end_operation();
    }
    pool.close()
}

/// Recovers `sim` and returns the root and usage it found.
fn recover(sim: &SimRegion) -> Result<(Root, crate::Usage)> {
    let pool = Pool::open_simulated(sim, UUID)?;
    pool.finish_recovery()?;
    pool.check()?;
    let root = Root::clone(&pool.root());
    for entry in &root.entries {
        let mut bytes = vec![0; entry.word as usize];
        let extent = entry.extent.unwrap_or(Extent::new(0, 0));
        pool.read(extent.offset, &mut bytes)?;
        if bytes != pattern(u64::from(entry.kind), bytes.len()) {
            return Err(firn_base::Error::corruption(
                "the image",
                extent.offset.get(),
                "the bytes that were committed",
            ));
        }
    }
    let usage = pool.usage();
    Ok((root, usage))
}

/// The last edit after `operations` acknowledged operations of the script: open, 1, 2, grow, 3, ..
fn last_edit(operations: u64) -> u64 {
    let after_open = operations.saturating_sub(1);
    after_open - u64::from(after_open > 2)
}

fn check(image: &CrashImage<'_>) -> Result<(), String> {
    let (root, usage) = recover(image.sim).map_err(|error| error.to_string())?;
    let acknowledged = last_edit(image.operations);
    if !(acknowledged..=last_edit(image.operations + 1)).contains(&root.applied_edit) {
        return Err(format!(
            "edit {} came back, of {acknowledged} acknowledged",
            root.applied_edit
        ));
    }
    let kinds: Vec<u64> = root
        .entries
        .iter()
        .map(|entry| u64::from(entry.kind))
        .collect();
    let expected: Vec<u64> =
        (root.applied_edit.saturating_sub(2).max(1)..=root.applied_edit).collect();
    if kinds != expected {
        return Err(format!("root {} names {kinds:?}", root.applied_edit));
    }
    let again = recover(&SimRegion::from_image(image.sim.durable(), Mode::Adr))
        .map_err(|error| error.to_string())?;
    if again != (root, usage) {
        return Err("recovering twice is not recovering once".to_owned());
    }
    Ok(())
}

/// Edits of the long script and the extra length per edit: enough to free something, and more in
/// CI.
fn long_script() -> (u64, u64) {
    if std::env::var("FIRN_TESTS").is_ok_and(|tier| tier == "ci") {
        (6, 900)
    } else {
        (4, 250)
    }
}

#[test]
fn commits_frees_and_growth_come_back_whole() {
    for (mode, seed) in [(Mode::Adr, 1), (Mode::TornAdr, 2), (Mode::Eadr, 3)] {
        let explorer = Explorer {
            mode,
            seed,
            at_every_store: mode == Mode::Eadr,
            ..Explorer::new(BYTES)
        };
        let report = explorer
            .run(|sim| script(sim, long_script().0, long_script().1), check)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("pool commits, {mode:?}: {report:?}");
        assert!(report.images > 15);
    }
}

/// Suite pm_init: create and open, cut at every store, exhaustively.
#[test]
fn create_open_and_grow_are_cut_at_every_store() {
    for mode in [Mode::Adr, Mode::TornAdr, Mode::Eadr] {
        let explorer = Explorer {
            mode,
            at_every_store: true,
            lint: false,
            ..Explorer::new(32 << 10)
        };
        let create = |sim: &SimRegion| {
            recover(sim)?;
            let pool = Pool::open_simulated(sim, UUID)?;
            pool.grow(48 << 10)?;
            pool.close()
        };
        let report = explorer
            .run(create, check)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("pm_init, {mode:?}: {report:?}");
        assert!(report.is_exhaustive);
    }
}

/// Suite pm_double: recovers every image of a run, cuts that recovery at every store, and recovers
/// again.
#[test]
fn recovery_is_cut_and_recovered_again() {
    let inner = Cell::new(0);
    let outer = Explorer {
        mode: Mode::Adr,
        ..Explorer::new(32 << 10)
    };
    let double = |image: &CrashImage<'_>| {
        let start = Some(image.sim.durable());
        let first = recover(image.sim).map_err(|e| e.to_string())?;
        let explorer = Explorer {
            mode: Mode::TornAdr,
            at_every_store: true,
            start,
            ..Explorer::new(32 << 10)
        };
        let same = |cut: &CrashImage<'_>| {
            let second = recover(cut.sim).map_err(|e| e.to_string())?;
            if second == first {
                Ok(())
            } else {
                Err(format!("{second:?} is not {first:?}"))
            }
        };
        let report = explorer
            .run(|sim| recover(sim).map(|_| ()), same)
            .map_err(|failure| failure.to_string())?;
        inner.set(inner.get() + report.images);
        Ok(())
    };
    let run = |sim: &SimRegion| {
        let pool = Pool::open_simulated(sim, UUID)?;
        pool.finish_recovery()?;
        sim.end_operation();
        for edit in 1..=2 {
            let extent = pool.alloc(G, Owner::Test)?;
            let fenced = pool.write_durable(&TEST, extent.offset, &[&pattern(edit, 200)])?;
            pool.commit_with(fenced, |root| {
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind: edit as u16,
                    word: 200,
                    extent: Some(extent),
                });
                Ok(())
            })?;
            sim.end_operation();
        }
        Ok(())
    };
    let report = outer
        .run(run, double)
        .unwrap_or_else(|failure| panic!("{failure}"));
    println!(
        "pm_double: {report:?}, {} images of the second cut",
        inner.get()
    );
    assert!(inner.get() > report.images);
}

//! The explorer finds planted errors and reports how to reproduce them.

use super::*;
use crate::region::Region;
use crate::sim::SimRegion;
use firn_base::site::TEST;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const BYTES: u64 = 4096;

/// Stores a value at 0 and a flag at 64 that says the value is there.
fn flag_after_value(region: &Region, is_ordered: bool) -> Result<()> {
    region.store(0, &[9; 8])?;
    region.flush(&TEST, 0, 8)?;
    if is_ordered {
        region.fence(&TEST);
    }
    region.store_u64(64, 1)?;
    region.flush(&TEST, 64, 8)?;
    region.fence(&TEST);
    Ok(())
}

fn flag_means_value(image: &CrashImage<'_>) -> Result<(), String> {
    let bytes = image.sim.durable();
    match bytes[64] == 1 && bytes[..8] != [9; 8] {
        true => Err("the flag without its value".to_owned()),
        false => Ok(()),
    }
}

fn run(explorer: &Explorer, is_ordered: bool) -> Result<Report, Box<Failure>> {
    let script = |sim: &SimRegion| {
        flag_after_value(&*sim.region()?, is_ordered)?;
        sim.end_operation();
        Ok(())
    };
    explorer.run(script, flag_means_value)
}

#[test]
fn a_missing_fence_is_found_and_named() {
    let explorer = Explorer::new(BYTES);
    let report = run(&explorer, true).unwrap();
    // Before the first fence: nothing, or the value. Before the second: the value, or the value and
    // the flag. At the end: both.
    assert_eq!(
        report,
        Report {
            points: 3,
            images: 4,
            is_exhaustive: true
        }
    );
    let failure = run(&explorer, false).unwrap_err();
    assert_eq!(
        (failure.point, failure.lines.as_slice()),
        ((0, Some(Instruction::BeforeFence(0))), [64].as_slice())
    );
    let told = failure.to_string();
    assert!(told.contains("seed 1, crash point 0"), "{told}");
    assert!(
        told.contains("line 0x0: store 0 (operation 0, 8 bytes at 0x0) lost"),
        "{told}"
    );
    assert!(
        told.contains("line 0x40: store 1 (operation 0, 8 bytes at 0x40) persisted"),
        "{told}"
    );
    let eadr = Explorer {
        mode: Mode::Eadr,
        at_every_store: true,
        ..explorer
    };
    assert!(run(&eadr, false).is_ok(), "stores are durable in order");
}

#[test]
fn an_acknowledgement_with_a_dirty_line_is_a_failure() {
    let dirty = |sim: &SimRegion| {
        sim.region()?.store(128, &[1])?;
        sim.end_operation();
        Ok(())
    };
    let failure = explore(BYTES, dirty, |_| Ok(())).unwrap_err();
    assert_eq!(failure.lines, [128]);
    assert!(
        std::panic::catch_unwind(|| {
            let sim = SimRegion::new(BYTES, Mode::Adr);
            sim.region().unwrap().store(0, &[1]).unwrap();
            sim.assert_clean();
        })
        .is_err()
    );
}

#[test]
fn a_trap_is_sprung_at_its_store_or_fence_and_once() {
    let sim = SimRegion::new(BYTES, Mode::Adr);
    let other_medium = Arc::new(AtomicU64::new(0));
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let (other, into) = (other_medium.clone(), cuts.clone());
    sim.cut_after(3, move |cut| {
        into.lock()
            .unwrap()
            .push((cut, other.load(Ordering::Relaxed)))
    });
    let region = sim.region().unwrap();
    region.store(0, &[9; 8]).unwrap();
    region.fence(&TEST);
    other_medium.store(5, Ordering::Relaxed);
    region.store(64, &[9; 8]).unwrap();
    region.store(128, &[9; 8]).unwrap();
    let cuts = cuts.lock().unwrap();
    let [(cut, 5)] = &cuts[..] else {
        panic!("{cuts:?}")
    };
    assert_eq!(
        (
            cut.pending(),
            cut.image(0)[0],
            cut.image(1)[0],
            cut.image(1)[64]
        ),
        (1, 0, 9, 0)
    );
}

/// Images are shown one after the other in one memory. A check does not see the changes of the
/// previous check.
#[test]
fn a_check_may_write() {
    let check = |image: &CrashImage<'_>| {
        let region = image.sim.region().unwrap();
        let mut now = [0; 16];
        region.read(256, &mut now).unwrap();
        region.store(256, &[1; 16]).unwrap();
        if now == [0; 16] {
            flag_means_value(image)
        } else {
            Err("what another check wrote".to_owned())
        }
    };
    let script = |sim: &SimRegion| flag_after_value(&*sim.region()?, true);
    assert_eq!(explore(BYTES, script, check).unwrap().images, 3);
}

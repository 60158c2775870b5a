//! The explorer notices what is wrong, and says how to get there again.

use super::*;
use crate::region::Region;
use crate::sim::SimRegion;
use firn_base::site::TEST;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const BYTES: u64 = 4096;

/// A value at 0 and a flag at 64 that says it is there.
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
    match image.bytes[64] == 1 && image.bytes[..8] != [9; 8] {
        true => Err("the flag without its value".to_owned()),
        false => Ok(()),
    }
}

fn run(explorer: &Explorer, is_ordered: bool) -> Result<Report, Box<Failure>> {
    let script = |sim: &SimRegion| {
        flag_after_value(&sim.region()?, is_ordered)?;
        sim.end_operation();
        Ok(())
    };
    explorer.run(script, flag_means_value)
}

#[test]
fn a_missing_fence_is_found_and_named() {
    let explorer = Explorer::new(BYTES);
    let report = run(&explorer, true).unwrap();
    // Before the fences: nothing, the value; the value, and the flag. At the end: the flag.
    assert_eq!(report, Report { points: 3, images: 4, is_exhaustive: true });
    let failure = run(&explorer, false).unwrap_err();
    assert_eq!((failure.point, failure.lines.as_slice()), ((0, Some(Instruction::BeforeFence(0))), [64].as_slice()));
    assert!(failure.to_string().contains("seed 1, crash point 0"), "{failure}");
    for mutation in [Mutation::SkipFence(0), Mutation::SkipFence(1), Mutation::SkipFlush(0), Mutation::SkipFlush(1)] {
        let explorer = Explorer { mutation: Some(mutation), ..explorer.clone() };
        assert!(run(&explorer, true).is_err(), "{mutation:?}");
    }
    let eadr = Explorer { mode: Mode::Eadr, at_every_store: true, ..explorer };
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
fn an_observer_sees_each_point_as_it_is_met() {
    let sim = SimRegion::new(BYTES, Mode::Adr);
    let order = Arc::new(Mutex::new(Vec::new()));
    let other_medium = Arc::new(AtomicU64::new(0));
    sim.record(false);
    let (seen, other) = (order.clone(), other_medium.clone());
    sim.observe(move |point| seen.lock().unwrap().push((point.at, other.load(Ordering::Relaxed))));
    let region = sim.region().unwrap();
    region.fence(&TEST);
    other_medium.store(5, Ordering::Relaxed);
    sim.end_operation();
    let expected = [(Instruction::BeforeFence(0), 0), (Instruction::EndOfOperation, 5)];
    assert_eq!(*order.lock().unwrap(), expected);
    assert!(sim.take_points().is_empty());
}

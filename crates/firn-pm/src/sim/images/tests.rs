//! The sampling beyond what can be tried in full, and single draws.

use super::*;
use crate::sim::SimRegion;
use std::collections::HashSet;

/// A point with a bulk copy of `lines` lines.
fn bulk(lines: u64, mode: Mode) -> CrashPoint {
    let sim = SimRegion::new(lines * LINE_BYTES + 4096, mode);
    let region = sim.region().unwrap();
    region.stream(64, &[&vec![7u8; (lines * LINE_BYTES) as usize]]).unwrap();
    sim.cut()
}

#[test]
fn a_small_point_is_exhaustive_and_a_large_one_is_bounded() {
    for (lines, is_exhaustive, at_least) in [(3, true, 8), (12, true, 4096), (13, false, 300), (200, false, 4000)] {
        let mut images = HashSet::new();
        let all = crash_images(&bulk(lines, Mode::Adr), Mode::Adr, 9, |bytes, _| {
            images.insert(bytes.to_vec());
            true
        });
        assert_eq!(all, is_exhaustive, "{lines} lines");
        assert!(images.len() >= at_least && images.len() < 10_000, "{lines} lines: {} images", images.len());
    }
}

#[test]
fn a_sample_has_each_line_missing_alone_and_alone_there() {
    let lines = 40;
    let mut missing = HashSet::new();
    let mut there = HashSet::new();
    crash_images(&bulk(lines, Mode::Adr), Mode::Adr, 9, |_, changed| {
        if changed.len() as u64 == lines - 1 {
            missing.extend((1..=lines).map(|line| line * 64).filter(|line| !changed.contains(line)));
        }
        if let [alone] = changed {
            there.insert(*alone);
        }
        true
    });
    assert_eq!((missing.len() as u64, there.len() as u64), (lines, lines));
}

#[test]
fn one_draw_is_one_of_the_images() {
    for mode in [Mode::Adr, Mode::TornAdr] {
        let point = bulk(1, mode);
        let mut images = HashSet::new();
        crash_images(&point, mode, 9, |bytes, _| images.insert(bytes.to_vec()));
        assert!((0..100).all(|seed| images.contains(&point.image(mode, seed))));
        assert_eq!(point.image(mode, 0), point.durable);
        assert_eq!(point.image(mode, 1)[64..128], [7; 64]);
        assert_eq!(point.image(mode, 77), point.image(mode, 77));
    }
}

#[test]
fn enumeration_stops_when_told() {
    let mut seen = 0;
    crash_images(&bulk(20, Mode::Adr), Mode::Adr, 9, |_, _| {
        seen += 1;
        seen < 5
    });
    assert_eq!(seen, 5);
}

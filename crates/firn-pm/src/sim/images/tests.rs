//! Sampling where an exhaustive enumeration is too large, and single draws.

use super::*;
use crate::sim::SimRegion;
use std::collections::HashSet;

/// A crash point with a bulk copy of `lines` lines.
fn bulk(lines: u64, mode: Mode) -> (Vec<u8>, CrashPoint) {
    let sim = SimRegion::new(lines * LINE_BYTES + 4096, mode);
    let region = sim.region().unwrap();
    sim.record(false);
    region
        .stream(64, &[&vec![7u8; (lines * LINE_BYTES) as usize]])
        .unwrap();
    sim.end_operation();
    (sim.durable(), sim.take_points().pop().unwrap())
}

#[test]
fn a_small_point_is_exhaustive_and_a_large_one_is_bounded() {
    for (lines, is_exhaustive, at_least) in [
        (3, true, 8),
        (12, true, 4096),
        (13, false, 300),
        (200, false, 4000),
    ] {
        let mut images = HashSet::new();
        let (durable, point) = bulk(lines, Mode::Adr);
        let all = crash_images(&durable, &point, Mode::Adr, 9, |delta| {
            images.insert(delta.clone());
            true
        });
        assert_eq!(all, is_exhaustive, "{lines} lines");
        assert!(
            images.len() >= at_least && images.len() < 10_000,
            "{lines} lines: {} images",
            images.len()
        );
    }
}

#[test]
fn a_sample_has_each_line_missing_alone_and_alone_there() {
    let lines = 40;
    let mut missing = HashSet::new();
    let mut there = HashSet::new();
    let (durable, point) = bulk(lines, Mode::Adr);
    crash_images(&durable, &point, Mode::Adr, 9, |delta| {
        let changed: Vec<u64> = delta.iter().map(|(line, _)| *line).collect();
        if changed.len() as u64 == lines - 1 {
            missing.extend(
                (1..=lines)
                    .map(|line| line * 64)
                    .filter(|line| !changed.contains(line)),
            );
        }
        if let [alone] = changed[..] {
            there.insert(alone);
        }
        true
    });
    assert_eq!((missing.len() as u64, there.len() as u64), (lines, lines));
}

#[test]
fn one_draw_is_one_of_the_images() {
    for mode in [Mode::Adr, Mode::TornAdr] {
        let (durable, point) = bulk(1, mode);
        let mut images = HashSet::new();
        crash_images(&durable, &point, mode, 9, |delta| {
            images.insert(delta.clone())
        });
        assert!((0..100).all(|seed| images.contains(&draw(&durable, &point, mode, seed))));
        assert_eq!(draw(&durable, &point, mode, 0), []);
        assert_eq!(draw(&durable, &point, mode, 1), [(64, [7; 64])]);
        assert_eq!(
            draw(&durable, &point, mode, 77),
            draw(&durable, &point, mode, 77)
        );
    }
}

#[test]
fn enumeration_stops_when_told() {
    let mut seen = 0;
    let (durable, point) = bulk(20, Mode::Adr);
    crash_images(&durable, &point, Mode::Adr, 9, |_| {
        seen += 1;
        seen < 5
    });
    assert_eq!(seen, 5);
}

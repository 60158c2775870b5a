//! The crash model itself: the images it allows, counted by hand.

use super::*;
use crate::sim::images::crash_images;
use std::collections::BTreeSet;

fn images(tracker: &Tracker) -> BTreeSet<Vec<u8>> {
    tracker.state.lock().beside = Some(Box::new(|| ()));
    tracker.state.lock().record(Instruction::EndOfOperation);
    let point = tracker.state.lock().points.pop().unwrap();
    let durable = tracker.durable();
    let mut found = BTreeSet::new();
    assert!(crash_images(&durable, &point, tracker.mode, 1, |delta| {
        let mut image = durable.clone();
        delta
            .iter()
            .for_each(|(at, bytes)| image[*at as usize..][..64].copy_from_slice(bytes));
        found.insert(image);
        true
    }));
    found
}

fn tracker(mode: Mode) -> Tracker {
    Tracker::new(vec![0; 256], mode)
}

fn store(tracker: &Tracker, at: u64, byte: u8) {
    tracker.store(at, &[byte; 8], || {});
}

#[test]
fn a_line_holds_any_version_and_lines_are_independent() {
    let tracker = tracker(Mode::Adr);
    store(&tracker, 0, 1);
    store(&tracker, 8, 2);
    assert_eq!(images(&tracker).len(), 3);
    store(&tracker, 64, 3);
    assert_eq!(images(&tracker).len(), 6);
}

#[test]
fn a_fence_keeps_what_was_flushed_and_not_what_came_after() {
    let tracker = tracker(Mode::Adr);
    store(&tracker, 0, 1);
    tracker.flush(line_range(0, 8));
    store(&tracker, 0, 2);
    assert_eq!(images(&tracker).len(), 3);
    tracker.fence();
    let left = images(&tracker);
    assert_eq!(
        left.iter().map(|image| image[0]).collect::<Vec<_>>(),
        [1, 2]
    );
    tracker.fence();
    assert_eq!(
        images(&tracker).len(),
        2,
        "a fence without a flush keeps nothing"
    );
}

#[test]
fn a_fence_is_its_own_threads() {
    let tracker = tracker(Mode::Adr);
    store(&tracker, 0, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| tracker.flush(line_range(0, 8)));
    });
    tracker.fence();
    assert_eq!(images(&tracker).len(), 2);
}

#[test]
fn torn_words_are_independent() {
    let tracker = tracker(Mode::TornAdr);
    tracker.store(0, &[1; 24], || {});
    assert_eq!(images(&tracker).len(), 8);
}

#[test]
fn copies_past_the_cache_are_free_until_the_fence() {
    for mode in [Mode::Adr, Mode::Eadr] {
        let tracker = tracker(mode);
        tracker.stream(64, &[5; 128], || {});
        assert_eq!(images(&tracker).len(), 4, "{mode:?}");
        tracker.fence();
        assert_eq!(images(&tracker).len(), 1);
        assert_eq!(tracker.durable()[64..192], [5; 128]);
    }
}

#[test]
fn eadr_keeps_every_store_in_order() {
    let tracker = tracker(Mode::Eadr);
    store(&tracker, 0, 1);
    store(&tracker, 64, 2);
    let left = images(&tracker);
    assert_eq!(left.len(), 1);
    assert_eq!(
        left.first().map(|image| (image[0], image[64])),
        Some((1, 2))
    );
}

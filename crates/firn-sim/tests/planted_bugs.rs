//! Tests the harness: each of eight typical bugs, planted in a sample structure, is found within
//! 10,000 images, and reported. Without a bug nothing is found.

use firn_pm::sim::{Explorer, Failure, Mode};
use firn_sim::{Bug, Shelf, Structure, Tally, explore_sequence};

/// The number of images within which a bug must be found.
const IMAGES_MAX: u64 = 10_000;

/// All sequences of one and two operations, short ones first.
fn sequences<S: Structure>() -> Vec<Vec<S::Op>> {
    let ops = S::alphabet();
    let pairs = ops
        .iter()
        .flat_map(|a| ops.iter().map(move |b| vec![a.clone(), b.clone()]));
    ops.iter().map(|op| vec![op.clone()]).chain(pairs).collect()
}

/// Tries sequences, with whole and with torn lines, until a failure is found.
fn find<const BUG: u8>() -> (u64, Option<Box<Failure>>) {
    let mut tally = Tally::default();
    for ops in sequences::<Shelf<BUG>>() {
        for mode in [Mode::Adr, Mode::TornAdr] {
            let explorer = Explorer {
                mode,
                lint: false,
                ..Explorer::new(Shelf::<BUG>::POOL_BYTES)
            };
            if let Err(failure) = explore_sequence::<Shelf<BUG>>(&ops, &explorer, &mut tally) {
                return (tally.recoveries, Some(failure));
            }
            if tally.recoveries > IMAGES_MAX {
                return (tally.recoveries, None);
            }
        }
    }
    (tally.recoveries, None)
}

fn expect<const BUG: u8>(bug: Bug, said: &str) {
    assert_eq!(bug as u8, BUG);
    let (images, found) = find::<BUG>();
    let Some(failure) = found else {
        panic!("{bug:?} was not found in {images} images")
    };
    println!("{bug:?}: found after {images} images: {failure}");
    assert!(
        failure.to_string().contains(said),
        "{bug:?} told as: {failure}"
    );
}

#[test]
fn each_is_found() {
    expect::<1>(Bug::MissingFlush, "came back, of");
    expect::<2>(Bug::MissingFence, "came back, of 1 acknowledged");
    expect::<3>(Bug::PublishBeforeFence, "came back, of");
    expect::<4>(Bug::TailLine, "the bytes that were pushed");
    expect::<5>(Bug::Tear, "a count of");
    expect::<6>(Bug::Leak, "I5");
    expect::<7>(Bug::DoubleFree, "not live");
    expect::<8>(Bug::StaleRoot, "I5");
    assert_eq!(Bug::ALL.len(), 8, "all are looked for");
}

#[test]
fn without_one_nothing_is_found() {
    let (images, found) = find::<0>();
    println!("sound: {images} images");
    assert!(found.is_none() && images > 1000, "{found:?}");
}

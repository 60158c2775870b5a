//! The suites of structures. Each seed is one sequence of operations: first all sequences of up to
//! two, then random ones.

use super::structure::{Structure, explore_sequence};
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firn_pm::sim::{Explorer, Mode, SimRegion};
use std::fmt::Write;

/// The sequence of a seed.
fn sequence_of<S: Structure>(seed: u64) -> Vec<S::Op> {
    let alphabet = S::alphabet();
    let count = alphabet.len() as u64;
    let op = |index: u64| alphabet[index as usize].clone();
    match seed {
        0 => Vec::new(),
        n if n <= count => vec![op(n - 1)],
        n if n <= count + count * count => {
            vec![op((n - 1 - count) / count), op((n - 1 - count) % count)]
        }
        n => {
            let mut random = Seed::new(mix(n));
            let mut ops = Vec::new();
            let mut state = S::State::default();
            for _ in 0..3 + random.below(4) {
                let op = op(random.below(count));
                let mut next = state.clone();
                S::model(&mut next, &op);
                if S::live_bytes(&next) <= S::POOL_BYTES / 2 {
                    state = next;
                    ops.push(op);
                }
            }
            ops
        }
    }
}

/// Runs a sequence. A finding is reduced to the fewest operations and reported.
fn run<S: Structure>(seed: u64, explorer: &Explorer) -> Tally {
    let (mut ops, mut tally) = (sequence_of::<S>(seed), Tally::default());
    let Err(mut failure) = explore_sequence::<S>(&ops, explorer, &mut tally) else {
        return tally;
    };
    let mut at = 0;
    while at < ops.len() {
        let mut fewer = ops.clone();
        fewer.remove(at);
        match explore_sequence::<S>(&fewer, explorer, &mut tally) {
            Err(smaller) => (ops, failure) = (fewer, smaller),
            Ok(()) => at += 1,
        }
    }
    let mut told = format!(
        "{} does not survive a power cut ({:?}):\n  operation 0: create",
        S::NAME,
        explorer.mode
    );
    for (number, op) in (1..).zip(&ops) {
        let _written = write!(told, "\n  operation {number}: {op:?}");
    }
    panic!("{told}\n{failure}");
}

fn explorer<S: Structure>(mode: Mode) -> Explorer {
    // The lint is a separate suite. Here a dirty line is found by the data it loses.
    Explorer {
        mode,
        lint: false,
        ..Explorer::new(S::POOL_BYTES)
    }
}

/// pm_seq: cut at every fence and at the end of every operation.
pub(crate) fn sequence<S: Structure>(seed: u64) -> Tally {
    run::<S>(seed, &explorer::<S>(Mode::Adr))
}

/// pm_torn: the same, with each word of a line persisting independently.
pub(crate) fn torn<S: Structure>(seed: u64) -> Tally {
    run::<S>(seed, &explorer::<S>(Mode::TornAdr))
}

/// pm_eadr: the same, with a durable cache; cut at every store.
pub(crate) fn eadr<S: Structure>(seed: u64) -> Tally {
    run::<S>(
        seed,
        &Explorer {
            at_every_store: true,
            ..explorer::<S>(Mode::Eadr)
        },
    )
}

/// pm_init: creation, and the sequences of one operation, cut at every store.
pub(crate) fn init<S: Structure>(seed: u64) -> Tally {
    let modes = [Mode::Adr, Mode::TornAdr, Mode::Eadr];
    run::<S>(
        seed / 3,
        &Explorer {
            at_every_store: true,
            ..explorer::<S>(modes[(seed % 3) as usize])
        },
    )
}

/// pm_lint: no line is dirty at an acknowledgement.
pub(crate) fn lint<S: Structure>(seed: u64) -> Tally {
    run::<S>(
        seed,
        &Explorer {
            lint: true,
            ..explorer::<S>(Mode::Eadr)
        },
    )
}

/// After so many recoveries of one sequence, every second further image is left out; after as many
/// again, three of four; and so on. Without this, a recovery that goes on with a job, and so
/// stores a thousand times, would take hours.
const HALVED_AFTER: u64 = 8192;

/// True if an image is recovered, although the sequence had all the recoveries of `tally`.
fn is_recovered(fingerprint: u64, tally: &Tally) -> bool {
    let halvings = (tally.recoveries / HALVED_AFTER).min(63);
    fingerprint.is_multiple_of(1 << halvings)
}

/// pm_double: each image's recovery is cut at every store, and the recovery after that is cut at
/// every fence.
pub(crate) fn double<S: Structure>(seed: u64) -> Tally {
    let (ops, mut tally) = (sequence_of::<S>(seed), Tally::default());
    let beside = S::beside();
    let script = |sim: &SimRegion| {
        let mut structure = S::open(sim, &beside)?;
        sim.end_operation();
        ops.iter()
            .try_for_each(|op| structure.apply(op).map(|()| sim.end_operation()))
    };
    let other = beside.clone();
    let outer = explorer::<S>(Mode::Adr).run_beside(
        move || S::duplicate(&other),
        script,
        |image, other| {
            if !is_recovered(image.fingerprint, &tally) {
                return Ok(());
            }
            let beside = S::after_power_cut(other, image.fingerprint);
            recover_twice::<S>(image.sim.durable(), &beside, 2, &mut tally).map(drop)
        },
    );
    if let Err(failure) = outer {
        panic!("{} after {ops:?}: {failure}", S::NAME);
    }
    tally
}

/// Recovers `image`, then again after each cut of that recovery, `depth` levels deep. Every
/// recovery must find the same state.
fn recover_twice<S: Structure>(
    image: Vec<u8>,
    beside: &S::Beside,
    depth: u64,
    tally: &mut Tally,
) -> Result<S::State, String> {
    let open = |sim: &SimRegion, beside: &S::Beside| {
        S::open(sim, beside).and_then(|structure| structure.state())
    };
    let told = |error: firn_base::Error| error.to_string();
    let sim = SimRegion::from_image(image.clone(), Mode::Adr);
    let once = open(&sim, &S::duplicate(beside)).map_err(told)?;
    if depth == 0 {
        return Ok(once);
    }
    let inner = Explorer {
        at_every_store: depth == 2,
        start: Some(image),
        ..explorer::<S>(Mode::Adr)
    };
    let (here, watched) = (S::duplicate(beside), S::duplicate(beside));
    let other = here.clone();
    drop(watched);
    let report = inner.run_beside(
        move || S::duplicate(&other),
        |sim| open(sim, &here).map(drop),
        |cut, other| {
            if !is_recovered(cut.fingerprint, tally) {
                return Ok(());
            }
            tally.recovered(cut.fingerprint);
            let beside = S::after_power_cut(other, cut.fingerprint);
            let again = recover_twice::<S>(cut.sim.durable(), &beside, depth - 1, tally)?;
            if again == once {
                Ok(())
            } else {
                Err(format!("I4: {once:?} came back, and after a cut {again:?}"))
            }
        },
    );
    report.map_err(|failure| failure.to_string())?;
    Ok(once)
}

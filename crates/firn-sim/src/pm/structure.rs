//! The description of a structure in persistent memory, and the one check shared by all suites:
//! cut, recover, compare.
//!
//! After each cut: recovery finds the state after the acknowledged operations, or after one more
//! (I1 to I3); the pool's space matches that state exactly (I5); a second recovery finds the same
//! (I4); and operations continue from there (I6).

use crate::tally::Tally;
use firn_base::Result;
use firn_base::seed::{Seed, mix};
use firn_pm::Pool;
use firn_pm::sim::{CrashImage, Explorer, Failure, SimRegion};
use std::fmt::Debug;

/// The number of operations after a recovery. After one image in 64 it is `MUCH_MORE`.
const MORE: u64 = 3;
const MUCH_MORE: u64 = 50;

/// A structure in a pool.
pub trait Structure: Sized {
    /// Its name.
    const NAME: &'static str;
    /// The size of a pool in bytes: large enough for a few dozen operations, but small, because
    /// every image has this size.
    const POOL_BYTES: u64;
    /// One operation.
    type Op: Clone + Debug;
    /// The expected contents: the model.
    type State: Clone + PartialEq + Debug + Default;
    /// The other medium that it uses, `()` for none.
    type Beside: Clone + Send + 'static;

    /// Every operation that is tried in every sequence.
    fn alphabet() -> Vec<Self::Op>;
    /// Applies an operation to a state.
    fn model(state: &mut Self::State, op: &Self::Op);
    /// The number of live bytes of the pool in a state.
    fn live_bytes(state: &Self::State) -> u64;
    /// The other medium, empty.
    fn beside() -> Self::Beside;
    /// A copy of the other medium, including its unsynced data.
    fn duplicate(beside: &Self::Beside) -> Self::Beside;
    /// The other medium after a power cut.
    fn after_power_cut(beside: &Self::Beside, seed: u64) -> Self::Beside;
    /// Creates it in a new pool, or recovers it.
    ///
    /// # Errors
    /// Any error is a finding.
    fn open(sim: &SimRegion, beside: &Self::Beside) -> Result<Self>;
    /// Applies an operation. Once this returns it is acknowledged, so it is durable.
    ///
    /// # Errors
    /// Any error is a finding, because the alphabet contains only operations that fit.
    fn apply(&mut self, op: &Self::Op) -> Result<()>;
    /// The contents.
    ///
    /// # Errors
    /// Any error is a finding.
    fn state(&self) -> Result<Self::State>;
    /// Checks that the pool adds up (free + live = pool). Returns its live bytes.
    ///
    /// # Errors
    /// If it does not add up.
    fn live(&self) -> Result<u64>;
}

/// The live bytes of `pool`, after its own check.
pub(super) fn live(pool: &Pool) -> Result<u64> {
    pool.check()?;
    Ok(pool.usage().live_total())
}

/// `len` bytes that differ for every `salt` and length.
pub(super) fn pattern(salt: u64, len: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|at| mix((salt << 40 | len << 16) ^ at).to_le_bytes())
        .collect();
    bytes.truncate(len as usize);
    bytes
}

/// Explores one sequence of operations.
///
/// # Errors
/// The first image that recovery did not survive.
pub fn explore_sequence<S: Structure>(
    ops: &[S::Op],
    explorer: &Explorer,
    tally: &mut Tally,
) -> Result<(), Box<Failure>> {
    let mut states = vec![S::State::default()];
    for op in ops {
        let mut next = states[states.len() - 1].clone();
        S::model(&mut next, op);
        states.push(next);
    }
    let beside = S::beside();
    let script = |sim: &SimRegion| {
        let mut structure = S::open(sim, &beside)?;
        sim.end_operation();
        for (op, state) in ops.iter().zip(&states[1..]) {
            structure.apply(op)?;
            expect_live::<S>(&structure, state)?;
            sim.end_operation();
        }
        Ok(())
    };
    let other = beside.clone();
    let report = explorer.run_beside(
        move || S::duplicate(&other),
        script,
        |image, other| {
            tally.recovered(image.fingerprint);
            check::<S>(&states, image, other).map_err(|what| what.to_string())
        },
    )?;
    debug_assert!(report.images > 0);
    Ok(())
}

fn expect_live<S: Structure>(structure: &S, state: &S::State) -> Result<()> {
    let (live, expected) = (structure.live()?, S::live_bytes(state));
    match live == expected {
        true => Ok(()),
        false => Err(wrong(format!(
            "I5: {live} bytes are live, {expected} belong to {state:?}"
        ))),
    }
}

fn wrong(what: String) -> firn_base::Error {
    firn_base::Error::new(firn_base::ErrorKind::Corruption, what)
}

/// Recovers an image and compares.
fn check<S: Structure>(
    states: &[S::State],
    image: &CrashImage<'_>,
    other: &S::Beside,
) -> Result<()> {
    let beside = S::after_power_cut(other, image.fingerprint);
    let mut structure = S::open(image.sim, &beside)?;
    let state = structure.state()?;
    // The first operation is the creation.
    let acknowledged = image.operations.saturating_sub(1) as usize;
    let allowed = &states[acknowledged..(acknowledged + 2).min(states.len())];
    if !allowed.contains(&state) {
        return Err(wrong(format!(
            "{state:?} came back, of {acknowledged} acknowledged to {:?}",
            allowed[0]
        )));
    }
    expect_live(&structure, &state)?;
    drop(structure);
    structure = S::open(image.sim, &beside)?;
    if structure.state()? != state {
        return Err(wrong(format!(
            "I4: recovered again, {state:?} is {:?}",
            structure.state()?
        )));
    }
    go_on(structure, state, image.fingerprint)
}

/// Applies more operations, as far as the state leaves room for them.
fn go_on<S: Structure>(mut structure: S, mut state: S::State, seed: u64) -> Result<()> {
    let (mut random, alphabet) = (Seed::new(mix(seed)), S::alphabet());
    for _ in 0..if seed.is_multiple_of(64) {
        MUCH_MORE
    } else {
        MORE
    } {
        let op = &alphabet[random.below(alphabet.len() as u64) as usize];
        let mut next = state.clone();
        S::model(&mut next, op);
        if S::live_bytes(&next) > S::POOL_BYTES / 2 {
            continue;
        }
        structure.apply(op)?;
        state = next;
        expect_live(&structure, &state)?;
    }
    match structure.state()? == state {
        true => Ok(()),
        false => Err(wrong(format!(
            "I6: goes on to {:?}, not {state:?}",
            structure.state()?
        ))),
    }
}

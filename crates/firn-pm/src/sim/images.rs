//! From a crash point to the images it allows, each as the set of lines in which it differs from
//! the durable bytes.
//!
//! The enumeration is exhaustive while the product of versions is at most [`EXHAUSTIVE`]. Otherwise
//! it covers: nothing; everything; every subset of one or two lines and its complement (pairs are
//! drawn by seed beyond [`PAIRS`]); every bulk copy with its first, middle or last line missing;
//! and [`RANDOM`] random choices. A line "in" a subset holds its newest version.

use super::tracker::{CrashPoint, LineBytes, Mode, PendingLine};
use crate::line::LINE_BYTES;
use firn_base::seed::Seed;

pub(crate) const EXHAUSTIVE: u64 = 4096;
const PAIRS: usize = 2048;
const RANDOM: usize = 256;

/// The lines of an image that differ from the durable bytes, in ascending order.
pub(crate) type Delta = Vec<(u64, LineBytes)>;

/// A piece of a line that persists as a whole, and its possible values, with the durable one first.
struct Unit {
    line: u64,
    start: usize,
    size: usize,
    /// Possible values. Only the `size` bytes from `start` count.
    values: Vec<LineBytes>,
}

impl Unit {
    fn part<'a>(&self, bytes: &'a LineBytes) -> &'a [u8] {
        &bytes[self.start..self.start + self.size]
    }
}

/// Calls `each` with every image that a cut at `point` may leave of memory whose durable bytes are
/// `durable`. Stops when `each` returns false. Returns true if the enumeration was exhaustive.
pub(crate) fn crash_images(
    durable: &[u8],
    point: &CrashPoint,
    mode: Mode,
    seed: u64,
    mut each: impl FnMut(&Delta) -> bool,
) -> bool {
    let units = units(durable, point, mode);
    let mut delta = Delta::new();
    let mut show = |choice: &[usize]| {
        compose(durable, &units, choice, &mut delta);
        each(&delta)
    };
    let product = units.iter().try_fold(1u64, |product, unit| {
        product
            .checked_mul(unit.values.len() as u64)
            .filter(|&product| product <= EXHAUSTIVE)
    });
    if product.is_some() {
        let mut choice = vec![0; units.len()];
        while show(&choice) && advance(&mut choice, &units) {}
        return true;
    }
    sample(point, &units, seed, |choice| show(choice));
    false
}

/// One image that a cut at `point` may leave, drawn by `seed`. Seed 0 persists nothing, seed 1
/// everything.
pub(crate) fn draw(durable: &[u8], point: &CrashPoint, mode: Mode, seed: u64) -> Delta {
    let units = units(durable, point, mode);
    let mut random = Seed::new(seed);
    let choose = |unit: &Unit| match seed {
        0 => 0,
        1 => newest(point, unit),
        _ => random.below(unit.values.len() as u64) as usize,
    };
    let choice: Vec<usize> = units.iter().map(choose).collect();
    let mut delta = Delta::new();
    compose(durable, &units, &choice, &mut delta);
    delta
}

fn line_of(memory: &[u8], at: u64) -> LineBytes {
    let mut bytes = [0; LINE_BYTES as usize];
    bytes.copy_from_slice(&memory[at as usize..][..LINE_BYTES as usize]);
    bytes
}

/// Computes the lines that `choice` changes. REQUIRES: the units of one line are adjacent.
fn compose(durable: &[u8], units: &[Unit], choice: &[usize], delta: &mut Delta) {
    delta.clear();
    for (unit, &chosen) in units.iter().zip(choice).filter(|(_, chosen)| **chosen != 0) {
        if delta.last().is_none_or(|(line, _)| *line != unit.line) {
            delta.push((unit.line, line_of(durable, unit.line)));
        }
        if let Some((_, bytes)) = delta.last_mut() {
            bytes[unit.start..unit.start + unit.size]
                .copy_from_slice(unit.part(&unit.values[chosen]));
        }
    }
}

fn units(durable: &[u8], point: &CrashPoint, mode: Mode) -> Vec<Unit> {
    let size = if mode == Mode::TornAdr {
        8
    } else {
        LINE_BYTES as usize
    };
    let mut units = Vec::new();
    for pending in &point.lines {
        for start in (0..LINE_BYTES as usize).step_by(size) {
            let values = vec![line_of(durable, pending.line)];
            let mut unit = Unit {
                line: pending.line,
                start,
                size,
                values,
            };
            for version in &pending.versions {
                if !unit
                    .values
                    .iter()
                    .any(|known| unit.part(known) == unit.part(&version.bytes))
                {
                    unit.values.push(version.bytes);
                }
            }
            if unit.values.len() > 1 {
                units.push(unit);
            }
        }
    }
    units
}

/// Advances `choice` like an odometer. Returns false after the last choice.
fn advance(choice: &mut [usize], units: &[Unit]) -> bool {
    for (digit, unit) in choice.iter_mut().zip(units) {
        *digit += 1;
        if *digit < unit.values.len() {
            return true;
        }
        *digit = 0;
    }
    false
}

/// Shows a bounded sample. Stops when `show` returns false.
fn sample(point: &CrashPoint, units: &[Unit], seed: u64, mut show: impl FnMut(&[usize]) -> bool) {
    let mut random = Seed::new(seed);
    let lines: Vec<u64> = point.lines.iter().map(|pending| pending.line).collect();
    let newest: Vec<usize> = units.iter().map(|unit| newest(point, unit)).collect();
    let mut choice = vec![0; units.len()];
    let mut pick = |is_in: &dyn Fn(u64) -> bool| {
        for ((digit, unit), &newest) in choice.iter_mut().zip(units).zip(&newest) {
            *digit = if is_in(unit.line) { newest } else { 0 };
        }
        show(&choice)
    };
    let mut both = |subset: &[u64]| {
        pick(&|line| subset.contains(&line)) && pick(&|line| !subset.contains(&line))
    };
    if !both(&[]) || !lines.iter().all(|&line| both(&[line])) {
        return;
    }
    let all_pairs = lines.len() * lines.len().saturating_sub(1) / 2 <= PAIRS;
    let mut pair = |a: u64, b: u64| both(&[a, b]);
    let paired = if all_pairs {
        lines
            .iter()
            .enumerate()
            .all(|(index, &a)| lines[index + 1..].iter().all(|&b| pair(a, b)))
    } else {
        let mut draw = || lines[random.below(lines.len() as u64) as usize];
        (0..PAIRS).all(|_| pair(draw(), draw()))
    };
    if !paired {
        return;
    }
    for run in bulk_runs(&point.lines) {
        for missing in [run[0], run[run.len() / 2], run[run.len() - 1]] {
            if !pick(&|line| line != missing)
                || !pick(&|line| run.contains(&line) && line != missing)
            {
                return;
            }
        }
    }
    for _ in 0..RANDOM {
        for (digit, unit) in choice.iter_mut().zip(units) {
            *digit = random.below(unit.values.len() as u64) as usize;
        }
        if !show(&choice) {
            return;
        }
    }
}

/// The index of the unit's value in the newest version of its line.
fn newest(point: &CrashPoint, unit: &Unit) -> usize {
    let Ok(index) = point
        .lines
        .binary_search_by_key(&unit.line, |pending| pending.line)
    else {
        return 0;
    };
    let Some(version) = point.lines[index].versions.last() else {
        return 0;
    };
    unit.values
        .iter()
        .position(|known| unit.part(known) == unit.part(&version.bytes))
        .unwrap_or(0)
}

/// Runs of adjacent lines that were copied past the cache.
fn bulk_runs(lines: &[PendingLine]) -> Vec<Vec<u64>> {
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for pending in lines.iter().filter(|pending| pending.is_streamed) {
        match runs.last_mut() {
            Some(run)
                if run
                    .last()
                    .is_some_and(|&last| last + LINE_BYTES == pending.line) =>
            {
                run.push(pending.line)
            }
            _ => runs.push(vec![pending.line]),
        }
    }
    runs
}

#[cfg(test)]
mod tests;

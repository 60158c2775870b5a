//! From a crash point to the images it allows.
//!
//! Exhaustive while the product of versions is at most [`EXHAUSTIVE`]. Else: nothing, everything, every subset of one
//! or two lines and its complement (pairs are drawn by seed beyond [`PAIRS`]), every bulk copy with its first, middle
//! or last line missing, and [`RANDOM`] random choices. A line "in" a subset holds its newest version.

use super::tracker::{CrashPoint, Mode, PendingLine};
use crate::line::LINE_BYTES;
use firn_base::seed::Seed;
use std::collections::BTreeSet;

pub(crate) const EXHAUSTIVE: u64 = 4096;
const PAIRS: usize = 2048;
const RANDOM: usize = 256;

/// A piece of memory that persists as one, and the values it may have; the durable one first.
struct Unit {
    at: usize,
    values: Vec<Vec<u8>>,
}

/// Calls `each` with every image (and the lines that differ from what was durable) that a cut at `point` may leave.
/// Stops when `each` returns false. Returns whether the enumeration was exhaustive.
pub fn crash_images(point: &CrashPoint, mode: Mode, seed: u64, mut each: impl FnMut(&[u8], &[u64]) -> bool) -> bool {
    let units = units(point, mode);
    let mut image = point.durable.clone();
    let product = units.iter().try_fold(1u64, |product, unit| {
        product.checked_mul(unit.values.len() as u64).filter(|&product| product <= EXHAUSTIVE)
    });
    let mut show = |choice: &[usize]| {
        let mut changed = BTreeSet::new();
        for (unit, &chosen) in units.iter().zip(choice) {
            let value = &unit.values[chosen];
            image[unit.at..unit.at + value.len()].copy_from_slice(value);
            if chosen != 0 {
                changed.insert(unit.at as u64 & !(LINE_BYTES - 1));
            }
        }
        each(&image, &changed.into_iter().collect::<Vec<_>>())
    };
    match product {
        Some(_) => {
            let mut choice = vec![0; units.len()];
            while show(&choice) && advance(&mut choice, &units) {}
            true
        }
        None => {
            for choice in sample(point, &units, seed) {
                if !show(&choice) {
                    break;
                }
            }
            false
        }
    }
}

impl CrashPoint {
    /// One image that a cut here may leave, drawn by `seed`. Seeds 0 and 1 are nothing and everything.
    pub fn image(&self, mode: Mode, seed: u64) -> Vec<u8> {
        let units = units(self, mode);
        let mut image = self.durable.clone();
        let mut random = Seed::new(seed);
        for unit in &units {
            let chosen = match seed {
                0 => 0,
                1 => newest(self, unit),
                _ => random.below(unit.values.len() as u64) as usize,
            };
            image[unit.at..unit.at + unit.values[chosen].len()].copy_from_slice(&unit.values[chosen]);
        }
        image
    }
}

fn units(point: &CrashPoint, mode: Mode) -> Vec<Unit> {
    let size = if mode == Mode::TornAdr { 8 } else { LINE_BYTES as usize };
    let mut units = Vec::new();
    for pending in &point.lines {
        for start in (0..LINE_BYTES as usize).step_by(size) {
            let at = pending.line as usize + start;
            let mut values = vec![point.durable[at..at + size].to_vec()];
            for version in &pending.versions {
                let value = &version[start..start + size];
                if !values.iter().any(|known| known == value) {
                    values.push(value.to_vec());
                }
            }
            if values.len() > 1 {
                units.push(Unit { at, values });
            }
        }
    }
    units
}

/// The next choice, as an odometer counts. False after the last.
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

fn sample(point: &CrashPoint, units: &[Unit], seed: u64) -> Vec<Vec<usize>> {
    let mut random = Seed::new(seed);
    let lines: Vec<u64> = point.lines.iter().map(|pending| pending.line).collect();
    let pick = |is_in: &dyn Fn(u64) -> bool| -> Vec<usize> {
        let newest = |unit: &Unit| if is_in(unit.at as u64 & !(LINE_BYTES - 1)) { newest(point, unit) } else { 0 };
        units.iter().map(newest).collect()
    };
    let mut choices = vec![pick(&|_| false), pick(&|_| true)];
    let mut both = |subset: &[u64]| {
        choices.push(pick(&|line| subset.contains(&line)));
        choices.push(pick(&|line| !subset.contains(&line)));
    };
    for &line in &lines {
        both(&[line]);
    }
    if lines.len() * lines.len().saturating_sub(1) / 2 <= PAIRS {
        for (index, &a) in lines.iter().enumerate() {
            for &b in &lines[index + 1..] {
                both(&[a, b]);
            }
        }
    } else {
        for _ in 0..PAIRS {
            let mut draw = || lines[random.below(lines.len() as u64) as usize];
            both(&[draw(), draw()]);
        }
    }
    for run in bulk_runs(&point.lines) {
        for missing in [0, run.len() / 2, run.len() - 1] {
            choices.push(pick(&|line| line != run[missing]));
            choices.push(pick(&|line| run.contains(&line) && line != run[missing]));
        }
    }
    for _ in 0..RANDOM {
        choices.push(units.iter().map(|unit| random.below(unit.values.len() as u64) as usize).collect());
    }
    choices
}

/// Which of a unit's values its line's newest version holds.
fn newest(point: &CrashPoint, unit: &Unit) -> usize {
    let line_at = unit.at as u64 & !(LINE_BYTES - 1);
    let Ok(index) = point.lines.binary_search_by_key(&line_at, |pending| pending.line) else { return 0 };
    let Some(version) = point.lines[index].versions.last() else { return 0 };
    let start = unit.at - line_at as usize;
    let value = &version[start..start + unit.values[0].len()];
    unit.values.iter().position(|known| known == value).unwrap_or(0)
}

/// Runs of neighbouring lines that were copied past the cache.
fn bulk_runs(lines: &[PendingLine]) -> Vec<Vec<u64>> {
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for pending in lines.iter().filter(|pending| pending.is_streamed) {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|&last| last + LINE_BYTES == pending.line) => run.push(pending.line),
            _ => runs.push(vec![pending.line]),
        }
    }
    runs
}

#[cfg(test)]
mod tests;

//! Runs a script, cuts the power at every crash point, and gives each distinct image to a recovery check.

use super::images::crash_images;
use super::region::SimRegion;
use super::tracker::{CrashPoint, Instruction, Mode, Mutation};
use firn_base::Result;
use std::collections::HashSet;
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// What memory holds after one imagined power cut.
#[derive(Debug)]
pub struct CrashImage<'a> {
    /// The whole memory.
    pub bytes: &'a [u8],
    /// Operations that had been acknowledged: recovery must keep these, and may keep one more.
    pub operations: u64,
    /// Where the cut was.
    pub at: Instruction,
    /// The lines that were not durable for certain and persisted all the same.
    pub lines: &'a [u64],
}

/// How to explore.
#[derive(Debug, Clone)]
pub struct Explorer {
    /// Size of the memory, in bytes.
    pub bytes: u64,
    /// What a power cut does.
    pub mode: Mode,
    /// Draws the samples where not everything can be tried.
    pub seed: u64,
    /// Cut before each store too.
    pub at_every_store: bool,
    /// Fail if an operation ends with a line that is not durable.
    pub lint: bool,
    /// Leave something out.
    pub mutation: Option<Mutation>,
    /// Begin with this memory instead of zeroes, such as an image to recover from.
    pub start: Option<Vec<u8>>,
}

/// What was explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Moments at which the power was cut.
    pub points: u64,
    /// Distinct images that were checked.
    pub images: u64,
    /// Whether these are all that the model allows.
    pub is_exhaustive: bool,
}

/// An image that recovery did not survive, and how to get it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The explorer's seed.
    pub seed: u64,
    /// The number of the crash point, and where that is.
    pub point: (u64, Option<Instruction>),
    /// Operations acknowledged before it.
    pub operations: u64,
    /// The lines that persisted though they need not have.
    pub lines: Vec<u64>,
    /// What the check said.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, point, operations, lines, message } = self;
        write!(
            f,
            "seed {seed}, crash point {} ({:?}) after {operations} operations, lines {lines:#x?}: {message}",
            point.0, point.1
        )
    }
}

impl Explorer {
    /// ADR, crash points at fences and ends of operations, with the lint, from zeroes.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, mode: Mode::Adr, seed: 1, at_every_store: false, lint: true, mutation: None, start: None }
    }

    /// Runs `script`, which calls [`SimRegion::end_operation`] after each operation, then `check` on every distinct
    /// image (distinct together with the number of operations acknowledged).
    ///
    /// # Errors
    /// The first image that fails its check, or the script's own error.
    pub fn run(
        &self,
        script: impl FnOnce(&SimRegion) -> Result<()>,
        mut check: impl FnMut(&CrashImage<'_>) -> Result<(), String>,
    ) -> Result<Report, Box<Failure>> {
        let image = self.start.clone().unwrap_or_else(|| vec![0; self.bytes as usize]);
        let sim = SimRegion::from_image(image, self.mode);
        sim.record(self.at_every_store);
        sim.mutate(self.mutation);
        let ran = script(&sim);
        let points = sim.take_points();
        let fail = |point: (u64, Option<Instruction>), operations: u64, lines: &[u64], message: String| {
            Box::new(Failure { seed: self.seed, point, operations, lines: lines.to_vec(), message })
        };
        if let Err(error) = ran {
            return Err(fail((points.len() as u64, None), 0, &[], format!("the script failed: {error}")));
        }
        let mut report = Report { points: points.len() as u64, images: 0, is_exhaustive: true };
        let mut seen = HashSet::new();
        for (number, point) in points.iter().enumerate() {
            let here = (number as u64, Some(point.at));
            if self.lint && point.at == Instruction::EndOfOperation && !point.lines.is_empty() {
                let lines: Vec<u64> = point.lines.iter().map(|pending| pending.line).collect();
                return Err(fail(here, point.operations, &lines, "acknowledged before it was durable".to_owned()));
            }
            self.check_point(point, number as u64, &mut seen, &mut report, &mut check)
                .map_err(|(lines, message)| fail(here, point.operations, &lines, message))?;
        }
        Ok(report)
    }

    fn check_point(
        &self,
        point: &CrashPoint,
        number: u64,
        seen: &mut HashSet<(u64, u64)>,
        report: &mut Report,
        check: &mut impl FnMut(&CrashImage<'_>) -> Result<(), String>,
    ) -> Result<(), (Vec<u64>, String)> {
        let mut failed = None;
        let is_exhaustive = crash_images(point, self.mode, self.seed.wrapping_add(number), |bytes, lines| {
            if !seen.insert((xxh3_64(bytes), point.operations)) {
                return true;
            }
            report.images += 1;
            let image = CrashImage { bytes, operations: point.operations, at: point.at, lines };
            failed = check(&image).err().map(|message| (lines.to_vec(), message));
            failed.is_none()
        });
        report.is_exhaustive &= is_exhaustive;
        failed.map_or(Ok(()), Err)
    }
}

/// [`Explorer::run`] with the defaults of [`Explorer::new`].
///
/// # Errors
/// As [`Explorer::run`].
pub fn explore(
    bytes: u64,
    script: impl FnOnce(&SimRegion) -> Result<()>,
    check: impl FnMut(&CrashImage<'_>) -> Result<(), String>,
) -> Result<Report, Box<Failure>> {
    Explorer::new(bytes).run(script, check)
}

#[cfg(test)]
mod tests;

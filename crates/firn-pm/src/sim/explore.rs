//! Runs a script, cuts the power at every crash point, and passes each distinct image to a recovery
//! check.

use super::images::{Delta, crash_images};
use super::region::SimRegion;
use super::stage::Stage;
use super::story::story;
use super::tracker::{CrashPoint, Instruction, Mode};
use firn_base::Result;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The contents of memory after one imagined power cut.
#[derive(Debug)]
pub struct CrashImage<'a> {
    /// The memory. Any change that a check makes is undone afterwards.
    pub sim: &'a SimRegion,
    /// Operations acknowledged before the cut. Recovery must keep these, and may keep one more.
    pub operations: u64,
    /// The place of the cut.
    pub at: Instruction,
    /// A hash of the memory. Different contents have different fingerprints.
    pub fingerprint: u64,
}

/// The settings of an exploration.
#[derive(Debug, Clone)]
pub struct Explorer {
    /// Size of the memory, in bytes.
    pub bytes: u64,
    /// The effect of a power cut.
    pub mode: Mode,
    /// The seed of the samples where not everything can be tried.
    pub seed: u64,
    /// Also cut before each store.
    pub at_every_store: bool,
    /// Fail if an operation ends with a line that is not durable.
    pub lint: bool,
    /// Start with these contents instead of zeroes, such as an image to recover from.
    pub start: Option<Vec<u8>>,
}

/// The extent of an exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Points at which the power was cut.
    pub points: u64,
    /// Distinct images that were checked.
    pub images: u64,
    /// True if these are all the images that the model allows.
    pub is_exhaustive: bool,
}

/// An image that recovery did not survive, and how to reproduce it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The explorer's seed.
    pub seed: u64,
    /// The number of the crash point, and its place.
    pub point: (u64, Option<Instruction>),
    /// Operations acknowledged before the cut.
    pub operations: u64,
    /// The lines that persisted although they did not have to.
    pub lines: Vec<u64>,
    /// The fate of each store that was not durable, in words.
    pub story: Vec<String>,
    /// The message of the check.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            point,
            operations,
            story,
            message,
            ..
        } = self;
        write!(
            f,
            "seed {seed}, crash point {} ({:?}) after {operations} operations:",
            point.0, point.1
        )?;
        story.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
        write!(f, "\n  then recovery: {message}")
    }
}

impl Explorer {
    /// ADR, crash points at fences and ends of operations, with the lint, starting from zeroes.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            mode: Mode::Adr,
            seed: 1,
            at_every_store: false,
            lint: true,
            start: None,
        }
    }

    /// Runs `script`, which calls [`SimRegion::end_operation`] after each operation, then `check`
    /// on every distinct image (distinct together with the number of acknowledged operations).
    ///
    /// # Errors
    /// The first image that fails its check, or the script's own error.
    pub fn run(
        &self,
        script: impl FnOnce(&SimRegion) -> Result<()>,
        mut check: impl FnMut(&CrashImage<'_>) -> Result<(), String>,
    ) -> Result<Report, Box<Failure>> {
        self.run_beside(|| (), script, |image, ()| check(image))
    }

    /// Like [`Explorer::run`], for state that also lies on another medium. `beside` captures that
    /// medium at each crash point, and `check` gets it with each image of that point. `beside` must
    /// not touch the memory.
    ///
    /// # Errors
    /// The errors of [`Explorer::run`].
    pub fn run_beside<T: Send + 'static>(
        &self,
        mut beside: impl FnMut() -> T + Send + 'static,
        script: impl FnOnce(&SimRegion) -> Result<()>,
        mut check: impl FnMut(&CrashImage<'_>, &T) -> Result<(), String>,
    ) -> Result<Report, Box<Failure>> {
        let start = self
            .start
            .clone()
            .unwrap_or_else(|| vec![0; self.bytes as usize]);
        let sim = SimRegion::from_image(start.clone(), self.mode);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let into = taken.clone();
        sim.record_beside(self.at_every_store, move || into.lock().push(beside()));
        let ran = script(&sim);
        let points = sim.take_points();
        let others = std::mem::take(&mut *taken.lock());
        if let Err(error) = ran {
            let (lines, story, operations) = (
                Vec::new(),
                Vec::new(),
                points.last().map_or(0, |last| last.operations),
            );
            let message = format!("the script failed: {error}");
            let point = (points.len() as u64, None);
            return Err(Box::new(Failure {
                seed: self.seed,
                point,
                operations,
                lines,
                story,
                message,
            }));
        }
        let mut report = Report {
            points: points.len() as u64,
            images: 0,
            is_exhaustive: true,
        };
        let (mut stage, mut seen) = (Stage::new(start, self.mode), HashSet::new());
        for (number, (point, other)) in points.iter().zip(&others).enumerate() {
            stage.settle(point.len, &point.settled);
            let fail = |delta: &Delta, message: String| {
                let lines = delta.iter().map(|(line, _)| *line).collect();
                let story = story(point, delta);
                let (point, operations) = ((number as u64, Some(point.at)), point.operations);
                Box::new(Failure {
                    seed: self.seed,
                    point,
                    operations,
                    lines,
                    story,
                    message,
                })
            };
            if self.lint && point.at == Instruction::EndOfOperation && !point.lines.is_empty() {
                let mut failure = fail(
                    &Delta::new(),
                    "acknowledged before it was durable".to_owned(),
                );
                failure.lines = point.lines.iter().map(|pending| pending.line).collect();
                return Err(failure);
            }
            let mut check = |image: &CrashImage<'_>| check(image, other);
            let failed = self.check_point(
                point,
                number as u64,
                &mut stage,
                &mut seen,
                &mut report,
                &mut check,
            );
            failed.map_err(|(delta, message)| fail(&delta, message))?;
        }
        Ok(report)
    }

    fn check_point(
        &self,
        point: &CrashPoint,
        number: u64,
        stage: &mut Stage,
        seen: &mut HashSet<(u64, u64)>,
        report: &mut Report,
        check: &mut impl FnMut(&CrashImage<'_>) -> Result<(), String>,
    ) -> Result<(), (Delta, String)> {
        let (mut failed, operations, at) = (None, point.operations, point.at);
        let base = stage.base().to_vec();
        let is_exhaustive = crash_images(
            &base,
            point,
            self.mode,
            self.seed.wrapping_add(number),
            |delta| {
                let fingerprint = stage.fingerprint(delta);
                if !seen.insert((fingerprint, operations)) {
                    return true;
                }
                report.images += 1;
                let checked = stage.show(delta, |sim| {
                    check(&CrashImage {
                        sim,
                        operations,
                        at,
                        fingerprint,
                    })
                });
                failed = checked.err().map(|message| (delta.clone(), message));
                failed.is_none()
            },
        );
        report.is_exhaustive &= is_exhaustive;
        failed.map_or(Ok(()), Err)
    }
}

/// [`Explorer::run`] with the defaults of [`Explorer::new`].
///
/// # Errors
/// The errors of [`Explorer::run`].
pub fn explore(
    bytes: u64,
    script: impl FnOnce(&SimRegion) -> Result<()>,
    check: impl FnMut(&CrashImage<'_>) -> Result<(), String>,
) -> Result<Report, Box<Failure>> {
    Explorer::new(bytes).run(script, check)
}

#[cfg(test)]
mod tests;

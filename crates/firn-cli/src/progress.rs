//! A line on the terminal during long work: progress, speed, and time left. Prints nothing if it is
//! not a terminal.

use firn_base::clock::Clock;
use firn_base::exec;
use firndb::{Db, Error, ErrorKind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::Duration;

/// The unit that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Entries,
}

/// A progress line, removed when dropped. It uses no colours, so there is nothing for `NO_COLOR` to
/// disable.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Progress of `what`, up to `total` if that is known.
    pub(crate) fn new(what: &str, total: Option<u64>, unit: Unit) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let template = match (total, unit) {
            (Some(_), Unit::Bytes) => {
                "{msg} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec}, {eta} left"
            }
            (Some(_), Unit::Entries) => {
                "{msg} [{bar:30}] {human_pos}/{human_len} {per_sec:0}, {eta} left"
            }
            (None, Unit::Bytes) => "{msg} {bytes} {binary_bytes_per_sec}, {elapsed}",
            (None, Unit::Entries) => "{msg} {human_pos} {per_sec:0}, {elapsed}",
        };
        Self::start(bar, template, what)
    }

    /// Progress of `what` of unknown extent.
    pub(crate) fn spinner(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Self::start(bar, "{spinner} {msg}, {elapsed}", what)
    }

    fn start(bar: ProgressBar, template: &str, what: &str) -> Self {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self(bar)
    }

    /// Continues the same progress for other work.
    pub(crate) fn rename(&self, what: &'static str) {
        self.0.set_message(what);
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.inc(count);
    }

    pub(crate) fn set(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Prints a line on stderr without breaking the progress line.
    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        self.0.suspend(|| eprintln!("firn: {line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Runs `work` with `db` and shows how many bytes the database has read, of `total` if that is
/// known.
///
/// # Errors
/// The errors of `work`.
pub(crate) fn watched<T: Send + 'static>(
    db: &Db,
    what: &str,
    total: Option<u64>,
    work: impl FnOnce(&Db) -> firndb::Result<T> + Send + 'static,
) -> firndb::Result<T> {
    let read_bytes = |db: &Db| {
        db.stats()
            .ssd
            .iter()
            .map(|cause| cause.read_bytes)
            .sum::<u64>()
    };
    if !std::io::stderr().is_terminal() {
        return work(db);
    }
    let progress = Progress::new(what, total, Unit::Bytes);
    let (before, clock, theirs) = (read_bytes(db), Clock::system(), db.clone());
    let thread = exec::spawn("firn-work", move || work(&theirs))
        .map_err(|e| Error::from_io("start a thread for", what.as_ref(), e))?;
    while !thread.is_finished() {
        progress.set(read_bytes(db) - before);
        clock.sleep(Duration::from_millis(100));
    }
    thread
        .join()
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, format!("{what} panicked"))))
}

/// The progress of a benchmark, phase by phase.
#[derive(Default)]
pub(crate) struct BenchProgress(RefCell<Option<Progress>>);

impl firn_bench::Watch for BenchProgress {
    fn begin(&self, name: &str, total: u64) {
        let progress = if total == 0 {
            Progress::spinner(name)
        } else {
            Progress::new(name, Some(total), Unit::Entries)
        };
        *self.0.borrow_mut() = Some(progress);
    }

    fn advance(&self, done: u64) {
        if let Some(progress) = &*self.0.borrow() {
            progress.set(done);
        }
    }

    fn end(&self) {
        *self.0.borrow_mut() = None;
    }
}

//! Handles Ctrl-C while a benchmark has gigabytes in temporary directories: they are removed before
//! the process ends.
//!
//! The handler's thread removes the directories while the engine still runs, repeatedly, because
//! its threads may create files meanwhile. Then it ends the process. The main thread, which may
//! fail because of that, waits.

use crate::exit::{Failure, Outcome};
use firn_base::clock::Clock;
use firn_base::sync::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The exit code that a shell reports for a process ended by SIGINT.
const EXIT_CODE: i32 = 130;
const ATTEMPTS: usize = 100;

/// From now on SIGINT, SIGTERM and SIGHUP remove `directory`, and those of earlier calls, and end
/// the process.
pub(super) fn remove_when_interrupted(directory: PathBuf) -> Outcome<()> {
    let mut directories = DIRECTORIES.lock();
    directories.push(directory);
    if directories.len() > 1 {
        return Ok(());
    }
    let handler = || {
        INTERRUPTED.store(true, Ordering::SeqCst);
        DIRECTORIES
            .lock()
            .iter()
            .for_each(|directory| remove(directory));
        std::process::exit(EXIT_CODE);
    };
    ctrlc::set_handler(handler)
        .map_err(|e| Failure::invalid(format!("cannot watch for Ctrl-C: {e}")))
}

fn remove(directory: &Path) {
    let clock = Clock::system();
    for _ in 0..ATTEMPTS {
        match std::fs::remove_dir_all(directory) {
            Ok(()) => return,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return,
            Err(_) => clock.sleep(Duration::from_millis(10)),
        }
    }
}

/// Blocks forever once the handler is running, because the handler ends the process with its exit
/// code.
pub(crate) fn wait_if_interrupted() {
    let clock = Clock::system();
    while INTERRUPTED.load(Ordering::SeqCst) {
        clock.sleep(Duration::from_millis(10));
    }
}

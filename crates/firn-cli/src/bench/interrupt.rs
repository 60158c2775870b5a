//! Ctrl-C while a benchmark has gigabytes in temporary directories: they are removed before the process ends.
//!
//! The handler's thread removes the directories under the running engine, again and again until nothing is left that
//! its threads could have made meanwhile, and ends the process. The main thread, which may fail for that, waits.

use crate::exit::{Failure, Outcome};
use firn_base::clock::Clock;
use firn_base::sync::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What a shell reports of a process that SIGINT ended.
const EXIT_CODE: i32 = 130;
const ATTEMPTS: usize = 100;

/// From now on, SIGINT, SIGTERM and SIGHUP remove `directory`, with those that were named before, and end the process.
pub(super) fn remove_when_interrupted(directory: PathBuf) -> Outcome<()> {
    let mut directories = DIRECTORIES.lock();
    directories.push(directory);
    if directories.len() > 1 {
        return Ok(());
    }
    let handler = || {
        INTERRUPTED.store(true, Ordering::SeqCst);
        DIRECTORIES.lock().iter().for_each(|directory| remove(directory));
        std::process::exit(EXIT_CODE);
    };
    ctrlc::set_handler(handler).map_err(|e| Failure::invalid(format!("cannot watch for Ctrl-C: {e}")))
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

/// Does not return once the handler is at work: the process ends as it says.
pub(crate) fn wait_if_interrupted() {
    let clock = Clock::system();
    while INTERRUPTED.load(Ordering::SeqCst) {
        clock.sleep(Duration::from_millis(10));
    }
}

//! Ctrl-C while a benchmark has gigabytes in a temporary directory: they are removed before the process ends.
//!
//! The handler's thread removes the directory under the running engine, again and again until nothing is left that its
//! threads could have made meanwhile, and ends the process. The main thread, which may fail for that, waits.

use crate::exit::{Failure, Outcome};
use firn_base::clock::Clock;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What a shell reports of a process that SIGINT ended.
const EXIT_CODE: i32 = 130;
const ATTEMPTS: usize = 100;

/// From now on, SIGINT, SIGTERM and SIGHUP remove `directory` and end the process.
pub(super) fn remove_when_interrupted(directory: PathBuf) -> Outcome<()> {
    let handler = move || {
        INTERRUPTED.store(true, Ordering::SeqCst);
        let clock = Clock::system();
        for _ in 0..ATTEMPTS {
            match std::fs::remove_dir_all(&directory) {
                Ok(()) => break,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
                Err(_) => clock.sleep(Duration::from_millis(10)),
            }
        }
        std::process::exit(EXIT_CODE);
    };
    ctrlc::set_handler(handler).map_err(|e| Failure::invalid(format!("cannot watch for Ctrl-C: {e}")))
}

/// Does not return once the handler is at work: the process ends as it says.
pub(crate) fn wait_if_interrupted() {
    let clock = Clock::system();
    while INTERRUPTED.load(Ordering::SeqCst) {
        clock.sleep(Duration::from_millis(10));
    }
}

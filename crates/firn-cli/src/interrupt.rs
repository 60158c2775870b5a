//! Handles Ctrl-C while records are loaded into a database.
//!
//! The first signal asks the load to stop: it commits the records read so far with its position and
//! reports how to continue. A second signal ends the process at once, as does a signal that arrives
//! after all records are loaded. Both are safe, because records and position are in one atomic
//! write.

use crate::exit::{Exit, Failure, Outcome};
use std::sync::atomic::{AtomicU8, Ordering};

/// No signal has arrived.
const RUNNING: u8 = 0;
/// The load should stop.
const STOPPING: u8 = 1;
/// All records are loaded; only merges are still running.
const COMPLETE: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(RUNNING);

/// Catches SIGINT, SIGTERM and SIGHUP from now on. Call it once, before anything is written.
pub(crate) fn watch() -> Outcome<()> {
    let handler = || {
        let first = STATE.compare_exchange(RUNNING, STOPPING, Ordering::SeqCst, Ordering::SeqCst);
        match first {
            Ok(_) => return,
            Err(COMPLETE) => eprintln!(
                "firn: interrupted: all records are in; the next open goes on with the merges"
            ),
            Err(_) => {
                eprintln!("firn: interrupted again: the same load goes on after its last batch")
            }
        }
        std::process::exit(i32::from(Exit::Interrupted as u8));
    };
    ctrlc::set_handler(handler)
        .map_err(|e| Failure::invalid(format!("cannot watch for Ctrl-C: {e}")))
}

/// True once a signal asked the load to stop.
pub(crate) fn is_requested() -> bool {
    STATE.load(Ordering::SeqCst) == STOPPING
}

/// Notes that all records are loaded, so that a signal may end the process at once. Returns false
/// if one has already arrived.
pub(crate) fn complete() -> bool {
    STATE
        .compare_exchange(RUNNING, COMPLETE, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}

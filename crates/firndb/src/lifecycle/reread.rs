//! Distinguishes damage from change, for a handle that was opened read-only while another process
//! writes.
//!
//! Files are held open, and bytes that were read from them never change. But memory in a pool is
//! reused in place: leaves of level 0, slots of the hot buffer, logs. An open copies as much of it
//! as fits into a part of its memory. A bad checksum in the rest may mean damage, or a concurrent
//! write. So a read that finds damage is repeated through fresh opens. Real damage is found by each
//! of them, with the same message. Anything else existed when the handle was opened, and no longer
//! does.

use super::open;
use crate::engine::Engine;
use firn_base::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// Milliseconds before each fresh open. The same place may be changing again, but not for that
/// long.
const PAUSES: [u64; 5] = [0, 1, 4, 16, 64];

impl Engine {
    /// The error that a read which met `error` must return. `again` repeats the read through
    /// another handle.
    #[cold]
    pub(crate) fn told_apart(
        &self,
        error: Error,
        again: impl Fn(&Arc<Engine>) -> Result<()>,
    ) -> Error {
        if !self.read_only || self.pm.is_none() || error.kind() != ErrorKind::Corruption {
            return error;
        }
        let is_found_again = |pause: u64| {
            self.clock.sleep(Duration::from_millis(pause));
            let fresh = open::open(self.files.path(), self.options.clone(), true);
            let read = fresh.and_then(|fresh| {
                let read = again(&fresh);
                fresh.close().and(read)
            });
            read.is_err_and(|found| found.to_string() == error.to_string())
        };
        match PAUSES.into_iter().all(is_found_again) {
            true => error,
            false => Error::changed(self.files.path().display()),
        }
    }
}

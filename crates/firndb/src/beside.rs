//! A handle that was opened read-only, beside a process that writes: telling damage from change.
//!
//! Files are held open, and no byte of them that was read changes. What lies in a pool is used again in place: leaves of
//! level 0, slots of the hot buffer, logs. An open copies what fits into a part of its memory. A checksum of the rest
//! that does not fit may mean damage, or that a writer came by. So whoever meets damage reads the same again through
//! fresh opens. What is really damaged is found by each of them, in the same words; anything else was there when the
//! handle was opened, and is not any more.

use crate::db::{Db, Inner};
use crate::recover;
use firn_base::{Error, ErrorKind, Result};
use std::time::Duration;

/// Milliseconds before each fresh open. The same place may be changing once more, but not for that long.
const PAUSES: [u64; 5] = [0, 1, 4, 16, 64];

impl Inner {
    /// What a read is to return that met `error`; `again` reads the same through another handle.
    #[cold]
    pub(crate) fn told_apart(&self, error: Error, again: impl Fn(&Db) -> Result<()>) -> Error {
        if !self.read_only || self.pm.is_none() || error.kind() != ErrorKind::Corruption {
            return error;
        }
        let is_found_again = |pause: u64| {
            std::thread::sleep(Duration::from_millis(pause));
            let read = recover::open(self.files.path(), self.options.clone(), true).and_then(|fresh| again(&fresh));
            read.is_err_and(|found| found.to_string() == error.to_string())
        };
        match PAUSES.into_iter().all(is_found_again) {
            true => error,
            false => Error::changed(self.files.path().display()),
        }
    }
}

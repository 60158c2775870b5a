//! A gate that calls pass through while a resource is open. Closing it rejects new calls and waits
//! for those inside.
//!
//! 1. After [`Gate::close`] returned, no call is inside and none can enter.
//! 2. A call that may stay inside for long checks [`Gate::check`] while it waits, and leaves once
//!    that fails.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use firn_base::sync::{AtomicBool, Condvar, Mutex, Ordering};
use firn_base::{Error, Result};

/// A count of the calls inside, and a flag that rejects new ones.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    inside: Mutex<usize>,
    left: Condvar,
}

/// A call that is inside the gate. It leaves when this is dropped.
#[must_use = "the call is inside only while this lives"]
pub(crate) struct Entered<'a>(&'a Gate);

impl Gate {
    /// Enters the gate.
    ///
    /// # Errors
    /// `Invalid` once the gate is closed.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let mut inside = self.inside.lock();
        self.check()?;
        *inside += 1;
        Ok(Entered(self))
    }

    /// Checks that the gate is open.
    ///
    /// # Errors
    /// `Invalid` once it is closed.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_closed() {
            Err(was_closed())
        } else {
            Ok(())
        }
    }

    /// True once [`Gate::close`] was called.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Rejects all later calls without waiting for those inside. Returns true for the first call of
    /// this function.
    pub(crate) fn shut(&self) -> bool {
        let _inside = self.inside.lock();
        !self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Rejects all later calls and waits until no call is inside.
    pub(crate) fn close(&self) {
        self.shut();
        let mut inside = self.inside.lock();
        while *inside > 0 {
            self.left.wait(&mut inside);
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut inside = self.0.inside.lock();
        *inside -= 1;
        if *inside == 0 {
            self.0.left.notify_all();
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_closed() { "closed" } else { "open" })
    }
}

/// The error of every call after a close.
#[cold]
pub(crate) fn was_closed() -> Error {
    Error::invalid("the database was closed")
}

//! Everything that threads synchronize on: locks, atomics, the shared pointer to a state, and
//! threads themselves.
//!
//! 1. In a normal build these are other crates' own types and nothing more; [`point`] compiles to
//!    nothing.
//! 2. Under `--cfg shuttle` they are the shuttle scheduler's types with the same interface. The
//!    models in `interleave` modules then run the engine's real code in every order that the
//!    scheduler can produce (`docs/interleave.md`). Memory orderings are the exception: the
//!    scheduler treats each as `SeqCst`.
//! 3. The engine uses no other types for this, and `cargo xtask tidy` checks that. Statistics
//!    counters and clocks are exempt.

#[cfg(shuttle)]
pub mod explore;
#[cfg(shuttle)]
mod pointer;
#[cfg(shuttle)]
mod watched;

#[cfg(not(shuttle))]
pub use arc_swap::{ArcSwap, ArcSwapOption, Guard};
#[cfg(not(shuttle))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};

#[cfg(shuttle)]
pub use pointer::{ArcSwap, ArcSwapOption, Guard};
#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};
#[cfg(shuttle)]
pub use watched::{Condvar, Mutex, MutexGuard, RwLock};

pub use std::sync::atomic::Ordering;

#[cfg(shuttle)]
pub(crate) use shuttle::{hint, thread};
#[cfg(not(shuttle))]
pub(crate) use std::{hint, thread};

/// A scheduling point, for words in raw memory that the scheduler cannot see. Call it before each
/// access to such a word.
#[inline(always)]
pub fn point() {
    #[cfg(shuttle)]
    AtomicBool::new(false).load(Ordering::SeqCst);
}

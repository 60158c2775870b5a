//! What threads meet at: locks, shared words, the pointer to a state, and threads themselves.
//!
//! 1. In a normal build these are other crates' own types and nothing more; [`point`] is no code at all.
//! 2. Under `--cfg shuttle` they are those of the shuttle scheduler behind the same interface, so that the models in
//!    `interleave` modules run the engine's real code in every order that the scheduler can think of
//!    (`docs/interleave.md`). Only memory orderings are beyond it: it takes each for `SeqCst`.
//! 3. The engine uses no other; `cargo xtask tidy` sees to that. Counters of statistics and clocks need no watching.

#[cfg(shuttle)]
pub mod explore;
#[cfg(shuttle)]
mod pointer;
#[cfg(shuttle)]
mod watched;

#[cfg(not(shuttle))]
pub use arc_swap::{ArcSwap, ArcSwapOption, Guard};
#[cfg(not(shuttle))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};

#[cfg(shuttle)]
pub use pointer::{ArcSwap, ArcSwapOption, Guard};
#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};
#[cfg(shuttle)]
pub use watched::{Condvar, Mutex, MutexGuard};

pub use std::sync::atomic::Ordering;

#[cfg(shuttle)]
pub(crate) use shuttle::{hint, thread};
#[cfg(not(shuttle))]
pub(crate) use std::{hint, thread};

/// A place where another thread may come between, for words in raw memory that the scheduler cannot see. Stands in
/// front of each access to one.
#[inline(always)]
pub fn point() {
    #[cfg(shuttle)]
    AtomicBool::new(false).load(Ordering::SeqCst);
}

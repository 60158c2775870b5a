//! The switches that control sites. They are local to a thread, so that suites with different
//! switches run concurrently.
//!
//! Only [`die_at`] applies to the whole process, because it ends the process.

use super::Site;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

thread_local! {
    static OFF: Cell<Option<&'static Site>> = const { Cell::new(None) };
    static COUNTS: RefCell<Option<BTreeMap<&'static str, u64>>> = const { RefCell::new(None) };
}

static FATAL: AtomicPtr<Site> = AtomicPtr::new(ptr::null_mut());
static PASSES_LEFT: AtomicU64 = AtomicU64::new(0);

pub(super) fn pass(site: &'static Site) -> bool {
    if ptr::eq(FATAL.load(Ordering::Relaxed), site)
        && PASSES_LEFT.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
    COUNTS.with_borrow_mut(|counts| {
        if let Some(counts) = counts {
            *counts.entry(site.name).or_default() += 1;
        }
    });
    !OFF.get().is_some_and(|off| ptr::eq(off, site))
}

/// Resets the thread's switches when a test ends, even by a panic.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        OFF.set(None);
    }
}

/// Runs `body` with one site switched off for this thread.
pub fn without<R>(site: &'static Site, body: impl FnOnce() -> R) -> R {
    let _restore = Restore;
    OFF.set(Some(site));
    body()
}

/// The name of the site that is switched off for this thread.
pub fn off() -> Option<&'static str> {
    OFF.get().map(|site| site.name)
}

/// Runs `body` and counts how often this thread passes each site during it.
pub fn counted<R>(body: impl FnOnce() -> R) -> (R, BTreeMap<&'static str, u64>) {
    COUNTS.set(Some(BTreeMap::new()));
    let result = body();
    (result, COUNTS.take().unwrap_or_default())
}

/// Ends the process, at once and without unwinding, when any thread passes `site` for the
/// `count`-th time from now.
pub fn die_at(site: &'static Site, count: u64) {
    PASSES_LEFT.store(count, Ordering::Relaxed);
    FATAL.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
}

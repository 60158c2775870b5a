//! The shared pointer to a state, with the interface of `arc_swap`. Each operation is one step of
//! the scheduler.
//!
//! A [`Guard`] counts as an owner here, whereas `arc_swap` lends without counting and counts only
//! when the pointer changes. Either way a state lives for as long as a reader holds it.

use super::point;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A shared pointer to an `Arc`.
#[derive(Debug)]
pub struct ArcSwap<T>(Slot<Arc<T>>);

/// A shared pointer to an `Arc`, or empty.
#[derive(Debug)]
pub struct ArcSwapOption<T>(Slot<Option<Arc<T>>>);

/// A loaded value.
#[derive(Debug)]
pub struct Guard<T>(T);

/// The lock is held only for a copy, and no other thread runs meanwhile.
#[derive(Debug)]
struct Slot<P>(Mutex<P>);

impl<P: Clone> Slot<P> {
    fn held(&self) -> MutexGuard<'_, P> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> P {
        point();
        self.held().clone()
    }

    /// Drops the old value after the lock is released, because its drop may run any code.
    fn store(&self, value: P) {
        point();
        let old = std::mem::replace(&mut *self.held(), value);
        drop(old);
    }
}

impl<T> Guard<T> {
    /// A guard around a value that was not loaded.
    pub fn from_inner(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Guard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> ArcSwap<T> {
    /// A pointer to `value`.
    pub fn from_pointee(value: T) -> Self {
        Self(Slot(Mutex::new(Arc::new(value))))
    }

    /// The current value.
    pub fn load(&self) -> Guard<Arc<T>> {
        Guard(self.0.load())
    }

    /// The current value, owned.
    pub fn load_full(&self) -> Arc<T> {
        self.0.load()
    }

    /// Replaces the value with `change` of it, and tries again if another thread replaced it
    /// meanwhile. Returns the one that was replaced.
    pub fn rcu(&self, mut change: impl FnMut(&Arc<T>) -> T) -> Arc<T> {
        loop {
            let old = self.0.load();
            let new = Arc::new(change(&old));
            point();
            let mut slot = self.0.held();
            if Arc::ptr_eq(&slot, &old) {
                return std::mem::replace(&mut *slot, new);
            }
        }
    }
}

impl<T> ArcSwapOption<T> {
    /// An empty pointer.
    pub fn empty() -> Self {
        Self(Slot(Mutex::new(None)))
    }

    /// The current value.
    pub fn load(&self) -> Guard<Option<Arc<T>>> {
        Guard(self.0.load())
    }

    /// The current value, owned.
    pub fn load_full(&self) -> Option<Arc<T>> {
        self.0.load()
    }

    /// Replaces the value.
    pub fn store(&self, value: Option<Arc<T>>) {
        self.0.store(value);
    }
}

impl<T> Default for ArcSwapOption<T> {
    fn default() -> Self {
        Self::empty()
    }
}

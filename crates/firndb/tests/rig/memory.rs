//! The memory of a process: by its allocator, and by the system.
#![allow(
    unsafe_code,
    reason = "a global allocator can only be written so; listed in UNSAFE.md"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of code, stacks and tables of a process. Without a database it has 3 MiB, and 6 MiB
/// with an empty one.
pub(crate) const PROCESS_BYTES: u64 = 6 << 20;

/// The system's allocator, which counts in [`ALLOCATED`], beside the engine's own mappings.
pub(crate) struct Counting;

/// The bytes that are allocated or mapped.
pub(crate) static ALLOCATED: Allocated = Allocated {
    now: AtomicUsize::new(0),
    peak: AtomicUsize::new(0),
};

pub(crate) struct Allocated {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Allocated {
    fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak
            .fetch_max(now + firn_fs::mapped_bytes(), Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed) + firn_fs::mapped_bytes()
    }

    /// The most bytes since the last [`Allocated::reset_peak`].
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.now(), Ordering::Relaxed);
    }
}

// SAFETY: forwards to the system's allocator and only counts. Test: `memory.rs`, `workloads.rs`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.add(layout.size());
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.add(layout.size());
        // SAFETY: the caller's contract is passed on. Zeroed pages come untouched from the system.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.now.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The largest resident set since the last [`reset_resident_peak`], in bytes.
pub(crate) fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// Sets the peak to the bytes that are resident now.
pub(crate) fn reset_resident_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

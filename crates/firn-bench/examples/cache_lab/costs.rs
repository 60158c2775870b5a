//! The costs of a cache: memory beside keys and values, and time.
//!
//! Each is measured in a process of its own, so that memory freed by another is not used again:
//!
//! 1. Insert half as many rows again as fit, so that the cache is full and has evicted.
//! 2. Compare the growth of resident memory with the keys and values that are found again. Memory
//!    that was freed counts as long as the allocator keeps it.
//! 3. Look up the rows found, by a Zipf distribution over them, with one thread and then with
//!    four. The figure is the time that passes, divided by the hits of all threads.
//!
//! Four threads on two cores share them: such a figure is at best half of that of one thread, and
//! tells how much the threads hinder each other, not how they would scale.

use crate::candidates::{Candidate, Room};
use crate::libraries::{Key, Library};
use crate::trace::KEY_BYTES;
use firn_base::clock::Clock;
use firn_base::exec;
use firn_base::seed::Seed;
use firn_base::{Error, Result};
use firn_bench::{Permutation, Zipf};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::sync::{Arc, Barrier};

/// The argument that makes this program measure one candidate and print the result.
pub(crate) const HIDDEN: &str = "--measure-costs";
/// The sizes of values.
pub(crate) const VALUE_BYTES: [usize; 2] = [100, 1024];
const CACHE_BYTES: u64 = 256 << 20;
const HITS: usize = 4_000_000;
/// Keys chosen in advance. They are looked up again and again.
const CHOSEN: usize = 1 << 20;
const THETA: f64 = 0.99;
const ORDER: u64 = 3;

/// The costs of a candidate with values of one size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub(crate) candidate: String,
    pub(crate) value_bytes: usize,
    /// The entries of the full cache.
    pub(crate) entries: u64,
    /// Resident memory beside keys and values.
    pub(crate) overhead_bytes_an_entry: f64,
    pub(crate) ns_a_hit_1_thread: f64,
    pub(crate) ns_a_hit_4_threads: f64,
}

/// Measures `candidate` in a new process.
///
/// # Errors
/// If the process cannot be started or fails.
pub(crate) fn measure(candidate: &Candidate, value_bytes: usize) -> Result<Costs> {
    let failed = |what: String| {
        let name = candidate.name;
        Error::invalid(format!("cannot measure the costs of {name}: {what}"))
    };
    let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let output = Command::new(program)
        .args([HIDDEN, candidate.name, &value_bytes.to_string()])
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))
}

/// Measures `candidate` in this process. `None` if it is a mere policy.
///
/// # Errors
/// If resident memory cannot be read or a thread cannot be started.
pub(crate) fn measure_here(candidate: &Candidate, value_bytes: usize) -> Result<Option<Costs>> {
    let entry_bytes = u64::from(KEY_BYTES) + value_bytes as u64;
    let room = Room {
        bytes: CACHE_BYTES,
        entries: (CACHE_BYTES / entry_bytes) as usize,
    };
    let numbers = room.entries as u64 * 3 / 2;
    let before = resident_bytes()?;
    let Some(library) = candidate.library(room) else {
        return Ok(None);
    };
    let value = vec![1; value_bytes];
    (0..numbers).for_each(|number| library.insert(&Key::new(number), &value));
    let after = resident_bytes()?;
    let found: Vec<u64> = (0..numbers)
        .filter(|number| library.look(&Key::new(*number)).is_some())
        .collect();
    if found.is_empty() {
        let message = format!("{} keeps no row of {value_bytes} bytes", candidate.name);
        return Err(Error::invalid(message));
    }
    let entries = found.len() as u64;
    let beside = after as f64 - before as f64 - (entries * entry_bytes) as f64;
    let (library, found) = (Arc::<dyn Library>::from(library), Arc::new(found));
    Ok(Some(Costs {
        candidate: candidate.name.to_owned(),
        value_bytes,
        entries,
        overhead_bytes_an_entry: beside / entries as f64,
        ns_a_hit_1_thread: ns_a_hit(&library, &found, 1)?,
        ns_a_hit_4_threads: ns_a_hit(&library, &found, 4)?,
    }))
}

/// The time for [`HITS`] hits of each of `threads` threads, for one hit.
fn ns_a_hit(library: &Arc<dyn Library>, found: &Arc<Vec<u64>>, threads: u64) -> Result<f64> {
    let barrier = Arc::new(Barrier::new(threads as usize + 1));
    let mut running = Vec::new();
    for thread in 0..threads {
        let (library, found, barrier) = (library.clone(), found.clone(), barrier.clone());
        let body = move || {
            let keys = chosen(&found, thread);
            barrier.wait();
            let looks = keys.iter().cycle().take(HITS);
            let sum: u64 = looks
                .filter_map(|key| library.look(key).map(u64::from))
                .sum();
            std::hint::black_box(sum)
        };
        let handle = exec::spawn("cache-lab", body)
            .map_err(|e| Error::invalid(format!("cannot start a thread: {e}")))?;
        running.push(handle);
    }
    let clock = Clock::system();
    barrier.wait();
    let start_ns = clock.now_ns();
    for thread in running {
        let sum = thread.join();
        sum.map_err(|_| Error::invalid("a thread of the measurement panicked"))?;
    }
    Ok((clock.now_ns() - start_ns) as f64 / (HITS as u64 * threads) as f64)
}

/// Keys among `found`, often the same ones, in an order that depends on `thread`.
fn chosen(found: &[u64], thread: u64) -> Vec<Key> {
    let zipf = Zipf::new(found.len() as u64, THETA);
    let order = Permutation::new(found.len() as u64, ORDER);
    let mut seed = Seed::new(thread);
    let mut key = || Key::new(found[order.get(zipf.rank(seed.unit())) as usize]);
    (0..CHOSEN).map(|_| key()).collect()
}

fn resident_bytes() -> Result<u64> {
    let path = "/proc/self/status";
    let text =
        std::fs::read_to_string(path).map_err(|e| Error::from_io("read", path.as_ref(), e))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let kibibytes = kibibytes.ok_or_else(|| Error::invalid("/proc/self/status has no VmRSS"))?;
    Ok(kibibytes * 1024)
}

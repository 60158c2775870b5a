//! The free units of a region. In DRAM only: at an open, everything that was not claimed is free.
//!
//! Adjacent free runs are merged into one. An allocation takes the shortest run that is long
//! enough.

use std::collections::{BTreeMap, BTreeSet};

/// The free runs of a region.
#[derive(Debug)]
pub struct Space {
    units: u32,
    free_units: u32,
    /// First unit to length.
    runs: BTreeMap<u32, u32>,
    /// (length, first unit).
    by_length: BTreeSet<(u32, u32)>,
}

impl Space {
    /// A space of `units` units, all free.
    pub fn new(units: u32) -> Space {
        let mut space = Space {
            units,
            free_units: 0,
            runs: BTreeMap::new(),
            by_length: BTreeSet::new(),
        };
        space.free(0, units);
        space
    }

    /// The number of units, free or not.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// The number of free units.
    pub fn free_units(&self) -> u32 {
        self.free_units
    }

    /// Allocates `len` adjacent units and returns the first; `None` if no free run is long enough.
    pub fn alloc(&mut self, len: u32) -> Option<u32> {
        let &(_, start) = self.by_length.range((len, 0)..).next()?;
        self.claim(start, len).then_some(start)
    }

    /// Takes `len` units from `start` on; false if they are not all free.
    pub fn claim(&mut self, start: u32, len: u32) -> bool {
        let Some((&run, &run_len)) = self.runs.range(..=start).next_back() else {
            return false;
        };
        let Some(behind) = (run + run_len)
            .checked_sub(start)
            .and_then(|room| room.checked_sub(len))
        else {
            return false;
        };
        self.drop_run(run, run_len);
        self.add_run(run, start - run);
        self.add_run(start + len, behind);
        true
    }

    /// Frees `len` units from `start` on.
    pub fn free(&mut self, start: u32, len: u32) {
        let (mut from, mut to) = (start, start + len);
        if let Some((&run, &run_len)) = self.runs.range(..start).next_back() {
            debug_assert!(run + run_len <= start, "units that were free are freed");
            if run + run_len == start {
                self.drop_run(run, run_len);
                from = run;
            }
        }
        if let Some((&run, &run_len)) = self.runs.range(start..).next() {
            debug_assert!(run >= to, "units that were free are freed");
            if run == to {
                self.drop_run(run, run_len);
                to = run + run_len;
            }
        }
        self.add_run(from, to - from);
    }

    fn drop_run(&mut self, start: u32, len: u32) {
        self.runs.remove(&start);
        self.by_length.remove(&(len, start));
        self.free_units -= len;
    }

    fn add_run(&mut self, start: u32, len: u32) {
        if len > 0 {
            self.runs.insert(start, len);
            self.by_length.insert((len, start));
            self.free_units += len;
        }
    }
}

//! An estimate of the entries below a new table that its entries hide (PMDB, 4.1): keys of it are
//! looked up in the filters of the tables below. No block is read.

use crate::read::state::{LevelRuns, Part};
use crate::read::table::Table;
use firn_base::{Result, SeqNo};
use firn_table::sst::Query;
use std::sync::Arc;

/// One key in so many is looked up.
const SAMPLE: u64 = 16;
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// The share of keys that a filter of ten bits a key has although its table has not.
const FALSE_POSITIVES: f64 = 0.01;

/// The levels below an output.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    levels: Arc<[Arc<LevelRuns>]>,
}

/// The keys of one output table that were looked up.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Hidden {
    /// Keys that some filter has.
    found: u64,
    /// The same by chance.
    by_chance: f64,
}

impl Below {
    /// The sorted levels of `part`.
    pub(crate) fn of(part: &Part) -> Below {
        let sorted = part.levels.iter().filter(|(level, _)| !level.is_zero());
        Below {
            levels: sorted.map(|(_, runs)| runs.clone()).collect(),
        }
    }

    /// Looks up `key`, if it is one of the sample.
    ///
    /// # Errors
    /// The error of opening a table.
    pub(super) fn look_up(&self, key: &[u8], hidden: &mut Hidden) -> Result<()> {
        let query = Query::new(key, SeqNo::MAX);
        // Not by bits that the filters use.
        if !query
            .hash
            .wrapping_mul(MIX)
            .rotate_left(32)
            .is_multiple_of(SAMPLE)
        {
            return Ok(());
        }
        let (mut is_found, mut tests) = (false, 0);
        for run in self.levels.iter().filter_map(|level| level.run_for(key)) {
            // A table without a filter may have any key, and says nothing.
            if let Table::Sst(sst) = &*run.table()?
                && sst.has_filter()
            {
                tests += 1;
                is_found |= sst.may_have(&query);
            }
        }
        hidden.found += u64::from(is_found);
        hidden.by_chance += 1.0 - (1.0 - FALSE_POSITIVES).powi(tests);
        Ok(())
    }
}

impl Hidden {
    /// The number of entries that the table hides.
    pub(super) fn entries(&self) -> u64 {
        ((self.found as f64 - self.by_chance).max(0.0) * SAMPLE as f64) as u64
    }
}

//! An estimate of the entries below a new table that its entries hide (PMDB, 4.1): keys of it are
//! looked up in the filters of the tables below. Nothing is read: a key over a table that is not
//! open, or has no filter, says nothing.

use crate::read::state::{LevelRuns, Part};
use crate::read::table::Table;
use crate::read::table_run::TableRun;
use firn_base::SeqNo;
use firn_base::seed::mix;
use firn_table::sst::Query;
use std::sync::Arc;

/// One key in so many is looked up.
const SAMPLE: u64 = 16;

/// The levels below an output.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    levels: Arc<[Arc<LevelRuns>]>,
}

/// The keys of one output table that were looked up.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Hidden {
    /// Entries of the table.
    entries: u64,
    /// Keys whose tables below all answered.
    known: u64,
    /// The ones that some filter has.
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

    /// The tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableRun>> {
        self.levels.iter().flat_map(|level| &level.runs)
    }

    /// Counts an entry, and looks up its key if that is one of the sample.
    pub(super) fn look_up(&self, key: &[u8], hidden: &mut Hidden) {
        hidden.entries += 1;
        let query = Query::new(key, SeqNo::MAX);
        // Mixed, because the filters use the bits of the hash.
        if !mix(query.hash).is_multiple_of(SAMPLE) {
            return;
        }
        let (mut is_found, mut misses) = (false, 1.0);
        for run in self.levels.iter().filter_map(|level| level.run_for(key)) {
            let Some(Table::Sst(sst)) = run.held() else {
                return;
            };
            let Some(by_chance) = sst.false_positives() else {
                return;
            };
            misses *= 1.0 - by_chance;
            is_found |= sst.may_have(&query);
        }
        hidden.known += 1;
        hidden.found += u64::from(is_found);
        hidden.by_chance += 1.0 - misses;
    }
}

impl Hidden {
    /// The number of entries that the table hides.
    pub(super) fn estimate(&self) -> u64 {
        let share = (self.found as f64 - self.by_chance) / self.known.max(1) as f64;
        (share.max(0.0) * self.entries as f64) as u64
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::Hidden;

    #[test]
    fn chance_hides_nothing() {
        let hidden = |found, by_chance| {
            let (entries, known) = (1600, 100);
            let hidden = Hidden {
                entries,
                known,
                found,
                by_chance,
            };
            hidden.estimate()
        };
        assert_eq!(hidden(12, 12.0), 0);
        assert_eq!(hidden(10, 12.0), 0);
        assert_eq!(hidden(62, 12.0), 800);
        assert_eq!(Hidden::default().estimate(), 0);
    }
}

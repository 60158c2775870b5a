//! An estimate of the entries below a new table that its entries hide (PMDB, 4.1): keys of it are
//! looked up in the trees below, or in the filters of the tables. Nothing is read from files: a key
//! over a table that has no tree and is not open, or has no filter, says nothing.

use crate::manifest::Level;
use crate::read::block_trees::PartTrees;
use crate::read::state::{LevelRuns, Part};
use crate::read::table::Table;
use crate::read::table_run::TableRun;
use firn_base::SeqNo;
use firn_base::seed::mix;
use firn_table::sst::{Query, false_positives};
use std::sync::Arc;

/// One key in so many is looked up.
const SAMPLE: u64 = 16;

/// The levels below an output.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    levels: Arc<[Arc<LevelRuns>]>,
    trees: Option<Arc<PartTrees>>,
    /// The false positives of a block's filter.
    by_chance: Option<f64>,
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
    /// The sorted levels of `part`. Blocks have filters of `filter_bits` a key in trees.
    pub(crate) fn of(part: &Part, filter_bits: u32) -> Below {
        let sorted = part.levels.iter().filter(|(level, _)| !level.is_zero());
        Below {
            levels: sorted.map(|(_, runs)| runs.clone()).collect(),
            trees: part.trees.clone(),
            by_chance: false_positives(filter_bits),
        }
    }

    /// The tables, if their filters are asked.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableRun>> {
        let levels = match self.trees {
            Some(_) => &[],
            None => &self.levels[..],
        };
        levels.iter().flat_map(|level| &level.runs)
    }

    /// Asks the filters of the tables on `level` and below for a key. `None` if one is unknown.
    fn ask(&self, query: &Query<'_>) -> Option<(bool, f64)> {
        let (mut is_found, mut misses) = (false, 1.0);
        let mut level = Level(1);
        while let Some(runs) = self.levels.get(level.0 - 1) {
            let trees = self.trees.as_ref();
            if let Some(tree) = trees.and_then(|trees| trees.at(level, query.key)) {
                let (may, tests) = tree.may_have(query)?;
                misses *= (1.0 - self.by_chance?).powi(tests as i32);
                is_found |= may;
                level = tree.meta.levels.1.below();
                continue;
            }
            if let Some(run) = runs.run_for(query.key) {
                let Some(Table::Sst(sst)) = run.held() else {
                    return None;
                };
                misses *= 1.0 - sst.false_positives()?;
                is_found |= sst.may_have(query);
            }
            level = level.below();
        }
        Some((is_found, misses))
    }

    /// Counts an entry, and looks up its key if that is one of the sample.
    pub(super) fn look_up(&self, key: &[u8], hidden: &mut Hidden) {
        hidden.entries += 1;
        let query = Query::new(key, SeqNo::MAX);
        // Mixed, because the filters use the bits of the hash.
        if !mix(query.hash).is_multiple_of(SAMPLE) {
            return;
        }
        let Some((is_found, misses)) = self.ask(&query) else {
            return;
        };
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

//! The stack of a range: its tables on all levels below 0, in profiles whose ranges have tables
//! over one another.

use crate::manifest::{Level, PartRange};
use crate::read::state::{LevelRuns, Part};
use crate::read::table_run::TableRun;
use std::sync::Arc;

/// The tables of a range, from the newest to the base.
pub(crate) struct Stack<'a> {
    /// The first key of the range.
    pub(crate) from: &'a [u8],
    /// The key at which the next one begins.
    pub(crate) to: Option<&'a [u8]>,
    /// The levels that have tables, with them.
    pub(crate) levels: Vec<(Level, &'a [Arc<TableRun>])>,
}

impl<'a> Stack<'a> {
    /// The stack of a range of `part`.
    pub(crate) fn of(part: &'a Part, (from, to): PartRange<'a>) -> Stack<'a> {
        let of_level = |(level, runs): (Level, &'a Arc<LevelRuns>)| {
            let runs = runs.within((from, to));
            (!level.is_zero() && !runs.is_empty()).then_some((level, runs))
        };
        Stack {
            from,
            to,
            levels: part.levels.iter().filter_map(of_level).collect(),
        }
    }

    /// Live bytes of its tables.
    pub(crate) fn bytes(&self) -> u64 {
        let runs = self.levels.iter().flat_map(|(_, runs)| *runs);
        runs.map(|run| run.meta.live_bytes()).sum()
    }

    /// The number of levels over one key.
    pub(crate) fn height(&self) -> usize {
        self.levels.len()
    }

    /// All its tables.
    pub(crate) fn tables(&self) -> Vec<(Level, Arc<TableRun>)> {
        let of_level = |(level, runs): (Level, &'a [Arc<TableRun>])| {
            runs.iter().map(move |run| (level, run.clone()))
        };
        self.levels.iter().copied().flat_map(of_level).collect()
    }
}

//! Whether a table takes what comes from above by an append or is written anew (BlockDB, IV-A), table by table. Pure.
//!
//! Limits first: a table that may not grow, that is too large, too much of which is dead or would be written anyway,
//! whose filter has no bits left, or that belongs to a database with too many dead bytes, is written anew. Then the
//! cost in bytes written now, index and filter included: an append that does not save a part of them is not worth
//! the dead bytes that it leaves. So small entries, of which nearly every block gets one, choose table-grained by
//! themselves. And cost includes what scans will pay: one that comes upon appended blocks needs about one more read,
//! and as many are expected until the next compaction as there were since the last.

use crate::rows;
use crate::tuning::BlockTuning;
use firn_table::sst::Dirty;

/// How a table takes what comes from above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grain {
    /// Blocks are appended.
    Block,
    /// All is written anew.
    Table,
}

/// What was chosen for a table, and which rule decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) table: u64,
    pub(crate) grain: Grain,
    pub(crate) because: &'static str,
    pub(crate) blocks: usize,
    pub(crate) dirty_blocks: usize,
    /// Reads that went on at the same time, at most.
    pub(crate) reads_most: usize,
}

/// What the choice rests on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) dirty: &'a Dirty,
    /// Bytes of the table's live blocks.
    pub(crate) data_bytes: u64,
    /// Bytes of its index, filter and properties.
    pub(crate) section_bytes: u64,
    pub(crate) dead_bytes: u64,
    /// Cursors that went through blocks of it since it was last written.
    pub(crate) scans: u64,
    /// Keys that its filter has room for.
    pub(crate) filter_left: u64,
    pub(crate) has_filter: bool,
    /// The target size of a table.
    pub(crate) table_bytes: u64,
    pub(crate) is_last: bool,
    /// Dead bytes per live byte, over all tables.
    pub(crate) dead_share: f64,
}

/// Why a table that an append runs on or that a checkpoint shares is written anew.
pub(crate) const MAY_NOT_GROW: &str = "may not grow";

/// Chooses for a table that may grow.
pub(crate) fn choose(facts: Facts<'_>, tuning: &BlockTuning) -> (Grain, &'static str) {
    let live = (facts.data_bytes + facts.section_bytes) as f64;
    let dead = facts.dead_bytes as f64;
    let dirty = facts.dirty.bytes as f64;
    let limit = if !rows::BLOCK_SELECTIVE.is_on() {
        None
    } else if live > tuning.live_tables_max.of(facts.is_last) * facts.table_bytes as f64 {
        Some("live bytes")
    } else if live < tuning.live_share_min.of(facts.is_last) * (live + dead) {
        Some("live share")
    } else if dirty > tuning.dirty_share_max.of(facts.is_last) * live {
        Some("dirty share")
    } else {
        None
    };
    let limit = limit
        .or_else(|| (facts.has_filter && facts.dirty.new_keys > facts.filter_left).then_some("filter"))
        .or_else(|| {
            let share = dead / live.max(1.0);
            (rows::BLOCK_SPACE.is_on() && share >= share_allowed(facts.dead_share, tuning.dead_share_max))
                .then_some("space")
        });
    if let Some(because) = limit {
        return (Grain::Table, because);
    }
    let incoming = facts.dirty.incoming_bytes as f64;
    let append = incoming + dirty + facts.section_bytes as f64;
    let bearable = (incoming + live) * (1.0 - tuning.saving_min);
    if !rows::BLOCK_SELECTIVE.is_on() {
        return (Grain::Block, "cost");
    }
    let later = facts.scans as f64 * tuning.scan_bytes as f64;
    match append {
        append if append > bearable => (Grain::Table, "cost"),
        append if append + later > bearable => (Grain::Table, "scans"),
        _ => (Grain::Block, "cost"),
    }
}

/// Dead bytes per live byte that one table may have, as all tables together come near `limit`: the tables with most of
/// them are written anew first, since that gives back most per byte written, and beyond the limit all are.
fn share_allowed(dead_share: f64, limit: f64) -> f64 {
    let slack = limit * 0.1;
    if dead_share > limit {
        0.0
    } else if dead_share > limit - slack {
        (limit - dead_share) / slack * 2.0 * limit
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn dirty(bytes: u64) -> Dirty {
        Dirty { blocks: Arc::new([]), bytes, incoming: 100, incoming_bytes: 100_000, new_keys: 10 }
    }

    fn facts(dirty: &Dirty) -> Facts<'_> {
        Facts {
            dirty,
            data_bytes: 1_000_000,
            section_bytes: 20_000,
            dead_bytes: 0,
            scans: 0,
            filter_left: 100,
            has_filter: true,
            table_bytes: 1_000_000,
            is_last: false,
            dead_share: 0.0,
        }
    }

    #[test]
    fn each_rule_decides_where_it_should() {
        let tuning = BlockTuning::default();
        let choose = |facts: Facts<'_>| choose(facts, &tuning);
        let (some, many) = (dirty(260_000), dirty(820_000));
        assert_eq!(choose(facts(&some)), (Grain::Block, "cost"));
        assert_eq!(choose(Facts { data_bytes: 4_100_000, ..facts(&some) }), (Grain::Table, "live bytes"));
        assert_eq!(choose(Facts { dead_bytes: 1_600_000, ..facts(&some) }), (Grain::Table, "live share"));
        assert_eq!(choose(facts(&many)), (Grain::Table, "dirty share"));
        assert_eq!(choose(Facts { filter_left: 9, ..facts(&some) }), (Grain::Table, "filter"));
        assert_eq!(choose(Facts { filter_left: 9, has_filter: false, ..facts(&some) }), (Grain::Block, "cost"));
        assert_eq!(choose(Facts { dead_share: 0.3, ..facts(&some) }), (Grain::Table, "space"));
        // Near the limit those with many dead bytes go first.
        assert_eq!(choose(Facts { dead_share: 0.17, ..facts(&some) }), (Grain::Block, "cost"));
        assert_eq!(choose(Facts { dead_share: 0.17, dead_bytes: 300_000, ..facts(&some) }), (Grain::Table, "space"));
        assert_eq!(choose(Facts { dead_share: 0.15, dead_bytes: 300_000, ..facts(&some) }), (Grain::Block, "cost"));
        assert_eq!(choose(Facts { scans: 20, ..facts(&some) }), (Grain::Block, "cost"));
        assert_eq!(choose(Facts { scans: 30, ..facts(&some) }), (Grain::Table, "scans"));
        let most = dirty(960_000);
        let loose =
            BlockTuning { dirty_share_max: crate::ByLevel { middle: 1.0, last: 1.0 }, ..BlockTuning::default() };
        assert_eq!(
            super::choose(facts(&most), &loose),
            (Grain::Table, "cost"),
            "nearly all blocks, as of small entries"
        );
    }

    #[test]
    fn the_last_level_is_kept_tighter() {
        let tuning = BlockTuning::default();
        let some = dirty(450_000);
        assert_eq!(choose(facts(&some), &tuning).0, Grain::Block);
        assert_eq!(choose(Facts { is_last: true, ..facts(&some) }, &tuning), (Grain::Table, "dirty share"));
        let few = dirty(100_000);
        let stale = Facts { is_last: true, dead_bytes: 300_000, ..facts(&few) };
        assert_eq!(choose(stale, &tuning), (Grain::Table, "live share"));
        assert_eq!(choose(Facts { is_last: false, ..stale }, &tuning), (Grain::Block, "cost"));
    }
}

//! The choice, for each table, between appending its input and rewriting it (BlockDB, IV-A). Pure.
//!
//! A table that may not grow, is too large, or has no room left in its filter is rewritten.
//! Otherwise the cheaper way is chosen, in bytes that include index and filter:
//!
//! ```text
//! append   input + dirty blocks + sections | and later: scans x 16 KiB + dead bytes x price
//! rewrite  input + live blocks + sections  | and later: nothing
//! ```
//! - Scans are the cost of an append for readers. A scan over appended blocks needs about one more
//!   read, and as many scans are expected until the next compaction as there were since the last.
//! - Dead bytes are those of the table, which a rewrite removes, and those that the append adds.
//!   Their price rises from a fifth to beyond any saving as all tables together approach their
//!   limit. So the space goes to the appends that save the most per dead byte, and a series of
//!   appends to one table ends once its dead bytes cost more than one more append saves. On a
//!   middle level the price is lower, by the level's size as a fraction of the last one's: once as
//!   many bytes have come in as the level has, its tables have moved down, and their dead bytes
//!   with them.
//! - Small entries, of which nearly every block receives one, lead to table-grained compaction by
//!   themselves.
//!
//! Alternatively, the limits on dead and dirty bytes are constants, for middle levels and for the
//! last one ([`GrainLimits::Constants`], those of the paper and its authors), with a minimum
//! saving.

use crate::event::GrainRule;
use crate::mechanisms;
use crate::options::tuning::{BlockTuning, GrainLimits};
use firn_base::FileId;
use firn_table::sst::Dirty;

/// The way in which a table takes its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grain {
    /// Blocks are appended.
    Block,
    /// The whole table is rewritten.
    Table,
}

/// The choice for a table, and the rule that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) table: FileId,
    pub(crate) grain: Grain,
    pub(crate) rule: GrainRule,
    pub(crate) blocks: usize,
    pub(crate) dirty_blocks: usize,
    /// The largest number of concurrent reads.
    pub(crate) reads_most: usize,
}

/// The facts that decide the choice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) dirty: &'a Dirty,
    /// Bytes of the table's live blocks.
    pub(crate) data_bytes: u64,
    /// Bytes of its index, filter and properties.
    pub(crate) section_bytes: u64,
    pub(crate) dead_bytes: u64,
    /// The number of cursors that went through blocks of the table since it was last written.
    pub(crate) scans: u64,
    /// The number of keys that the filter has room for.
    pub(crate) filter_left: u64,
    pub(crate) has_filter: bool,
    /// The target size of a table.
    pub(crate) table_bytes: u64,
    pub(crate) is_last: bool,
    /// Live bytes of the level divided by those of the last level, at most 1.
    pub(crate) level_share: f64,
    /// Dead bytes per live byte, over all tables.
    pub(crate) dead_share: f64,
}

/// The price of a dead byte on the last level while there is none, in bytes written.
const PRICE: f64 = 0.2;

/// Chooses for a table that may grow.
pub(crate) fn choose(facts: Facts<'_>, tuning: &BlockTuning) -> (Grain, GrainRule) {
    let live = (facts.data_bytes + facts.section_bytes) as f64;
    let selective = mechanisms::BLOCK_SELECTIVE.is_on();
    let constants = tuning.grain_limits == GrainLimits::Constants;
    let limit = if selective
        && live > tuning.live_tables_max.of(facts.is_last) * facts.table_bytes as f64
    {
        Some(GrainRule::LiveBytes)
    } else if facts.has_filter && facts.dirty.new_keys > facts.filter_left {
        Some(GrainRule::Filter)
    } else if constants {
        limit_passed(&facts, live, tuning)
    } else {
        None
    };
    if let Some(rule) = limit {
        return (Grain::Table, rule);
    }
    if !selective {
        return (Grain::Block, GrainRule::Cost);
    }
    let (incoming, left) = (
        facts.dirty.incoming_bytes as f64,
        (facts.dirty.bytes + facts.section_bytes) as f64,
    );
    let (least, price) = if constants {
        (tuning.saving_min, 0.0)
    } else {
        (0.0, price(&facts, tuning))
    };
    let rewrite = (incoming + live) * (1.0 - least);
    let append = incoming + left;
    let scans = facts.scans as f64 * tuning.scan_bytes as f64;
    let dead = (facts.dead_bytes as f64 + left) * price;
    if append > rewrite {
        (Grain::Table, GrainRule::Cost)
    } else if append + scans > rewrite {
        (Grain::Table, GrainRule::Scans)
    } else if append + scans + dead > rewrite {
        (Grain::Table, GrainRule::Space)
    } else {
        (Grain::Block, GrainRule::Cost)
    }
}

/// The first constant limit that a table exceeds.
fn limit_passed(facts: &Facts<'_>, live: f64, tuning: &BlockTuning) -> Option<GrainRule> {
    let dead = facts.dead_bytes as f64;
    let share = dead / live.max(1.0);
    let selective = mechanisms::BLOCK_SELECTIVE.is_on();
    if selective && live < tuning.live_share_min.of(facts.is_last) * (live + dead) {
        Some(GrainRule::LiveShare)
    } else if selective
        && facts.dirty.bytes as f64 > tuning.dirty_share_max.of(facts.is_last) * live
    {
        Some(GrainRule::DirtyShare)
    } else if mechanisms::BLOCK_SPACE.is_on()
        && share >= share_allowed(facts.dead_share, tuning.dead_share_max)
    {
        Some(GrainRule::Space)
    } else {
        None
    }
}

/// The price of a dead byte, in bytes written.
fn price(facts: &Facts<'_>, tuning: &BlockTuning) -> f64 {
    if !mechanisms::BLOCK_SPACE.is_on() {
        return 0.0;
    }
    let full = facts.dead_share / tuning.dead_share_max;
    if full < 1.0 {
        PRICE / (1.0 - full) * facts.level_share
    } else {
        f64::INFINITY
    }
}

/// Dead bytes per live byte that one table may have, as all tables together approach `limit`. The
/// tables with the most are rewritten first, because that frees the most per byte written. Beyond
/// the limit, all are.
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
        Dirty {
            blocks: Arc::new([]),
            bytes,
            incoming: 100,
            incoming_bytes: 100_000,
            new_keys: 10,
        }
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
            level_share: 0.1,
            dead_share: 0.0,
        }
    }

    const APPEND: (Grain, GrainRule) = (Grain::Block, GrainRule::Cost);
    const SPACE: (Grain, GrainRule) = (Grain::Table, GrainRule::Space);

    fn constants() -> BlockTuning {
        BlockTuning {
            grain_limits: GrainLimits::Constants,
            ..BlockTuning::default()
        }
    }

    #[test]
    fn what_is_cheaper_is_chosen() {
        let tuning = BlockTuning {
            grain_limits: GrainLimits::Cost,
            ..BlockTuning::default()
        };
        let choose = |facts: Facts<'_>| choose(facts, &tuning);
        let (some, many, most) = (dirty(260_000), dirty(820_000), dirty(990_000));
        let (more, too_many, all, one) =
            (dirty(600_000), dirty(870_000), dirty(1_000_001), dirty(1));
        let last = |dirty, dead_share, dead_bytes| {
            choose(Facts {
                is_last: true,
                level_share: 1.0,
                dead_share,
                dead_bytes,
                ..facts(dirty)
            })
        };
        assert_eq!(choose(facts(&some)), APPEND);
        assert_eq!(choose(facts(&many)), APPEND, "there is room");
        assert_eq!(choose(facts(&most)), SPACE, "hardly anything is saved");
        assert_eq!(last(&many, 0.0, 0), APPEND);
        assert_eq!(last(&too_many, 0.0, 0), SPACE);
        assert_eq!(
            choose(facts(&all)),
            (Grain::Table, GrainRule::Cost),
            "as of small entries"
        );
        assert_eq!(
            choose(Facts {
                data_bytes: 4_100_000,
                ..facts(&some)
            }),
            (Grain::Table, GrainRule::LiveBytes)
        );
        assert_eq!(
            choose(Facts {
                filter_left: 9,
                ..facts(&some)
            }),
            (Grain::Table, GrainRule::Filter)
        );
        assert_eq!(
            choose(Facts {
                scans: 44,
                ..facts(&some)
            }),
            APPEND
        );
        assert_eq!(
            choose(Facts {
                scans: 46,
                ..facts(&some)
            }),
            (Grain::Table, GrainRule::Scans)
        );
        // Dead bytes are at four fifths of their limit: each one costs as much as a byte written.
        assert_eq!(last(&some, 0.144, 400_000), APPEND);
        assert_eq!(last(&some, 0.144, 500_000), SPACE);
        assert_eq!(
            last(&more, 0.144, 0),
            SPACE,
            "little is saved for what it leaves"
        );
        assert_eq!(last(&some, 0.09, 1_000_000), APPEND, "there is room");
        assert_eq!(last(&one, 0.18, 0), SPACE, "there is none");
        // On middle levels dead bytes stay for less time.
        let middle = |dead_share, dead_bytes| {
            choose(Facts {
                dead_share,
                dead_bytes,
                ..facts(&some)
            })
        };
        assert_eq!(middle(0.144, 5_000_000), APPEND);
        assert_eq!(middle(0.144, 8_000_000), SPACE);
        assert_eq!(middle(0.18, 0), SPACE);
    }

    #[test]
    fn each_constant_decides_where_it_should() {
        let tuning = constants();
        let choose = |facts: Facts<'_>| choose(facts, &tuning);
        let (some, many) = (dirty(260_000), dirty(820_000));
        assert_eq!(choose(facts(&some)), APPEND);
        assert_eq!(
            choose(Facts {
                data_bytes: 4_100_000,
                ..facts(&some)
            }),
            (Grain::Table, GrainRule::LiveBytes)
        );
        assert_eq!(
            choose(Facts {
                dead_bytes: 1_600_000,
                ..facts(&some)
            }),
            (Grain::Table, GrainRule::LiveShare)
        );
        assert_eq!(choose(facts(&many)), (Grain::Table, GrainRule::DirtyShare));
        assert_eq!(
            choose(Facts {
                filter_left: 9,
                ..facts(&some)
            }),
            (Grain::Table, GrainRule::Filter)
        );
        assert_eq!(
            choose(Facts {
                filter_left: 9,
                has_filter: false,
                ..facts(&some)
            }),
            APPEND
        );
        assert_eq!(
            choose(Facts {
                dead_share: 0.3,
                ..facts(&some)
            }),
            SPACE
        );
        // Near the limit, tables with many dead bytes are rewritten first.
        assert_eq!(
            choose(Facts {
                dead_share: 0.17,
                ..facts(&some)
            }),
            APPEND
        );
        assert_eq!(
            choose(Facts {
                dead_share: 0.17,
                dead_bytes: 300_000,
                ..facts(&some)
            }),
            SPACE
        );
        assert_eq!(
            choose(Facts {
                dead_share: 0.15,
                dead_bytes: 300_000,
                ..facts(&some)
            }),
            APPEND
        );
        assert_eq!(
            choose(Facts {
                scans: 20,
                ..facts(&some)
            }),
            APPEND
        );
        assert_eq!(
            choose(Facts {
                scans: 30,
                ..facts(&some)
            }),
            (Grain::Table, GrainRule::Scans)
        );
        let most = dirty(960_000);
        let loose = BlockTuning {
            dirty_share_max: crate::ByLevel {
                middle: 1.0,
                last: 1.0,
            },
            ..constants()
        };
        assert_eq!(
            super::choose(facts(&most), &loose),
            (Grain::Table, GrainRule::Cost),
            "nearly all blocks, as of small entries"
        );
    }

    #[test]
    fn the_last_level_is_kept_tighter() {
        let tuning = constants();
        let some = dirty(450_000);
        assert_eq!(choose(facts(&some), &tuning).0, Grain::Block);
        assert_eq!(
            choose(
                Facts {
                    is_last: true,
                    ..facts(&some)
                },
                &tuning
            ),
            (Grain::Table, GrainRule::DirtyShare)
        );
        let few = dirty(100_000);
        let stale = Facts {
            is_last: true,
            dead_bytes: 300_000,
            ..facts(&few)
        };
        assert_eq!(choose(stale, &tuning), (Grain::Table, GrainRule::LiveShare));
        assert_eq!(
            choose(
                Facts {
                    is_last: false,
                    ..stale
                },
                &tuning
            ),
            APPEND
        );
    }
}

//! The picker's inputs and outputs.

use super::*;
use crate::compaction::plan::{BusyTables, How, Plan, Reason};
use crate::files::Files;
use crate::manifest::{Edit, PartId, TableMeta, Version};
use crate::options::tuning::Tuning;
use crate::read::sst_run::{TableCache, TableCacheBounds};
use crate::read::state::{ReadState, Touched};
use firn_base::count::IoCounters;
use firn_base::{Limits, SeqNo};
use firn_fs::SimFs;
use firn_table::BlockCache;
use firn_table::sst::{Extent, TableContext};
use std::path::Path;
use std::sync::Arc;

/// A table: level, id, smallest and largest key, size in KiB.
type Table<'a> = (usize, u64, &'a str, &'a str, u64);

fn add(tables: &[Table<'_>]) -> Vec<(usize, TableMeta)> {
    let meta = |&(level, id, smallest, largest, kib): &Table<'_>| {
        let table = TableMeta {
            id,
            extent: Extent {
                valid_len: kib << 10,
                footer_offset: 0,
            },
            data_bytes: 0,
            entries: 1,
            deletes: 0,
            seqno_min: SeqNo(id),
            seqno_max: SeqNo(id),
            smallest: smallest.into(),
            largest: largest.into(),
            shared: false,
            dead_bytes: 0,
            small_blocks: 0,
            block_bytes_max: 0,
            filter_left: 0,
            appends: 0,
            superseded_bytes: 0,
        };
        (level, table)
    };
    tables.iter().map(meta).collect()
}

fn cache() -> Arc<TableCache> {
    let files = Arc::new(Files::of_test(
        &SimFs::new(1),
        Path::new("/nowhere"),
        [0; 16],
    ));
    let context = TableContext::new(
        Arc::new(BlockCache::new(0, 512)),
        Arc::new(IoCounters::default()),
    );
    Arc::new(TableCache::new(files, context, &TableCacheBounds::ONE))
}

/// A state with these tables.
fn state(tables: &[Table<'_>]) -> ReadState {
    let mut version = Version::default();
    version
        .apply(&Edit {
            id: 1,
            add: add(tables),
            ..Edit::default()
        })
        .unwrap();
    ReadState::new(Vec::new(), &version, &cache(), Limits::tiny().levels)
}

#[test]
fn a_state_is_made_from_the_one_before() {
    let (cache, levels) = (cache(), Limits::tiny().levels);
    let mut version = Version::default();
    let mut next = |before: &ReadState, drop: &[(usize, u64)], tables: &[Table<'_>]| {
        let edit = Edit {
            id: version.edit_id + 1,
            drop: drop.to_vec(),
            add: add(tables),
            ..Edit::default()
        };
        version.apply(&edit).unwrap();
        before.with_tables(
            &version,
            Touched::Keys(&mut std::iter::once(&b"a"[..])),
            &cache,
            levels,
        )
    };
    let first = next(
        &ReadState::new(Vec::new(), &Version::default(), &cache, levels),
        &[],
        &[
            (0, 1, "a", "z", 1),
            (1, 2, "a", "c", 2),
            (1, 3, "d", "f", 4),
            (1, 4, "g", "i", 8),
            (2, 5, "a", "z", 16),
        ],
    );
    // One table of level 1 is replaced, and one moves down a level.
    let second = next(
        &first,
        &[(1, 3), (1, 4), (2, 5)],
        &[(1, 6, "d", "e", 32), (2, 4, "g", "i", 8)],
    );
    let run = |state: &ReadState, id| {
        state
            .tables()
            .find(|(_, run)| run.meta.id == id)
            .map(|(_, run)| run.clone())
            .unwrap()
    };
    assert!(
        Arc::ptr_eq(&first.parts[0].levels[0], &second.parts[0].levels[0]),
        "what is the same is shared"
    );
    for id in [2, 4] {
        assert!(
            Arc::ptr_eq(&run(&first, id), &run(&second, id)),
            "table {id} is the same run"
        );
    }
    let bytes: Vec<u64> = second.parts[0]
        .levels
        .iter()
        .map(|level| level.bytes() >> 10)
        .collect();
    assert_eq!(bytes[..3], [1, 34, 8]);
    assert_eq!(first.parts[0].levels[1].bytes() >> 10, 14, "as it was");
    let found = |key: &str| {
        second.parts[0].levels[1]
            .run_for(key.as_bytes())
            .map(|run| run.meta.id)
    };
    assert_eq!(
        [found("b"), found("d"), found("f"), found("g")],
        [Some(2), Some(6), None, None]
    );
    assert!(
        second.parts[0].levels[1]
            .run_of(&run(&first, 3).meta)
            .is_none()
    );
    assert!(
        second.parts[0].levels[2]
            .run_of(&run(&first, 4).meta)
            .is_some()
    );
    let last = next(&second, &[(0, 1), (1, 2), (1, 6), (2, 4)], &[]);
    assert_eq!(
        (last.tables().count(), last.parts[0].dead_and_live()),
        (0, (0, 0))
    );
}

fn choose(state: &ReadState, busy: &[u64], seek: Option<(usize, u64)>) -> Option<Plan> {
    let tables = || {
        state.parts[0]
            .tables()
            .filter(|(_, run)| busy.contains(&run.meta.id))
    };
    let mut taken = BusyTables::default();
    tables().for_each(|(level, run)| taken.take(level, run));
    let limits = Limits::tiny();
    pick(state, &facts(&limits, &taken, seek))
}

fn facts<'a>(limits: &'a Limits, busy: &'a BusyTables, seek: Option<(usize, u64)>) -> Facts<'a> {
    Facts {
        flush_begun: false,
        limits,
        busy,
        flushing: false,
        oldest: SeqNo::MAX,
        visible: SeqNo(0),
        seek,
        appends: false,
        dead_share_max: 0.2,
        evicting: false,
        tuning: Box::leak(Box::default()),
        wanted: None,
        chunk_bytes: 0,
        buffer_bytes: 0,
        level0_inputs_max: usize::MAX,
        at_rest: false,
        idle: false,
    }
}

fn ids(plan: &Plan) -> Vec<(usize, u64)> {
    plan.tables
        .iter()
        .map(|(level, run)| (*level, run.meta.id))
        .collect()
}

#[test]
fn nothing_is_due_in_a_small_tree() {
    assert!(choose(&state(&[]), &[], None).is_none());
    assert!(
        choose(
            &state(&[
                (0, 1, "a", "z", 10),
                (0, 2, "a", "z", 10),
                (1, 3, "a", "m", 60)
            ]),
            &[],
            None
        )
        .is_none()
    );
}

#[test]
fn level_0_goes_down_as_a_whole() {
    let state = state(&[
        (0, 1, "c", "f", 10),
        (0, 2, "e", "h", 10),
        (0, 3, "b", "c", 10),
        (1, 4, "a", "b", 10),
        (1, 5, "g", "i", 10),
        (1, 6, "k", "l", 10),
    ]);
    let plan = choose(&state, &[], None).unwrap();
    assert_eq!(ids(&plan), [(0, 3), (0, 2), (0, 1), (1, 4), (1, 5)]);
    assert_eq!(
        (plan.level, plan.how, plan.reason),
        (1, How::Copy, Reason::Size)
    );
    assert!(choose(&state, &[5], None).is_none(), "an input is busy");
    assert_eq!(
        debt(&state, &Limits::tiny(), &Tuning::default(), 0).buffers,
        0
    );
}

#[test]
fn level_0_goes_down_by_its_oldest_where_a_merge_cannot_have_all() {
    let tables: Vec<_> = (1..8)
        .map(|id| (0, id, "a", "z", 10))
        .chain([(1, 9, "a", "c", 10), (1, 10, "x", "y", 10)])
        .collect();
    let (state, limits, busy) = (state(&tables), Limits::tiny(), BusyTables::default());
    let pick_of = |level0_inputs_max| {
        let plan = pick(
            &state,
            &Facts {
                level0_inputs_max,
                ..facts(&limits, &busy, None)
            },
        )
        .unwrap();
        let taken: Vec<u64> = plan
            .tables
            .iter()
            .filter(|(level, _)| *level == 0)
            .map(|(_, run)| run.meta.id)
            .collect();
        (taken, plan.tables.len())
    };
    assert_eq!(pick_of(7), (vec![7, 6, 5, 4, 3, 2, 1], 9));
    assert_eq!(
        pick_of(3),
        (vec![3, 2, 1], 5),
        "what stays is newer than what goes"
    );
    assert_eq!(pick_of(1), (vec![1], 3));
    // For a user's compaction, one for reads, and one for tombstones.
    let some = Facts {
        level0_inputs_max: 2,
        ..facts(&limits, &busy, Some((0, 7)))
    };
    let manual = pick_manual(&state, (PartId(0), 0), (b"a", None), None, &some).unwrap();
    assert_eq!(ids(&manual)[..2], [(0, 2), (0, 1)]);
}

#[test]
fn level_0_goes_down_sooner_while_there_is_time() {
    let (mut limits, busy) = (Limits::tiny(), BusyTables::default());
    (limits.level0_trigger, limits.level0_rest) = (8, 4);
    let tables: Vec<_> = (1..5).map(|id| (0, id, "a", "z", 10)).collect();
    let at_rest = Facts {
        at_rest: true,
        ..facts(&limits, &busy, None)
    };
    assert!(pick(&state(&tables), &facts(&limits, &busy, None)).is_none());
    assert_eq!(
        pick(&state(&tables), &at_rest).map(|plan| ids(&plan).len()),
        Some(4)
    );
    assert!(pick(&state(&tables[1..]), &at_rest).is_none(), "too few");
}

#[test]
fn a_full_level_gives_the_table_that_costs_least() {
    let state = state(&[
        (1, 1, "a", "c", 40),
        (1, 2, "d", "f", 40),
        (2, 3, "a", "c", 80),
        (2, 4, "d", "e", 20),
        (2, 5, "g", "h", 80),
    ]);
    let plan = choose(&state, &[], None).unwrap();
    assert_eq!(ids(&plan), [(1, 2), (2, 4)]);
    assert_eq!(
        debt(&state, &Limits::tiny(), &Tuning::default(), 0).bytes,
        16 << 10
    );
    assert!(
        choose(&state, &[1], None).is_none(),
        "what goes down already is not counted"
    );
}

#[test]
fn a_table_that_overlaps_nothing_is_moved() {
    let state = state(&[
        (1, 1, "a", "c", 40),
        (1, 2, "d", "f", 40),
        (2, 3, "a", "c", 80),
    ]);
    let plan = choose(&state, &[], None).unwrap();
    assert_eq!((ids(&plan), plan.how), (vec![(1, 2)], How::Move));
}

#[test]
fn a_table_of_many_fruitless_reads_goes_down() {
    let state = state(&[(1, 1, "a", "c", 10), (2, 3, "b", "c", 10)]);
    let plan = choose(&state, &[], Some((1, 1))).unwrap();
    assert_eq!(
        (ids(&plan), plan.reason),
        (vec![(1, 1), (2, 3)], Reason::Seeks)
    );
    assert!(choose(&state, &[], Some((1, 9))).is_none());
    assert!(choose(&state, &[3], Some((1, 1))).is_none());
}

#[test]
fn a_manual_compaction_takes_table_by_table() {
    let state = state(&[
        (1, 1, "a", "c", 10),
        (1, 2, "d", "f", 10),
        (1, 3, "x", "z", 10),
        (2, 4, "b", "e", 10),
    ]);
    let (limits, busy) = (Limits::tiny(), BusyTables::default());
    let facts = facts(&limits, &busy, None);
    let range: (&[u8], Option<&[u8]>) = (b"b", Some(b"g"));
    let first = pick_manual(&state, (PartId(0), 1), range, None, &facts).unwrap();
    assert_eq!(ids(&first), [(1, 1), (2, 4)]);
    let second = pick_manual(&state, (PartId(0), 1), range, Some(b"a"), &facts).unwrap();
    assert_eq!(ids(&second), [(1, 2), (2, 4)]);
    assert!(pick_manual(&state, (PartId(0), 1), range, Some(b"d"), &facts).is_none());
}

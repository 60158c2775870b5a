//! A state is made from the one before it.

use super::*;
use crate::manifest::{Edit, Level, TableMeta};
use firn_base::FileId;

const LEVELS: usize = 5;

/// A manifest's version, and the states that come from it.
struct States {
    version: Version,
    cache: Arc<TableCache>,
    state: ReadState,
}

/// Level, id, smallest and largest key, KiB.
type Added<'a> = (usize, u64, &'a str, &'a str, u64);

impl States {
    fn new() -> States {
        let (version, cache) = (Version::default(), TableCache::of_test());
        let state = ReadState::new(Memtables::none(), &version, &cache, LEVELS);
        States {
            version,
            cache,
            state,
        }
    }

    /// Changes the borders.
    fn bordered(&mut self, drop: &[&str], add: &[&str]) {
        let first = self.version.next_part().0;
        let cuts = (first..).zip(add);
        let edit = Edit {
            id: self.version.edit_id + 1,
            cuts_added: cuts
                .map(|(id, cut)| (cut.as_bytes().to_vec(), PartId(id)))
                .collect(),
            cuts_dropped: drop.iter().map(|cut| cut.as_bytes().to_vec()).collect(),
            ..Edit::default()
        };
        self.version.apply(&edit).expect("an edit that fits");
        let none = Touched::Keys(&mut std::iter::empty());
        self.state = self
            .state
            .with_tables(&self.version, none, &self.cache, LEVELS);
    }

    /// The state after tables are dropped (level, id) and added.
    fn next(&mut self, drop: &[(usize, u64)], add: &[Added<'_>]) -> &ReadState {
        let table = |&(level, id, smallest, largest, kib): &Added<'_>| {
            (Level(level), TableMeta::of_test(id, smallest, largest, kib))
        };
        let edit = Edit {
            id: self.version.edit_id + 1,
            drop: drop
                .iter()
                .map(|&(level, id)| (Level(level), FileId(id)))
                .collect(),
            add: add.iter().map(table).collect(),
            ..Edit::default()
        };
        self.version.apply(&edit).expect("an edit that fits");
        let touched = Touched::Keys(&mut std::iter::once(&b"a"[..]));
        let next = self
            .state
            .with_tables(&self.version, touched, &self.cache, LEVELS);
        self.state = next;
        &self.state
    }

    /// Level 1 has three tables, the levels around it one each.
    fn some() -> States {
        let mut states = States::new();
        states.next(
            &[],
            &[
                (0, 1, "a", "z", 1),
                (1, 2, "a", "c", 2),
                (1, 3, "d", "f", 4),
                (1, 4, "g", "i", 8),
                (2, 5, "a", "z", 16),
            ],
        );
        states
    }
}

fn run(state: &ReadState, id: u64) -> Arc<TableRun> {
    let mut tables = state.tables();
    let found = tables.find(|(_, run)| run.meta.id == FileId(id));
    found.map(|(_, run)| run.clone()).expect("a table")
}

fn kib(state: &ReadState) -> Vec<u64> {
    let part = state.part(b"a");
    part.levels
        .values()
        .map(|level| level.bytes() >> 10)
        .collect()
}

/// One table of level 1 is replaced, and one moves down a level.
#[test]
fn runs_and_levels_that_stay_are_shared() {
    let mut states = States::some();
    let before = states.state.clone();
    let after = states.next(
        &[(1, 3), (1, 4), (2, 5)],
        &[(1, 6, "d", "e", 32), (2, 4, "g", "i", 8)],
    );
    let level0 = |state: &ReadState| state.part(b"a").levels[Level::ZERO].clone();
    assert!(Arc::ptr_eq(&level0(&before), &level0(after)));
    for id in [2, 4] {
        let shared = Arc::ptr_eq(&run(&before, id), &run(after, id));
        assert!(shared, "table {id} is the same run");
    }
    assert_eq!(kib(after)[..3], [1, 34, 8]);
    assert_eq!(kib(&before)[1], 14, "the state before does not change");
    let last = states.next(&[(0, 1), (1, 2), (1, 6), (2, 4)], &[]);
    let left = (last.tables().count(), last.part(b"a").dead_and_live());
    assert_eq!(left, (0, (0, 0)));
}

#[test]
fn a_key_is_found_in_the_table_that_spans_it() {
    let mut states = States::some();
    let moved = run(&states.state, 4).meta.clone();
    let replaced = run(&states.state, 3).meta.clone();
    let state = states.next(
        &[(1, 3), (1, 4), (2, 5)],
        &[(1, 6, "d", "e", 32), (2, 4, "g", "i", 8)],
    );
    let levels = &state.part(b"a").levels;
    let found = |key: &str| {
        levels[Level(1)]
            .run_for(key.as_bytes())
            .map(|run| run.meta.id.0)
    };
    let expected = [Some(2), Some(6), None, None];
    assert_eq!(["b", "d", "f", "g"].map(found), expected);
    assert!(levels[Level(1)].run_of(&replaced).is_none());
    assert!(levels[Level(2)].run_of(&moved).is_some());
}

/// A partition that is divided has half of its reads on each side, and a union has those of both.
#[test]
fn reads_stay_with_their_keys() {
    let mut states = States::new();
    states.state = states.state.clone().with_heat();
    let read = |states: &States, key: &str, hits: usize| {
        let heat = states.state.part(key.as_bytes()).heat.clone().unwrap();
        (0..hits).for_each(|_| heat.searched(1, true));
    };
    let hits = |states: &States| -> Vec<f64> {
        let parts = states.state.parts.iter();
        parts
            .map(|part| part.heat.as_ref().unwrap().hits(0))
            .collect()
    };
    read(&states, "a", 80);
    states.bordered(&[], &["m"]);
    assert_eq!(hits(&states), [40.0, 40.0]);
    read(&states, "z", 20);
    states.bordered(&[], &["t", "w"]);
    assert_eq!(hits(&states), [40.0, 20.0, 20.0, 20.0]);
    let untouched = states.state.part(b"a").heat.clone().unwrap();
    states.bordered(&["t"], &[]);
    assert_eq!(hits(&states), [40.0, 40.0, 20.0]);
    let same = states.state.part(b"a").heat.as_ref().unwrap();
    assert!(Arc::ptr_eq(same, &untouched));
    states.bordered(&["m", "w"], &[]);
    assert_eq!(hits(&states), [100.0]);
}

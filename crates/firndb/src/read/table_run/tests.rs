//! The open tables, and their cost.

use super::*;
use crate::{Db, Options};
use firn_table::sst::Access;

/// A closed table that a cursor holds is in memory, so it is counted, and it is not read again.
#[test]
fn what_a_cursor_holds_is_counted_and_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    for key in [b"a", b"b"] {
        db.put(key, key).unwrap();
        db.flush().unwrap();
    }
    let engine = &db.engine;
    let context = TableContext::new(
        engine.tables.context().cache.clone(),
        engine.tables.context().counters.clone(),
    );
    let cache = Arc::new(TableCache::new(
        engine.files.clone(),
        context.clone(),
        &TableCacheBounds::ONE,
    ));
    let state = engine.state.load_full();
    let runs: Vec<_> = state
        .tables()
        .map(|(_, run)| Arc::new(TableRun::new(run.meta.clone(), cache.clone())))
        .collect();
    let bytes: Vec<u64> = runs
        .iter()
        .map(|run| run.table().unwrap().memory_bytes() as u64)
        .collect();
    assert_eq!(
        (context.open_bytes(), cache.usage()),
        (bytes[1], (1, bytes[1], 2)),
        "the first was closed"
    );

    let cursor = runs[0].table().unwrap().iter(Access::Cached);
    assert_eq!(context.open_bytes(), bytes[0]);
    runs[1].table().unwrap();
    assert_eq!(
        (context.open_bytes(), cache.usage()),
        (bytes[0] + bytes[1], (1, bytes[1], 4)),
        "closed, but held"
    );
    runs[0].table().unwrap();
    assert_eq!(
        (context.open_bytes(), cache.usage()),
        (bytes[0], (1, bytes[0], 4)),
        "what was held is open again"
    );
    drop((cursor, runs));
    cache.sweep();
    assert_eq!((context.open_bytes(), cache.usage()), (0, (0, 0, 4)));
}

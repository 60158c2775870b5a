//! The open tables: several readers open and close them at once.

use super::*;
use crate::interleave::{World, join, thread};
use firn_base::sync::explore;

/// In every order, open tables are counted, and no more are open than the limit allows.
#[test]
fn open_tables_are_counted() {
    explore::random(|| {
        let world = World::new();
        let db = world.open();
        for key in [b"a", b"b"] {
            db.put(key, key).unwrap();
            db.flush().unwrap();
        }
        let engine = &db.engine;
        let state = engine.state.load_full();
        let metas: Vec<_> = state.tables().map(|(_, run)| run.meta.clone()).collect();
        assert_eq!(metas.len(), 2);
        let shared = engine.tables.context();
        let context = TableContext::new(shared.cache.clone(), shared.counters.clone());
        let cache = Arc::new(TableCache::new(
            engine.files.clone(),
            context.clone(),
            &TableCacheBounds::ONE,
        ));
        let runs: Vec<_> = metas
            .into_iter()
            .map(|meta| Arc::new(TableRun::new(meta, cache.clone())))
            .collect();
        let reader = |i: usize| {
            let run = runs[i].clone();
            thread::spawn(move || {
                let table = run.table().unwrap();
                assert_eq!(table.memory_bytes(), run.table().unwrap().memory_bytes());
            })
        };
        join([0, 1, 0].map(reader).into());
        let open: Vec<u64> = runs
            .iter()
            .filter_map(|run| run.table.load().as_ref().map(|t| t.memory_bytes() as u64))
            .collect();
        let (kept, bytes, _) = cache.usage();
        assert_eq!(
            (open.len(), open.iter().sum()),
            (kept, bytes),
            "open, and counted as open"
        );
        assert!(kept <= 1);
        assert_eq!(context.open_bytes(), bytes, "nobody holds a closed one");
        drop(runs);
        cache.sweep();
        assert_eq!(context.open_bytes(), 0);
    });
}

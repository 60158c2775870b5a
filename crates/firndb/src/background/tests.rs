//! What an action holds while it runs.

use crate::{Db, Environment, Options};
use firn_base::exec::Inline;
use std::sync::Arc;

/// A merge may take long: what is flushed meanwhile must not stay in memory for it.
#[test]
fn a_merge_holds_nothing_but_what_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { executor: Some(Arc::new(Inline::new())), ..Environment::default() };
    let db = Db::open(dir.path(), Options { environment, ..Options::tiny() }).unwrap();
    db.put(b"z", b"0").unwrap();
    db.compact_range(None, None).unwrap();
    db.put(b"a", b"1").unwrap();
    db.flush().unwrap();
    db.put(b"a", b"2").unwrap();
    let inner = &db.inner;
    let beside = inner.state.load().parts[0].levels[1].runs[0].clone();
    let held = Arc::strong_count(&beside);
    let merge = inner.start_manual(0, (b"", None), None).expect("a table in level 0");
    assert_eq!(Arc::strong_count(&beside), held, "a table that it does not read");
    let buffer = Arc::downgrade(&inner.state.load().parts[0].buffers[0]);
    db.flush().unwrap();
    inner.remove_obsolete(true);
    assert!(buffer.upgrade().is_none());
    inner.perform(merge);
    assert_eq!(db.get(b"a").unwrap().unwrap(), b"2");
}

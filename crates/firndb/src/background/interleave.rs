//! What holds up background work: noted and forgotten by several at once, read by every write without a lock.

use super::*;
use crate::interleave::{World, join, spawner};
use firn_base::sync::explore;

#[test]
fn a_lasting_error_lasts() {
    explore::random(|| {
        let world = World::new();
        let db = world.open();
        let spawn = spawner(&db.inner);
        let threads = vec![
            spawn(|inner: &Inner| inner.note(Some(Error::corruption("a table", 0, "a checksum")))),
            spawn(|inner| inner.note(Some(Error::new(ErrorKind::NoSpace, "full")))),
            spawn(|inner| inner.note(None)),
            spawn(|inner| assert!(inner.start(true).is_none())),
            spawn(|inner| {
                let lasts = |_| inner.check_writable().is_err();
                let seen: Vec<bool> = (0..3).map(lasts).collect();
                assert!(seen.is_sorted(), "a lasting error was forgotten: {seen:?}");
            }),
        ];
        join(threads);
        assert_eq!(db.inner.background_error().unwrap().kind(), ErrorKind::Corruption);
        assert!(db.put(b"a", b"b").is_err());
    });
}

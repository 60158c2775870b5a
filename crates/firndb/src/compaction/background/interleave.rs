//! The error of background work: set and cleared by several threads at once, read by every write
//! without a lock.

use super::*;
use crate::interleave::{World, join, spawner};
use firn_base::sync::explore;

#[test]
fn a_lasting_error_lasts() {
    explore::random(|| {
        let world = World::new();
        let db = world.open();
        let spawn = spawner(&db.engine);
        let threads = vec![
            spawn(|engine: &Engine| {
                engine.note(Some(Error::corruption("a table", 0, "a checksum")))
            }),
            spawn(|engine| engine.note(Some(Error::new(ErrorKind::NoSpace, "full")))),
            spawn(|engine| engine.note(None)),
            spawn(|engine| assert!(engine.start(true).is_none())),
            spawn(|engine| {
                let lasts = |_| engine.check_writable().is_err();
                let seen: Vec<bool> = (0..3).map(lasts).collect();
                assert!(seen.is_sorted(), "a lasting error was forgotten: {seen:?}");
            }),
        ];
        join(threads);
        assert_eq!(
            db.engine.background_error().unwrap().kind(),
            ErrorKind::Corruption
        );
        assert!(db.put(b"a", b"b").is_err());
    });
}

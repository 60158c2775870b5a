//! Group commit with several writers, a memtable switch and a failing log, in every order.

use super::*;
use crate::interleave::{files, join, thread};
use crate::memtable::{Entry, Footprint};
use firn_base::count::IoCounters;
use firn_base::key::Kind;
use firn_base::sync::explore;
use firn_table::sst::hash;

const WRITERS: u8 = 3;
/// The group whose log write fails.
const FAILING: u64 = 1;

/// The groups that the log received, in order.
#[derive(Default)]
struct Ledger {
    /// (first number, keys, whether the write succeeded)
    groups: Vec<(u64, Vec<[u8; 2]>, bool)>,
    /// All sequence numbers up to this one went through the log.
    through: u64,
}

struct World {
    commit: Commit,
    ledger: Mutex<Ledger>,
    buffers: Mutex<Vec<Arc<Memtable>>>,
}

impl World {
    fn new() -> World {
        let first = Arc::new(Memtable::new(4 << 10, FileId(1)));
        let log = LogWriter::create(
            files(),
            Arc::new(IoCounters::default()),
            FileId(1),
            Arc::default(),
        )
        .unwrap();
        World {
            commit: Commit::new(Some(Journal::Log(Box::new(log))), SeqNo(0), 100),
            ledger: Mutex::default(),
            buffers: Mutex::new(vec![first]),
        }
    }

    /// The write path without limits: reserve, join, wait.
    fn write(&self, key: [u8; 2]) -> Result<()> {
        let entries = || {
            std::iter::once(Entry {
                kind: Kind::Put,
                key: &key,
                value: b"value",
            })
        };
        let seed = u64::from(key[0]);
        loop {
            let buffer = self.buffers.lock()[0].clone();
            let footprint = Footprint::of(entries(), seed);
            let reservation = buffer.reserve(entries(), footprint).unwrap();
            match self.commit.join(reservation.into(), false)? {
                None => {}
                Some(group) => {
                    let write = |journal: &mut Journal, group: &Group, members: &mut Members| {
                        self.log(journal.log().unwrap(), group, members)
                    };
                    return self.commit.wait(&group, write, |_| ());
                }
            }
        }
    }

    fn log(&self, log: &mut LogWriter, group: &Group, members: &Members) -> Result<()> {
        if log.log_id() != group.log_id {
            log.rotate(group.log_id)?;
        }
        let fails = group.number == FAILING;
        let written = if fails {
            Err(Error::invalid("on purpose"))
        } else {
            log.append(&members.reservations, group.first_seqno, false, true)
        };
        let mut ledger = self.ledger.lock();
        assert_eq!(
            group.first_seqno.0,
            ledger.through + 1,
            "numbers follow each other in the log"
        );
        let keys: Vec<[u8; 2]> = members
            .reservations
            .iter()
            .flat_map(Reservation::entries)
            .map(|e| [e.key[0], e.key[1]])
            .collect();
        ledger.through += keys.len() as u64;
        ledger
            .groups
            .push((group.first_seqno.0, keys, written.is_ok()));
        written
    }

    /// Checks that everything visible went through the log and is complete, and that nothing of a
    /// failed group is visible.
    fn check(&self, last: u64) -> u64 {
        let visible = self.commit.visible();
        let ledger = self.ledger.lock();
        assert!(
            last <= visible.0 && visible.0 <= ledger.through,
            "{last} {visible:?} {}",
            ledger.through
        );
        for (first, keys, ok) in &ledger.groups {
            for (seqno, key) in (*first..).zip(keys) {
                let found = self
                    .buffers
                    .lock()
                    .iter()
                    .find_map(|buffer| buffer.get(key, hash(key), SeqNo::MAX));
                assert!(*ok || found.is_none(), "a failed write is linked");
                if *ok && seqno <= visible.0 {
                    assert_eq!(found.unwrap().0.seqno().0, seqno);
                }
            }
        }
        visible.0
    }

    /// Freezes the memtable, as `write/mod.rs` does when it is full.
    fn switch(&self) {
        let mut queue = self.commit.lock();
        let fresh = Arc::new(Memtable::new(4 << 10, FileId(2)));
        let mut buffers = self.buffers.lock();
        buffers.insert(0, fresh);
        queue.freeze(&buffers[1]);
        let full = &buffers[1];
        let last = full.frozen_at();
        assert_eq!(last, Some(SeqNo(queue.next_seqno - 1)));
    }
}

fn writer(world: &World, name: u8) -> Vec<([u8; 2], bool)> {
    (0..2)
        .map(|i| [name, i])
        .map(|key| (key, world.write(key).is_ok()))
        .collect()
}

#[test]
fn group_commit() {
    explore::random(|| {
        let world = Arc::new(World::new());
        let spawn = |name| {
            let world = world.clone();
            thread::spawn(move || writer(&world, name))
        };
        let writers = (0..WRITERS).map(spawn).collect();
        let other = world.clone();
        let reader = thread::spawn(move || {
            let last = other.check(0);
            other.switch();
            other.check(other.check(last));
        });
        let results: Vec<_> = join(writers).into_iter().flatten().collect();
        reader.join().unwrap();
        let last = world.check(0);
        assert_eq!(
            last,
            world.commit.lock().next_seqno - 1,
            "all is visible in the end"
        );
        assert_eq!(last, u64::from(WRITERS) * 2);
        for (_, keys, ok) in &world.ledger.lock().groups {
            // All members of a group got the same result.
            assert!(keys.iter().all(|key| results.contains(&(*key, *ok))));
        }
        let newest = world.buffers.lock()[0].clone();
        let oldest = world.buffers.lock()[1].clone();
        for (first, keys, ok) in world.ledger.lock().groups.iter().filter(|(_, _, ok)| *ok) {
            assert!(ok);
            let is_new = *first > oldest.frozen_at().unwrap().0;
            let place = if is_new { &newest } else { &oldest };
            assert!(
                keys.iter()
                    .all(|key| place.get(key, hash(key), SeqNo::MAX).is_some()),
                "a group is in one buffer, by its number"
            );
        }
    });
}

/// A close beside writers: once it returns, every write that was accepted is visible, and nothing
/// is written any more.
#[test]
fn close_waits_for_groups() {
    explore::random(|| {
        let world = Arc::new(World::new());
        let writers = (0..2).map(|name| {
            let world = world.clone();
            thread::spawn(move || writer(&world, name))
        });
        let writers: Vec<_> = writers.collect();
        world.commit.close();
        let at_close = world.commit.visible();
        assert_eq!(at_close.0, world.ledger.lock().through);
        let results: Vec<_> = join(writers).into_iter().flatten().collect();
        assert_eq!(world.commit.visible(), at_close);
        let written = world.ledger.lock().groups.clone();
        let mut written = written.iter().filter(|(_, _, ok)| *ok);
        let accepted = results.iter().filter(|(_, ok)| *ok);
        for (key, _) in accepted {
            assert!(written.clone().any(|(_, keys, _)| keys.contains(key)));
        }
        assert!(written.all(|(_, keys, _)| keys.iter().all(|key| results.contains(&(*key, true)))));
    });
}

//! Interleaves the memtable's threads: writers that reserve, fill and link beside readers, in every
//! order.

use super::arena::Arena;
use super::skiplist::height;
use super::*;
use crate::interleave::{join, spawner, thread};
use firn_base::key::{Kind, compare};
use firn_base::sync::{AtomicBool, AtomicI64, Ordering, explore};
use firn_base::{FileId, SeqNo, Tag};
use firn_table::sst::hash;
use std::sync::Arc;

#[test]
fn reserve_complete() {
    explore::all(|| {
        let arena = Arc::new(Arena::new(256));
        let other = arena.clone();
        let take = |arena: &Arena| -> Vec<_> {
            [64, 72]
                .map(|bytes| arena.reserve(bytes))
                .into_iter()
                .flatten()
                .collect()
        };
        let thread = thread::spawn(move || take(&other));
        let mut spaces = take(&arena);
        spaces.extend(thread.join().unwrap());
        spaces.sort_by_key(|space| space.start);
        assert!(
            spaces[0].start as usize >= Arena::RESERVED_BYTES
                && spaces.iter().all(|space| space.end <= 256)
        );
        assert!(
            spaces.windows(2).all(|pair| pair[0].end <= pair[1].start),
            "{spaces:?}"
        );
        // Two of 64 bytes and none or one of 72 fit after the first line, or the reverse.
        assert_eq!(spaces.len(), 2, "{spaces:?}");
    });
}

/// Two writers claim what they need while idle memory is given back. What was handed out keeps its
/// contents, and what is claimed was counted.
#[test]
fn memory_is_claimed_and_given_back() {
    explore::random(|| {
        let arena = Arc::new(Arena::unclaimed(320, 0));
        let counted = Arc::new(AtomicI64::new(arena.claimed() as i64));
        let count = |bytes: i64| _ = counted.fetch_add(bytes, Ordering::SeqCst);
        let writer = |mark: u8| {
            let (arena, counted) = (arena.clone(), counted.clone());
            thread::spawn(move || {
                let claim = |bytes| _ = counted.fetch_add(bytes as i64, Ordering::SeqCst);
                let space = loop {
                    match arena.reserve(72) {
                        Some(space) => break space,
                        None => assert!(arena.grow(72, claim), "there is room for both"),
                    }
                };
                arena.write(&space, space.start as usize, &[mark; 72]);
                (space, mark)
            })
        };
        let writers = [1, 2].map(writer);
        count(-(arena.give_back() as i64));
        for written in writers {
            let (space, mark) = written.join().unwrap();
            assert_eq!(arena.bytes(space.start as usize, 72), [mark; 72]);
        }
        assert_eq!(counted.load(Ordering::SeqCst), arena.claimed() as i64);
        count(-(arena.give_back() as i64));
        assert_eq!(
            arena.claimed(),
            (Arena::RESERVED_BYTES + 2 * 72).next_multiple_of(64)
        );
        assert_eq!(counted.load(Ordering::SeqCst), arena.claimed() as i64);
    });
}

/// A memtable whose entries have their sequence number as value. `linked` is set once the writer
/// has returned.
struct World {
    buffer: Arc<Memtable>,
    linked: Vec<AtomicBool>,
}

/// A key chosen by number. There are only a few, so that entries meet.
fn key(seqno: u64) -> [u8; 1] {
    [b'a' + (seqno * 5 % 3) as u8]
}

impl World {
    fn new(entries: u64) -> World {
        let linked = (0..=entries).map(|_| AtomicBool::new(false)).collect();
        World {
            buffer: Arc::new(Memtable::new(4 << 10, FileId(1))),
            linked,
        }
    }

    /// Writes a batch with numbers from `first` on, with heights drawn from `seed`.
    fn write(&self, first: u64, count: u64, seed: u64) {
        let batch: Vec<_> = (first..first + count)
            .map(|seqno| (key(seqno), seqno.to_be_bytes()))
            .collect();
        let entries = || {
            batch.iter().map(|(key, value)| Entry {
                kind: Kind::Put,
                key,
                value,
            })
        };
        let footprint = Footprint::of(entries(), seed);
        self.buffer
            .reserve(entries(), footprint)
            .unwrap()
            .link(SeqNo(first));
        (first..first + count)
            .for_each(|seqno| self.linked[seqno as usize].store(true, Ordering::SeqCst));
    }

    /// The entries that a reader must find.
    fn promised(&self) -> Vec<u64> {
        (1..self.linked.len() as u64)
            .filter(|&seqno| self.linked[seqno as usize].load(Ordering::SeqCst))
            .collect()
    }

    fn check_entry(iter: &MemtableIter) -> (Vec<u8>, Tag) {
        let seqno = iter.tag().seqno().0;
        assert_eq!(
            (iter.key(), iter.value()),
            (&key(seqno)[..], &seqno.to_be_bytes()[..]),
            "an entry is whole"
        );
        (iter.key().to_vec(), iter.tag())
    }

    fn read_forward(&self) {
        let promised = self.promised();
        let mut iter = self.buffer.iter();
        let mut found = Vec::new();
        iter.first();
        while iter.valid() {
            found.push(Self::check_entry(&iter));
            iter.next();
        }
        Self::check_list(&found, &promised);
    }

    fn read_backward(&self) {
        let promised = self.promised();
        let mut iter = self.buffer.iter();
        let mut found = Vec::new();
        iter.last();
        while iter.valid() {
            found.push(Self::check_entry(&iter));
            iter.prev();
        }
        found.reverse();
        Self::check_list(&found, &promised);
    }

    fn check_list(found: &[(Vec<u8>, Tag)], promised: &[u64]) {
        assert!(
            found
                .windows(2)
                .all(|pair| compare(&pair[0].0, pair[0].1, &pair[1].0, pair[1].1).is_lt()),
            "{found:?}"
        );
        let has = |seqno: &u64| found.iter().any(|(_, tag)| tag.seqno().0 == *seqno);
        assert!(promised.iter().all(has), "{promised:?} in {found:?}");
    }

    fn seek(&self) {
        for seqno in self.promised() {
            let wanted = key(seqno);
            let found = self.buffer.get(&wanted, hash(&wanted), SeqNo(seqno));
            let (tag, value) = found.unwrap();
            assert_eq!(
                (tag.seqno().0, &value[..]),
                (seqno, &seqno.to_be_bytes()[..])
            );
            let mut iter = self.buffer.iter();
            iter.seek(&key(seqno), tag);
            assert_eq!(iter.tag(), tag);
        }
    }
}

/// A seed whose first entry has `levels` levels.
fn seed_of(levels: usize) -> u64 {
    (1..).find(|&seed| height(seed, 0) == levels).unwrap()
}

/// Two concurrent inserts of several heights, in every order of their steps. Two inserts with both
/// levels would have twelve million orders; `writers_and_readers` samples those.
#[test]
fn two_inserts_complete() {
    for heights in [(1, 1), (1, 2)]
        .into_iter()
        .take(if explore::is_ci() { 2 } else { 1 })
    {
        explore::all(move || {
            let world = Arc::new(World::new(2));
            let other = world.clone();
            let thread = thread::spawn(move || other.write(2, 1, seed_of(heights.1)));
            world.write(1, 1, seed_of(heights.0));
            thread.join().unwrap();
            world.read_forward();
            world.seek();
        });
    }
}

#[test]
fn writers_and_readers() {
    explore::random(|| {
        let world = Arc::new(World::new(9));
        let spawn = spawner(&world);
        let threads = vec![
            spawn(|world| world.write(1, 3, seed_of(2))),
            spawn(|world| {
                world.write(4, 2, 7);
                world.write(6, 1, seed_of(2));
            }),
            spawn(|world| world.write(7, 3, 11)),
            spawn(|world| {
                world.read_forward();
                world.seek();
            }),
            spawn(|world| world.read_backward()),
        ];
        join(threads);
        assert_eq!(world.promised().len(), 9);
        world.read_forward();
        world.read_backward();
        world.seek();
    });
}

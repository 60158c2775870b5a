//! The shard: what is not found does not come back, and what cannot win moves nothing.

use super::*;
use std::collections::HashSet;

/// Hashes whose two buckets are the same ones, whatever the size of a small index.
fn crowded() -> impl Iterator<Item = Hash> {
    let hash = |i: u32| Hash(i.wrapping_mul(0x9e37_79b1));
    (0..).map(hash).filter(|hash| hash.is_crowded())
}

fn content<'a>(kind: Kind, parts: &'a [&'a [u8]]) -> Content<'a> {
    Content {
        kind,
        note: 0,
        lookups: 0,
        parts,
    }
}

#[test]
fn an_entry_without_room_in_the_index_does_not_come_back() {
    let shard = Shard::new(1 << 20);
    let mut seen = Vec::new();
    let mut refused = 0;
    for (i, hash) in crowded().take(200).enumerate() {
        shard.insert(hash, content(Kind::Row, &[&[i as u8; 100]]));
        seen.push(hash);
        // Others make the index grow, so that it is rebuilt.
        (0..20_u32).for_each(|n| {
            let other = Hash((i as u32 * 20 + n).wrapping_mul(0x85eb_ca6b));
            shard.insert(other, content(Kind::Block, &[&[0; 20]]));
        });
        let state = shard.state.read();
        for entry in [&state.window, &state.main]
            .into_iter()
            .flat_map(|queue| state.segments.entries(queue))
        {
            let found = state.find(entry.hash, entry.kind);
            let place = found.map(|found| found.place);
            assert_eq!(place, Some(entry.place), "an entry that no lookup finds");
        }
        let find = |hash: &&Hash| state.find(**hash, Kind::Row).is_none();
        refused = refused.max(seen.iter().filter(find).count());
    }
    assert!(refused > 0, "the index had room for all");
}

#[test]
fn what_was_never_asked_for_moves_hardly_anything() {
    const CANDIDATES: u32 = 50;
    let shard = Shard::new(4 << 20);
    let hash = |i: u32| Hash(i.wrapping_mul(0x9e37_79b1));
    let row = [7; 1000];
    for i in 0..8000 {
        shard.insert(hash(i), content(Kind::Row, &[&row]));
        shard.read(hash(i), Kind::Row, true, |_, _| Some(()));
    }
    let places = || -> HashSet<(u32, u32)> {
        let state = shard.state.read();
        let entries = state.segments.entries(&state.main);
        entries.map(|entry| (entry.hash.0, entry.place.0)).collect()
    };
    let block = [9; 4000];
    let insert_from = |first: u32| {
        (first..first + CANDIDATES).for_each(|i| {
            shard.insert(hash(i), content(Kind::Block, &[&block]));
        });
    };
    // The first ones fill the window, and leave it while the others come.
    insert_from(10_000);
    let before = places();
    insert_from(20_000);
    let moved = before.difference(&places()).count();
    assert!(
        (1..=2 * CANDIDATES as usize).contains(&moved),
        "{moved} moved"
    );
}

#[test]
fn most_inserts_that_find_the_lock_taken_are_left_out() {
    let shard = Shard::new(1 << 20);
    let (row, hash) = ([7; 100], Hash(1));
    let has = |lookup| {
        shard
            .read(hash, Kind::Row, lookup, |_, _| Some(()))
            .is_some()
    };
    // With a number of lookups at which none waits.
    assert!(!has(true));
    let reading = shard.state.read();
    assert!(!shard.insert(hash, content(Kind::Row, &[&row])));
    drop(reading);
    assert!(!has(false), "it was left out");
    // With a number at which one waits, for a reader that another thread has.
    (1..WAITS_ONE_IN).for_each(|_| assert!(!has(true)));
    let reading = shard.state.read();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| shard.insert(hash, content(Kind::Row, &[&row])));
        drop(reading);
        waiting.join().unwrap();
    });
    assert!(has(false), "it waited, or nobody had the lock");
}

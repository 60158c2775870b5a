//! Tests lazy cursors, which can be at the ends of large blocks without loading them, and blocks of
//! one large value.

use super::*;

/// Moves a lazy cursor at random, and drops its block at random.
fn check_lazy(all: &[Entry], table: &Arc<Sst>, access: Access) {
    let mut iter = table.iter(access);
    iter.be_lazy();
    let mut seed = Seed::new(11);
    let mut bare = 0;
    let mut at: Option<usize> = None;
    for _ in 0..4000 {
        let key = match seed.one_in(2) {
            true => all[seed.below(all.len() as u64) as usize].0.clone(),
            false => format!("key{:05}", seed.below(1600)).into_bytes(),
        };
        let tag = [
            Tag::seek(SeqNo::MAX),
            Tag(0),
            Tag::seek(SeqNo(seed.below(900))),
        ][seed.below(3) as usize];
        let sought = all.partition_point(|e| compare(&e.0, e.1, &key, tag).is_lt());
        at = match (seed.below(12), at) {
            (0, _) => iter.first().map(|()| Some(0)),
            (1, _) => iter.last().map(|()| Some(all.len() - 1)),
            (2, _) | (3..7, None) => iter.seek(&key, tag).map(|()| Some(sought)),
            (3, _) | (7.., None) => iter.seek_before(&key, tag).map(|()| sought.checked_sub(1)),
            (4..8, Some(now)) => iter.next().map(|()| Some(now + 1)),
            (_, Some(now)) => iter.prev().map(|()| now.checked_sub(1)),
        }
        .unwrap()
        .filter(|&at| at < all.len());
        assert_eq!(iter.valid(), at.is_some());
        let Some(now) = at else { continue };
        let (key, tag, value) = &all[now];
        assert_eq!(iter.key(), key);
        if !iter.knows_tag() {
            bare += 1;
            assert!([0, u64::MAX].contains(&iter.tag().0));
            if seed.one_in(2) {
                // Moves on without loading.
                continue;
            }
        }
        iter.load().unwrap();
        assert!(iter.knows_tag());
        assert_eq!((iter.tag(), iter.value()), (*tag, &value[..]));
        if seed.one_in(2) {
            iter.shed();
            assert_eq!(
                (iter.valid(), iter.key(), iter.tag(), iter.knows_tag()),
                (true, &key[..], *tag, true)
            );
        }
    }
    assert!(bare > 300, "{bare} times without its block");
}

#[test]
fn a_lazy_cursor_is_where_another_would_be() {
    for codec in [Codec::None, Codec::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let all = entries(3, 500);
        let (_, table) = build(&dir.path().join("t"), &all, codec);
        // Blocks of many entries that count as large for this cursor.
        check_lazy(
            &all,
            &table,
            Access::Streaming {
                bytes: 128,
                cause: Cause::Compaction,
            },
        );
    }
}

#[test]
fn large_values_have_blocks_of_their_own() {
    let limits = Limits::tiny();
    for codec in [Codec::None, Codec::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let mut all = entries(4, 300);
        let mut seed = Seed::new(5);
        for entry in all.iter_mut().step_by(7) {
            entry.2 = vec![1; limits.io_bytes + 1 + seed.below(40_000) as usize];
            if seed.one_in(2) {
                seed.fill(&mut entry.2);
            }
        }
        let (meta, table) = build(&dir.path().join("t"), &all, codec);
        assert_eq!(table.verify().unwrap().entries, all.len() as u64);
        assert_eq!(meta.block_bytes_max, table.block_bytes_max());
        assert!(meta.block_bytes_max > 30_000);
        check(&all, &table, Access::Cached);
        check(
            &all,
            &table,
            Access::Streaming {
                bytes: 4096,
                cause: Cause::Compaction,
            },
        );
        check_lazy(
            &all,
            &table,
            Access::Streaming {
                bytes: 512,
                cause: Cause::Compaction,
            },
        );
    }
}

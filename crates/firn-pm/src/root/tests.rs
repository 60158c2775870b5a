//! Root records: round trip, choice of slot, and every way two slots can disagree.

use super::*;

const UUID: [u8; 16] = [3; 16];

fn root(generation: u64) -> Root {
    let extent = Some(Extent::new(DATA_START, 8192));
    Root {
        generation,
        applied_edit: 42,
        entries: vec![
            RootEntry {
                owner: Owner::LogBuffer,
                kind: 1,
                word: 5,
                extent,
            },
            RootEntry {
                owner: Owner::Btree,
                kind: 2,
                word: 6,
                extent: None,
            },
        ],
        pool_bytes: 1 << 16,
    }
}

fn slot(root: &Root) -> Vec<u8> {
    let mut page = root.encode(&UUID).unwrap();
    page.resize(4096, 0xee);
    page
}

#[test]
fn the_newest_valid_record_wins() {
    let (old, new) = (root(7), root(8));
    assert_eq!(
        newest_root(&slot(&old), &slot(&new), &UUID, "pool").unwrap(),
        Some(new.clone())
    );
    let newer = root(9);
    assert_eq!(
        newest_root(&slot(&newer), &slot(&new), &UUID, "pool").unwrap(),
        Some(newer)
    );
    assert_eq!(
        newest_root(&[0; 4096], &slot(&new), &UUID, "pool").unwrap(),
        Some(new)
    );
    assert_eq!(
        newest_root(&[0; 4096], &[0; 4096], &UUID, "pool").unwrap(),
        None
    );
}

#[test]
fn a_record_in_the_other_slot_or_of_another_pool_is_not_valid() {
    let page = slot(&root(7));
    assert_eq!(newest_root(&[0; 4096], &page, &UUID, "pool").unwrap(), None);
    assert_eq!(
        newest_root(&page, &[0; 4096], &[4; 16], "pool").unwrap(),
        None
    );
}

#[test]
fn generations_that_do_not_follow_each_other_are_damage() {
    let error = newest_root(&slot(&root(7)), &slot(&root(10)), &UUID, "pool").unwrap_err();
    assert!(error.to_string().contains("7 and 10"), "{error}");
}

#[test]
fn a_generation_that_leaves_no_room_for_commits_is_damage() {
    for generation in [GENERATION_MAX + 1, u64::MAX - 2, u64::MAX] {
        let page = slot(&root(generation));
        let (a, b) = if generation % 2 == 1 {
            (&page[..], &[0; 4096][..])
        } else {
            (&[0; 4096][..], &page[..])
        };
        assert!(newest_root(a, b, &UUID, "pool").is_err(), "{generation}");
    }
}

#[test]
fn every_bit_of_a_record_is_guarded() {
    let record = root(7).encode(&UUID).unwrap();
    for bit in 0..record.len() * 8 {
        let mut page = slot(&root(7));
        page[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            newest_root(&page, &[0; 4096], &UUID, "pool").unwrap(),
            None,
            "bit {bit}"
        );
    }
}

#[test]
fn a_full_root_fits_its_page_and_one_more_entry_does_not() {
    let mut root = root(7);
    root.entries = vec![root.entries[0]; MAX_ROOT_ENTRIES];
    assert_eq!(root.encode(&UUID).unwrap().len(), 4096);
    root.entries.push(root.entries[0]);
    assert!(root.encode(&UUID).is_err());
}

#[test]
fn set_find_remove() {
    let mut root = root(7);
    root.set(RootEntry {
        owner: Owner::Btree,
        kind: 2,
        word: 60,
        extent: None,
    });
    assert_eq!(root.entries.len(), 2);
    assert_eq!(root.find(Owner::Btree, 2).map(|e| e.word), Some(60));
    assert!(root.remove(Owner::Btree, 2).is_some());
    assert!(root.find(Owner::Btree, 2).is_none());
}

//! Tests that edits round trip, manifests replay, invariants are named, and damage is detected.

use super::edit::{FORMAT_VERSION, FORMAT_VERSION_MIN};
use super::layout::{RECORD_HEADER_BYTES, record};
use super::*;
use crate::files::{self, FileName, Files};
use crate::log::LogEnd;
use firn_base::count::IoCounters;
use firn_base::{ErrorKind, FileId, SeqNo};
use firn_fs::{Fs, IoBackend, OsFs, SimFs};
use firn_table::sst::Extent;
use std::path::Path;
use std::sync::Arc;

fn table(id: u64, smallest: &str, largest: &str) -> TableMeta {
    TableMeta {
        place: Place::File,
        id: FileId(id),
        extent: Extent {
            valid_len: 1000 + id,
            footer_offset: 920 + id,
        },
        data_bytes: 500,
        entries: 10,
        deletes: 1,
        seqno_min: SeqNo(id),
        seqno_max: SeqNo(id + 5),
        smallest: smallest.into(),
        largest: largest.into(),
        shared: id.is_multiple_of(2),
        dead_bytes: id * 3,
        small_blocks: id,
        block_bytes_max: 7 * id,
        filter_left: id * 7,
        appends: id,
        superseded_bytes: id * 3,
        hides: id * 9,
    }
}

fn tree(id: u64, (first, last): (usize, usize), from: &str) -> BlockTreeMeta {
    BlockTreeMeta {
        id: FileId(id),
        levels: (Level(first), Level(last)),
        from: from.into(),
        extent: firn_pm::Extent::new(id << 16, 4096),
    }
}

fn edit(id: u64) -> Edit {
    Edit {
        id,
        uuid: Some([3; 16]),
        origins: vec![[4; 16]],
        format: Some(FORMAT_VERSION),
        profile: Some(0),
        next_file_id: Some(FileId(77)),
        last_seqno: Some(SeqNo(1000)),
        log_floor: Some(FileId(4)),
        logs_added: vec![FileId(4), FileId(5)],
        logs_named: vec![FileId(5)],
        logs_sealed: vec![LogEnd {
            log_id: FileId(4),
            end: 300,
            synced_through: 200,
        }],
        add: vec![
            (Level(0), table(8, "a", "z")),
            (Level(1), table(9, "a", "c")),
            (Level(1), table(10, "d", "f")),
        ],
        drop: vec![],
        cuts_added: vec![],
        cuts_dropped: vec![],
        ranges: RangeBorders::default(),
        pool: PoolEdit {
            pairing: Some(PmPairing { generation: 6 }),
            trees_added: vec![tree(20, (1, 3), "")],
            trees_dropped: vec![],
            flushed: vec![(PartId(0), SeqNo(4))],
            holds_entries: Some(true),
        },
        evicted: Some(Evicted {
            tree: 7,
            through: SeqNo(5),
            ranges: vec![
                KeyRange {
                    from: vec![],
                    to: Some(b"bound".to_vec()),
                },
                KeyRange {
                    from: b"c".to_vec(),
                    to: None,
                },
            ],
        }),
        evicted_through: Some(SeqNo(3)),
    }
}

/// Trees in DRAM are numbered from one at each open, and so is the first tree of a pool.
#[test]
fn leaves_of_a_pool_are_not_those_of_a_tree_in_dram() {
    let evicted = |through| Evicted {
        tree: 1,
        through: SeqNo(through),
        ranges: vec![KeyRange::all()],
    };
    let version = |through| Version {
        evicted: Some(evicted(through)),
        ..Version::default()
    };
    assert!(version(0).leaf_is_evicted(Some(1), b"k"));
    assert!(!version(0).leaf_is_evicted(Some(2), b"k") && !version(0).leaf_is_evicted(None, b"k"));
    assert!(!version(7).leaf_is_evicted(Some(1), b"k"));
}

#[test]
fn edits_round_trip() {
    let mut edit = edit(1);
    edit.drop = vec![(Level(1), FileId(9))];
    assert_eq!(Edit::decode(&edit.encode()), Some(edit.clone()));
    assert_eq!(
        Edit::decode(&Edit::default().encode()),
        Some(Edit::default())
    );
    let bytes = edit.encode();
    for cut in 1..bytes.len() {
        assert_ne!(Edit::decode(&bytes[..cut]), Some(edit.clone()));
    }
}

#[test]
fn invariants_are_named() {
    let mut version = Version::default();
    version.apply(&edit(1)).unwrap();
    let refuse = |edit: Edit, name: &str| {
        let error = version.clone().apply(&edit).unwrap_err();
        assert!(error.starts_with(name), "{error}");
    };
    refuse(
        Edit {
            id: 2,
            drop: vec![(Level(1), FileId(99))],
            ..Edit::default()
        },
        "known",
    );
    refuse(
        Edit {
            id: 2,
            drop: vec![(Level(5), FileId(9))],
            ..Edit::default()
        },
        "known",
    );
    refuse(
        Edit {
            id: 2,
            add: vec![(Level(2), table(9, "x", "y"))],
            ..Edit::default()
        },
        "fresh",
    );
    refuse(
        Edit {
            id: 2,
            drop: vec![(Level(1), FileId(9)), (Level(1), FileId(9))],
            ..Edit::default()
        },
        "known",
    );
    let twice = [("a", "b"), ("c", "d")].map(|(from, to)| (Level(2), table(200, from, to)));
    refuse(
        Edit {
            id: 2,
            add: twice.to_vec(),
            ..Edit::default()
        },
        "fresh",
    );
    // Its id is above the recorded next file id.
    let mut above = version.clone();
    above
        .apply(&Edit {
            id: 2,
            add: vec![twice[0].clone()],
            ..Edit::default()
        })
        .unwrap();
    let again = Edit {
        id: 3,
        add: vec![twice[1].clone()],
        ..Edit::default()
    };
    assert!(above.apply(&again).unwrap_err().starts_with("fresh"));
    refuse(
        Edit {
            id: 2,
            add: vec![(Level(1), table(11, "c", "d"))],
            ..Edit::default()
        },
        "disjoint",
    );
    refuse(
        Edit {
            id: 0,
            ..Edit::default()
        },
        "rising",
    );
    let snapshot = version.snapshot();
    let mut again = Version::default();
    again.apply(&snapshot).unwrap();
    assert_eq!(again.snapshot(), snapshot);
}

#[test]
fn a_table_that_was_linked_meanwhile_stays_shared() {
    let mut version = Version::default();
    version.apply(&edit(1)).unwrap();
    let as_read = |id| TableMeta {
        shared: false,
        ..table(id, "a", "c")
    };
    let shared = |drop: Vec<(Level, FileId)>, id| {
        let mut edit = Edit {
            drop,
            add: vec![(Level(2), as_read(id))],
            ..Edit::default()
        };
        version.keep_shared(&mut edit);
        edit.add[0].1.shared
    };
    assert!(shared(vec![(Level(0), FileId(8))], 8), "8 is, by now");
    assert!(!shared(vec![(Level(1), FileId(9))], 9), "9 is not");
    assert!(!shared(vec![(Level(0), FileId(8))], 12), "12 is new");
}

fn written(dir: &Path, bytes_max: u64) -> ManifestWriter {
    let files = Arc::new(Files::of_test(
        &OsFs::with(IoBackend::Pool, false),
        dir,
        [3; 16],
    ));
    let mut version = Version::default();
    version.apply(&edit(1)).unwrap();
    let mut writer = ManifestWriter::create(
        files,
        Arc::new(IoCounters::default()),
        FileId(1),
        version,
        bytes_max,
    )
    .unwrap();
    let mut next_id = 100;
    for i in 0..20 {
        let key = format!("k{i:02}");
        let edit = Edit {
            add: vec![(Level(2), table(20 + i, &key, &key))],
            ..Edit::default()
        };
        let id = || {
            next_id += 1;
            FileId(next_id)
        };
        writer.append(edit, i % 2 == 0, id).unwrap();
    }
    writer
}

#[test]
fn a_manifest_replays_also_after_it_was_renewed() {
    for bytes_max in [1 << 20, 200] {
        let dir = tempfile::tempdir().unwrap();
        let writer = written(dir.path(), bytes_max);
        let fs = OsFs::with(IoBackend::Pool, false);
        let (id, version) = read(&*fs.open_dir(dir.path()).unwrap(), &IoCounters::default())
            .unwrap()
            .unwrap();
        assert_eq!(id, writer.id());
        assert_eq!(id > FileId(1), bytes_max == 200);
        assert_eq!(version.snapshot(), writer.version().snapshot());
        let manifests = fs
            .open_dir(dir.path())
            .unwrap()
            .list()
            .unwrap()
            .iter()
            .filter(|name| name.starts_with("MANIFEST"))
            .count();
        assert_eq!(manifests, 1);
    }
}

/// Cuts the manifest at every byte: the result is the state after some edit, or an error. Flips a
/// bit in every byte: the same, and a damaged record that is followed by others is always an error.
#[test]
fn every_byte_cut_or_flipped() {
    let dir = tempfile::tempdir().unwrap();
    let writer = written(dir.path(), 1 << 20);
    let last = writer.version().edit_id;
    let bytes = std::fs::read(dir.path().join(FileName::Manifest(FileId(1)).to_string())).unwrap();
    let text = std::fs::read(dir.path().join("CURRENT")).unwrap();
    // In memory, because the files are rewritten for each byte.
    let (fs, dir) = (SimFs::new(1), Path::new("/db"));
    let (path, current) = (
        dir.join(FileName::Manifest(FileId(1)).to_string()),
        dir.join("CURRENT"),
    );
    fs.write_file(&current, &text);
    let open = |bytes: &[u8]| {
        fs.write_file(&path, bytes);
        read(&*fs.open_dir(dir).unwrap(), &IoCounters::default())
            .map(|found| found.unwrap().1.edit_id)
    };
    let last_record = RECORD_HEADER_BYTES
        + Edit {
            id: last,
            add: vec![(Level(2), table(39, "k19", "k19"))],
            ..Edit::default()
        }
        .encode()
        .len();
    for at in 0..bytes.len() {
        match open(&bytes[..at]) {
            Ok(edit_id) => assert!(edit_id < last),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
        }
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        match open(&flipped) {
            Ok(edit_id) => assert!(
                edit_id == last - 1 && at >= bytes.len() - last_record,
                "byte {at}"
            ),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
        }
    }
    assert_eq!(open(&bytes).unwrap(), last);
    for at in 0..text.len() {
        let mut flipped = text.clone();
        flipped[at] ^= 1;
        fs.write_file(&current, &flipped);
        let error = read(&*fs.open_dir(dir).unwrap(), &IoCounters::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}

#[test]
fn another_format_version_is_incompatible() {
    let dir = tempfile::tempdir().unwrap();
    let writer = written(dir.path(), 1 << 20);
    let path = dir.path().join(FileName::Manifest(FileId(1)).to_string());
    for other in [FORMAT_VERSION_MIN - 1, FORMAT_VERSION + 1] {
        let snapshot = Edit {
            format: Some(other),
            ..edit(1)
        };
        std::fs::write(&path, record(FileId(1), 0, 0, &snapshot.encode())).unwrap();
        let fs = OsFs::with(IoBackend::Pool, false);
        let error = read(&*fs.open_dir(dir.path()).unwrap(), &IoCounters::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        for part in [
            format!("format version {other}"),
            "versions 3 to 7".to_owned(),
        ] {
            assert!(error.to_string().contains(&part), "{error}");
        }
    }
    // The manifest is sound, so there is nothing to repair, and its contents stay.
    drop(writer);
    let before = std::fs::read(&path).unwrap();
    let refused = crate::repair(dir.path(), &crate::Options::tiny()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible, "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_record_of_a_later_version_is_incompatible() {
    let dir = tempfile::tempdir().unwrap();
    let _writer = written(dir.path(), 1 << 20);
    let path = dir.path().join(FileName::Manifest(FileId(1)).to_string());
    let mut bytes = std::fs::read(&path).unwrap();
    let next = record(FileId(1), bytes.len() as u64, 0, &[63, 1]);
    bytes.extend_from_slice(&next);
    std::fs::write(&path, &bytes).unwrap();
    let fs = OsFs::with(IoBackend::Pool, false);
    assert_eq!(
        read(&*fs.open_dir(dir.path()).unwrap(), &IoCounters::default())
            .unwrap_err()
            .kind(),
        ErrorKind::Incompatible
    );
}

/// Numbers that leave no room for the next one are rejected in every field.
#[test]
fn numbers_that_cannot_be_counted_on_are_refused() {
    let too_large = files::NUMBER_MAX + 1;
    let edits = [
        Edit {
            id: too_large,
            ..Edit::default()
        },
        Edit {
            next_file_id: Some(FileId(u64::MAX)),
            ..Edit::default()
        },
        Edit {
            log_floor: Some(FileId(too_large)),
            ..Edit::default()
        },
        Edit {
            logs_added: vec![FileId(u64::MAX)],
            ..Edit::default()
        },
        Edit {
            logs_named: vec![FileId(u64::MAX)],
            ..Edit::default()
        },
        Edit {
            logs_sealed: vec![LogEnd {
                log_id: FileId(1),
                end: u64::MAX,
                synced_through: 0,
            }],
            ..Edit::default()
        },
        Edit {
            add: vec![(
                Level(0),
                TableMeta {
                    id: FileId(u64::MAX),
                    ..table(1, "a", "b")
                },
            )],
            ..Edit::default()
        },
        Edit {
            drop: vec![(Level(0), FileId(u64::MAX))],
            ..Edit::default()
        },
        Edit {
            pool: PoolEdit {
                pairing: Some(PmPairing {
                    generation: u64::MAX,
                }),
                ..PoolEdit::default()
            },
            ..Edit::default()
        },
    ];
    for edit in edits {
        assert_eq!(Edit::decode(&edit.encode()), None, "{edit:?}");
    }
}

/// A torn end in which every 16 bytes look like the header of a record that reaches to the end is
/// read quickly. Checking each of them in full would take a quarter of an hour.
#[test]
fn a_torn_end_is_searched_in_linear_time() {
    const END_BYTES: u32 = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    let _writer = written(dir.path(), 1 << 20);
    let path = dir.path().join(FileName::Manifest(FileId(1)).to_string());
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len() as u64;
    bytes.extend_from_slice(&[0; 16]);
    for at in (0..END_BYTES).step_by(16).skip(1) {
        bytes.extend_from_slice(&(END_BYTES - at).saturating_sub(32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(end + 1).to_le_bytes());
    }
    std::fs::write(&path, &bytes).unwrap();
    let fs = OsFs::with(IoBackend::Pool, false);
    assert_eq!(
        read(&*fs.open_dir(dir.path()).unwrap(), &IoCounters::default())
            .unwrap_err()
            .kind(),
        ErrorKind::Corruption
    );
}

/// The bytes that were durable when a record was written are before it.
#[test]
fn a_record_synced_past_itself_is_none() {
    let bytes = record(FileId(1), 0, 1, b"payload");
    assert!(layout::whole_record(&bytes, FileId(1), 0).is_none());
    assert!(layout::whole_record(&record(FileId(1), 0, 0, b"payload"), FileId(1), 0).is_some());
}

proptest::proptest! {
    #[test]
    fn hostile_edits(bytes: Vec<u8>) {
        if let Some(edit) = Edit::decode(&bytes) {
            let mut version = Version::default();
            let _any = version.apply(&edit);
            proptest::prop_assert_eq!(Edit::decode(&edit.encode()), Some(edit));
        }
    }
}

/// Borders survive a record and a snapshot. A table that crosses one is refused, and so is a border
/// that a table crosses.
#[test]
fn no_table_crosses_a_border() {
    let mut version = Version::default();
    let mut apply = |edit: Edit| {
        let mut next = version.clone();
        next.apply(&Edit::decode(&edit.encode()).unwrap())?;
        version = next;
        let mut again = Version::default();
        again.apply(&version.snapshot()).unwrap();
        assert_eq!(again.layout, version.layout);
        Ok::<_, &'static str>(version.layout.ids().len())
    };
    let adds = |id, level, smallest, largest| Edit {
        add: vec![(level, table(id, smallest, largest))],
        ..Edit::default()
    };
    let cut = |key: &str, id| Edit {
        cuts_added: vec![(key.into(), PartId(id))],
        ..Edit::default()
    };
    let drop = |key: &str| Edit {
        cuts_dropped: vec![key.into()],
        ..Edit::default()
    };
    assert_eq!(apply(adds(1, Level(1), "a", "c")), Ok(1));
    assert_eq!(apply(cut("d", 1)), Ok(2));
    for (key, id) in [("b", 2), ("c", 2), ("d", 2), ("e", 1), ("e", 0)] {
        assert!(
            apply(cut(key, id)).unwrap_err().starts_with("bordered"),
            "{key}"
        );
    }
    assert!(
        apply(adds(2, Level(0), "c", "d"))
            .unwrap_err()
            .starts_with("bordered")
    );
    assert_eq!(apply(adds(2, Level(0), "d", "z")), Ok(2));
    assert_eq!(apply(cut("zz", 7)), Ok(3));
    assert!(apply(drop("e")).unwrap_err().starts_with("bordered"));
    assert_eq!(apply(drop("d")), Ok(2));
    assert_eq!(apply(adds(3, Level(0), "a", "z")), Ok(2));
}

/// Borders of ranges survive a record and a snapshot. No table below level 0 crosses one, and a
/// border of partitions takes the place of one.
#[test]
fn no_table_below_level_0_crosses_a_border_of_ranges() {
    let mut version = Version::default();
    let mut apply = |edit: Edit| {
        let mut next = version.clone();
        next.apply(&Edit::decode(&edit.encode()).unwrap())?;
        version = next;
        let mut again = Version::default();
        again.apply(&version.snapshot()).unwrap();
        assert_eq!(again.layout, version.layout);
        Ok::<_, &'static str>(version.layout.ranges().len())
    };
    let adds = |id, level, smallest, largest| Edit {
        add: vec![(level, table(id, smallest, largest))],
        ..Edit::default()
    };
    let range = |key: &str| Edit {
        ranges: RangeBorders {
            added: vec![key.into()],
            ..RangeBorders::default()
        },
        ..Edit::default()
    };
    let drop = |key: &str| Edit {
        ranges: RangeBorders {
            dropped: vec![key.into()],
            ..RangeBorders::default()
        },
        ..Edit::default()
    };
    assert_eq!(apply(adds(1, Level(0), "a", "m")), Ok(0));
    assert_eq!(apply(adds(2, Level(2), "a", "c")), Ok(0));
    assert_eq!(apply(range("d")), Ok(1));
    for key in ["b", "c"] {
        assert!(apply(range(key)).unwrap_err().starts_with("bordered"));
    }
    assert!(apply(range("d")).unwrap_err().starts_with("confined"));
    let refused = apply(adds(3, Level(1), "c", "d")).unwrap_err();
    assert!(refused.starts_with("bordered"), "{refused}");
    assert_eq!(apply(adds(3, Level(1), "d", "z")), Ok(1));
    assert_eq!(apply(adds(4, Level(0), "a", "z")), Ok(1));
    assert!(apply(drop("e")).unwrap_err().starts_with("confined"));
    // Tables of level 0 cross a border of ranges, but none of partitions.
    let cut = |key: &str| Edit {
        cuts_added: vec![(key.into(), PartId(1))],
        ranges: RangeBorders {
            dropped: vec![key.into()],
            ..RangeBorders::default()
        },
        ..Edit::default()
    };
    assert!(apply(cut("d")).unwrap_err().starts_with("bordered"));
    let without = Edit {
        drop: vec![(Level(0), FileId(1)), (Level(0), FileId(4))],
        ..cut("d")
    };
    assert_eq!(apply(without), Ok(0));
    assert!(apply(range("d")).unwrap_err().starts_with("confined"));
}

/// Applies `edit` as it is read from a record, and returns the ids of the trees that are left. A
/// version that is read from a snapshot has the same.
fn applied(version: &mut Version, edit: &Edit) -> Result<Vec<u64>, &'static str> {
    let mut next = version.clone();
    next.apply(&Edit::decode(&edit.encode()).unwrap())?;
    *version = next;
    let mut again = Version::default();
    again.apply(&version.snapshot()).unwrap();
    assert_eq!(again.trees, version.trees);
    Ok(version.trees.iter().map(|tree| tree.id.0).collect())
}

fn adds(id: u64, level: usize, smallest: &str, largest: &str) -> Edit {
    Edit {
        add: vec![(Level(level), table(id, smallest, largest))],
        ..Edit::default()
    }
}

fn drops(id: u64, level: usize) -> Edit {
    Edit {
        drop: vec![(Level(level), FileId(id))],
        ..Edit::default()
    }
}

fn adds_trees(trees: &[BlockTreeMeta]) -> Edit {
    Edit {
        pool: PoolEdit {
            trees_added: trees.to_vec(),
            ..PoolEdit::default()
        },
        ..Edit::default()
    }
}

fn drops_tree(id: u64) -> Edit {
    Edit {
        pool: PoolEdit {
            trees_dropped: vec![FileId(id)],
            ..PoolEdit::default()
        },
        ..Edit::default()
    }
}

/// Three ranges with trees over all that they have, and one over level 0.
fn with_trees() -> Version {
    let mut version = Version::default();
    let borders = Edit {
        ranges: RangeBorders {
            added: vec![b"h".to_vec(), b"p".to_vec()],
            dropped: Vec::new(),
        },
        ..Edit::default()
    };
    applied(&mut version, &borders).unwrap();
    for (id, level, smallest, largest) in [
        (1, 0, "a", "z"),
        (2, 3, "a", "c"),
        (3, 4, "a", "g"),
        (4, 3, "h", "k"),
        (5, 4, "h", "o"),
        (6, 4, "p", "z"),
    ] {
        applied(&mut version, &adds(id, level, smallest, largest)).unwrap();
    }
    let all = [
        tree(20, (0, 0), ""),
        tree(21, (1, 3), ""),
        tree(22, (4, 63), ""),
        tree(23, (1, 3), "h"),
        tree(24, (4, 63), "h"),
        tree(25, (4, 63), "p"),
    ];
    let found = applied(&mut version, &adds_trees(&all));
    assert_eq!(found, Ok(vec![20, 21, 22, 23, 24, 25]));
    version
}

#[test]
fn a_tree_goes_with_the_first_table_that_changes() {
    let mut version = with_trees();
    let mut apply = |edit: Edit| applied(&mut version, &edit);
    for wrong in [
        tree(30, (1, 3), "b"),
        tree(30, (0, 3), ""),
        tree(30, (0, 0), "h"),
        tree(30, (2, 2), "h"),
    ] {
        let refused = apply(adds_trees(&[wrong])).unwrap_err();
        assert!(refused.starts_with("covering"), "{refused}");
    }
    // One takes the place of another over the same tables.
    let again = adds_trees(&[tree(26, (1, 3), "h")]);
    assert_eq!(apply(again), Ok(vec![20, 21, 22, 26, 24, 25]));
    // Level 0 is one for the partition, whatever its ranges.
    assert_eq!(apply(adds(7, 0, "p", "q")), Ok(vec![21, 22, 26, 24, 25]));
    assert_eq!(apply(adds(8, 2, "i", "j")), Ok(vec![21, 22, 24, 25]));
    assert_eq!(apply(drops(3, 4)), Ok(vec![21, 24, 25]));
    // A table that comes back the same, as a shared one, keeps its tree; one that grew does not.
    let comes_back = |table| Edit {
        add: vec![(Level(4), table)],
        ..drops(5, 4)
    };
    let mut same = table(5, "h", "o");
    same.shared = true;
    assert_eq!(apply(comes_back(same)), Ok(vec![21, 24, 25]));
    let mut grown = table(5, "h", "o");
    grown.extent.valid_len += 1;
    assert_eq!(apply(comes_back(grown)), Ok(vec![21, 25]));
}

#[test]
fn a_tree_is_given_up_by_its_id() {
    let mut version = with_trees();
    let mut apply = |edit: Edit| applied(&mut version, &edit);
    assert_eq!(apply(drops_tree(23)), Ok(vec![20, 21, 22, 24, 25]));
    assert_eq!(apply(drops_tree(25)), Ok(vec![20, 21, 22, 24]));
    let refused = apply(drops_tree(25)).unwrap_err();
    assert!(refused.starts_with("known"), "{refused}");
    let again = adds_trees(&[tree(26, (1, 3), "h")]);
    assert_eq!(apply(again), Ok(vec![20, 21, 22, 26, 24]));
    let both = Edit {
        pool: PoolEdit {
            trees_dropped: vec![FileId(26), FileId(20)],
            ..adds_trees(&[tree(27, (0, 0), "")]).pool
        },
        ..Edit::default()
    };
    assert_eq!(Edit::decode(&both.encode()), Some(both.clone()));
    assert_eq!(apply(both), Ok(vec![27, 21, 22, 24]));
}

#[test]
fn a_tree_goes_with_a_border_of_its_range() {
    let mut version = with_trees();
    let mut apply = |edit: Edit| applied(&mut version, &edit);
    let ranges = |added: &[&str], dropped: &[&str]| {
        let keys = |keys: &[&str]| keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        Edit {
            ranges: RangeBorders {
                added: keys(added),
                dropped: keys(dropped),
            },
            ..Edit::default()
        }
    };
    let refused = apply(ranges(&["y"], &[])).unwrap_err();
    assert!(refused.starts_with("bordered"), "{refused}");
    // Borders of ranges leave level 0 alone, and trees of other ranges.
    assert_eq!(apply(ranges(&["zz"], &[])), Ok(vec![20, 21, 22, 23, 24]));
    assert_eq!(apply(ranges(&[], &["h"])), Ok(vec![20]));
    assert_eq!(apply(drops(1, 0)), Ok(vec![]));
    let back = [
        tree(29, (0, 0), ""),
        tree(31, (4, 63), ""),
        tree(32, (4, 63), "zz"),
    ];
    assert_eq!(apply(adds_trees(&back)), Ok(vec![29, 31, 32]));
    let cut = Edit {
        cuts_added: vec![(b"zzz".to_vec(), PartId(1))],
        ..Edit::default()
    };
    assert_eq!(apply(cut), Ok(vec![31]));
}

/// Version 5 does not know what a table hides.
#[test]
fn a_table_of_version_5_hides_nothing() {
    let hides = 0x55;
    let known = TableMeta {
        hides,
        ..table(8, "a", "z")
    };
    let edit = |table| Edit {
        add: vec![(Level(1), table)],
        ..Edit::default()
    };
    let mut bytes = edit(known.clone()).encode();
    let keys = [hides as u8, 1, b'a', 1, b'z'];
    let at = bytes.windows(keys.len()).position(|part| part == keys);
    bytes.remove(at.unwrap());
    let before = TableMeta { hides: 0, ..known };
    assert_eq!(Edit::decode_as(&bytes, 5), Some(edit(before)));
    assert_eq!(Edit::decode(&bytes), None);
}

//! Reads a database in every possible way and compares it with the reference.

use crate::model::Map;
use firn_base::seed::Seed;
use firndb::{Cursor, Db, Result};
use std::ops::Bound;

/// Reads all contents by a forward scan, a backward scan, gets and a multi-get, which must agree.
///
/// # Errors
/// The first error of a read.
///
/// # Panics
/// If two ways of reading disagree.
pub fn read_all(db: &Db) -> Result<Map> {
    let mut forward = Vec::new();
    let mut iter = db.cursor()?;
    iter.first()?;
    while iter.valid() {
        forward.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    let mut backward = Vec::new();
    iter.last()?;
    while iter.valid() {
        backward.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev()?;
    }
    backward.reverse();
    assert!(
        forward == backward,
        "a scan backward gives {} entries, one forward {}",
        backward.len(),
        forward.len()
    );
    assert!(forward.is_sorted_by(|a, b| a.0 < b.0), "keys do not rise");
    let keys: Vec<&[u8]> = forward.iter().map(|(key, _)| &key[..]).collect();
    for ((key, value), many) in forward.iter().zip(db.multi_get(&keys)?) {
        let got = db.get(key)?;
        let name = key.escape_ascii();
        assert!(
            got.is_some_and(|got| got == value[..]),
            "get of {name} differs from what a scan gives"
        );
        assert!(
            many.is_some_and(|got| got == value[..]),
            "multi_get of {name} differs from what a scan gives"
        );
    }
    Ok(forward.into_iter().collect())
}

/// A cursor and its expected contents, which must not change while other operations run.
pub struct CheckedCursor {
    /// The cursor.
    pub iter: Cursor,
    /// The contents of the database at its read point, within its bounds.
    pub map: Map,
    /// The key at which it is positioned.
    pub at: Option<Vec<u8>>,
}

impl CheckedCursor {
    /// A cursor that is not positioned yet.
    pub fn new(
        iter: Cursor,
        map: &Map,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> CheckedCursor {
        let inside = |key: &[u8]| {
            lower.is_none_or(|lower| key >= lower) && upper.is_none_or(|upper| key < upper)
        };
        let map = map
            .iter()
            .filter(|(key, _)| inside(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        CheckedCursor {
            iter,
            map,
            at: None,
        }
    }
}

/// Moves a cursor randomly `count` times and compares after each move.
///
/// # Errors
/// The first error of a read.
///
/// # Panics
/// If the cursor is not where it must be.
pub fn check_cursor(
    cursor: &mut CheckedCursor,
    count: u64,
    random: &mut Seed,
    key: impl Fn(&mut Seed) -> Vec<u8>,
) -> Result<()> {
    for _ in 0..count {
        let map = &cursor.map;
        let before = |key: &[u8]| {
            map.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)))
                .next_back()
        };
        let behind = |key: &[u8]| {
            map.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
                .next()
        };
        let iter = &mut cursor.iter;
        let probe = key(random);
        let (want, how) = match random.below(12) {
            0 => (iter.first().map(|()| map.iter().next())?, "first"),
            1 => (iter.last().map(|()| map.iter().next_back())?, "last"),
            2 | 3 => (
                iter.seek(&probe)
                    .map(|()| map.range(probe.clone()..).next())?,
                "seek",
            ),
            4 | 5 => (
                iter.seek_for_prev(&probe)
                    .map(|()| map.range(..=probe.clone()).next_back())?,
                "seek_for_prev",
            ),
            n => match (&cursor.at, n) {
                (None, _) => continue,
                (Some(at), 6..9) => (iter.next().map(|()| behind(at))?, "next"),
                (Some(at), _) => (iter.prev().map(|()| before(at))?, "prev"),
            },
        };
        let got = iter
            .valid()
            .then(|| (iter.key().to_vec(), iter.value().to_vec()));
        let want = want.map(|(key, value)| (key.clone(), value.clone()));
        let name = |entry: &Option<(Vec<u8>, Vec<u8>)>| {
            entry
                .as_ref()
                .map(|(key, _)| key.escape_ascii().to_string())
        };
        assert!(
            got == want,
            "{how} from {:?} (probe {}) leads to {:?}, not {:?}",
            cursor.at.as_ref().map(|key| key.escape_ascii().to_string()),
            probe.escape_ascii(),
            name(&got),
            name(&want)
        );
        cursor.at = want.map(|(key, _)| key);
    }
    Ok(())
}

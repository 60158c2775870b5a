//! Iterators over entries, from both ends.

use crate::api::cursor::Cursor;
use crate::api::db::Db;
use crate::options::ReadOptions;
use crate::read_points::Point;
use firn_base::{Result, SeqNo};
use firn_table::Value;
use std::iter::FusedIterator;
use std::sync::Arc;

/// The entries of a key range at one read point, in key order. [`Iterator::rev`] visits them in
/// reverse.
///
/// Created by [`crate::Db::iter`], `range` and `prefix`, and by the same methods of
/// [`crate::Snapshot`]. It registers its read point when it is created, so it sees no later write.
/// After an error it ends. Each entry is copied; a [`crate::Cursor`] lends its entries instead.
///
/// ```
/// # fn main() -> firndb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = firndb::Db::open(dir.path().join("db"), firndb::Options::default())?;
/// db.put(b"a", b"1")?;
/// db.put(b"b", b"2")?;
/// for entry in db.iter().rev() {
///     let (key, value) = entry?;
///     println!("{key:?} {value:?}");
/// }
/// # db.close()
/// # }
/// ```
#[must_use = "an iterator does nothing unless it is asked for entries"]
pub struct Iter {
    source: Result<Source>,
    front: Option<Cursor>,
    back: Option<Cursor>,
    is_over: bool,
}

/// Everything needed to create a cursor at each end.
struct Source {
    db: Db,
    point: Arc<Point>,
    bounds: ReadOptions,
}

impl Source {
    fn cursor(&self) -> Cursor {
        Cursor::new(self.db.clone(), self.point.clone(), self.bounds.clone())
    }
}

impl Iter {
    pub(crate) fn new(db: &Db, bounds: ReadOptions) -> Iter {
        let point = db.point(&bounds);
        let source = point.map(|point| Source {
            db: db.clone(),
            point,
            bounds,
        });
        Iter {
            source,
            front: None,
            back: None,
            is_over: false,
        }
    }

    pub(crate) fn seqno(&self) -> Option<SeqNo> {
        self.source.as_ref().ok().map(|source| source.point.seqno)
    }

    /// Moves one end by one entry, creating its cursor first. Ends where the two ends meet.
    fn step(&mut self, forward: bool) -> Option<Result<(Vec<u8>, Value)>> {
        if self.is_over {
            return None;
        }
        let moved = self.try_step(forward);
        self.is_over = !matches!(moved, Ok(Some(_)));
        moved.transpose()
    }

    fn try_step(&mut self, forward: bool) -> Result<Option<(Vec<u8>, Value)>> {
        let source = self.source.as_ref().map_err(Clone::clone)?;
        let (near, far) = if forward {
            (&mut self.front, &self.back)
        } else {
            (&mut self.back, &self.front)
        };
        let cursor = match near {
            Some(cursor) => {
                if forward {
                    cursor.next()?
                } else {
                    cursor.prev()?
                }
                cursor
            }
            None => {
                let cursor = near.insert(source.cursor());
                if forward {
                    cursor.first()?
                } else {
                    cursor.last()?
                }
                cursor
            }
        };
        if !cursor.valid() {
            return Ok(None);
        }
        let have_met = far.as_ref().is_some_and(|far| match forward {
            true => cursor.key() >= far.key(),
            false => cursor.key() <= far.key(),
        });
        Ok((!have_met).then(|| (cursor.key().to_vec(), cursor.to_value())))
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl FusedIterator for Iter {}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter")
            .field("seqno", &self.seqno())
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::Options;

    fn keys(iter: impl Iterator<Item = Result<(Vec<u8>, Value)>>) -> Vec<u8> {
        iter.map(|entry| entry.unwrap().0[0]).collect()
    }

    #[test]
    fn the_ends_meet_wherever_they_do() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("db"), Options::tiny()).unwrap();
        for key in 0..10_u8 {
            db.put([key], [key]).unwrap();
        }
        assert_eq!(keys(db.iter()), (0..10).collect::<Vec<u8>>());
        assert_eq!(keys(db.iter().rev()), (0..10).rev().collect::<Vec<u8>>());
        assert_eq!(keys(db.range([3]..[6])), [3, 4, 5]);
        assert_eq!(keys(db.range([3]..=[6]).rev()), [6, 5, 4, 3]);
        assert_eq!(keys(db.prefix([7])), [7]);
        for from_front in 0..=11 {
            let mut iter = db.iter();
            let front = keys(iter.by_ref().take(from_front));
            let back = keys(iter.by_ref().rev());
            assert_eq!(front.len() + back.len(), 10);
            assert_eq!(
                [front, back.into_iter().rev().collect()].concat(),
                (0..10).collect::<Vec<u8>>()
            );
            assert!(iter.next().is_none() && iter.next_back().is_none());
        }
    }

    #[test]
    fn later_writes_are_not_seen_and_errors_end_it() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("db"), Options::tiny()).unwrap();
        db.put(b"a", b"1").unwrap();
        let iter = db.iter();
        db.put(b"b", b"2").unwrap();
        assert_eq!(keys(iter), *b"a");
        assert_eq!(
            (
                db.first().unwrap().unwrap().0,
                db.last().unwrap().unwrap().0
            ),
            (b"a".to_vec(), b"b".to_vec())
        );
        let (mut open, handle) = (db.iter(), db.clone());
        assert!(open.next().unwrap().is_ok());
        db.close().unwrap();
        assert!(open.next().unwrap().is_err() && open.next().is_none());
        let mut closed = handle.iter();
        assert!(closed.next().unwrap().is_err() && closed.next().is_none());
    }
}

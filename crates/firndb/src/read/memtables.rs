//! The memtables of a state: one list for all keys or, where each partition has a write buffer of
//! its own, one for each partition.
//!
//! 1. A list is never empty: its first memtable takes writes. If a partition has no buffer yet,
//!    that one has no room ([`Memtable::placeholder`]).
//! 2. A list is newest first for each key. Memtables of several lists, which were there before the
//!    partition was divided, are the oldest of each of them, in the same order.

use crate::manifest::Layout;
use crate::memtable::Memtable;
use firn_base::{FileId, SeqNo};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// The entries of a key range that are not in tables yet.
#[derive(Debug, Clone)]
pub(crate) struct Unflushed {
    /// Newest first. The first takes writes.
    pub(crate) memtables: Vec<Arc<Memtable>>,
    /// Everything up to this sequence number is below the memtables.
    pub(crate) flushed_through: SeqNo,
}

/// The memtables of a state.
#[derive(Debug, Clone)]
pub(crate) struct Memtables {
    /// One, or as many as there are partitions.
    lists: Arc<[Arc<Unflushed>]>,
    /// True if each partition has a list.
    by_part: bool,
}

impl Unflushed {
    /// The memtable that takes writes.
    #[inline]
    pub(crate) fn active(&self) -> &Arc<Memtable> {
        &self.memtables[0]
    }

    /// The sequence numbers that a reader at `seqno` covers by searching these memtables: those
    /// above the first number of the range, up to the last one that is visible to it and in them.
    #[inline]
    pub(super) fn searched(&self, seqno: SeqNo) -> RangeInclusive<SeqNo> {
        // Loaded after the read point: if that is above the end of these memtables, they are known
        // to be frozen.
        let last = self.active().frozen_at();
        self.flushed_through..=last.map_or(seqno, |last| last.min(seqno))
    }

    /// With `fresh` as the memtable that takes writes. The one that took them is left out if it has
    /// none.
    fn begun(&self, fresh: Arc<Memtable>) -> Unflushed {
        let left_out = usize::from(self.active().used_bytes() == 0);
        let others = self.memtables[left_out..].iter().cloned();
        Unflushed {
            memtables: std::iter::once(fresh).chain(others).collect(),
            flushed_through: self.flushed_through,
        }
    }

    fn without(&self, flushed: &[Arc<Memtable>]) -> Unflushed {
        let is_flushed =
            |memtable: &Arc<Memtable>| flushed.iter().any(|of| Arc::ptr_eq(of, memtable));
        let (gone, left): (Vec<_>, Vec<_>) = self.memtables.iter().cloned().partition(is_flushed);
        let through = gone
            .iter()
            .filter_map(|memtable| memtable.frozen_at())
            .max();
        Unflushed {
            memtables: left,
            flushed_through: through.map_or(self.flushed_through, |through| {
                through.max(self.flushed_through)
            }),
        }
    }

    fn has(&self, memtable: &Arc<Memtable>) -> bool {
        self.memtables
            .iter()
            .any(|other| Arc::ptr_eq(other, memtable))
    }
}

impl Memtables {
    /// One list for all keys.
    pub(crate) fn shared(memtables: Vec<Arc<Memtable>>, flushed_through: SeqNo) -> Memtables {
        let all = Unflushed {
            memtables,
            flushed_through,
        };
        Memtables {
            lists: Arc::new([Arc::new(all)]),
            by_part: false,
        }
    }

    /// A list without room.
    #[cfg(test)]
    pub(crate) fn none() -> Memtables {
        let placeholder = Memtable::placeholder(FileId(0));
        Memtables::shared(vec![Arc::new(placeholder)], SeqNo(0))
    }

    /// A list for each partition, in key order.
    pub(crate) fn by_part(lists: impl IntoIterator<Item = Unflushed>) -> Memtables {
        Memtables {
            lists: lists.into_iter().map(Arc::new).collect(),
            by_part: true,
        }
    }

    /// True if each partition has a list.
    #[inline]
    pub(crate) fn are_by_part(&self) -> bool {
        self.by_part
    }

    /// The list that has the entries of `key`.
    #[inline]
    pub(crate) fn of(&self, layout: &Layout, key: &[u8]) -> &Unflushed {
        match &*self.lists {
            [all] => all,
            lists => &lists[layout.part_of(key)],
        }
    }

    /// The list of the partition with index `part`.
    pub(crate) fn of_part(&self, part: usize) -> &Unflushed {
        match &*self.lists {
            [all] => all,
            lists => &lists[part],
        }
    }

    /// The lists: one, or one for each partition in key order.
    pub(crate) fn lists(&self) -> impl ExactSizeIterator<Item = &Unflushed> + DoubleEndedIterator {
        self.lists.iter().map(|list| &**list)
    }

    /// True if `memtable` is one of them.
    pub(crate) fn has(&self, memtable: &Arc<Memtable>) -> bool {
        self.lists.iter().any(|list| list.has(memtable))
    }

    /// All memtables, each once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        // One of several lists is in neighbours.
        let is_new =
            |i: usize, memtable: &Arc<Memtable>| i == 0 || !self.lists[i - 1].has(memtable);
        let lists = self.lists.iter().enumerate();
        lists.flat_map(move |(i, list)| {
            list.memtables
                .iter()
                .filter(move |memtable| is_new(i, memtable))
        })
    }

    /// The approximate number of entries, of which readers see those up to `visible`.
    pub(crate) fn entries(&self, visible: SeqNo) -> u64 {
        match self.by_part {
            false => visible.0.saturating_sub(self.lists[0].flushed_through.0),
            true => self.iter().map(|memtable| memtable.entries()).sum(),
        }
    }

    /// The last number through which a state with these memtables has all entries, for a reader
    /// that sees those up to `visible`. With a list for each partition, one may have ended before
    /// another, and a batch be in both. REQUIRES: `visible` was read after the state.
    pub(crate) fn complete_through(&self, visible: SeqNo) -> SeqNo {
        match self.by_part {
            false => visible,
            true => {
                let ends = self
                    .lists
                    .iter()
                    .filter_map(|list| list.active().frozen_at());
                ends.fold(visible, SeqNo::min)
            }
        }
    }

    /// With `fresh` as the memtable that takes writes in `lists`. The one that took them is to be
    /// frozen, so other lists that have it get a placeholder.
    pub(crate) fn with_fresh(&self, lists: Range<usize>, fresh: &Arc<Memtable>) -> Memtables {
        let full: Vec<_> = self.lists[lists.clone()]
            .iter()
            .map(|list| list.active())
            .collect();
        let is_full = |list: &Unflushed| full.iter().any(|full| Arc::ptr_eq(full, list.active()));
        let other = || Arc::new(Memtable::placeholder(fresh.log_id));
        let list = |(i, list): (usize, &Arc<Unflushed>)| match lists.contains(&i) {
            true => Arc::new(list.begun(fresh.clone())),
            false if is_full(list) => Arc::new(list.begun(other())),
            false => list.clone(),
        };
        Memtables {
            lists: self.lists.iter().enumerate().map(list).collect(),
            by_part: self.by_part,
        }
    }

    /// The memtables to be flushed with those of list `at`, newest first: its oldest frozen ones
    /// whose entries are all visible, up to about `bytes_max` of them, and, of each list that has
    /// one of these, all that are older.
    pub(crate) fn flushed_with(
        &self,
        at: usize,
        visible: SeqNo,
        bytes_max: u64,
    ) -> Vec<Arc<Memtable>> {
        let is_ready = |memtable: &&Arc<Memtable>| {
            let last = memtable.frozen_at();
            !memtable.is_placeholder() && last.is_some_and(|last| last <= visible)
        };
        let ready = self.of_part(at).memtables.iter().filter(is_ready);
        let mut bytes = 0;
        let oldest = ready.rev().take_while(|memtable| {
            let before = bytes;
            bytes += memtable.used_bytes() as u64;
            before < bytes_max
        });
        let mut flushed: Vec<Arc<Memtable>> = oldest.cloned().collect();
        let mut seen = 0;
        while seen < flushed.len() {
            let of = flushed[seen].clone();
            for list in self.lists.iter().filter(|list| list.has(&of)) {
                let older = list
                    .memtables
                    .iter()
                    .skip_while(|memtable| !Arc::ptr_eq(memtable, &of));
                for memtable in older.skip(1) {
                    if !flushed.iter().any(|known| Arc::ptr_eq(known, memtable)) {
                        flushed.push(memtable.clone());
                    }
                }
            }
            seen += 1;
        }
        flushed.sort_by_key(|memtable| std::cmp::Reverse(memtable.frozen_at()));
        flushed
    }

    /// Without `flushed`, whose entries are below the memtables now.
    pub(crate) fn without(&self, flushed: &[Arc<Memtable>]) -> Memtables {
        self.changed(|list| {
            let has_any = flushed.iter().any(|memtable| list.has(memtable));
            has_any.then(|| list.without(flushed))
        })
    }

    /// The lists of the partitions of `layout`, where those of `before` were.
    pub(crate) fn divided_as(&self, before: &Layout, layout: &Layout) -> Memtables {
        if !self.by_part || layout.has_parts_of(before) {
            return self.clone();
        }
        let list = |i: usize| {
            let was = before.overlapping(layout.range(i));
            match was.len() {
                1 => self.lists[was.start].clone(),
                _ => Arc::new(joined(was.map(|j| &*self.lists[j]))),
            }
        };
        Memtables {
            lists: (0..layout.ids().len()).map(list).collect(),
            by_part: true,
        }
    }

    /// True if list `at` and the next may become one: how far they are flushed differs, so neither
    /// has an entry.
    pub(crate) fn may_join(&self, at: usize) -> bool {
        let lists = &self.lists[at.min(self.lists.len() - 1)..][..2.min(self.lists.len())];
        let mut memtables = lists.iter().flat_map(|list| &list.memtables);
        !self.by_part || memtables.all(|memtable| memtable.is_placeholder())
    }

    fn changed(&self, change: impl Fn(&Unflushed) -> Option<Unflushed>) -> Memtables {
        let list = |list: &Arc<Unflushed>| change(list).map_or_else(|| list.clone(), Arc::new);
        Memtables {
            lists: self.lists.iter().map(list).collect(),
            by_part: self.by_part,
        }
    }
}

/// The lists of neighbours that are joined. REQUIRES: none had an entry when the border was to go,
/// because how far they are flushed differs. What took writes since then is to be frozen at once,
/// so that both are flushed together.
fn joined<'a>(lists: impl Iterator<Item = &'a Unflushed> + Clone) -> Unflushed {
    let all = lists.clone().flat_map(|list| &list.memtables);
    let mut memtables: Vec<Arc<Memtable>> = all
        .filter(|memtable| memtable.used_bytes() > 0)
        .cloned()
        .collect();
    // Newest first. One of both lists is there twice.
    memtables.sort_by_key(|memtable| std::cmp::Reverse(memtable.log_id));
    memtables.dedup_by(|a, b| Arc::ptr_eq(a, b));
    memtables.insert(0, Arc::new(Memtable::placeholder(FileId(0))));
    let flushed_through = lists.map(|list| list.flushed_through).max();
    Unflushed {
        memtables,
        flushed_through: flushed_through.unwrap_or_default(),
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::manifest::PartId;

    fn memtable(id: u64, entries: bool) -> Arc<Memtable> {
        match entries {
            true => Arc::new(Memtable::new(4096, FileId(id))),
            false => Arc::new(Memtable::placeholder(FileId(id))),
        }
    }

    fn list(memtables: &[&Arc<Memtable>], through: u64) -> Unflushed {
        Unflushed {
            memtables: memtables
                .iter()
                .map(|memtable| Arc::clone(memtable))
                .collect(),
            flushed_through: SeqNo(through),
        }
    }

    fn ids(list: &Unflushed) -> Vec<u64> {
        list.memtables
            .iter()
            .map(|memtable| memtable.log_id.0)
            .collect()
    }

    fn divided() -> Layout {
        let cut = (b"m".to_vec(), PartId(1));
        Layout::default().changed(&[], &[cut]).unwrap()
    }

    #[test]
    fn several_keys_are_read_at_a_point_that_all_lists_have() {
        let (left, right) = (memtable(1, true), memtable(2, true));
        let memtables = Memtables::by_part([list(&[&left], 0), list(&[&right], 0)]);
        assert_eq!(memtables.complete_through(SeqNo(9)), SeqNo(9));
        // Entries of the right partition above 5 are in a memtable that this state does not have,
        // and a batch may have others in the left one.
        right.freeze(SeqNo(5));
        assert_eq!(memtables.complete_through(SeqNo(9)), SeqNo(5));
        assert_eq!(memtables.complete_through(SeqNo(4)), SeqNo(4));
    }

    #[test]
    fn one_that_spans_a_border_is_flushed_with_all_that_are_older() {
        let [newest, spanning, older] = [3, 2, 1].map(|id| memtable(id, true));
        let active = memtable(9, false);
        let left = list(&[&active, &newest, &spanning], 0);
        let right = list(&[&active, &spanning, &older], 0);
        let memtables = Memtables::by_part([left, right]);
        for (memtable, last) in [(&older, 10), (&spanning, 20), (&newest, 30)] {
            memtable.freeze(SeqNo(last));
        }
        let flushed = memtables.flushed_with(0, SeqNo(30), u64::MAX);
        let found: Vec<u64> = flushed.iter().map(|memtable| memtable.log_id.0).collect();
        assert_eq!(found, [3, 2, 1], "or the oldest would count as flushed");
        let some = memtables.flushed_with(0, SeqNo(30), 1);
        let found: Vec<u64> = some.iter().map(|memtable| memtable.log_id.0).collect();
        assert_eq!(found, [2, 1], "the newest waits, because one is enough");
        assert_eq!(
            memtables.iter().count(),
            4,
            "each once, with the placeholder"
        );
        let after = memtables.without(&flushed);
        let through: Vec<SeqNo> = after.lists().map(|list| list.flushed_through).collect();
        assert_eq!(through, [SeqNo(30), SeqNo(20)]);
        // Not all of its entries are visible yet.
        let flushed = memtables.flushed_with(0, SeqNo(29), u64::MAX);
        let found: Vec<u64> = flushed.iter().map(|memtable| memtable.log_id.0).collect();
        assert_eq!(found, [2, 1]);
    }

    #[test]
    fn lists_follow_borders() {
        let (active, other) = (memtable(5, true), memtable(6, true));
        let one = Memtables::by_part([list(&[&active], 7)]);
        let two = one.divided_as(&Layout::default(), &divided());
        let found: Vec<Vec<u64>> = two.lists().map(ids).collect();
        assert_eq!(found, [vec![5], vec![5]], "both write to it");
        // The right one begins a memtable of its own. The left one is to begin another, because
        // theirs is frozen.
        let two = two.with_fresh(1..2, &other);
        let found: Vec<Vec<u64>> = two.lists().map(ids).collect();
        assert_eq!(found, [vec![6, 5], vec![6, 5]]);
        assert!(two.of_part(0).active().is_placeholder());
        assert!(!two.may_join(0));
        let joined = two.divided_as(&divided(), &Layout::default());
        let found: Vec<Vec<u64>> = joined.lists().map(ids).collect();
        assert_eq!(found, [vec![0, 6, 5]]);
        assert!(joined.of_part(0).active().is_placeholder());
    }

    #[test]
    fn only_the_one_that_took_writes_may_be_left_out() {
        let (empty, frozen) = (memtable(8, false), memtable(7, false));
        let memtables = Memtables::by_part([list(&[&empty, &frozen], 0)]);
        let fresh = memtable(9, true);
        let next = memtables.with_fresh(0..1, &fresh);
        // Nobody else would free the room of an older one.
        assert_eq!(ids(next.of_part(0)), [9, 7]);
    }
}

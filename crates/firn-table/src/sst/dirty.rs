//! Determines the blocks of a table that a compaction has to rewrite (BlockDB, III-C): those into
//! which keys from above fall. All others can stay in place.
//!
//! In addition, a block is rewritten
//! 1. if one of its keys continues in a neighbour that is rewritten. The versions of a key must be
//!    judged together; otherwise a tombstone could be dropped while the entries it hides remain.
//! 2. if it is small and adjacent to rewritten blocks or to incoming keys. So no two neighbours
//!    stay small, however many keys fall into gaps, and blocks are at least half full on average.

use super::filter::{self, Filter};
use super::read::Sst;
use std::cmp::Ordering;
use std::sync::Arc;

/// Receives the keys from above, in ascending order.
pub struct DirtyFinder {
    table: Arc<Sst>,
    dirty: Vec<bool>,
    /// True at `i` if keys fall into the gap before block `i`; the last element is for keys after
    /// all blocks.
    gaps: Vec<bool>,
    /// The first block whose largest key is not below the last key.
    at: usize,
    incoming: u64,
    incoming_bytes: u64,
    new_keys: u64,
}

/// The blocks of a table that a compaction has to rewrite, and the entries that come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// The numbers of the blocks, ascending.
    pub blocks: Arc<[usize]>,
    /// Stored bytes of these blocks.
    pub bytes: u64,
    /// Incoming entries.
    pub incoming: u64,
    /// Bytes of the incoming keys and values.
    pub incoming_bytes: u64,
    /// Incoming keys that are not in the filter.
    pub new_keys: u64,
}

impl DirtyFinder {
    /// A finder that has received no keys yet.
    pub fn new(table: Arc<Sst>) -> DirtyFinder {
        let blocks = table.index().len();
        DirtyFinder {
            dirty: vec![false; blocks],
            gaps: vec![false; blocks + 1],
            at: 0,
            incoming: 0,
            incoming_bytes: 0,
            new_keys: 0,
            table,
        }
    }

    /// Records an incoming entry of `key`. REQUIRES: keys do not descend.
    pub fn note(&mut self, key: &[u8], value_len: usize) {
        let index = self.table.index();
        while self.at < index.len() && index.compare_largest(self.at, key).is_lt() {
            self.at += 1;
        }
        let within =
            self.at < index.len() && index.compare_smallest(self.at, key) != Ordering::Greater;
        let place = if within {
            &mut self.dirty
        } else {
            &mut self.gaps
        };
        place[self.at] = true;
        self.incoming += 1;
        self.incoming_bytes += (key.len() + value_len) as u64;
        let is_new = |filter: &Filter| !filter.may_contain(filter::hash(key));
        self.new_keys += u64::from(self.table.filter().is_some_and(is_new));
    }

    /// The blocks to rewrite. Blocks of fewer than `small_bytes` count as small.
    pub fn finish(mut self, small_bytes: usize) -> Dirty {
        let index = self.table.index();
        let blocks = index.len();
        let small = |i: usize| (index.handle(i).raw_len as usize) < small_bytes;
        for i in 0..blocks {
            let beside = self.gaps[i] || self.gaps[i + 1] || (i > 0 && self.dirty[i - 1]);
            self.dirty[i] |= small(i) && beside;
        }
        for i in (1..blocks).rev() {
            self.dirty[i - 1] |= small(i - 1) && self.dirty[i];
        }
        let shares_key =
            |i: usize| index.compare_smallest(i, &index.largest(i - 1)) == Ordering::Equal;
        for i in 1..blocks {
            self.dirty[i] |= self.dirty[i - 1] && shares_key(i);
        }
        for i in (1..blocks).rev() {
            self.dirty[i - 1] |= self.dirty[i] && shares_key(i);
        }
        let dirty: Arc<[usize]> = (0..blocks).filter(|&i| self.dirty[i]).collect();
        Dirty {
            bytes: dirty
                .iter()
                .map(|&i| u64::from(index.handle(i).stored_len))
                .sum(),
            blocks: dirty,
            incoming: self.incoming,
            incoming_bytes: self.incoming_bytes,
            new_keys: self.new_keys,
        }
    }
}

//! Which blocks of a table a merge has to write again (BlockDB, III-C): those that keys from above fall into. All
//! others can stay where they are.
//!
//! Besides those, a block is taken along
//! 1. if a key of it goes on in a neighbour that is taken: a key's versions are judged together, or a tombstone goes
//!    though what it hides stays;
//! 2. if it is small and lies beside what is written anyway. So no two neighbours stay small, however many keys fall
//!    into gaps, and blocks are half full on the whole.

use super::filter;
use super::read::Sst;
use std::cmp::Ordering;
use std::sync::Arc;

/// Listens to the keys from above, in ascending order.
pub struct DirtyFinder {
    table: Arc<Sst>,
    dirty: Vec<bool>,
    /// Whether keys fall in front of each block, into none; the last place is behind all blocks.
    gaps: Vec<bool>,
    /// The first block that does not end in front of the last key.
    at: usize,
    incoming: u64,
    incoming_bytes: u64,
    new_keys: u64,
}

/// What a merge has to write of a table, and beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// Numbers of the blocks, ascending.
    pub blocks: Arc<[usize]>,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries that come in.
    pub incoming: u64,
    /// Bytes of their keys and values.
    pub incoming_bytes: u64,
    /// Keys that come in and are not in the filter.
    pub new_keys: u64,
}

impl DirtyFinder {
    /// Nothing was heard yet.
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

    /// An entry of `key` comes in. REQUIRES: keys do not descend.
    pub fn note(&mut self, key: &[u8], value_len: usize) {
        let index = self.table.index();
        while self.at < index.len() && index.largest(self.at) < key {
            self.at += 1;
        }
        let within = self.at < index.len() && index.compare_smallest(self.at, key) != Ordering::Greater;
        let place = if within { &mut self.dirty } else { &mut self.gaps };
        place[self.at] = true;
        self.incoming += 1;
        self.incoming_bytes += (key.len() + value_len) as u64;
        self.new_keys += u64::from(!self.table.filter().may_contain(filter::hash(key)));
    }

    /// What is to be written. Blocks of fewer than `small_bytes` count as small.
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
        let shares_key = |i: usize| index.compare_smallest(i, index.largest(i - 1)) == Ordering::Equal;
        for i in 1..blocks {
            self.dirty[i] |= self.dirty[i - 1] && shares_key(i);
        }
        for i in (1..blocks).rev() {
            self.dirty[i - 1] |= self.dirty[i] && shares_key(i);
        }
        let dirty: Arc<[usize]> = (0..blocks).filter(|&i| self.dirty[i]).collect();
        Dirty {
            bytes: dirty.iter().map(|&i| u64::from(index.handle(i).stored_len)).sum(),
            blocks: dirty,
            incoming: self.incoming,
            incoming_bytes: self.incoming_bytes,
            new_keys: self.new_keys,
        }
    }
}

//! Hot rows: an entry that is read again and again is kept in the block cache on its own, so that its block, most of
//! which nobody asks for, can go. Skewed reads then find several times more of what they want in the same memory.
//!
//! A row is a block of one entry, cached under (the table, the key's hash) instead of (the table, an offset).
//!
//! 1. A row is the newest entry of its key in its table: it is made only by a reader who sees all of the table. A
//!    reader whose read point is before it asks the block.
//! 2. It belongs to one extent of its file: behind an append, its key may have a newer entry in the table.
//! 3. The whole key is compared, so two keys of one hash cost a row each other, never a wrong answer.

use super::block::{Block, BlockBuilder, Lookup};
use super::read::Sst;
use firn_base::seed::mix;
use firn_base::{SeqNo, Tag};
use std::ops::Range;
use std::sync::Arc;

/// Tells rows from blocks in the cache: no file has such an id.
const ROW: u64 = 1 << 63;

impl Sst {
    fn row_place(&self, hash: u64) -> (u64, u64) {
        (self.id() | ROW, hash ^ mix(self.extent().footer_offset))
    }

    /// The newest entry of `key`, if it is kept as a row and visible at `seqno`.
    pub(super) fn row(&self, key: &[u8], hash: u64, seqno: SeqNo) -> Option<(Tag, Arc<Block>, Range<usize>)> {
        let (file, place) = self.row_place(hash);
        let row = self.context().cache.get_row(file, place)?;
        match row.get(key, Tag::seek(seqno)) {
            Some(Lookup::Found(tag, value)) => Some((tag, row, value)),
            _ => None,
        }
    }

    /// Notes that a reader at `seqno` found this entry in `block`; the second time, the entry is kept as a row.
    pub(super) fn note_read(&self, block: &Block, key: &[u8], hash: u64, seqno: SeqNo, tag: Tag, value: &Range<usize>) {
        let sees_all = self.properties().seqno_max <= seqno;
        // A row must be much smaller than its block to be worth it.
        let is_small = 2 * (key.len() + value.len()) < block.len();
        if !sees_all || !is_small || !block.touch(hash) {
            return;
        }
        let mut builder = BlockBuilder::new(1);
        builder.add(key, tag, block.value(value));
        if let Some(row) = Block::new(builder.finish().into()) {
            let (file, place) = self.row_place(hash);
            self.context().cache.insert(file, place, Arc::new(row));
        }
    }
}

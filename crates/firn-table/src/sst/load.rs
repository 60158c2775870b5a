//! Loads blocks of a table from its file into the cache: one, or several in as few reads as
//! possible.
//!
//! Reads go through a thread-local buffer.

use super::block::Block;
use super::block_reader::SCRATCH;
use super::read::Sst;
use super::window::{READER_GAP, Window, stretches};
use firn_base::Result;
use firn_base::count::Cause;
use firn_fs::IoBuf;
use std::sync::Arc;

/// The maximum decoded bytes of the blocks that a cursor reads at once, if there is more than one.
const RUN_BYTES_MAX: usize = 512 << 10;

impl Sst {
    /// The block, from the cache or the file.
    pub(super) fn load(&self, block: usize, cause: Cause) -> Result<Arc<Block>> {
        self.block_reader().load(&self.index().handle(block), cause)
    }

    /// Reads the block, which is not cached, from the file.
    pub(super) fn load_missed(&self, block: usize, cause: Cause) -> Result<Arc<Block>> {
        let handle = self.index().handle(block);
        self.block_reader().load_missed(&handle, cause)
    }

    /// The number of blocks, at most `count` from `first` on, that a cursor may read at once.
    /// Limited, because blocks read ahead occupy memory in addition to everything that was asked
    /// for.
    pub(super) fn run_within_bytes(&self, first: usize, count: usize) -> usize {
        let mut left = RUN_BYTES_MAX;
        let fits = |block: &usize| {
            let bytes = self.index().handle(*block).raw_len as usize;
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        let last = self.index().len().min(first + count);
        (first..last).take_while(fits).count().max(1)
    }

    /// Loads `count` blocks into the cache, with all reads in flight at the same time. Returns the
    /// first.
    pub(super) fn load_run(&self, first: usize, count: usize) -> Result<Arc<Block>> {
        let cache = &self.context().cache;
        let cached = |block| cache.has(self.id(), self.index().handle(block).offset);
        let mut wanted: Vec<usize> = (first..first + count)
            .filter(|&block| block == first || !cached(block))
            .collect();
        let reads = stretches(self.index(), &mut wanted, READER_GAP);
        let mut found = None;
        let mut keep = |block: usize, stored: &[u8]| -> Result<()> {
            let decoded = self.decode(block, stored)?;
            let offset = self.index().handle(block).offset;
            cache.insert(self.id(), offset, decoded.bytes());
            if block == first {
                found = Some(Arc::new(decoded));
            }
            Ok(())
        };
        if let [read] = reads[..] {
            self.context().counters.read(Cause::UserRead, read.len);
            // Taken, not borrowed: `keep` calls the cache, and code that runs while this thread
            // waits for the cache's lock may read too.
            let mut scratch = SCRATCH.take();
            let user = self.context().counters.begin_user_read();
            self.file().read(read.offset, read.len, &mut scratch)?;
            drop(user);
            wanted.iter().try_for_each(|&block| {
                let handle = self.index().handle(block);
                let at = (handle.offset - read.offset) as usize;
                let stored = scratch.bytes().get(at..at + handle.stored_len as usize);
                keep(
                    block,
                    stored
                        .ok_or_else(|| self.damaged(block, "a block; the file ends before it"))?,
                )
            })?;
            SCRATCH.set(scratch);
        } else {
            let _user = self.context().counters.begin_user_read();
            let mut window = Window::of(self, &reads, Cause::UserRead, Vec::new());
            wanted
                .iter()
                .try_for_each(|&block| keep(block, window.stored(self, block)?))?;
        }
        found.ok_or_else(|| self.damaged(first, "a block"))
    }

    /// Like [`Sst::decode`], for a block that is alone in its buffer. Large memory is given back on
    /// the way.
    pub(super) fn decode_own(&self, block: usize, stored: IoBuf) -> Result<Block> {
        let handle = self.index().handle(block);
        self.block_reader().decode_own(&handle, stored)
    }

    /// Checks and decodes the stored bytes of a block.
    pub(super) fn decode(&self, block: usize, stored: &[u8]) -> Result<Block> {
        self.block_reader()
            .decode(&self.index().handle(block), stored)
    }
}

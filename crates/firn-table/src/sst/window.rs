//! Reads several blocks in as few reads as their places in the file allow. In a table that grew,
//! blocks adjacent by key are in several places; those in each place are close together.

use super::index::Index;
use super::read::Sst;
use firn_base::Result;
use firn_base::count::Cause;
use firn_fs::{IoBuf, Pending};

/// The largest gap between two blocks, in bytes, that a waiting reader reads over instead of
/// starting another read. A cached block of the usual size is larger, unless it is compressed. The
/// reads of a window are in flight together, so one more costs no wait, only its share of the
/// device's operations, and short scans exhaust the bandwidth first (docs/decisions.md).
/// The gap for compactions is `IoCounters::merge_gap`.
pub(super) const READER_GAP: u64 = 4 << 10;

/// One read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// The reads that fetch `blocks`, which are sorted into file order. Blocks with gaps of at most
/// `gap_max` bytes share a read, as long as no more bytes are read in vain than are wanted.
pub(super) fn stretches(index: &Index, blocks: &mut [usize], gap_max: u64) -> Vec<Stretch> {
    blocks.sort_unstable_by_key(|&block| index.handle(block).offset);
    let mut spare: u64 = blocks
        .iter()
        .map(|&block| u64::from(index.handle(block).stored_len))
        .sum();
    let mut reads: Vec<Stretch> = Vec::new();
    for &block in &*blocks {
        let handle = index.handle(block);
        let stored = handle.stored_len as usize;
        if let Some(read) = reads.last_mut() {
            let gap = handle.offset.checked_sub(read.offset + read.len as u64);
            if let Some(gap) = gap.filter(|&gap| gap <= gap_max.min(spare)) {
                spare -= gap;
                read.len += gap as usize + stored;
                continue;
            }
        }
        reads.push(Stretch {
            offset: handle.offset,
            len: stored,
        });
    }
    reads
}

/// Blocks in flight or in memory.
pub(super) struct Window {
    /// In file order.
    reads: Vec<Read>,
}

struct Read {
    offset: u64,
    /// Present until one of its blocks is asked for.
    pending: Option<Pending>,
    buf: IoBuf,
}

impl Window {
    /// Starts reading `blocks`, into `spare` buffers while there are any.
    pub(super) fn submit(
        table: &Sst,
        mut blocks: Vec<usize>,
        cause: Cause,
        spare: Vec<IoBuf>,
    ) -> Window {
        let gap = table.context().counters.merge_gap();
        Window::of(
            table,
            &stretches(table.index(), &mut blocks, gap),
            cause,
            spare,
        )
    }

    /// Starts `reads`.
    pub(super) fn of(
        table: &Sst,
        reads: &[Stretch],
        cause: Cause,
        mut spare: Vec<IoBuf>,
    ) -> Window {
        let submit = |read: &Stretch| {
            table.context().counters.read(cause, read.len);
            let counters = &table.context().counters;
            let buf = spare.pop().unwrap_or_default();
            let pending = table.file().submit_read(read.offset, read.len, buf);
            Read {
                offset: read.offset,
                pending: Some(match cause {
                    Cause::Compaction => pending.tracked(counters.begin_compaction_io()),
                    _ => pending,
                }),
                buf: IoBuf::default(),
            }
        };
        Window {
            reads: reads.iter().map(submit).collect(),
        }
    }

    /// The place of the read of `block` among all.
    fn place(&self, table: &Sst, block: usize) -> usize {
        let offset = table.index().handle(block).offset;
        self.reads
            .partition_point(|read| read.offset <= offset)
            .wrapping_sub(1)
    }

    /// The read of `block`, if it is not known to have completed. REQUIRES: the block was among the
    /// submitted ones.
    pub(super) fn wants(&mut self, table: &Sst, block: usize) -> Option<&mut Pending> {
        let at = self.place(table, block);
        let pending = self.reads.get_mut(at)?.pending.as_mut();
        pending.filter(|pending| !pending.is_done())
    }

    /// The bytes of `block` as stored, not checked yet. REQUIRES: it was among the submitted
    /// blocks.
    ///
    /// # Errors
    /// `Io` of its read; `Corruption` if the file ends before it.
    pub(super) fn stored(&mut self, table: &Sst, block: usize) -> Result<&[u8]> {
        let handle = table.index().handle(block);
        let at = self.place(table, block);
        let missing = || table.damaged(block, "a block; the file ends before it");
        let read = self.reads.get_mut(at).ok_or_else(missing)?;
        if let Some(pending) = read.pending.take() {
            read.buf = pending.wait()?;
        }
        let start = (handle.offset - read.offset) as usize;
        read.buf
            .bytes()
            .get(start..start + handle.stored_len as usize)
            .ok_or_else(missing)
    }

    /// The bytes of the only block, as stored, not checked yet.
    ///
    /// # Errors
    /// `Io` of its read.
    pub(super) fn into_only(self) -> Result<IoBuf> {
        match self.reads.into_iter().next() {
            Some(Read {
                pending: Some(pending),
                ..
            }) => pending.wait(),
            Some(Read { buf, .. }) => Ok(buf),
            None => Ok(IoBuf::default()),
        }
    }

    /// The number of reads.
    pub(super) fn reads(&self) -> usize {
        self.reads.len()
    }

    /// The buffers, for reuse.
    pub(super) fn into_buffers(self) -> Vec<IoBuf> {
        self.reads.into_iter().map(|read| read.buf).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::compress::Codec;
    use super::super::index::{BlockHandle, IndexBuilder};
    use super::*;

    /// An index of blocks at these places, in key order.
    fn index(places: &[(u64, u32)]) -> Index {
        let mut builder = IndexBuilder::default();
        for (number, &(offset, stored_len)) in (0u32..).zip(places) {
            let key = number.to_be_bytes();
            builder.add(
                &key,
                &key,
                BlockHandle {
                    offset,
                    stored_len,
                    raw_len: stored_len,
                    crc: 0,
                    codec: Codec::None,
                },
            );
        }
        Index::decode(&builder.finish(), 1 << 30).unwrap()
    }

    fn reads(index: &Index) -> Vec<(u64, usize)> {
        let mut blocks: Vec<usize> = (0..index.len()).collect();
        stretches(index, &mut blocks, READER_GAP)
            .iter()
            .map(|read| (read.offset, read.len))
            .collect()
    }

    #[test]
    fn what_lies_one_behind_the_other_is_one_read() {
        let blocks: Vec<(u64, u32)> = (0..20).map(|i| (i * 4000, 4000)).collect();
        assert_eq!(reads(&index(&blocks)), [(0, 80_000)]);
    }

    #[test]
    fn a_table_that_grew_is_read_by_its_places() {
        // Every second block was replaced by one after the table's first end.
        let grown: Vec<(u64, u32)> = (0..20)
            .map(|i| {
                if i % 2 == 0 {
                    (i * 4000, 4000)
                } else {
                    ((1 << 20) + i * 2000, 4000)
                }
            })
            .collect();
        assert_eq!(
            reads(&index(&grown)),
            [(0, 76_000), ((1 << 20) + 2000, 40_000)]
        );
    }

    #[test]
    fn no_more_is_read_for_nothing_than_for_something() {
        let far: Vec<(u64, u32)> = (0..4).map(|i| (i * 10_000, 1000)).collect();
        assert_eq!(reads(&index(&far)).len(), 4, "9 KB of gap for each KB");
        let farther: Vec<(u64, u32)> = (0..4).map(|i| (i * 120_000, 100_000)).collect();
        assert_eq!(reads(&index(&farther)).len(), 4, "gaps of 20 KB");
        let near: Vec<(u64, u32)> = (0..4).map(|i| (i * 16_000, 8000)).collect();
        let merged = stretches(&index(&near), &mut [0, 1, 2, 3], 12 << 10).len();
        assert_eq!(
            (reads(&index(&near)).len(), merged),
            (4, 1),
            "gaps of 8 KB are for merges alone"
        );
    }
}

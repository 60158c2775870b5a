//! A write buffer: one growing extent, its appender, and reads of values in place.
//!
//! 1. The numbers of the entries rise with their offsets.
//! 2. Bytes below the revealed end never change, so a value is borrowed for as long as the buffer.
//! 3. Nothing is appended to a buffer with a final end, because a walk ends there.
//!
//! Thread safety: `Send + Sync`. Appends exclude each other; reads take no lock. An append is
//! durable after a fence of the same thread, and committed by the directory's word after that.

use super::entries::StagedEntries;
use super::layout::{ENTRY_ALIGN, ENTRY_HEADER_BYTES, EntryHeader, EntrySalt};
use crate::sites;
use firn_base::checksum::{crc32c, matches, of_entry};
use firn_base::sync::Mutex;
use firn_base::{Error, FileId, Result, SeqNo};
use firn_pm::{Appender, Extent, Fenced, Flushed, Growing, Pool};
use std::sync::Arc;

/// A write buffer in a pool.
#[derive(Debug)]
pub struct PmBuffer {
    pool: Arc<Pool>,
    id: FileId,
    line: u32,
    salt: EntrySalt,
    growing: Growing,
    appender: Mutex<Appender>,
}

impl PmBuffer {
    /// The buffer `id` in a live extent that `line` names. Its first `end` bytes are entries: none
    /// if the buffer is new; up to the end of a [walk](super::walk) after an open.
    ///
    /// # Errors
    /// `Invalid` if the extent is not live, frozen or growing already, or `end` is no end in it.
    pub fn new(
        pool: Arc<Pool>,
        id: FileId,
        line: u32,
        extent: Extent,
        end: u64,
    ) -> Result<PmBuffer> {
        if !end.is_multiple_of(ENTRY_ALIGN as u64) {
            return Err(Error::invalid(format!(
                "no entry of write buffer {id} ends at {end}"
            )));
        }
        let (growing, appender) = pool.begin_growing(extent, end)?;
        Ok(PmBuffer {
            salt: EntrySalt::new(&pool.uuid(), id),
            pool,
            id,
            line,
            growing,
            appender: Mutex::new(appender),
        })
    }

    /// The pool that it is in.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The buffer's id.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The line of the directory that names it.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The extent that it is in.
    pub fn extent(&self) -> Extent {
        self.growing.extent()
    }

    /// The bytes of entries that it can hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.growing.extent().len
    }

    /// The revealed end: bytes of entries that can be read.
    #[inline]
    pub fn end(&self) -> u64 {
        self.growing.end()
    }

    /// Completes the staged entries with numbers from `first` on, and appends them with one copy.
    /// Returns the offset of the first entry. A value lies behind its entry's header and key.
    /// Committed once the returned token is fenced and the directory's word, with the last of the
    /// numbers or a greater one, is durable.
    ///
    /// REQUIRES: `first` is above all numbers in the buffer, and the buffer was not noted final. If
    /// the group that these entries belong to fails, the buffer is noted final at the returned
    /// offset before anything else is committed, because a greater committed number would bring
    /// them to life.
    ///
    /// # Errors
    /// `Invalid` if they do not fit behind the others, or the numbers pass the largest one. Nothing
    /// was appended then.
    pub fn append(&self, staged: &mut StagedEntries, first: SeqNo) -> Result<(u64, Flushed)> {
        let last = first.0.checked_add(staged.count());
        if first == SeqNo(0) || last.is_none_or(|last| last > SeqNo::MAX.0 + 1) {
            let count = staged.count();
            return Err(Error::invalid(format!(
                "there are no {count} sequence numbers from {first} on"
            )));
        }
        let mut appender = self.appender.lock();
        let at = appender.end();
        let bytes = staged.complete(self.salt, at, first);
        let flushed = self.pool.append(&mut appender, &[bytes])?;
        Ok((at, flushed))
    }

    /// Lets readers read everything appended so far. REQUIRES: `fenced` is a fence after the last
    /// append.
    pub fn reveal(&self, fenced: &Fenced) {
        let appender = self.appender.lock();
        self.pool.reveal(&self.growing, &appender, fenced);
    }

    /// Borrows the `len` bytes at `at`.
    ///
    /// # Errors
    /// `Corruption` if they are not below the revealed end.
    #[inline]
    pub fn bytes(&self, at: u64, len: usize) -> Result<&[u8]> {
        match at.checked_add(len as u64) {
            Some(end) => self.pool.borrow_grown(&self.growing, at..end),
            None => Err(self.damaged(at, "bytes below its end")),
        }
    }

    /// Borrows the value of entry `seqno`, which begins at `entry_at`. The key is not checked
    /// again.
    ///
    /// # Errors
    /// `Corruption` if another entry or none is there, or the value is damaged.
    pub fn value(&self, entry_at: u64, seqno: SeqNo) -> Result<&[u8]> {
        let header = EntryHeader::decode(self.bytes(entry_at, ENTRY_HEADER_BYTES)?);
        let header = header.filter(|header| header.tag.seqno() == seqno);
        let Some(header) = header else {
            return Err(self.damaged(entry_at, "the header of an entry that was found"));
        };
        let (value_at, len) = (header.head_bytes() as u64, header.value_len as usize);
        let value_at = entry_at.saturating_add(value_at);
        if value_at.saturating_add(len as u64) > self.end() {
            return Err(self.damaged(entry_at, "an entry below the buffer's end"));
        }
        let value = self.bytes(value_at, len)?;
        let computed = || of_entry(crc32c(value), seqno);
        match matches(&sites::PM_BUFFER_VALUE_CHECK, header.value_crc, computed) {
            true => Ok(value),
            false => Err(self.damaged(value_at, "a value with its checksum")),
        }
    }

    /// Frees the extent. REQUIRES: the line that named the buffer was removed.
    ///
    /// # Errors
    /// The error of the pool. The extent stays allocated until the next open.
    pub fn free(self) -> Result<()> {
        let appender = self.appender.into_inner();
        let freed = self.pool.free_grown(self.growing, appender);
        freed.map_err(|(_, _, error)| error)
    }

    #[cold]
    fn damaged(&self, at: u64, expected: &str) -> Error {
        let place = format!("write buffer {} in the pool", self.id);
        let offset = self.growing.extent().offset.get().saturating_add(at);
        Error::corruption(place, offset, expected)
    }
}

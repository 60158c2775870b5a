//! The directory of write buffers: the committed word, and a line for each buffer.
//!
//! 1. The committed number is the greater of the valid words of the first two lines. Each commit
//!    stores both and issues one fence, so a rotten bit in either loses nothing. REQUIRES for that
//!    after an open: the committed number is committed again, because a cut between the two words
//!    leaves one of each.
//! 2. A line names a buffer once its first word is durable, which is stored after the rest of the
//!    line is. A cut leaves a free line or a whole one.
//! 3. A note (through, end) of a buffer says: entries with numbers above `through` lie at or behind
//!    `end`. Entries with numbers up to `through` lie below it, unless a cut fell between the two
//!    words, which leaves the older end. An end is noted only after the entries below it are
//!    committed, so all of them are there.
//! 4. A final end says that nothing lies at or behind it, whatever is there. REQUIRES: the end of
//!    each buffer that an open finds is noted final before anything else is committed. Behind it
//!    there may be entries of a group that was not committed, and their numbers are given to other
//!    entries.
//! 5. A removed line is free before its extent is.
//!
//! Thread safety: `Send + Sync`. Commits follow each other, and so do notes of one buffer. A
//! process that opened the pool read-only reads each line as it was at one moment: a note's end is
//! read before its number, and the line's first word before and after the rest.

use super::layout::{
    COMMITTED_LINES, END_AT, END_END, ENTRY_ALIGN, ID_AT, ID_END, LINE_WORDS, Line, PAYLOAD_AT,
    THROUGH_AT, VERSION, WordKind, WordSalt, end_word, id_word, through_word,
};
use crate::sites;
use firn_base::site::Site;
use firn_base::sync::Mutex;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_pm::{
    DATA_START, Extent, Fenced, Flushed, GRANULE_BYTES, LINE_BYTES, Owner, PmOffset, Pool,
    RootEntry,
};
use std::sync::Arc;

/// The name of the directory in errors.
const PLACE: &str = "the write buffer directory in the pool";
/// The kind of the root entry that names the directory.
const KIND: u16 = 0;
/// Reads of a line that a writer changes meanwhile, before it counts as damaged.
const READS_MAX: u32 = 1_000;

/// The directory of the write buffers in a pool.
#[derive(Debug)]
pub struct BufferDirectory {
    pool: Arc<Pool>,
    extent: Extent,
    /// The salts of the two committed words.
    committed: [WordSalt; COMMITTED_LINES as usize],
    /// Lines that name no buffer, the greatest first.
    free: Mutex<Vec<u32>>,
}

/// A buffer that a line names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBuffer {
    /// The line's number.
    pub line: u32,
    /// The buffer's id.
    pub id: FileId,
    /// The buffer's extent.
    pub extent: Extent,
    /// The noted number: greater numbers lie at or behind `end`.
    pub through: SeqNo,
    /// The noted end, in bytes: everything below it is committed.
    pub end: u64,
    /// True if nothing lies at or behind `end`.
    pub is_final: bool,
}

/// A line whose words are not those that were stored.
#[derive(Debug, Clone)]
pub struct DamagedLine {
    /// The line's number.
    pub line: u32,
    /// The error, with the line's place: `Corruption`.
    pub error: Error,
    /// The buffer, if its extent is known, and true if its end is that of the last note. Otherwise
    /// the end is 0 and not final.
    pub buffer: Option<(NamedBuffer, bool)>,
}

/// A statement about a buffer: see invariants 3 and 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The line of the buffer.
    pub line: u32,
    /// The buffer's id.
    pub id: FileId,
    /// The greatest number of the entries below `end`, or a greater one.
    pub through: SeqNo,
    /// The end of the entries with numbers up to `through`, in bytes.
    pub end: u64,
    /// True if nothing lies at or behind `end`.
    pub is_final: bool,
}

impl BufferDirectory {
    /// Creates a directory with at least `lines` lines, all free. DURABLE AFTER: the directory,
    /// with `committed` as the committed number.
    ///
    /// # Errors
    /// `NoSpace` if the pool has no room; `Invalid` if it has a directory already, or for more
    /// lines than a pool can have.
    pub fn create(pool: &Arc<Pool>, lines: u32, committed: SeqNo) -> Result<BufferDirectory> {
        if pool.root().find(Owner::WriteBuffer, KIND).is_some() {
            return Err(Error::invalid("the pool has a write buffer directory"));
        }
        check_seqno(committed)?;
        let bytes = (u64::from(lines.max(1)) + u64::from(COMMITTED_LINES)) * LINE_BYTES;
        let extent = pool.alloc(bytes, Owner::WriteBuffer)?;
        let directory = BufferDirectory::over(pool, extent);
        let made = directory.store_empty(committed);
        if let Err(error) = made {
            pool.free(extent)?;
            return Err(error);
        }
        let lines = directory.lines();
        *directory.free.lock() = (0..lines).rev().collect();
        Ok(directory)
    }

    fn store_empty(&self, committed: SeqNo) -> Result<()> {
        let mut bytes = vec![0; self.extent.len as usize];
        let lines = bytes.chunks_exact_mut(LINE_BYTES as usize);
        for (line, salt) in lines.zip(self.committed) {
            line[..8].copy_from_slice(&salt.seal(committed.0).to_le_bytes());
        }
        let site = &sites::PM_BUFFER_CREATE_FENCE;
        let at = self.extent.offset;
        let fenced = self.pool.write_durable(site, at, &[&bytes])?;
        let entry = RootEntry {
            owner: Owner::WriteBuffer,
            kind: KIND,
            word: VERSION,
            extent: Some(self.extent),
        };
        self.pool.commit_with(fenced, |root| {
            root.set(entry);
            Ok(())
        })?;
        Ok(())
    }

    /// The directory that the root of `pool` names, if it names one.
    ///
    /// # Errors
    /// `Incompatible` if another version wrote it; `Corruption` if it has no extent.
    pub fn find(pool: &Arc<Pool>) -> Result<Option<BufferDirectory>> {
        let Some(entry) = pool.root().find(Owner::WriteBuffer, KIND).copied() else {
            return Ok(None);
        };
        if entry.word != VERSION {
            let found = entry.word;
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("the write buffers have format {found}, this version reads {VERSION}"),
            ));
        }
        let least = u64::from(COMMITTED_LINES + 1) * LINE_BYTES;
        let extent = entry.extent.filter(|extent| extent.len >= least);
        let Some(extent) = extent else {
            let expected = "a root entry with the extent of the directory";
            return Err(Error::corruption(PLACE, 0, expected));
        };
        let directory = BufferDirectory::over(pool, extent);
        let mut free = Vec::new();
        for line in (0..directory.lines()).rev() {
            if pool.load_u64(directory.at(line, ID_AT)?)? == 0 {
                free.push(line);
            }
        }
        *directory.free.lock() = free;
        Ok(Some(directory))
    }

    fn over(pool: &Arc<Pool>, extent: Extent) -> BufferDirectory {
        let salt = |line| WordSalt::new(&pool.uuid(), line, WordKind::Committed, FileId(0));
        BufferDirectory {
            pool: pool.clone(),
            extent,
            committed: [salt(0), salt(1)],
            free: Mutex::new(Vec::new()),
        }
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Bytes of its extent.
    pub fn bytes(&self) -> u64 {
        self.extent.len
    }

    /// The number of buffers that it can name.
    pub fn lines(&self) -> u32 {
        let lines = self.extent.len / LINE_BYTES - u64::from(COMMITTED_LINES);
        u32::try_from(lines).unwrap_or(u32::MAX)
    }

    /// The committed number: everything up to it is.
    ///
    /// # Errors
    /// `Corruption` if both words are damaged.
    pub fn committed(&self) -> Result<SeqNo> {
        let mut greatest = None;
        for (line, salt) in (0u64..).zip(self.committed) {
            let word = self.pool.load_u64(self.within(line * LINE_BYTES)?)?;
            greatest = greatest.max(salt.open(word));
        }
        let damaged = || self.damaged(0, "a committed sequence number in one of two words");
        greatest.map(SeqNo).ok_or_else(damaged)
    }

    /// Commits everything up to `seqno`. `fenced` is the fence behind the entries. DURABLE AFTER:
    /// the committed number.
    ///
    /// # Errors
    /// `Invalid` for a number that is too large, or a pool that is read-only.
    pub fn commit(&self, seqno: SeqNo, fenced: &Fenced) -> Result<()> {
        check_seqno(seqno)?;
        let store = |line: u64, salt: WordSalt| {
            let at = self.within(line * LINE_BYTES)?;
            let dirty = self.pool.publish(at, salt.seal(seqno.0), fenced)?;
            let site = &sites::PM_BUFFER_COMMIT_FLUSH;
            Ok::<_, Error>(self.pool.flush(site, dirty))
        };
        let [first, second] = self.committed;
        let both = [store(0, first)?, store(1, second)?];
        let _fenced = self.pool.fence(&sites::PM_BUFFER_COMMIT_FENCE, both);
        Ok(())
    }

    /// Checks that both committed words are whole and, if `expected` is given, that they hold it.
    /// A cut, or a concurrent commit, leaves words that differ.
    ///
    /// # Errors
    /// `Corruption` for the first word that is not.
    pub fn check_committed(&self, expected: Option<SeqNo>) -> Result<()> {
        for (line, salt) in (0u64..).zip(self.committed) {
            let at = line * LINE_BYTES;
            let found = salt.open(self.pool.load_u64(self.within(at)?)?);
            let found = found.ok_or_else(|| self.damaged(at, "a committed sequence number"))?;
            if let Some(expected) = expected.filter(|expected| expected.0 != found) {
                let expected = format!("the committed sequence number {expected}, not {found}");
                return Err(self.damaged(at, &expected));
            }
        }
        Ok(())
    }

    /// All buffers that lines name, in the order of lines. A line that is damaged is an error in
    /// its place: `Corruption`.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub fn named(&self) -> Result<Vec<Result<NamedBuffer>>> {
        let found = self.salvage_lines()?.into_iter();
        Ok(found
            .map(|line| line.map_err(|damaged| damaged.error))
            .collect())
    }

    /// As [`BufferDirectory::named`], with the readable part of each damaged line.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub fn salvage_lines(&self) -> Result<Vec<Result<NamedBuffer, DamagedLine>>> {
        let mut found = Vec::new();
        for line in 0..self.lines() {
            let (words, at) = (self.read_line(line)?, self.line_at(line));
            let could_be = |one: &Line| self.could_allocate(one.extent);
            let expected = match Line::decode(&words, &self.pool.uuid(), line) {
                Ok(None) => continue,
                Ok(Some(one)) if could_be(&one) => {
                    found.push(Ok(one.named(line)));
                    continue;
                }
                Ok(Some(_)) => "an extent inside the pool",
                Err(expected) => expected,
            };
            let salvaged = Line::salvage(&words, &self.pool.uuid(), line);
            let salvaged = salvaged.filter(|(one, _)| could_be(one));
            found.push(Err(DamagedLine {
                line,
                error: self.damaged(at, expected),
                buffer: salvaged.map(|(one, has_end)| (one.named(line), has_end)),
            }));
        }
        Ok(found)
    }

    /// The words of a line as they were at one moment.
    fn read_line(&self, line: u32) -> Result<[u64; LINE_WORDS]> {
        settled(|number| self.pool.load_u64(self.at(line, number as u64 * 8)?))
    }

    fn could_allocate(&self, extent: Extent) -> bool {
        let offset = extent.offset.get();
        extent.len > 0
            && extent.len < END_END
            && extent.len.is_multiple_of(GRANULE_BYTES)
            && offset.is_multiple_of(GRANULE_BYTES)
            && offset >= DATA_START
            && extent
                .end()
                .is_some_and(|end| end <= self.pool.size_bytes())
    }

    /// Names buffer `id` in `extent`, which has no entries yet, by a free line. Returns the line's
    /// number; `None` if no line is free. DURABLE AFTER: the line, noted with `through` and the
    /// end 0.
    ///
    /// # Errors
    /// `Invalid` for an id, an extent or a number that a line cannot hold, or a pool that is
    /// read-only.
    pub fn name(&self, id: FileId, extent: Extent, through: SeqNo) -> Result<Option<u32>> {
        check_seqno(through)?;
        if id.0 == 0 || id.0 >= ID_END || !self.could_allocate(extent) {
            return Err(Error::invalid(format!(
                "no line can name write buffer {id} in {extent}"
            )));
        }
        let Some(line) = self.free.lock().pop() else {
            return Ok(None);
        };
        let named = Line {
            id,
            extent,
            through,
            end: 0,
            is_final: false,
        };
        let stored = self.store_line(line, &named);
        if stored.is_err() {
            self.free.lock().push(line);
        }
        stored.map(|()| Some(line))
    }

    fn store_line(&self, line: u32, named: &Line) -> Result<()> {
        let payload = named.payload(&self.pool.uuid(), line);
        let dirty = self.pool.store(self.at(line, PAYLOAD_AT)?, &payload)?;
        let flushed = self.pool.flush(&sites::PM_BUFFER_LINE_FLUSH, dirty);
        let fenced = self.pool.fence(&sites::PM_BUFFER_LINE_FENCE, flushed);
        let id_at = self.at(line, ID_AT)?;
        let dirty = self.pool.publish(id_at, id_word(named.id), &fenced)?;
        let flushed = self.pool.flush(&sites::PM_BUFFER_NAME_FLUSH, dirty);
        let _fenced = self.pool.fence(&sites::PM_BUFFER_NAME_FENCE, flushed);
        Ok(())
    }

    /// Makes notes of buffers, with two fences for all of them. REQUIRES: the entries below each
    /// end are committed. DURABLE AFTER: the notes. A cut leaves the old note of each buffer, the
    /// new one, or the new number with the old end.
    ///
    /// # Errors
    /// `Invalid` if a line does not name the buffer, or for an end or a number that it cannot hold.
    /// Nothing was written then.
    pub fn note(&self, notes: &[Note]) -> Result<()> {
        for note in notes {
            self.check_note(note)?;
        }
        if notes.is_empty() {
            return Ok(());
        }
        let uuid = self.pool.uuid();
        let word = |note: &Note| through_word(&uuid, note.line, note.id, note.through);
        let words = notes.iter().map(|note| (note.line, word(note)));
        let flushed = self.publish_all(&sites::PM_BUFFER_THROUGH_FLUSH, THROUGH_AT, words)?;
        let _fenced = self.pool.fence(&sites::PM_BUFFER_THROUGH_FENCE, flushed);
        let word = |note: &Note| end_word(&uuid, note.line, note.id, (note.end, note.is_final));
        let words = notes.iter().map(|note| (note.line, word(note)));
        let flushed = self.publish_all(&sites::PM_BUFFER_END_FLUSH, END_AT, words)?;
        let _fenced = self.pool.fence(&sites::PM_BUFFER_END_FENCE, flushed);
        Ok(())
    }

    fn check_note(&self, note: &Note) -> Result<()> {
        check_seqno(note.through)?;
        let (line, id, end) = (note.line, note.id, note.end);
        let is_aligned = end < END_END && end.is_multiple_of(ENTRY_ALIGN as u64);
        if id.0 == 0 || id.0 >= ID_END || !is_aligned {
            return Err(Error::invalid(format!(
                "write buffer {id} cannot be noted to end at {end}"
            )));
        }
        if self.pool.load_u64(self.at(line, ID_AT)?)? != id_word(id) {
            return Err(Error::invalid(format!(
                "line {line} of the write buffer directory does not name buffer {id}"
            )));
        }
        Ok(())
    }

    /// Frees lines. REQUIRES: no entry of these buffers is needed any more. DURABLE AFTER: an open
    /// does not find them, and their extents can be freed.
    ///
    /// # Errors
    /// `Invalid` if a line is free already, or there is none with this number.
    pub fn remove(&self, lines: &[u32]) -> Result<()> {
        for &line in lines {
            if self.pool.load_u64(self.at(line, ID_AT)?)? == 0 {
                return Err(Error::invalid(format!(
                    "line {line} of the write buffer directory is free already"
                )));
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        let words = lines.iter().map(|&line| (line, 0));
        let flushed = self.publish_all(&sites::PM_BUFFER_REMOVE_FLUSH, ID_AT, words)?;
        let _fenced = self.pool.fence(&sites::PM_BUFFER_REMOVE_FENCE, flushed);
        self.free.lock().extend(lines.iter().rev());
        Ok(())
    }

    /// Stores a word in each of several lines, `within` bytes into it, and flushes them.
    fn publish_all(
        &self,
        site: &'static Site,
        within: u64,
        words: impl Iterator<Item = (u32, u64)>,
    ) -> Result<Vec<Flushed>> {
        let store = |(line, word)| {
            let at = self.at(line, within)?;
            let dirty = self.pool.publish(at, word, &Fenced::nothing())?;
            Ok(self.pool.flush(site, dirty))
        };
        words.map(store).collect()
    }

    /// The place of a line in the directory.
    fn line_at(&self, line: u32) -> u64 {
        (u64::from(line) + u64::from(COMMITTED_LINES)) * LINE_BYTES
    }

    /// The place in the pool `within` bytes into a line.
    fn at(&self, line: u32, within: u64) -> Result<PmOffset> {
        match line < self.lines() {
            true => self.within(self.line_at(line) + within),
            false => Err(Error::invalid(format!(
                "the write buffer directory has no line {line}"
            ))),
        }
    }

    fn within(&self, at: u64) -> Result<PmOffset> {
        let place = self.extent.at(at);
        place.ok_or_else(|| self.damaged(at, "bytes within it"))
    }

    #[cold]
    fn damaged(&self, at: u64, expected: &str) -> Error {
        Error::corruption(PLACE, self.extent.offset.get() + at, expected)
    }
}

impl Line {
    fn named(&self, line: u32) -> NamedBuffer {
        NamedBuffer {
            line,
            id: self.id,
            extent: self.extent,
            through: self.through,
            end: self.end,
            is_final: self.is_final,
        }
    }
}

fn check_seqno(seqno: SeqNo) -> Result<()> {
    match seqno <= SeqNo::MAX {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{seqno} is above the largest sequence number"
        ))),
    }
}

/// The words of a line, by loads of single words beside a writer. An end is not newer than its
/// number.
pub(super) fn settled(mut load: impl FnMut(usize) -> Result<u64>) -> Result<[u64; LINE_WORDS]> {
    let mut words = [0; LINE_WORDS];
    for _ in 0..READS_MAX {
        words[0] = load(0)?;
        // From the last to the first, so that the end is loaded before its number.
        for (number, word) in words.iter_mut().enumerate().skip(1).rev() {
            *word = load(number)?;
        }
        if load(0)? == words[0] {
            break;
        }
    }
    Ok(words)
}

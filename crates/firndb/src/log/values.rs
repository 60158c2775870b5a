//! Values in logs, to which level 0 points in profile `lab`. They are read from there, cached, and
//! counted by log, so that a log is removed once nothing points into it.
//!
//! 1. The values of a log are fixed when they are written. A pointer into a log is counted before
//!    the state that contains it becomes visible, until no state contains it. So no reader uses a
//!    log with a count of zero.
//! 2. Only bytes in the log's file are read. A flush drains the log's buffer before it makes
//!    pointers.
//!
//! Thread safety: `Send + Sync`. Readers share a lock around the set of logs.

use super::ValueAddress;
use super::hot::HotSlots;
use super::layout::{VALUE_HEADER_BYTES, check_value, damaged, read_value};
use super::placed::{PlacedLogs, end};
use crate::files::{FileName, Files};
use crate::mechanisms;
use firn_base::count::{Cause, IoCounters};
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{Error, FileId, Result, SeqNo};
use firn_fs::{File, IoBuf, LARGE_BYTES, OpenMode, Pending};
use firn_pm::Extent;
use firn_table::pm_btree::HOT_LOG;
use firn_table::{BlockCache, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

thread_local! {
    /// The buffer for a value until it is checked.
    static SCRATCH: RefCell<IoBuf> = RefCell::new(IoBuf::default());
}

/// Values with at most this many bytes between them share one read. A compaction may bridge larger
/// gaps.
const GAP_BYTES_MIN: u64 = 8 << 10;
/// The maximum number of values in one read, and the maximum bytes if there is more than one.
const RUN_MAX: usize = 64;
const RUN_BYTES_MAX: u64 = 128 << 10;
/// The number of entries that can be moved to level 1 for the cost of one random read. Moving an
/// entry takes some 4 KB of long reads and writes:
///
/// | | `sata` disk | `cloud` disk |
/// |---|---|---|
/// | moving an entry | 8 us | 16 us |
/// | a short read | 10 us | 62 us |
const MOVES_PER_READ: u64 = 2;
/// The number of reads that [`ValueLogs::for_each`] has in flight in a hurry. A reader's own read
/// waits after them, 2 ms on a device that does 16,000 per second.
pub(crate) const FLYING_MAX: usize = 32;
/// The maximum average bytes of such a read.
const FLYING_MEAN_BYTES: usize = 32 << 10;

/// The logs to which level 0 points.
pub(crate) struct ValueLogs {
    files: Arc<Files>,
    counters: Arc<IoCounters>,
    cache: Arc<BlockCache>,
    mode: OpenMode,
    hot: Option<Arc<HotSlots>>,
    placed: Option<Arc<PlacedLogs>>,
    logs: Mutex<BTreeMap<FileId, Arc<ValueLog>>>,
    /// If the trees are rebuilt from logs, the first log needed for that. Otherwise the highest
    /// number.
    rebuilt_from: AtomicU64,
    /// The number of entries that could have been moved to level 1 for the cost of cursors' reads
    /// from logs, less those that were moved.
    asked: AtomicU64,
}

/// One log.
#[derive(Default)]
struct ValueLog {
    file: OnceLock<Arc<dyn File>>,
    /// The extent of its first bytes in persistent memory, if it has one.
    placed: Option<Extent>,
    entries: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of the whole file, and the sequence number of its last entry. Set once its memtable
    /// was flushed.
    file_bytes: AtomicU64,
    last_seqno: AtomicU64,
}

/// A value being read.
pub(crate) struct PendingValue {
    pub(crate) at: ValueAddress,
    seqno: SeqNo,
    pending: Pending,
    file: Arc<dyn File>,
}

/// A value to be read, and its entry's sequence number.
pub(crate) type Wanted = Option<(ValueAddress, SeqNo)>;

/// The references to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogUse {
    pub(crate) log_id: FileId,
    pub(crate) entries: u64,
    /// Bytes of values, without their headers.
    pub(crate) bytes: u64,
    /// Bytes of its file.
    pub(crate) file_bytes: u64,
}

fn is_near(a: ValueAddress, b: ValueAddress, gap_max: u64) -> bool {
    a.log_id == b.log_id && b.offset <= end_of(a) + gap_max
}

fn end_of(at: ValueAddress) -> u64 {
    at.offset + VALUE_HEADER_BYTES as u64 + u64::from(at.len)
}

/// Splits off `rest`, which is in the logs' order, the values of the next read: those with at most
/// `gap_max` bytes between them.
fn next_run<'a>(
    rest: &mut &'a [(ValueAddress, usize)],
    gap_max: u64,
) -> Option<&'a [(ValueAddress, usize)]> {
    let &(first, _) = rest.first()?;
    let goes_on = |pair: &&[(ValueAddress, usize)]| {
        is_near(pair[0].0, pair[1].0, gap_max) && end_of(pair[1].0) - first.offset <= RUN_BYTES_MAX
    };
    let (run, behind) = rest.split_at(
        1 + rest
            .windows(2)
            .take(RUN_MAX - 1)
            .take_while(goes_on)
            .count(),
    );
    *rest = behind;
    Some(run)
}

/// The offset at which a run of values begins, and its bytes.
fn span(run: &[(ValueAddress, usize)]) -> (u64, usize) {
    let (first, last) = (
        run[0].0.offset,
        run.iter().map(|(at, _)| end_of(*at)).max().unwrap_or(0),
    );
    (first, (last - first) as usize)
}

impl ValueLogs {
    pub(crate) fn new(
        files: Arc<Files>,
        counters: Arc<IoCounters>,
        cache: Arc<BlockCache>,
        direct: bool,
    ) -> ValueLogs {
        let mode = if direct {
            OpenMode::ReadDirect
        } else {
            OpenMode::Read
        };
        let rebuilt_from = AtomicU64::new(u64::MAX);
        let (logs, asked) = (Mutex::default(), AtomicU64::new(0));
        ValueLogs {
            files,
            counters,
            cache,
            mode,
            hot: None,
            placed: None,
            logs,
            rebuilt_from,
            asked,
        }
    }

    /// Adds the values in `hot`.
    pub(crate) fn with_hot(self, hot: Option<Arc<HotSlots>>) -> ValueLogs {
        ValueLogs { hot, ..self }
    }

    /// Adds the logs in `placed`.
    pub(crate) fn with_placed(self, placed: Option<Arc<PlacedLogs>>) -> ValueLogs {
        ValueLogs { placed, ..self }
    }

    /// Logs in persistent memory, if there may be any.
    pub(crate) fn placed(&self) -> Option<&Arc<PlacedLogs>> {
        self.placed.as_ref()
    }

    /// The hot buffer, if there is one.
    pub(crate) fn hot(&self) -> Option<&Arc<HotSlots>> {
        self.hot.as_ref()
    }

    /// The hot buffer, to which a pointer refers.
    ///
    /// # Errors
    /// `Corruption` if there is none.
    pub(crate) fn hot_named(&self) -> Result<&HotSlots> {
        let none = || {
            Error::corruption(
                self.files.path().display(),
                0,
                "a pool with a hot buffer, where values are",
            )
        };
        self.hot.as_deref().ok_or_else(none)
    }

    /// Keeps the logs from `log_id` on, even if nothing points into them, because the trees are
    /// rebuilt from them.
    pub(crate) fn rebuild_from(&self, log_id: FileId) {
        self.rebuilt_from.store(log_id.0, Ordering::Release);
    }

    /// Records that all of log `log_id` is in the trees or in tables. Its file has `bytes` bytes,
    /// and the sequence number of its last entry is `last`.
    pub(crate) fn end(&self, log_id: FileId, bytes: u64, last: SeqNo) {
        let log = self.log(log_id);
        let bytes = bytes.max(log.placed.map_or(0, |extent| extent.len));
        if log.last_seqno.load(Ordering::Acquire) == 0 {
            log.file_bytes.store(bytes, Ordering::Release);
            log.last_seqno.store(last.0, Ordering::Release);
        }
    }

    /// Bytes of all logs that are held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.logs
            .lock()
            .values()
            .map(|log| log.file_bytes.load(Ordering::Acquire))
            .sum()
    }

    /// The first ended log with an entry above `seqno`.
    pub(crate) fn first_behind(&self, seqno: SeqNo) -> Option<FileId> {
        let logs = self.logs.lock();
        logs.iter()
            .find(|(_, log)| log.last_seqno.load(Ordering::Acquire) > seqno.0)
            .map(|(id, _)| *id)
    }

    fn log(&self, log_id: FileId) -> Arc<ValueLog> {
        let placed = || {
            self.placed
                .as_ref()
                .and_then(|placed| placed.extent(log_id))
        };
        let log = || {
            Arc::new(ValueLog {
                placed: placed(),
                ..ValueLog::default()
            })
        };
        self.logs.lock().entry(log_id).or_insert_with(log).clone()
    }

    /// Counts a pointer of a recovered leaf to entry `seqno`'s value.
    ///
    /// # Errors
    /// As [`HotSlots::use_again`].
    pub(crate) fn add_recovered(&self, at: ValueAddress, seqno: SeqNo) -> Result<()> {
        if at.log_id == HOT_LOG {
            return self.hot_named()?.use_again(at, seqno);
        }
        self.add(at);
        Ok(())
    }

    /// Counts a pointer to a version's value, unless its slot in the hot buffer was released. True
    /// if it is counted.
    pub(crate) fn add_if_there(&self, at: ValueAddress, seqno: SeqNo) -> bool {
        if at.log_id == HOT_LOG {
            return self
                .hot
                .as_ref()
                .is_some_and(|hot| hot.add_if_its(at, seqno));
        }
        self.add(at);
        true
    }

    /// Counts a pointer.
    pub(crate) fn add(&self, at: ValueAddress) {
        if at.log_id == HOT_LOG {
            return self.hot.iter().for_each(|hot| hot.add(at));
        }
        let log = self.log(at.log_id);
        log.entries.fetch_add(1, Ordering::AcqRel);
        log.bytes.fetch_add(u64::from(at.len), Ordering::AcqRel);
    }

    /// Removes a pointer from the count.
    pub(crate) fn remove(&self, at: ValueAddress) {
        if at.log_id == HOT_LOG {
            return self.hot.iter().for_each(|hot| hot.remove(at));
        }
        let log = self.log(at.log_id);
        log.entries.fetch_sub(1, Ordering::AcqRel);
        log.bytes.fetch_sub(u64::from(at.len), Ordering::AcqRel);
    }

    /// The references by log, oldest log first.
    pub(crate) fn uses(&self) -> Vec<LogUse> {
        let logs = self.logs.lock();
        let used = |(&log_id, log): (&FileId, &Arc<ValueLog>)| LogUse {
            log_id,
            entries: log.entries.load(Ordering::Acquire),
            bytes: log.bytes.load(Ordering::Acquire),
            file_bytes: log.file_bytes.load(Ordering::Acquire),
        };
        logs.iter().map(used).collect()
    }

    /// Drops the logs below `floor` to which nothing points and which are not needed otherwise.
    /// Returns their ids.
    pub(crate) fn take_unused(&self, floor: FileId) -> Vec<FileId> {
        let mut logs = self.logs.lock();
        let below = floor.min(FileId(self.rebuilt_from.load(Ordering::Acquire)));
        let unused = |(id, log): (&FileId, &Arc<ValueLog>)| {
            (log.entries.load(Ordering::Acquire) == 0).then_some(*id)
        };
        let ids: Vec<FileId> = logs.range(..below).filter_map(unused).collect();
        ids.iter().for_each(|id| drop(logs.remove(id)));
        ids
    }

    /// Reads entry `seqno`'s value at `at` and caches it.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the log.
    pub(crate) fn get(&self, at: ValueAddress, seqno: SeqNo) -> Result<Value> {
        let leave = |value: &[u8]| self.cache.insert_value(at.log_id, at.offset, value);
        self.find(at, seqno, Cause::UserRead, leave)
            .map(|(value, _)| value)
    }

    /// Returns entry `seqno`'s value for an eviction, without leaving it in the cache.
    ///
    /// # Errors
    /// As `get`.
    pub(crate) fn get_for_eviction(&self, at: ValueAddress, seqno: SeqNo) -> Result<Value> {
        self.find(at, seqno, Cause::Evict, |value| {
            Value::owned(value.to_vec())
        })
        .map(|(value, _)| value)
    }

    /// Like [`ValueLogs::get`], but does not cache a value that it reads. True if the value was
    /// read, and so may be kept as a row.
    ///
    /// # Errors
    /// As `get`.
    pub(crate) fn get_once(&self, at: ValueAddress, seqno: SeqNo) -> Result<(Value, bool)> {
        let (value, was_read) = self.find(at, seqno, Cause::UserRead, |value| {
            Value::owned(value.to_vec())
        })?;
        Ok((value, was_read && self.may_be_row(at)))
    }

    /// Finds entry `seqno`'s value. If it is read from the SSD, it is made by `make`, and true is
    /// returned with it.
    fn find(
        &self,
        at: ValueAddress,
        seqno: SeqNo,
        cause: Cause,
        make: impl Fn(&[u8]) -> Value,
    ) -> Result<(Value, bool)> {
        if at.log_id == HOT_LOG {
            return Ok((Value::owned(self.hot_named()?.read(at, seqno)?), false));
        }
        if let Some(value) = self.cached(at) {
            return Ok((value, false));
        }
        let log = self.log(at.log_id);
        if let Some(extent) = log.placed.filter(|extent| at.offset < end(*extent)) {
            return Ok((
                Value::owned(self.read_placed(&log, extent, at, seqno)?),
                false,
            ));
        }
        let file = self.open(&log, at.log_id)?;
        if at.len as usize >= LARGE_BYTES {
            // In memory once: neither in a buffer that the thread keeps, nor in the cache, which
            // would hold few such.
            let mut buf = IoBuf::default();
            self.counters
                .read(cause, read_value(&**file, at, seqno, &mut buf)?.len());
            return Ok((
                Value::owned(buf.into_tail(at.len as usize).into_vec()),
                true,
            ));
        }
        // Taken, not borrowed: what `make` does with the cache may let another thread of a model
        // run on this one.
        let mut scratch = SCRATCH.take();
        let made = read_value(&**file, at, seqno, &mut scratch).map(|value| {
            self.counters.read(cause, value.len());
            (make(value), true)
        });
        SCRATCH.set(scratch);
        made
    }

    /// Reads entry `seqno`'s value at `at`, which begins in `extent`.
    fn read_placed(
        &self,
        log: &ValueLog,
        extent: Extent,
        at: ValueAddress,
        seqno: SeqNo,
    ) -> Result<Vec<u8>> {
        let file = self.open(log, at.log_id)?;
        let mut framed = self
            .placed
            .as_ref()
            .map_or(Ok(Vec::new()), |placed| placed.read(extent, at))?;
        let left = VALUE_HEADER_BYTES + at.len as usize - framed.len();
        if left > 0 {
            // The rest of it is in the file.
            let mut buf = IoBuf::default();
            file.read(end(extent), left, &mut buf)?;
            self.counters.read(Cause::UserRead, left);
            framed.extend_from_slice(buf.bytes());
        }
        if self
            .placed
            .as_ref()
            .is_some_and(|placed| placed.is_read_only())
        {
            // A writer beside this gives the extent to another log once the file is gone.
            self.files
                .len(FileName::Log(at.log_id))
                .map_err(|_| damaged(&**file, at))?;
        }
        check_value(&framed, at.len, seqno).ok_or_else(|| damaged(&**file, at))?;
        framed.drain(..VALUE_HEADER_BYTES);
        Ok(framed)
    }

    /// True if logs must be placed in persistent memory and there is room for only a few more.
    pub(crate) fn is_short_of_room(&self) -> bool {
        const FEW: u64 = 4;
        self.lacks_room_for(FEW)
    }

    /// True if logs must be placed in persistent memory, which has no room for `more` logs.
    pub(crate) fn lacks_room_for(&self, more: u64) -> bool {
        self.placed
            .as_ref()
            .is_some_and(|placed| placed.lacks_room_for(more))
    }

    /// True if log `log_id` is in persistent memory, at least in part.
    pub(crate) fn is_placed(&self, log_id: FileId) -> bool {
        self.placed
            .as_ref()
            .is_some_and(|placed| placed.extent(log_id).is_some())
    }

    /// True if the value at `at` is in persistent memory, at least in part.
    fn is_in_memory(&self, at: ValueAddress) -> bool {
        let is_placed = || {
            self.log(at.log_id)
                .placed
                .is_some_and(|extent| at.offset < end(extent))
        };
        at.log_id == HOT_LOG || (self.placed.is_some() && is_placed())
    }

    fn cached(&self, at: ValueAddress) -> Option<Value> {
        if mechanisms::LAB_CACHED.is_on() {
            self.cache.get_value(at.log_id, at.offset)
        } else {
            None
        }
    }

    /// Starts reading entry `seqno`'s value at `at`, for [`ValueLogs::finish`]; `None` if it is in
    /// memory.
    ///
    /// # Errors
    /// The error of opening the log.
    pub(crate) fn submit(&self, at: ValueAddress, seqno: SeqNo) -> Result<Option<PendingValue>> {
        if self.is_in_memory(at) || self.cache.has_value(at.log_id, at.offset) {
            return Ok(None);
        }
        let log = self.log(at.log_id);
        let file = self.open(&log, at.log_id)?.clone();
        let pending = file.submit_read(
            at.offset,
            VALUE_HEADER_BYTES + at.len as usize,
            IoBuf::default(),
        );
        Ok(Some(PendingValue {
            at,
            seqno,
            pending,
            file,
        }))
    }

    /// Records that a cursor had a value read.
    pub(crate) fn ask(&self) {
        self.asked.fetch_add(MOVES_PER_READ, Ordering::Relaxed);
    }

    /// The number of entries that could have been moved for the cost of cursors' reads, less those
    /// that were moved.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Records that `entries` entries were evicted and `left` are left of their tree. Caps the
    /// count at one read of each, because more has no meaning.
    pub(crate) fn evicted(&self, entries: u64, left: u64) {
        let less = |asked: u64| Some(asked.saturating_sub(entries).min(2 * left));
        let _before = self
            .asked
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Waits for a read, and caches the value.
    pub(crate) fn finish(&self, asked: PendingValue) -> Result<Value> {
        let (at, buf) = self.wait(asked)?;
        if at.len as usize >= LARGE_BYTES {
            return Ok(Value::owned(buf.into_tail(at.len as usize).into_vec()));
        }
        let value = &buf.bytes()[VALUE_HEADER_BYTES..];
        Ok(self.cache.insert_value(at.log_id, at.offset, value))
    }

    /// Waits for a read. As [`ValueLogs::get_once`], returns true if the caller may keep the value
    /// as a row.
    pub(crate) fn finish_once(&self, asked: PendingValue) -> Result<(Value, bool)> {
        let (at, buf) = self.wait(asked)?;
        let value = Value::owned(buf.into_tail(at.len as usize).into_vec());
        Ok((value, self.may_be_row(at)))
    }

    /// True if the caller may keep the value that it reads at `at` as a row, which is a copy.
    fn may_be_row(&self, at: ValueAddress) -> bool {
        mechanisms::LAB_CACHED.is_on() && self.cache.admits(at.len as usize)
    }

    /// The bytes that a read returned, checked.
    fn wait(&self, asked: PendingValue) -> Result<(ValueAddress, IoBuf)> {
        let PendingValue {
            at,
            seqno,
            pending,
            file,
        } = asked;
        let buf = pending.wait()?;
        let value = check_value(buf.bytes(), at.len, seqno).ok_or_else(|| damaged(&*file, at))?;
        self.counters.read(Cause::UserRead, value.len());
        Ok((at, buf))
    }

    /// Passes the value at each of `places` to `see`, with its index. Values are read in the order
    /// of the logs, nearby ones by one read, with as many reads in flight as `flying_max` says each
    /// time, or fewer if they are long. They are not cached.
    ///
    /// # Errors
    /// As [`ValueLogs::get`].
    pub(crate) fn for_each(
        &self,
        places: &[Wanted],
        mut flying_max: impl FnMut() -> Result<usize>,
        mut see: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let mut wanted: Vec<(ValueAddress, usize)> = Vec::with_capacity(places.len());
        for (i, place) in places.iter().enumerate() {
            match *place {
                Some((at, seqno)) if self.is_in_memory(at) => see(i, &self.get(at, seqno)?),
                Some((at, _)) => wanted.push((at, i)),
                None => {}
            }
        }
        wanted.sort_unstable_by_key(|(at, _)| (at.log_id, at.offset));
        let mut rest = &wanted[..];
        let gap_max = || self.counters.merge_gap().max(GAP_BYTES_MIN);
        let mut runs = std::iter::from_fn(|| next_run(&mut rest, gap_max())).peekable();
        let (mut flying, mut flying_bytes) = (VecDeque::new(), 0);
        loop {
            let most = flying_max()?;
            let has_room =
                |flying: usize, bytes: usize| flying < most && bytes <= most * FLYING_MEAN_BYTES;
            while let Some(run) = runs.next_if(|run| {
                flying_bytes == 0 || has_room(flying.len(), flying_bytes + span(run).1)
            }) {
                let (offset, len) = span(run);
                let log_id = run[0].0.log_id;
                let log = self.log(log_id);
                let file = self.open(&log, log_id)?.clone();
                self.counters.read(Cause::Evict, len);
                flying_bytes += len;
                flying.push_back((run, file.submit_read(offset, len, IoBuf::default()), file));
            }
            let Some((run, pending, file)) = flying.pop_front() else {
                return Ok(());
            };
            let (offset, len) = span(run);
            let buf = pending.wait()?;
            flying_bytes -= len;
            for &(at, i) in run {
                let start = (at.offset - offset) as usize;
                let framed = buf
                    .bytes()
                    .get(start..start + VALUE_HEADER_BYTES + at.len as usize);
                let value = places[i].and_then(|(_, seqno)| check_value(framed?, at.len, seqno));
                see(i, value.ok_or_else(|| damaged(&*file, at))?);
            }
        }
    }

    /// The average bytes of a value.
    pub(crate) fn mean_bytes(&self) -> u64 {
        let (entries, bytes) = self.uses().iter().fold((0, 0), |sum, used| {
            (sum.0 + used.entries, sum.1 + used.bytes)
        });
        bytes / entries.max(1)
    }

    /// Opens log `log_id`, so that it stays readable when its file is removed.
    ///
    /// # Errors
    /// `NotFound` if it was removed already.
    pub(crate) fn hold(&self, log_id: FileId) -> Result<()> {
        let log = self.log(log_id);
        self.open(&log, log_id).map(drop)
    }

    /// Tells the system's cache that it need not keep the synced bytes of log `log_id`, unless the
    /// log is read through that cache. If memory is bounded, cached pages of old logs displace new
    /// ones. This is only a hint, and a log without entries may have no file.
    pub(crate) fn leave_cache(&self, log_id: FileId) {
        if self.mode != OpenMode::ReadDirect {
            return;
        }
        let file = self.files.open(FileName::Log(log_id), self.mode).ok();
        // Not every file system supports reading past the cache.
        file.iter()
            .filter(|file| file.alignment() > 1)
            .for_each(|file| file.leave_cache());
    }

    fn open<'a>(&self, log: &'a ValueLog, log_id: FileId) -> Result<&'a Arc<dyn File>> {
        if let Some(file) = log.file.get() {
            return Ok(file);
        }
        let file = self.files.open(FileName::Log(log_id), self.mode)?;
        Ok(log.file.get_or_init(|| file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_brings_what_is_near_and_not_too_much() {
        let at = |log_id, offset, len| {
            (
                ValueAddress {
                    log_id,
                    offset,
                    len,
                },
                0,
            )
        };
        let wanted = [
            at(FileId(1), 0, 100),
            at(FileId(1), 4000, 100),
            at(FileId(1), 20_000, 100),
            at(FileId(2), 20_200, 300_000),
            at(FileId(2), 320_300, 100_000),
            at(FileId(2), 420_400, 10),
        ];
        let mut rest = &wanted[..];
        let lens: Vec<usize> = std::iter::from_fn(|| next_run(&mut rest, GAP_BYTES_MIN))
            .map(<[_]>::len)
            .collect();
        assert_eq!(lens, [2, 1, 1, 2]);
        let many: Vec<_> = (0..200).map(|i| at(FileId(1), i * 1000, 900)).collect();
        let mut rest = &many[..];
        let lens: Vec<usize> = std::iter::from_fn(|| next_run(&mut rest, GAP_BYTES_MIN))
            .map(<[_]>::len)
            .collect();
        assert_eq!(lens, [64, 64, 64, 8]);
    }
}

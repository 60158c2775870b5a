//! Values that lie in logs, where level 0 points to them in profile `lab`: read from there, cached, and counted by log,
//! so that a log goes when nothing points into it any more.
//!
//! 1. What a log's values are is decided when they are written; a pointer into a log is counted from before the state
//!    that has it is seen until after no state does. So a log that counts none is read by nobody.
//! 2. Only what the log's file has is read: a flush drains the log's buffer before it makes pointers.
//!
//! Thread safety: `Send + Sync`; readers share a lock around which logs there are.

use super::ValueAddress;
use super::hot::HotSlots;
use super::layout::{VALUE_HEADER_BYTES, check_value, damaged, read_value};
use super::placed::{PlacedLogs, end};
use crate::files::{FileName, Files};
use crate::mechanisms;
use firn_base::count::{Cause, IoCounters};
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{Error, Result, SeqNo};
use firn_fs::{File, IoBuf, LARGE_BYTES, OpenMode, Pending};
use firn_pm::Extent;
use firn_table::pm_btree::HOT_LOG;
use firn_table::{BlockCache, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

thread_local! {
    /// Where a value is read before it is checked.
    static SCRATCH: RefCell<IoBuf> = RefCell::new(IoBuf::default());
}

/// Values that lie no further apart than this are read by one read, or further where a merge reads more along.
const GAP_BYTES_MIN: u64 = 8 << 10;
/// Values of one read at most, and bytes if they are more than one.
const RUN_MAX: usize = 64;
const RUN_BYTES_MAX: u64 = 128 << 10;
/// Entries that are moved to level 1 for what a read of one value costs: moving takes some 4 KB of long reads and
/// writes, 8 us of a `sata` disk and 16 of a `cloud` one, a short read 10 and 62.
const MOVES_PER_READ: u64 = 2;
/// Reads that [`ValueLogs::for_each`] has in flight for who is in a hurry: a reader's own waits behind them, 2 ms where
/// a device does 16,000 a second.
pub(crate) const FLYING_MAX: usize = 32;
/// Bytes of such a read in the mean at most.
const FLYING_MEAN_BYTES: usize = 32 << 10;

/// The logs that level 0 points into.
pub(crate) struct ValueLogs {
    files: Arc<Files>,
    counters: Arc<IoCounters>,
    cache: Arc<BlockCache>,
    mode: OpenMode,
    hot: Option<Arc<HotSlots>>,
    placed: Option<Arc<PlacedLogs>>,
    logs: Mutex<BTreeMap<u64, Arc<ValueLog>>>,
    /// Where the trees are rebuilt from logs: logs from this one on are needed for that. Otherwise the highest number.
    rebuilt_from: AtomicU64,
    /// Entries that could have been moved to level 1 for what cursors' reads from logs cost, less those that were.
    asked: AtomicU64,
}

/// One of them.
#[derive(Default)]
struct ValueLog {
    file: OnceLock<Arc<dyn File>>,
    /// Where its first bytes lie in persistent memory, if they do.
    placed: Option<Extent>,
    entries: AtomicU64,
    bytes: AtomicU64,
    /// Of the whole file, and the number of its last entry; once its buffer was flushed.
    file_bytes: AtomicU64,
    last_seqno: AtomicU64,
}

/// A value on its way.
pub(crate) struct PendingValue {
    pub(crate) at: ValueAddress,
    seqno: SeqNo,
    pending: Pending,
    file: Arc<dyn File>,
}

/// A value to be read, and the number of its entry.
pub(crate) type Wanted = Option<(ValueAddress, SeqNo)>;

/// How much of a log is pointed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogUse {
    pub(crate) log_id: u64,
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

/// Cuts the values that the next read is to bring off `rest`, which is in the logs' order: those with no more than
/// `gap_max` bytes between them.
fn next_run<'a>(rest: &mut &'a [(ValueAddress, usize)], gap_max: u64) -> Option<&'a [(ValueAddress, usize)]> {
    let &(first, _) = rest.first()?;
    let goes_on = |pair: &&[(ValueAddress, usize)]| {
        is_near(pair[0].0, pair[1].0, gap_max) && end_of(pair[1].0) - first.offset <= RUN_BYTES_MAX
    };
    let (run, behind) = rest.split_at(1 + rest.windows(2).take(RUN_MAX - 1).take_while(goes_on).count());
    *rest = behind;
    Some(run)
}

/// Where a run of values begins, and how many bytes it takes.
fn span(run: &[(ValueAddress, usize)]) -> (u64, usize) {
    let (first, last) = (run[0].0.offset, run.iter().map(|(at, _)| end_of(*at)).max().unwrap_or(0));
    (first, (last - first) as usize)
}

impl ValueLogs {
    pub(crate) fn new(files: Arc<Files>, counters: Arc<IoCounters>, cache: Arc<BlockCache>, direct: bool) -> ValueLogs {
        let mode = if direct { OpenMode::ReadDirect } else { OpenMode::Read };
        let rebuilt_from = AtomicU64::new(u64::MAX);
        let (logs, asked) = (Mutex::default(), AtomicU64::new(0));
        ValueLogs { files, counters, cache, mode, hot: None, placed: None, logs, rebuilt_from, asked }
    }

    /// With values in `hot` too.
    pub(crate) fn with_hot(self, hot: Option<Arc<HotSlots>>) -> ValueLogs {
        ValueLogs { hot, ..self }
    }

    /// With logs in `placed` too.
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

    /// The hot buffer, in which something is said to be.
    ///
    /// # Errors
    /// `Corruption` if there is none.
    pub(crate) fn hot_named(&self) -> Result<&HotSlots> {
        let none = || Error::corruption(self.files.path().display(), 0, "a pool with a hot buffer, where values are");
        self.hot.as_deref().ok_or_else(none)
    }

    /// Logs from `log_id` on are needed, whether anything points into them or not: the trees are rebuilt from them.
    pub(crate) fn rebuild_from(&self, log_id: u64) {
        self.rebuilt_from.store(log_id, Ordering::Release);
    }

    /// All of log `log_id` is in the trees, or in tables: its file has `bytes`, and its last entry is numbered `last`.
    pub(crate) fn end(&self, log_id: u64, bytes: u64, last: SeqNo) {
        let log = self.log(log_id);
        let bytes = bytes.max(log.placed.map_or(0, |extent| extent.len));
        if log.last_seqno.load(Ordering::Acquire) == 0 {
            log.file_bytes.store(bytes, Ordering::Release);
            log.last_seqno.store(last.0, Ordering::Release);
        }
    }

    /// Bytes of all logs that are held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.logs.lock().values().map(|log| log.file_bytes.load(Ordering::Acquire)).sum()
    }

    /// The first log with an entry numbered above `seqno`, of those that have ended.
    pub(crate) fn first_behind(&self, seqno: SeqNo) -> Option<u64> {
        let logs = self.logs.lock();
        logs.iter().find(|(_, log)| log.last_seqno.load(Ordering::Acquire) > seqno.0).map(|(id, _)| *id)
    }

    fn log(&self, log_id: u64) -> Arc<ValueLog> {
        let placed = || self.placed.as_ref().and_then(|placed| placed.extent(log_id));
        let log = || Arc::new(ValueLog { placed: placed(), ..ValueLog::default() });
        self.logs.lock().entry(log_id).or_insert_with(log).clone()
    }

    /// Counts a pointer of a leaf that was recovered, to entry `seqno`'s value.
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

    /// Counts a pointer to a version's value, unless its slot in the hot buffer was let go of; whether it is counted.
    pub(crate) fn add_if_there(&self, at: ValueAddress, seqno: SeqNo) -> bool {
        if at.log_id == HOT_LOG {
            return self.hot.as_ref().is_some_and(|hot| hot.add_if_its(at, seqno));
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

    /// Takes a pointer from the count.
    pub(crate) fn remove(&self, at: ValueAddress) {
        if at.log_id == HOT_LOG {
            return self.hot.iter().for_each(|hot| hot.remove(at));
        }
        let log = self.log(at.log_id);
        log.entries.fetch_sub(1, Ordering::AcqRel);
        log.bytes.fetch_sub(u64::from(at.len), Ordering::AcqRel);
    }

    /// What is pointed to, oldest log first.
    pub(crate) fn uses(&self) -> Vec<LogUse> {
        let logs = self.logs.lock();
        let used = |(&log_id, log): (&u64, &Arc<ValueLog>)| LogUse {
            log_id,
            entries: log.entries.load(Ordering::Acquire),
            bytes: log.bytes.load(Ordering::Acquire),
            file_bytes: log.file_bytes.load(Ordering::Acquire),
        };
        logs.iter().map(used).collect()
    }

    /// Lets go of the logs below `floor` that nothing points into nor needs, and says which.
    pub(crate) fn take_unused(&self, floor: u64) -> Vec<u64> {
        let mut logs = self.logs.lock();
        let below = floor.min(self.rebuilt_from.load(Ordering::Acquire));
        let unused = |(id, log): (&u64, &Arc<ValueLog>)| (log.entries.load(Ordering::Acquire) == 0).then_some(*id);
        let ids: Vec<u64> = logs.range(..below).filter_map(unused).collect();
        ids.iter().for_each(|id| drop(logs.remove(id)));
        ids
    }

    /// Entry `seqno`'s value, at `at`; it stays cached.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the log.
    pub(crate) fn get(&self, at: ValueAddress, seqno: SeqNo) -> Result<Value> {
        let leave = |value: &[u8]| self.cache.insert_value(at.log_id, at.offset, value);
        self.find(at, seqno, Cause::UserRead, leave).map(|(value, _)| value)
    }

    /// Returns entry `seqno`'s value for an eviction, without leaving it in the cache.
    ///
    /// # Errors
    /// As `get`.
    pub(crate) fn get_for_eviction(&self, at: ValueAddress, seqno: SeqNo) -> Result<Value> {
        self.find(at, seqno, Cause::Evict, |value| Value::owned(value.to_vec())).map(|(value, _)| value)
    }

    /// As [`ValueLogs::get`], but what is read is not cached. Whether to keep it as a row: it was read.
    ///
    /// # Errors
    /// As `get`.
    pub(crate) fn get_once(&self, at: ValueAddress, seqno: SeqNo) -> Result<(Value, bool)> {
        let (value, was_read) = self.find(at, seqno, Cause::UserRead, |value| Value::owned(value.to_vec()))?;
        Ok((value, was_read && mechanisms::LAB_CACHED.is_on()))
    }

    /// Entry `seqno`'s value, made by `make` if it is read from the SSD, and whether it is.
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
            return Ok((Value::owned(self.read_placed(&log, extent, at, seqno)?), false));
        }
        let file = self.open(&log, at.log_id)?;
        if at.len as usize >= LARGE_BYTES {
            // In memory once: neither in a buffer that the thread keeps, nor in the cache, which would hold few such.
            let mut buf = IoBuf::default();
            self.counters.read(cause, read_value(&**file, at, seqno, &mut buf)?.len());
            return Ok((Value::owned(buf.into_tail(at.len as usize).into_vec()), true));
        }
        // Taken, not borrowed: what `make` does with the cache may let another thread of a model run on this one.
        let mut scratch = SCRATCH.take();
        let made = read_value(&**file, at, seqno, &mut scratch).map(|value| {
            self.counters.read(cause, value.len());
            (make(value), true)
        });
        SCRATCH.set(scratch);
        made
    }

    /// Entry `seqno`'s value at `at`, which begins in `extent`.
    fn read_placed(&self, log: &ValueLog, extent: Extent, at: ValueAddress, seqno: SeqNo) -> Result<Vec<u8>> {
        let file = self.open(log, at.log_id)?;
        let mut framed = self.placed.as_ref().map_or(Ok(Vec::new()), |placed| placed.read(extent, at))?;
        let left = VALUE_HEADER_BYTES + at.len as usize - framed.len();
        if left > 0 {
            // The rest of it is in the file.
            let mut buf = IoBuf::default();
            file.read(end(extent), left, &mut buf)?;
            self.counters.read(Cause::UserRead, left);
            framed.extend_from_slice(buf.bytes());
        }
        if self.placed.as_ref().is_some_and(|placed| placed.is_read_only()) {
            // A writer beside this gives the extent to another log once the file is gone.
            self.files.len(FileName::Log(at.log_id)).map_err(|_| damaged(&**file, at))?;
        }
        check_value(&framed, at.len, seqno).ok_or_else(|| damaged(&**file, at))?;
        framed.drain(..VALUE_HEADER_BYTES);
        Ok(framed)
    }

    /// Whether logs that must lie in persistent memory will soon find no room there.
    pub(crate) fn is_short_of_room(&self) -> bool {
        const FEW: u64 = 4;
        self.lacks_room_for(FEW)
    }

    /// Whether logs must lie in persistent memory, which has no room for so many more.
    pub(crate) fn lacks_room_for(&self, more: u64) -> bool {
        self.placed.as_ref().is_some_and(|placed| placed.lacks_room_for(more))
    }

    /// Whether log `log_id` lies in persistent memory, if not all of it.
    pub(crate) fn is_placed(&self, log_id: u64) -> bool {
        self.placed.as_ref().is_some_and(|placed| placed.extent(log_id).is_some())
    }

    /// Whether the value at `at` is in persistent memory, if not all of it.
    fn is_in_memory(&self, at: ValueAddress) -> bool {
        let is_placed = || self.log(at.log_id).placed.is_some_and(|extent| at.offset < end(extent));
        at.log_id == HOT_LOG || (self.placed.is_some() && is_placed())
    }

    fn cached(&self, at: ValueAddress) -> Option<Value> {
        if mechanisms::LAB_CACHED.is_on() { self.cache.get_value(at.log_id, at.offset) } else { None }
    }

    /// Puts the read of entry `seqno`'s value at `at` in flight, for [`ValueLogs::finish`]; `None` if it is in memory.
    ///
    /// # Errors
    /// What opening the log met.
    pub(crate) fn submit(&self, at: ValueAddress, seqno: SeqNo) -> Result<Option<PendingValue>> {
        if self.is_in_memory(at) || self.cache.has_value(at.log_id, at.offset) {
            return Ok(None);
        }
        let log = self.log(at.log_id);
        let file = self.open(&log, at.log_id)?.clone();
        let pending = file.submit_read(at.offset, VALUE_HEADER_BYTES + at.len as usize, IoBuf::default());
        Ok(Some(PendingValue { at, seqno, pending, file }))
    }

    /// A cursor had a value read.
    pub(crate) fn ask(&self) {
        self.asked.fetch_add(MOVES_PER_READ, Ordering::Relaxed);
    }

    /// How many entries could have been moved for what cursors' reads cost, less those that were.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// So many entries were evicted, and so many are left of their tree: more than a read of each has no meaning.
    pub(crate) fn evicted(&self, entries: u64, left: u64) {
        let less = |asked: u64| Some(asked.saturating_sub(entries).min(2 * left));
        let _before = self.asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The value that was asked for.
    ///
    /// # Errors
    /// As [`ValueLogs::get`].
    pub(crate) fn finish(&self, asked: PendingValue) -> Result<Value> {
        let PendingValue { at, seqno, pending, file } = asked;
        let buf = pending.wait()?;
        let value = check_value(buf.bytes(), at.len, seqno).ok_or_else(|| damaged(&*file, at))?;
        self.counters.read(Cause::UserRead, value.len());
        if value.len() >= LARGE_BYTES {
            return Ok(Value::owned(buf.into_tail(at.len as usize).into_vec()));
        }
        Ok(self.cache.insert_value(at.log_id, at.offset, value))
    }

    /// Hands the value at each of `places` to `see`, with its number; read in the order of the logs, those that lie
    /// close by one read, as many in flight as `flying_max` says each time, or fewer if they are long. They are not
    /// kept.
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
            let has_room = |flying: usize, bytes: usize| flying < most && bytes <= most * FLYING_MEAN_BYTES;
            while let Some(run) =
                runs.next_if(|run| flying_bytes == 0 || has_room(flying.len(), flying_bytes + span(run).1))
            {
                let (offset, len) = span(run);
                let log_id = run[0].0.log_id;
                let log = self.log(log_id);
                let file = self.open(&log, log_id)?.clone();
                self.counters.read(Cause::Evict, len);
                flying_bytes += len;
                flying.push_back((run, file.submit_read(offset, len, IoBuf::default()), file));
            }
            let Some((run, pending, file)) = flying.pop_front() else { return Ok(()) };
            let (offset, len) = span(run);
            let buf = pending.wait()?;
            flying_bytes -= len;
            for &(at, i) in run {
                let start = (at.offset - offset) as usize;
                let framed = buf.bytes().get(start..start + VALUE_HEADER_BYTES + at.len as usize);
                let value = places[i].and_then(|(_, seqno)| check_value(framed?, at.len, seqno));
                see(i, value.ok_or_else(|| damaged(&*file, at))?);
            }
        }
    }

    /// Bytes of a value, in the mean.
    pub(crate) fn mean_bytes(&self) -> u64 {
        let (entries, bytes) = self.uses().iter().fold((0, 0), |sum, used| (sum.0 + used.entries, sum.1 + used.bytes));
        bytes / entries.max(1)
    }

    /// Opens log `log_id`, so that it stays when its file is removed.
    ///
    /// # Errors
    /// `NotFound` if it was.
    pub(crate) fn hold(&self, log_id: u64) -> Result<()> {
        let log = self.log(log_id);
        self.open(&log, log_id).map(drop)
    }

    /// What log `log_id` has in its file is synced: unless it is read through the system's cache, that need not keep
    /// it. Where memory is bounded, pages of logs that stay are in the way of new ones. It is a hint, and a log without
    /// entries may have no file.
    pub(crate) fn leave_cache(&self, log_id: u64) {
        if self.mode != OpenMode::ReadDirect {
            return;
        }
        let file = self.files.open(FileName::Log(log_id), self.mode).ok();
        // Not every file system reads past the cache.
        file.iter().filter(|file| file.alignment() > 1).for_each(|file| file.leave_cache());
    }

    fn open<'a>(&self, log: &'a ValueLog, log_id: u64) -> Result<&'a Arc<dyn File>> {
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
        let at = |log_id, offset, len| (ValueAddress { log_id, offset, len }, 0);
        let wanted = [
            at(1, 0, 100),
            at(1, 4000, 100),
            at(1, 20_000, 100),
            at(2, 20_200, 300_000),
            at(2, 320_300, 100_000),
            at(2, 420_400, 10),
        ];
        let mut rest = &wanted[..];
        let lens: Vec<usize> = std::iter::from_fn(|| next_run(&mut rest, GAP_BYTES_MIN)).map(<[_]>::len).collect();
        assert_eq!(lens, [2, 1, 1, 2]);
        let many: Vec<_> = (0..200).map(|i| at(1, i * 1000, 900)).collect();
        let mut rest = &many[..];
        let lens: Vec<usize> = std::iter::from_fn(|| next_run(&mut rest, GAP_BYTES_MIN)).map(<[_]>::len).collect();
        assert_eq!(lens, [64, 64, 64, 8]);
    }
}

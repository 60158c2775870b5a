//! A table of the state. It is opened when it was written or is first read, and closed again when
//! memory or file handles run short.
//!
//! 1. A run's table is open or not. Readers that hold it keep it, whatever the cache decides.
//! 2. The number of tables kept open and their bytes stay within the cache's bounds, except for
//!    tables that one operation needs at the same time.
//! 3. No table of the state is in memory twice: a closed one that a cursor still holds is kept
//!    again instead of being read again.
//! 4. The block cache has the memory that memtables, open tables and values that readers hold
//!    leave, including open tables that only cursors hold. Its size is set when a table or memtable
//!    comes or goes, and once a second.
//!
//! Thread safety: reading an open table takes no lock.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use crate::files::{FileName, Files};
use crate::manifest::TableMeta;
use crate::read::pm_space::PmSpace;
use crate::read::table::{Table, WeakTable};
use firn_base::sync::{
    ArcSwapOption, AtomicBool, AtomicI64, AtomicU8, AtomicU64, Guard, Mutex, Ordering,
};
use firn_base::{
    Error, FileId, Result,
    count::{Counter, HeldBytes},
};
use firn_fs::{File, OpenMode};
use firn_table::if_tree::IfTree;
use firn_table::sst::{BlockReader, Sst};
use firn_table::{OpenBytes, TableContext};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// A table of the state.
pub(crate) struct TableRun {
    pub(crate) meta: Arc<TableMeta>,
    /// Its space, if it is in persistent memory.
    placed: Option<Placed>,
    table: ArcSwapOption<Table>,
    /// The reader of its blocks, if only its file is open.
    blocks: ArcSwapOption<BlockReader>,
    /// The table as it was last opened. A reader may hold it after it was closed. Locked while the
    /// table is being opened.
    opened: Mutex<WeakTable>,
    used: AtomicBool,
    /// The second in which it was made, or the database opened.
    made: u64,
    /// The second in which it was last read, if it is in persistent memory.
    last_used: AtomicU64,
    /// The permission to append to the file: [`FREE`], [`APPENDING`] or [`SHARED`].
    growth: AtomicU8,
    /// The number of reads without a result that it may still cost before it is due for compaction.
    seeks_left: AtomicI64,
    cache: Arc<TableCache>,
}

/// A table in persistent memory, of a state or of one to come.
#[derive(Clone)]
struct Placed {
    space: PmSpace,
    /// The memory that it takes even if it is not open.
    _memory: Arc<OpenBytes>,
}

/// The least size of the block cache, in bytes, while values that are large compared with the
/// memory limit are being processed.
const CACHE_BYTES_LEAST: u64 = 64 << 10;

/// The unit in which held values are taken from the block cache.
const HELD_BYTES_UNIT: u64 = 256 << 10;

const FREE: u8 = 0;
const APPENDING: u8 = 1;
const SHARED: u8 = 2;

/// An open table, borrowed without counting.
pub(crate) struct OpenTable(Guard<Option<Arc<Table>>>);

impl std::ops::Deref for OpenTable {
    type Target = Table;
    fn deref(&self) -> &Table {
        match &*self.0 {
            Some(table) => table,
            // `TableRun::table` creates no other.
            None => unreachable!("an open table is open"),
        }
    }
}

/// The reader of a table's blocks, borrowed without counting.
pub(crate) enum OpenBlocks {
    Table(Guard<Option<Arc<Table>>>),
    File(Guard<Option<Arc<BlockReader>>>),
}

impl std::ops::Deref for OpenBlocks {
    type Target = BlockReader;
    fn deref(&self) -> &BlockReader {
        match self {
            OpenBlocks::Table(table) => match table.as_deref() {
                Some(Table::Sst(sst)) => sst.block_reader(),
                // `TableRun::blocks` creates no other.
                _ => unreachable!("an open table is open"),
            },
            OpenBlocks::File(reader) => match &**reader {
                Some(reader) => reader,
                None => unreachable!("an open file is open"),
            },
        }
    }
}

impl TableRun {
    pub(crate) fn new(meta: Arc<TableMeta>, cache: Arc<TableCache>) -> TableRun {
        let seeks = (meta.live_bytes() / cache.seek_charge_bytes).max(100);
        // Nothing is ever appended in persistent memory.
        let never_grows = meta.shared || !meta.is_file();
        let growth = AtomicU8::new(if never_grows { SHARED } else { FREE });
        TableRun {
            placed: cache.placed(&meta),
            meta,
            table: ArcSwapOption::empty(),
            blocks: ArcSwapOption::empty(),
            opened: Mutex::default(),
            used: AtomicBool::new(false),
            made: cache.second.load(Ordering::Relaxed),
            last_used: AtomicU64::new(cache.second.load(Ordering::Relaxed)),
            growth,
            seeks_left: AtomicI64::new(seeks as i64),
            cache,
        }
    }

    /// The open table.
    ///
    /// # Errors
    /// The error of opening it.
    #[inline]
    pub(crate) fn table(self: &Arc<Self>) -> Result<OpenTable> {
        let guard = self.table.load();
        if guard.is_some() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            if self.placed.is_some() {
                self.note_use();
            }
            return Ok(OpenTable(guard));
        }
        drop(guard);
        self.open()
    }

    /// The reader of its blocks, for who knows where they are. The index is not opened for it.
    ///
    /// # Errors
    /// The error of opening the file.
    #[inline]
    pub(crate) fn blocks(self: &Arc<Self>) -> Result<OpenBlocks> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        let table = self.table.load();
        if matches!(table.as_deref(), Some(Table::Sst(_))) {
            return Ok(OpenBlocks::Table(table));
        }
        let guard = self.blocks.load();
        match guard.is_some() {
            true => Ok(OpenBlocks::File(guard)),
            false => self.open_blocks(),
        }
    }

    #[cold]
    fn open_blocks(self: &Arc<Self>) -> Result<OpenBlocks> {
        let reader = match self.held() {
            Some(table) => table.sst()?.block_reader().clone(),
            None => {
                let file = self.cache.open_file(&self.meta)?;
                BlockReader::new(file, self.meta.id, self.cache.context.clone())
            }
        };
        let reader = self.cache.keep_blocks(self, reader);
        self.used.store(true, Ordering::Relaxed);
        Ok(OpenBlocks::File(Guard::from_inner(Some(reader))))
    }

    #[cold]
    fn open(self: &Arc<Self>) -> Result<OpenTable> {
        let mut opened = self.opened.lock();
        let table = match opened.upgrade() {
            Some(held) => held,
            None => self.open_anew()?,
        };
        *opened = table.downgrade();
        drop(opened);
        let table = self.cache.keep(self, table);
        self.used.store(true, Ordering::Relaxed);
        Ok(OpenTable(Guard::from_inner(Some(table))))
    }

    fn open_anew(&self) -> Result<Table> {
        if self.meta.is_file() {
            return Ok(Table::Sst(Arc::new(self.cache.open(&self.meta)?)));
        }
        let placed = self.placed.as_ref().ok_or_else(|| {
            let place = format!("table {} in the pool", self.meta.id);
            Error::corruption(place, 0, "a table that the open found")
        })?;
        Table::in_memory(&placed.space, self.cache.context())
    }

    fn note_use(&self) {
        let second = self.cache.second.load(Ordering::Relaxed);
        if self.last_used.load(Ordering::Relaxed) != second {
            self.last_used.store(second, Ordering::Relaxed);
        }
    }

    /// The seconds since it was made, or the database opened.
    pub(crate) fn age_seconds(&self) -> u64 {
        self.cache.second.load(Ordering::Relaxed) - self.made
    }

    /// The second in which it was last read, or made.
    pub(crate) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// Its space, if it is in persistent memory.
    pub(crate) fn space(&self) -> Option<&PmSpace> {
        self.placed.as_ref().map(|placed| &placed.space)
    }

    /// Gives up the run for its space.
    pub(crate) fn into_space(self) -> Option<PmSpace> {
        self.placed.map(|placed| placed.space)
    }

    /// Charges a read that found nothing. Returns true once the allowance is used up, and each time
    /// after that.
    pub(crate) fn charge_seek(&self) -> bool {
        self.seeks_left.fetch_sub(1, Ordering::Relaxed) <= 1
    }

    /// Acquires the right to append to the file. Returns false if an append is running or the file
    /// is shared.
    pub(crate) fn begin_append(&self) -> bool {
        self.growth
            .compare_exchange(FREE, APPENDING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Releases the right to append after an append that was abandoned.
    pub(crate) fn end_append(&self) {
        self.growth.store(FREE, Ordering::Release);
    }

    /// Forbids appends to the file from now on. Returns false if an append is running.
    pub(crate) fn share(&self) -> bool {
        let shared =
            self.growth
                .compare_exchange(FREE, SHARED, Ordering::AcqRel, Ordering::Acquire);
        shared.is_ok() || shared == Err(SHARED)
    }

    /// The table, if it is open or a reader holds it.
    pub(crate) fn held(&self) -> Option<Table> {
        let open = self.table.load();
        open.as_deref()
            .cloned()
            .or_else(|| self.opened.lock().upgrade())
    }

    fn close(&self, kept: KeptAs) {
        match kept {
            KeptAs::Table => self.table.store(None),
            KeptAs::File => self.blocks.store(None),
        }
    }
}

impl std::fmt::Debug for TableRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "TableRun({}, {} entries)",
            self.meta.id, self.meta.entries
        )
    }
}

struct Kept {
    run: Weak<TableRun>,
    bytes: u64,
    kept: KeptAs,
}

/// How much of a table is kept open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptAs {
    /// Its file, its index and its filter.
    Table,
    /// Its file alone.
    File,
}

/// The open tables.
pub(crate) struct TableCache {
    files: Arc<Files>,
    context: TableContext,
    seek_charge_bytes: u64,
    direct: bool,
    tables_max: usize,
    bytes_max: u64,
    shared_bytes: Option<u64>,
    /// Bytes of all memtables, in whatever state, and of others that share their memory.
    buffer_bytes: AtomicU64,
    /// The values that readers hold.
    held: HeldBytes,
    job_bytes: u64,
    jobs: Mutex<JobMemory>,
    cache_bytes_min: u64,
    buffer_bytes_usual: u64,
    kept: Mutex<VecDeque<Kept>>,
    /// The seconds since the open.
    second: AtomicU64,
    /// Tables in persistent memory that are about to become part of a state.
    placed: Mutex<HashMap<FileId, Placed>>,
    /// Trees over blocks that are about to become part of a state.
    trees: Mutex<HashMap<FileId, Arc<IfTree>>>,
    /// Bytes of the tables kept open.
    bytes: AtomicU64,
    /// Held while the block cache's size is set, so that an older size never overwrites a newer
    /// one.
    resizing: Mutex<()>,
    opens: Counter,
}

/// Bounds of a [`TableCache`].
pub(crate) struct TableCacheBounds {
    pub(crate) tables_max: usize,
    pub(crate) bytes_max: u64,
    /// The bytes that memtables, open tables and the block cache share. `None` if the block cache
    /// has a fixed size.
    pub(crate) shared_bytes: Option<u64>,
    /// The part of these bytes that is for background jobs. The cache has it while none runs.
    pub(crate) job_bytes: u64,
    pub(crate) cache_bytes_min: u64,
    /// Bytes of all memtables if none is larger than usual. When they exceed it, the cache may
    /// shrink below its minimum.
    pub(crate) buffer_bytes_usual: u64,
    pub(crate) seek_charge_bytes: u64,
    pub(crate) direct: bool,
}

#[cfg(test)]
impl TableCacheBounds {
    /// Bounds that allow one open table at a time.
    pub(crate) const ONE: TableCacheBounds = TableCacheBounds {
        tables_max: 1,
        bytes_max: u64::MAX,
        shared_bytes: None,
        job_bytes: 0,
        cache_bytes_min: 0,
        buffer_bytes_usual: u64::MAX,
        seek_charge_bytes: 256,
        direct: false,
    };
}

#[cfg(test)]
impl TableCache {
    /// A cache in an empty directory, for tables that nothing reads.
    pub(crate) fn of_test() -> Arc<TableCache> {
        let fs = firn_fs::SimFs::new(1);
        let files = Files::of_test(&fs, std::path::Path::new("/nowhere"), [0; 16]);
        let cache = Arc::new(firn_table::BlockCache::new(0));
        let context = TableContext::new(cache, Arc::default());
        let bounds = TableCacheBounds::ONE;
        Arc::new(TableCache::new(Arc::new(files), context, &bounds))
    }

    /// Calls `act` as if another thread were making the block cache smaller.
    #[cfg(not(shuttle))]
    pub(crate) fn while_resizing(&self, act: impl FnOnce()) {
        let _one_by_one = self.resizing.lock();
        act();
    }
}

/// The memory of background jobs.
#[derive(Debug, Default)]
struct JobMemory {
    running: usize,
    /// The second at which the last one ended.
    ended: u64,
    /// True while the block cache has it.
    is_lent: bool,
}

/// A background job that runs, with its memory.
pub(crate) struct RunningJob<'a>(&'a TableCache);

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        let mut jobs = self.0.jobs.lock();
        jobs.running -= 1;
        jobs.ended = self.0.second.load(Ordering::Relaxed);
    }
}

/// Memory borrowed from the block cache.
pub(crate) struct MemoryReservation<'a> {
    tables: &'a TableCache,
    bytes: u64,
}

impl Drop for MemoryReservation<'_> {
    fn drop(&mut self) {
        self.tables.drop_buffer(self.bytes);
    }
}

impl TableCache {
    pub(crate) fn new(
        files: Arc<Files>,
        context: TableContext,
        bounds: &TableCacheBounds,
    ) -> TableCache {
        TableCache {
            files,
            context,
            seek_charge_bytes: bounds.seek_charge_bytes,
            direct: bounds.direct,
            tables_max: bounds.tables_max,
            bytes_max: bounds.bytes_max,
            shared_bytes: bounds.shared_bytes,
            buffer_bytes: AtomicU64::new(bounds.job_bytes),
            held: HeldBytes::begin(),
            job_bytes: bounds.job_bytes,
            jobs: Mutex::default(),
            cache_bytes_min: bounds.cache_bytes_min,
            buffer_bytes_usual: bounds.buffer_bytes_usual.saturating_add(bounds.job_bytes),
            kept: Mutex::default(),
            second: AtomicU64::new(0),
            placed: Mutex::default(),
            trees: Mutex::default(),
            bytes: AtomicU64::new(0),
            resizing: Mutex::new(()),
            opens: Counter::default(),
        }
    }

    /// Opens a table that is not yet, or no longer, in a state.
    pub(crate) fn open(&self, meta: &TableMeta) -> Result<Sst> {
        self.opens.add(1);
        let file = self.open_file(meta)?;
        Sst::open(file, meta.id, meta.extent, self.context.clone())
    }

    /// Opens the file of a table.
    fn open_file(&self, meta: &TableMeta) -> Result<Arc<dyn File>> {
        let mode = if self.direct {
            OpenMode::ReadDirect
        } else {
            OpenMode::Read
        };
        self.files
            .open(FileName::Table(meta.id), mode)
            .map_err(|error| match error.kind() {
                firn_base::ErrorKind::NotFound if self.files.is_read_only() => {
                    firn_base::Error::changed(
                        self.files.path_of(FileName::Table(meta.id)).display(),
                    )
                }
                firn_base::ErrorKind::NotFound => firn_base::Error::corruption(
                    self.files.path_of(FileName::Table(meta.id)).display(),
                    0,
                    "the manifest names this table, but the file is missing",
                ),
                _ => error,
            })
    }

    /// Moves on to second `second`, by which uses of tables in persistent memory are ordered.
    pub(crate) fn set_second(&self, second: u64) {
        self.second.store(second, Ordering::Relaxed);
    }

    /// Adds a table in persistent memory that the next state will have. Its entries count as live
    /// from now on.
    pub(crate) fn add_placed(&self, space: PmSpace) {
        space.count_live();
        let placed = Placed {
            _memory: Arc::new(self.context.count_open(space.memory_bytes())),
            space,
        };
        self.placed.lock().insert(placed.space.id(), placed);
    }

    /// The space of `meta`, for its run. It stays here, because a swap of states that lost a race
    /// makes its runs again.
    fn placed(&self, meta: &TableMeta) -> Option<Placed> {
        if meta.is_file() {
            return None;
        }
        self.placed.lock().get(&meta.id).cloned()
    }

    /// Adds a tree over blocks that the next state will have.
    pub(crate) fn add_tree(&self, tree: Arc<IfTree>) {
        self.trees.lock().insert(tree.space().id(), tree);
    }

    /// The tree `id`, for its run. It stays here, as [`TableCache::placed`] says.
    pub(crate) fn tree(&self, id: FileId) -> Option<Arc<IfTree>> {
        self.trees.lock().get(&id).cloned()
    }

    /// Leaves all that is in persistent memory to the state, which has it now.
    pub(crate) fn placed_are_swapped_in(&self) {
        self.placed.lock().clear();
        self.trees.lock().clear();
    }

    pub(crate) fn context(&self) -> &TableContext {
        &self.context
    }

    /// Keeps `table` open for `run`, and closes others while there are too many, starting with
    /// those not used since the last check. If another reader opened the run's table first, returns
    /// that one.
    ///
    /// A run opens and closes under the lock, so the counts match the tables that are open.
    fn keep(&self, run: &Arc<TableRun>, table: Table) -> Arc<Table> {
        let bytes = table.memory_bytes() as u64;
        let mut kept = self.kept.lock();
        if let Some(open) = run.table.load_full() {
            return open;
        }
        self.close_others(&mut kept, bytes);
        kept.push_back(Kept {
            run: Arc::downgrade(run),
            bytes,
            kept: KeptAs::Table,
        });
        let table = Arc::new(table);
        run.table.store(Some(table.clone()));
        drop(kept);
        self.leave_the_rest();
        table
    }

    /// As [`TableCache::keep`], for a table of which only the file is open.
    fn keep_blocks(&self, run: &Arc<TableRun>, reader: BlockReader) -> Arc<BlockReader> {
        let bytes = size_of::<BlockReader>() as u64;
        let mut kept = self.kept.lock();
        if let Some(open) = run.blocks.load_full() {
            return open;
        }
        self.close_others(&mut kept, bytes);
        kept.push_back(Kept {
            run: Arc::downgrade(run),
            bytes,
            kept: KeptAs::File,
        });
        let reader = Arc::new(reader);
        run.blocks.store(Some(reader.clone()));
        reader
    }

    /// Counts `bytes` more, and closes others while there are too many.
    fn close_others(&self, kept: &mut VecDeque<Kept>, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut looks = kept.len().min(1 << 20) * 2;
        while looks > 0
            && (kept.len() >= self.tables_max
                || self.bytes.load(Ordering::Relaxed) > self.bytes_max)
        {
            looks -= 1;
            let Some(oldest) = kept.pop_front() else {
                break;
            };
            match oldest.run.upgrade() {
                Some(alive) if alive.used.swap(false, Ordering::Relaxed) && looks > kept.len() => {
                    kept.push_back(oldest);
                    continue;
                }
                Some(alive) => alive.close(oldest.kept),
                None => {}
            }
            self.bytes.fetch_sub(oldest.bytes, Ordering::Relaxed);
        }
    }

    /// True if more than an eighth of both bounds is free.
    pub(crate) fn has_room(&self) -> bool {
        let full = |now: u64, most: u64| now >= most - most / 8;
        let kept = self.kept.lock().len() as u64;
        !full(kept, self.tables_max as u64) && !full(self.context.open_bytes(), self.bytes_max)
    }

    /// Counts `bytes` of a new memtable, or of another user of the same memory, and shrinks the
    /// block cache.
    pub(crate) fn add_buffer(&self, bytes: u64) {
        self.buffer_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.leave_the_rest();
    }

    /// As [`TableCache::add_buffer`], for a writer, which must not wait for more than its own
    /// `bytes`. While another thread makes room, the cache may stay larger than what is left by as
    /// much as writers take until then.
    pub(crate) fn claim(&self, bytes: u64) {
        const MOST: u64 = 4;
        self.buffer_bytes.fetch_add(bytes, Ordering::Relaxed);
        let Some(_one_by_one) = self.resizing.try_lock() else {
            return;
        };
        if let Some(left) = self.left() {
            let now = self.context.cache.bytes_max();
            self.context
                .cache
                .resize(left.max(now.saturating_sub(MOST * bytes)));
        }
    }

    /// Subtracts `bytes` of a memtable that is gone, and returns its memory to the block cache.
    pub(crate) fn drop_buffer(&self, bytes: u64) {
        self.buffer_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.leave_the_rest();
    }

    /// Bytes that the block cache can spare while memtables take `buffer_bytes`.
    pub(crate) fn lendable(&self, buffer_bytes: u64) -> u64 {
        let buffers = self.buffer_bytes().max(buffer_bytes + self.job_bytes);
        let taken = buffers + self.context.open_bytes() + self.cache_bytes_min;
        self.shared_bytes
            .map_or(0, |shared| shared.saturating_sub(taken))
    }

    /// Borrows `bytes` from the block cache until the reservation is dropped.
    pub(crate) fn lend(&self, bytes: u64) -> MemoryReservation<'_> {
        self.add_buffer(bytes);
        MemoryReservation {
            tables: self,
            bytes,
        }
    }

    /// Takes the memory of background jobs from the block cache, if that has it, until the last of
    /// them has ended.
    pub(crate) fn begin_job(&self) -> RunningJob<'_> {
        // Locked until there is room, because another job must not begin before.
        let mut jobs = self.jobs.lock();
        jobs.running += 1;
        if std::mem::take(&mut jobs.is_lent) {
            self.add_buffer(self.job_bytes);
        }
        RunningJob(self)
    }

    /// Gives the memory of background jobs to the block cache if none has run for `seconds`.
    pub(crate) fn lend_job_memory(&self, seconds: u64) {
        let now = self.second.load(Ordering::Relaxed);
        let mut jobs = self.jobs.lock();
        if jobs.running == 0 && !jobs.is_lent && now > jobs.ended + seconds {
            jobs.is_lent = true;
            self.drop_buffer(self.job_bytes);
        }
    }

    /// Gives the block cache all memory that is left.
    pub(crate) fn leave_the_rest(&self) {
        let _one_by_one = self.resizing.lock();
        if let Some(left) = self.left() {
            self.context.cache.resize(left);
        }
    }

    /// The bytes that memtables, open tables and held values leave to the block cache.
    fn left(&self) -> Option<u64> {
        let shared = self.shared_bytes?;
        let buffers = self.buffer_bytes();
        let least = self
            .cache_bytes_min
            .saturating_sub(buffers.saturating_sub(self.buffer_bytes_usual));
        // Gets in progress hold a little, for which the size need not change.
        let held = self.held.bytes() / HELD_BYTES_UNIT * HELD_BYTES_UNIT;
        let left = shared.saturating_sub(buffers + self.context.open_bytes() + held);
        Some(left.max(least).max(CACHE_BYTES_LEAST))
    }

    /// The values that readers hold.
    #[inline]
    pub(crate) fn held(&self) -> &HeldBytes {
        &self.held
    }

    /// Bytes that memtables take, and that others borrowed from the block cache.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes.load(Ordering::Relaxed)
    }

    /// Removes tables whose run is gone.
    pub(crate) fn sweep(&self) {
        let mut kept = self.kept.lock();
        kept.retain(|one| {
            let alive = one.run.strong_count() > 0;
            if !alive {
                self.bytes.fetch_sub(one.bytes, Ordering::Relaxed);
            }
            alive
        });
        drop(kept);
        self.leave_the_rest();
    }

    /// (tables kept open, their bytes, opens so far).
    pub(crate) fn usage(&self) -> (usize, u64, u64) {
        (
            self.kept.lock().len(),
            self.bytes.load(Ordering::Relaxed),
            self.opens.get(),
        )
    }
}

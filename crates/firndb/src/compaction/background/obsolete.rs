//! Obsolete files, blocks and memtables, which no new reader can reach. They are removed after
//! their last reader.
//!
//! 1. A file is removed when no reader can ask for it: none holds the state that has the file, or
//!    an earlier one in which the file was shorter. Until then a reader may open it by its name at
//!    any time.
//! 2. Tables may be removed together, some time later (BlockDB, IV-C). A crash in between leaves
//!    files that nothing names, which an open removes.
//! 3. The memory of a flushed memtable is kept for the next one, or prepared ahead of it.

use super::TICK_NS;
use crate::compaction::pm_store::PmStore;
use crate::engine::Engine;
use crate::event::Event;
use crate::files::FileName;
use crate::manifest::TableMeta;
use crate::mechanisms;
use crate::memtable::Memtable;
use crate::read::pm_space::PmSpace;
use crate::read::table::Table;
use crate::read::table_run::TableRun;
use firn_base::FileId;
use firn_base::sync::Mutex;
use firn_table::if_tree::IfTree;
use std::collections::HashSet;
use std::sync::Arc;

/// The number of ticks without a write after which the memory of a spare memtable, or of the unused
/// part of the active one, is the block cache's. Writers that pause for less find it where it was.
pub(super) const IDLE_TICKS: u64 = 3;

#[derive(Default)]
pub(super) struct ObsoleteFiles {
    dead: Mutex<Vec<Obsolete>>,
    /// Tables that no reader holds, until they are removed together.
    obsolete: Mutex<Vec<Arc<TableMeta>>>,
    /// A memtable whose memory the next one takes.
    spare: Mutex<Option<Spare>>,
    seen: Mutex<Seen>,
}

/// The active memtable's log and its used bytes, and the tick at which they were first seen.
#[derive(Default)]
struct Seen {
    log_id: FileId,
    used_bytes: usize,
    tick: u64,
}

/// An item that no new reader can reach, kept until the last reader releases it.
pub(crate) enum Obsolete {
    Table(Arc<TableRun>),
    /// The persistent memory of a table that no state has.
    Space(PmSpace),
    /// Blocks that the next state of a table does not have.
    Blocks(Arc<TableRun>, Arc<[usize]>),
    Memtable(Arc<Memtable>),
    Log(FileId),
    /// A tree over blocks that the next state does not have.
    Tree(Arc<IfTree>),
}

/// An unused memtable, and the tick at which it became unused.
struct Spare {
    buffer: Memtable,
    tick: u64,
}

impl Obsolete {
    /// A table that left the state.
    pub(crate) fn of(run: &Arc<TableRun>) -> Obsolete {
        if let Some(space) = run.space() {
            space.count_dead();
        }
        Obsolete::Table(run.clone())
    }

    fn is_free(&self) -> bool {
        match self {
            Obsolete::Table(run) | Obsolete::Blocks(run, _) => Arc::strong_count(run) == 1,
            Obsolete::Space(space) => space.is_last(),
            Obsolete::Memtable(buffer) => Arc::strong_count(buffer) == 1,
            Obsolete::Tree(tree) => Arc::strong_count(tree) == 1,
            Obsolete::Log(_) => true,
        }
    }
}

impl ObsoleteFiles {
    /// True if a reader holds persistent memory that no state has.
    fn holds_memory(&self) -> bool {
        self.dead.lock().iter().any(|dead| match dead {
            Obsolete::Table(run) => !run.meta.is_file(),
            Obsolete::Space(_) | Obsolete::Tree(_) => true,
            Obsolete::Memtable(memtable) => memtable.pm_buffer().is_some(),
            Obsolete::Blocks(..) | Obsolete::Log(_) => false,
        })
    }

    /// Removes and returns the items that no reader holds.
    fn take_free(&self) -> Vec<Obsolete> {
        let mut dead = self.dead.lock();
        let shorter = |dead: &Obsolete| match dead {
            Obsolete::Blocks(run, _) if !dead.is_free() => Some(run.meta.id),
            _ => None,
        };
        let read_shorter: HashSet<FileId> = dead.iter().filter_map(shorter).collect();
        let (ready, kept) = dead.drain(..).partition(|dead| {
            let is_read =
                matches!(dead, Obsolete::Table(run) if read_shorter.contains(&run.meta.id));
            dead.is_free() && !is_read
        });
        *dead = kept;
        ready
    }
}

impl Engine {
    /// Adds items that no new reader can reach.
    pub(crate) fn retire(&self, dead: impl IntoIterator<Item = Obsolete>) {
        let mut has_large_buffer = false;
        let dead = dead.into_iter().inspect(|dead| {
            has_large_buffer |=
                matches!(dead, Obsolete::Memtable(buffer) if !self.is_usual(buffer));
        });
        self.jobs.obsolete.dead.lock().extend(dead);
        if has_large_buffer {
            // A cursor would keep it, in addition to its current value.
            self.revoke_all_cursors();
        }
    }

    /// Adds memtables that no new reader can reach.
    pub(crate) fn retire_memtables(&self, memtables: impl IntoIterator<Item = Arc<Memtable>>) {
        self.retire(memtables.into_iter().map(Obsolete::Memtable));
    }

    /// False for a memtable that was created for a large batch.
    fn is_usual(&self, buffer: &Memtable) -> bool {
        buffer.pm_buffer().is_some() || buffer.capacity_bytes() < 2 * self.budget.write_buffer_bytes
    }

    /// Removes the items that the last reader has released. Tables are removed only when there are
    /// many, unless `all` is true. Returns true if there were any items.
    pub(crate) fn remove_obsolete(&self, all: bool) -> bool {
        self.release_trees();
        let mut ready = self.jobs.obsolete.take_free();
        let store = self.compaction.pm.as_ref();
        if store.is_some_and(PmStore::is_short) && self.jobs.obsolete.holds_memory() {
            // Otherwise a cursor that keeps moving would hold the tables that it began with.
            self.revoke_all_cursors();
            ready.extend(self.jobs.obsolete.take_free());
        }
        let any = !ready.is_empty();
        for dead in ready {
            match dead {
                Obsolete::Table(run) if !run.meta.is_file() => {
                    match Arc::try_unwrap(run).map(TableRun::into_space) {
                        Ok(space) => space
                            .into_iter()
                            .for_each(|space| self.release_space(space)),
                        // The cache of open tables looks at it right now.
                        Err(run) => self.retire([Obsolete::Table(run)]),
                    }
                }
                Obsolete::Space(space) => self.release_space(space),
                Obsolete::Tree(tree) => self.release_tree(tree),
                Obsolete::Table(run) => {
                    self.forget_blocks(&run, None);
                    self.jobs.obsolete.obsolete.lock().push(run.meta.clone());
                }
                Obsolete::Blocks(run, blocks) => self.forget_blocks(&run, Some(&blocks)),
                Obsolete::Log(id) => {
                    // The file goes first, because read-only handles tell by its name whether the
                    // extent is still the log's.
                    if self.remove_file(FileName::Log(id), id) {
                        self.free_log(id);
                    }
                }
                Obsolete::Memtable(buffer) if buffer.pm_buffer().is_some() => {
                    self.release_part_buffer(buffer);
                }
                Obsolete::Memtable(buffer) => {
                    let tick = self.clock.now_ns() / TICK_NS;
                    let freed = Arc::into_inner(buffer).map(|buffer| Spare { buffer, tick });
                    let unwanted = match freed {
                        Some(freed) if self.is_usual(&freed.buffer) => {
                            self.jobs.obsolete.spare.lock().replace(freed)
                        }
                        other => other,
                    };
                    self.drop_spare(unwanted);
                }
            }
        }
        if any {
            self.tables.sweep();
        }
        any | self.remove_tables(all)
    }

    /// Removes the tables that no reader holds, together: at once if `all` is true, else once there
    /// are many.
    fn remove_tables(&self, all: bool) -> bool {
        let tables = {
            let mut obsolete = self.jobs.obsolete.obsolete.lock();
            let bytes: u64 = obsolete.iter().map(|meta| meta.bytes()).sum();
            let lazy = self.compaction.appends.as_ref();
            if !all && lazy.is_some_and(|tuning| bytes < tuning.lazy_delete_bytes) {
                return false;
            }
            std::mem::take(&mut *obsolete)
        };
        if tables.is_empty() {
            return false;
        }
        for meta in &tables {
            self.remove_file(FileName::Table(meta.id), meta.id);
        }
        self.counts.jobs.removals.add(1);
        self.counts.jobs.removed.add(tables.len() as u64);
        true
    }

    /// Frees the persistent memory of a table, unless a cursor is still in it.
    fn release_space(&self, space: PmSpace) {
        if space.list().is_some() && space.is_last() && !mechanisms::TLSM_FREE.is_on() {
            return;
        }
        match space.release() {
            Ok(Ok(())) => {}
            // The next open frees it.
            Ok(Err(error)) => {
                tracing::warn!(%error, "the space of an obsolete table stays taken");
            }
            Err(held) => self.retire([Obsolete::Space(held)]),
        }
    }

    /// Frees the persistent memory of a memtable.
    fn release_part_buffer(&self, memtable: Arc<Memtable>) {
        match (self.buffers(), Arc::try_unwrap(memtable)) {
            (Some(store), Ok(memtable)) => store.release(memtable, &self.tables),
            (_, Ok(_)) => {}
            (_, Err(held)) => self.retire([Obsolete::Memtable(held)]),
        }
    }

    /// Frees the persistent memory of a tree over blocks.
    fn release_tree(&self, tree: Arc<IfTree>) {
        match (&self.compaction.pm, Arc::try_unwrap(tree)) {
            (Some(PmStore::Trees(store)), Ok(tree)) => store.release(tree),
            (_, Ok(_)) => {}
            (_, Err(held)) => self.retire([Obsolete::Tree(held)]),
        }
    }

    /// Frees the persistent memory of a removed log.
    fn free_log(&self, id: FileId) {
        let placed = self.logs.values.as_ref().and_then(|values| values.placed());
        if let Err(error) = placed.map_or(Ok(()), |placed| placed.remove(id)) {
            // The next open frees it.
            tracing::warn!(%error, "the room of an obsolete log stays taken");
        }
    }

    /// Removes a file. Returns true if it is gone.
    fn remove_file(&self, name: FileName, id: FileId) -> bool {
        match self.files.remove(name) {
            Ok(()) => self.emit(&Event::FileRemoved { file_id: id }),
            // The next open removes it.
            Err(error) => {
                tracing::warn!(%error, "an obsolete file stays");
                return false;
            }
        }
        true
    }

    /// Drops blocks of a table that no state has any more from the cache.
    fn forget_blocks(&self, run: &TableRun, blocks: Option<&[usize]>) {
        // If no reader has the table open, few of its blocks can be cached, and their offsets are
        // not known.
        let Some(Table::Sst(table)) = run.held() else {
            return;
        };
        let dropped = match blocks.filter(|_| mechanisms::BLOCK_CACHED.is_on()) {
            Some(blocks) => table.forget(blocks.iter().copied()),
            None => table.forget(0..table.blocks()),
        };
        self.counts.jobs.invalidated.add(dropped);
    }

    /// A memtable of at least `capacity` bytes for the entries of log `log_id`.
    pub(crate) fn fresh_buffer(&self, capacity: usize, log_id: FileId) -> Memtable {
        let fits = |spare: &mut Spare| {
            let bytes = spare.buffer.capacity_bytes() - Memtable::EMPTY_BYTES;
            // A memtable that was created for a huge batch is not reused.
            (capacity..capacity + capacity / 8 + 64).contains(&bytes)
        };
        match self.jobs.obsolete.spare.lock().take_if(fits) {
            Some(spare) => spare.buffer.recycle(log_id),
            None => {
                let buffer = Memtable::unclaimed(capacity, log_id);
                self.tables.claim(buffer.dram_bytes() as u64);
                buffer
            }
        }
    }

    /// Gives the memory that writes left idle to the block cache: a spare memtable, what the active
    /// one has not used, and that of background jobs.
    pub(crate) fn lend_idle_memory(&self, tick: u64) {
        self.tables.lend_job_memory(IDLE_TICKS);
        if self.has_part_buffers() {
            return;
        }
        let is_idle = |since: u64| tick > since + IDLE_TICKS;
        let spare = self
            .jobs
            .obsolete
            .spare
            .lock()
            .take_if(|spare| is_idle(spare.tick));
        self.drop_spare(spare);
        let active = self.active();
        let at = (active.log_id, active.used_bytes());
        let mut seen = self.jobs.obsolete.seen.lock();
        if (seen.log_id, seen.used_bytes) != at {
            let (log_id, used_bytes) = at;
            *seen = Seen {
                log_id,
                used_bytes,
                tick,
            };
        } else if is_idle(seen.tick) {
            drop(seen);
            match active.give_back() {
                0 => {}
                bytes => self.tables.drop_buffer(bytes as u64),
            }
        }
    }

    /// Drops an unneeded memtable and returns its memory to the block cache.
    fn drop_spare(&self, spare: Option<Spare>) {
        let Some(spare) = spare else { return };
        let bytes = spare.buffer.dram_bytes() as u64;
        drop(spare);
        self.tables.drop_buffer(bytes);
    }
}

//! What no new reader can reach, until it is cleaned up behind the last old one.
//!
//! 1. A file goes when nobody can ask for it any more: no reader holds the state that has it, or an earlier one in
//!    which the file was shorter. A reader may open it by its name again at any time.
//! 2. Tables may be removed together, a while later (BlockDB, IV-C). A crash in between leaves files that nothing
//!    names, which open removes.
//! 3. A flushed buffer's memory is kept for the next one, or made ready ahead of it.

use super::TICK_NS;
use crate::engine::Engine;
use crate::event::Event;
use crate::files::FileName;
use crate::manifest::TableMeta;
use crate::mechanisms;
use crate::memtable::Memtable;
use crate::read::run::SstRun;
use firn_base::sync::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// A spare buffer is let go after so many ticks.
const SPARE_TICKS: u64 = 1;
/// A spare buffer is wanted once the active one will be full in so many ticks,
const FULL_TICKS: usize = 4;
/// or in so many, if one is being flushed or was: it is the spare one as soon as nobody reads it. A third would take
/// its memory from the block cache, and leave it empty there a moment later.
const FULL_TICKS_FLUSHING: usize = 1;

#[derive(Default)]
pub(super) struct ObsoleteFiles {
    dead: Mutex<Vec<Obsolete>>,
    /// Tables that nobody reads any more, until they are removed together.
    obsolete: Mutex<Vec<Arc<TableMeta>>>,
    /// A buffer whose memory the next one takes.
    pub(super) spare: Mutex<Option<Spare>>,
    /// The active buffer's log and how much of it was used at the last tick.
    seen: Mutex<(u64, usize)>,
}

/// What no new reader can reach, kept until the last old one has gone.
pub(crate) enum Obsolete {
    Table(Arc<SstRun>),
    /// Blocks that the next state of a table does not have.
    Blocks(Arc<SstRun>, Arc<[usize]>),
    Memtable(Arc<Memtable>),
    Log(u64),
}

/// A buffer that nothing uses, and when it came to that.
pub(super) struct Spare {
    buffer: Memtable,
    tick: u64,
}

impl Obsolete {
    fn is_free(&self) -> bool {
        match self {
            Obsolete::Table(run) | Obsolete::Blocks(run, _) => Arc::strong_count(run) == 1,
            Obsolete::Memtable(buffer) => Arc::strong_count(buffer) == 1,
            Obsolete::Log(_) => true,
        }
    }
}

impl ObsoleteFiles {
    fn has_buffer(&self) -> bool {
        self.dead.lock().iter().any(|dead| matches!(dead, Obsolete::Memtable(_)))
    }

    /// Takes out what nobody holds.
    fn take_free(&self) -> Vec<Obsolete> {
        let mut dead = self.dead.lock();
        let shorter = |dead: &Obsolete| match dead {
            Obsolete::Blocks(run, _) if !dead.is_free() => Some(run.meta.id),
            _ => None,
        };
        let read_shorter: HashSet<u64> = dead.iter().filter_map(shorter).collect();
        let (ready, kept) = dead.drain(..).partition(|dead| {
            let is_read = matches!(dead, Obsolete::Table(run) if read_shorter.contains(&run.meta.id));
            dead.is_free() && !is_read
        });
        *dead = kept;
        ready
    }
}

impl Engine {
    /// Hands over what no new reader can reach.
    pub(crate) fn retire(&self, dead: impl IntoIterator<Item = Obsolete>) {
        let mut has_large_buffer = false;
        let dead = dead.into_iter().inspect(|dead| {
            has_large_buffer |= matches!(dead, Obsolete::Memtable(buffer) if !self.is_usual(buffer));
        });
        self.jobs.obsolete.dead.lock().extend(dead);
        if has_large_buffer {
            // A cursor would keep it, beside the value that it is on.
            self.revoke_all_cursors();
        }
    }

    /// False for a write buffer that was made for a large batch.
    fn is_usual(&self, buffer: &Memtable) -> bool {
        buffer.capacity_bytes() < 2 * self.budget.write_buffer_bytes
    }

    /// Removes what the last reader has let go of; tables only when they are many, unless `all` are to go. True if
    /// there was any.
    pub(crate) fn remove_obsolete(&self, all: bool) -> bool {
        self.release_trees(0);
        let ready = self.jobs.obsolete.take_free();
        let any = !ready.is_empty();
        for dead in ready {
            match dead {
                Obsolete::Table(run) => {
                    self.forget_blocks(&run, None);
                    self.jobs.obsolete.obsolete.lock().push(run.meta.clone());
                }
                Obsolete::Blocks(run, blocks) => self.forget_blocks(&run, Some(&blocks)),
                Obsolete::Log(id) => {
                    // Who reads only tells by the name whether the extent still is the log's.
                    if self.remove_file(FileName::Log(id), id) {
                        self.free_log(id);
                    }
                }
                Obsolete::Memtable(buffer) => {
                    let tick = self.clock.now_ns() / TICK_NS;
                    let freed = Arc::into_inner(buffer).map(|buffer| Spare { buffer, tick });
                    let unwanted = match freed {
                        Some(freed) if self.is_usual(&freed.buffer) => self.jobs.obsolete.spare.lock().replace(freed),
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

    /// Removes the tables that nobody reads any more, together: all at once if asked to, otherwise once they are many.
    fn remove_tables(&self, all: bool) -> bool {
        let tables = {
            let mut obsolete = self.jobs.obsolete.obsolete.lock();
            let bytes: u64 = obsolete.iter().map(|meta| meta.bytes()).sum();
            let lazy = self.compaction.appends.as_ref().filter(|_| mechanisms::BLOCK_LAZY.is_on());
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

    /// Gives back what a log that is gone had of persistent memory.
    fn free_log(&self, id: u64) {
        let placed = self.logs.values.as_ref().and_then(|values| values.placed());
        if let Err(error) = placed.map_or(Ok(()), |placed| placed.remove(id)) {
            // The next open gives it back.
            tracing::warn!(%error, "the room of an obsolete log stays taken");
        }
    }

    /// Whether it is gone.
    fn remove_file(&self, name: FileName, id: u64) -> bool {
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

    /// Drops blocks of a table from the cache that no state has any more.
    fn forget_blocks(&self, run: &SstRun, blocks: Option<&[usize]>) {
        // If nobody has it open, few of its blocks can be cached, and nobody knows where they lie.
        let Some(table) = run.held() else { return };
        let dropped = match blocks.filter(|_| mechanisms::BLOCK_CACHED.is_on()) {
            Some(blocks) => table.forget(blocks.iter().copied()),
            None => table.forget(0..table.blocks()),
        };
        self.counts.jobs.invalidated.add(dropped);
    }

    /// A buffer of at least `capacity` bytes for the entries of log `log_id`.
    pub(crate) fn fresh_buffer(&self, capacity: usize, log_id: u64) -> Memtable {
        let fits = |spare: &mut Spare| {
            let bytes = spare.buffer.capacity_bytes() - Memtable::EMPTY_BYTES;
            // One that was made for a huge batch is not kept.
            (capacity..capacity + capacity / 8 + 64).contains(&bytes)
        };
        match self.jobs.obsolete.spare.lock().take_if(fits) {
            Some(spare) => spare.buffer.recycle(log_id),
            None => self.new_buffer(capacity, log_id),
        }
    }

    fn new_buffer(&self, capacity: usize, log_id: u64) -> Memtable {
        // The block cache makes room first: what is asked for, then what it comes to.
        self.tables.add_buffer(capacity as u64);
        let buffer = Memtable::new(capacity, log_id);
        self.tables.add_buffer((buffer.capacity_bytes() - capacity) as u64);
        buffer
    }

    /// Has a spare buffer ready shortly before the active one is full, so that no writer waits until the block cache
    /// made room for one; lets go of one that nobody will want soon.
    pub(super) fn tend_spare(&self, tick: u64) {
        let state = self.state.load();
        let buffers = &state.parts[0].buffers;
        let (active, used) = (&buffers[0], buffers[0].used_bytes());
        let (log_id, before) = std::mem::replace(&mut *self.jobs.obsolete.seen.lock(), (active.log_id, used));
        let grown = used - if log_id == active.log_id { before } else { 0 };
        let comes_back = buffers.len() > 1 || self.jobs.obsolete.has_buffer();
        let ticks = if comes_back { FULL_TICKS_FLUSHING } else { FULL_TICKS };
        // Who filled one that was made for a huge batch does not want the next one to be as usual.
        let is_near = self.is_usual(active) && used + ticks * grown >= active.capacity_bytes();
        let let_go = match is_near {
            true => self.make_spare(tick),
            false => self.jobs.obsolete.spare.lock().take_if(|spare| tick > spare.tick + SPARE_TICKS),
        };
        self.drop_spare(let_go);
    }

    /// Makes a spare buffer if there is none and there may be one more buffer. Returns one that came meanwhile.
    fn make_spare(&self, tick: u64) -> Option<Spare> {
        if self.jobs.obsolete.spare.lock().is_some() || !self.may_add_buffer(0) {
            return None;
        }
        let mut buffer = self.new_buffer(self.budget.write_buffer_bytes, 0);
        buffer.touch();
        self.jobs.obsolete.spare.lock().replace(Spare { buffer, tick })
    }

    /// The block cache has the memory of a buffer that nobody needs.
    fn drop_spare(&self, spare: Option<Spare>) {
        let Some(spare) = spare else { return };
        let bytes = spare.buffer.capacity_bytes() as u64;
        drop(spare);
        self.tables.drop_buffer(bytes);
    }
}

//! Group commit: the order of all writes.
//!
//! A write proceeds in these steps: reserve and fill space in the active memtable (any number of
//! writers at once) -> join the open group, which assigns its sequence numbers -> the group's first
//! member leads: it appends the group to the journal, links its entries and raises `visible` -> all
//! members return.
//!
//! 1. Joining is under one lock, and so is freezing, so sequence numbers, group order and memtable
//!    order agree: of the entries of a key, one in a newer memtable has a higher number than any in
//!    an older one. A write with a reservation in a memtable that was frozen meanwhile is rejected.
//! 2. No group goes on over a freeze, so where all keys share a memtable, a group belongs to one,
//!    and so to one log. Groups take turns at the journal, and
//!    again
//!    at publication, in the order of their numbers. The frame of one group is written while the
//!    entries of the previous one are linked.
//! 3. `visible` is raised only after the frame is durable as promised, and in order, so a reader
//!    sees a prefix of all writes.
//! 4. A group that failed is not linked anywhere. Its numbers stay unused.
//! 5. Before `visible` is raised, the group's puts end the gaps that they fall into (`gaps.rs`).
//!
//! Locks, in order: queue, then none; turn (journal), then manifest. The queue's lock is never held
//! during I/O.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use crate::gate::was_closed;
use crate::log::LogWriter;
use crate::memtable::{Entry, Footprint, Memtable, Reservation};
use crate::read::gaps::{Gap, Gaps, Watch};
use crate::write::journal::Journal;
use firn_base::exec::relax;
use firn_base::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use firn_base::{Error, FileId, Result, SeqNo};
use std::sync::Arc;

/// The number of times a waiter checks again, yielding its time slice, before it sleeps. A frame
/// takes microseconds, and so does waking a thread, and the thread that gets the time slice may
/// join the next group.
const SPIN_ROUNDS: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// The queue of writes, the journal and the publication of groups.
pub(crate) struct Commit {
    queue: Mutex<Queue>,
    journal: Turnstile<Option<Journal>>,
    publish: Turnstile<Watch>,
    pub(crate) visible: Arc<AtomicU64>,
    /// Key ranges without a live key.
    pub(crate) gaps: Gaps,
    /// A seed for the heights of entries, incremented for each batch.
    heights: AtomicU64,
    group_bytes_max: usize,
}

/// The state under the queue's lock.
pub(crate) struct Queue {
    pub(crate) next_seqno: u64,
    open: Option<Arc<Group>>,
    groups: u64,
    is_closed: bool,
}

/// The writes that share one frame.
pub(crate) struct Group {
    number: u64,
    pub(crate) log_id: FileId,
    first_seqno: SeqNo,
    /// Changed under the queue's lock until the group is closed; owned by the leader after that.
    members: Mutex<Members>,
    done: AtomicBool,
    result: Mutex<Option<Result<()>>>,
    finished: Condvar,
}

#[derive(Default)]
pub(crate) struct Members {
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) power: bool,
    bytes: usize,
    entries: u64,
}

/// A write whose entries are in their memtables, and not linked.
#[derive(Debug)]
pub(crate) struct Reserved {
    first: Reservation,
    /// The rest, in the memtables of other partitions.
    more: Vec<Reservation>,
}

impl Reserved {
    /// `reservation` too.
    pub(crate) fn and(mut self, reservation: Reservation) -> Reserved {
        self.more.push(reservation);
        self
    }
}

impl From<Reservation> for Reserved {
    fn from(first: Reservation) -> Reserved {
        let more = Vec::new();
        Reserved { first, more }
    }
}

/// The role of a write in its group.
pub(crate) enum GroupRole {
    /// The first write of the group, which leads it.
    Leader(Arc<Group>),
    /// Any other write, which waits for the leader.
    Follower(Arc<Group>),
}

/// A group that was led to its end.
pub(crate) struct Led {
    pub(crate) result: Result<()>,
    /// True if one of its memtables was frozen meanwhile.
    pub(crate) froze: bool,
}

/// A lock that is acquired in the order of numbers.
struct Turnstile<T> {
    state: Mutex<(u64, T)>,
    /// The number whose turn it is, readable without the lock.
    turn: AtomicU64,
    moved: Condvar,
}

impl<T> Turnstile<T> {
    fn new(value: T) -> Self {
        Self {
            state: Mutex::new((0, value)),
            turn: AtomicU64::new(0),
            moved: Condvar::new(),
        }
    }

    fn wait(&self, number: u64) -> MutexGuard<'_, (u64, T)> {
        for round in 0..SPIN_ROUNDS {
            if self.turn.load(Ordering::Acquire) == number {
                break;
            }
            relax(round);
        }
        let mut state = self.state.lock();
        while state.0 != number {
            self.moved.wait(&mut state);
        }
        state
    }

    fn leave(&self, mut state: MutexGuard<'_, (u64, T)>) {
        state.0 += 1;
        self.turn.store(state.0, Ordering::Release);
        drop(state);
        self.moved.notify_all();
    }
}

impl Commit {
    pub(crate) fn new(journal: Option<Journal>, last: SeqNo, group_bytes_max: usize) -> Commit {
        Commit {
            queue: Mutex::new(Queue {
                next_seqno: last.0 + 1,
                open: None,
                groups: 0,
                is_closed: false,
            }),
            journal: Turnstile::new(journal),
            publish: Turnstile::new(Watch::default()),
            gaps: Gaps::default(),
            visible: Arc::new(AtomicU64::new(last.0)),
            heights: AtomicU64::new(0),
            group_bytes_max,
        }
    }

    /// The last sequence number that readers may see.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        SeqNo(self.visible.load(Ordering::Acquire))
    }

    /// The space that `entries` will take, at random heights.
    #[inline]
    pub(crate) fn footprint<'a>(&self, entries: impl Iterator<Item = Entry<'a>>) -> Footprint {
        Footprint::of(entries, self.heights.fetch_add(1, Ordering::Relaxed))
    }

    /// Locks the queue, to freeze a memtable.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Runs `body` on the journal, between two groups.
    pub(crate) fn with_journal(&self, body: impl FnOnce(&mut Journal) -> Result<()>) -> Result<()> {
        self.journal.state.lock().1.as_mut().map_or(Ok(()), body)
    }

    /// As [`Commit::with_journal`], if the journal is a log.
    pub(crate) fn with_log(&self, body: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        self.with_journal(|journal| journal.log().map_or(Ok(()), body))
    }

    /// Takes a cursor's report of a range of deleted keys.
    pub(crate) fn report(&self, walked: Gap) {
        let mut turn = self.publish.state.lock();
        self.gaps.report(&mut turn.1, walked, self.visible());
    }

    /// Rejects all later joins and waits until every group has finished.
    pub(crate) fn close(&self) {
        let groups = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            queue.groups
        };
        drop(self.publish.wait(groups));
    }

    /// Adds a filled write to the open group, or opens one. `None` if one of its memtables was
    /// frozen meanwhile; the caller must reserve again.
    ///
    /// # Errors
    /// `Invalid` once the database is closed.
    pub(crate) fn join(&self, reserved: Reserved, power: bool) -> Result<Option<GroupRole>> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(was_closed());
        }
        let Reserved { first, more } = reserved;
        let mut all = std::iter::once(&first).chain(&more);
        if all.any(|reservation| reservation.buffer.frozen_at().is_some()) {
            return Ok(None);
        }
        let open = queue.open.clone();
        let (group, leads) = match open {
            Some(group) => (group, false),
            None => (queue.open_group(first.buffer.log_id), true),
        };
        let mut members = group.members.lock();
        for reservation in std::iter::once(first).chain(more) {
            queue.next_seqno += reservation.count;
            members.entries += reservation.count;
            members.bytes += reservation.bytes();
            members.reservations.push(reservation);
        }
        members.power |= power;
        if members.bytes >= self.group_bytes_max {
            queue.open = None;
        }
        drop(members);
        Ok(Some(if leads {
            GroupRole::Leader(group)
        } else {
            GroupRole::Follower(group)
        }))
    }

    /// Leads `group` to its end: `write` appends it to the journal, in the order of the groups; its
    /// entries are linked; and it is published, again in order.
    pub(crate) fn lead(
        &self,
        group: &Group,
        write: impl FnOnce(&mut Journal, &Group, &mut Members) -> Result<()>,
    ) -> Led {
        let mut turn = self.journal.wait(group.number);
        let mut members = self.close_group(group);
        let result = match &mut turn.1 {
            Some(journal) => {
                write(journal, group, &mut members).inspect_err(|error| journal.failed(error))
            }
            None => Err(Error::invalid("the database was opened read-only")),
        };
        self.journal.leave(turn);
        let mut seqno = group.first_seqno;
        if result.is_ok() {
            for reservation in &members.reservations {
                reservation.link(seqno);
                seqno.0 += reservation.count;
            }
        }
        let mut turn = self.publish.wait(group.number);
        if !turn.1.is_empty() {
            let puts = members
                .reservations
                .iter()
                .flat_map(|reservation| reservation.puts());
            puts.for_each(|key| self.gaps.put(&mut turn.1, key));
        }
        self.visible
            .store(group.first_seqno.0 + members.entries - 1, Ordering::Release);
        self.publish.leave(turn);
        group.finish(result.clone());
        let mut reservations = members.reservations.iter();
        let froze = reservations.any(|reservation| reservation.buffer.frozen_at().is_some());
        Led { result, froze }
    }

    /// Closes the group to new members and returns its members.
    fn close_group(&self, group: &Group) -> Members {
        let mut queue = self.queue.lock();
        if queue
            .open
            .as_ref()
            .is_some_and(|open| open.number == group.number)
        {
            queue.open = None;
        }
        std::mem::take(&mut *group.members.lock())
    }
}

impl Queue {
    fn open_group(&mut self, log_id: FileId) -> Arc<Group> {
        let group = Arc::new(Group {
            number: self.groups,
            log_id,
            first_seqno: SeqNo(self.next_seqno),
            members: Mutex::default(),
            done: AtomicBool::new(false),
            result: Mutex::new(None),
            finished: Condvar::new(),
        });
        self.groups += 1;
        self.open = Some(group.clone());
        group
    }

    /// Freezes `full`, after which no write in it joins a group.
    pub(crate) fn freeze(&mut self, full: &Memtable) {
        self.open = None;
        full.freeze(SeqNo(self.next_seqno - 1));
    }
}

impl Group {
    /// The sequence number of the group's first entry.
    pub(crate) fn first_seqno(&self) -> SeqNo {
        self.first_seqno
    }

    fn finish(&self, result: Result<()>) {
        let mut slot = self.result.lock();
        *slot = Some(result);
        self.done.store(true, Ordering::Release);
        drop(slot);
        self.finished.notify_all();
    }

    /// Waits until the leader has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        for round in 0..SPIN_ROUNDS {
            if self.done.load(Ordering::Acquire) {
                break;
            }
            relax(round);
        }
        let mut result = self.result.lock();
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            self.finished.wait(&mut result);
        }
    }
}

//! Group commit: the order of all writes.
//!
//! A write proceeds in these steps: reserve and fill space in the active memtable (any number of
//! writers at once) -> join the open group, which assigns its sequence numbers -> wait for the
//! group. Whoever waits while nobody leads takes the next group and leads it: it appends the group
//! to the journal, links its entries and raises `visible`.
//!
//! 1. Joining is under one lock, and so is freezing, so sequence numbers, group order and memtable
//!    order agree: of the entries of a key, one in a newer memtable has a higher number than any in
//!    an older one. A write with a reservation in a memtable that was frozen meanwhile is rejected.
//! 2. No group goes on over a freeze, so where all keys share a memtable, a group belongs to one,
//!    and so to one log. Groups are taken in the order of their numbers, by one leader at a time,
//!    so they are in that order in the journal. The frame of one group is written while the entries
//!    of the previous one are linked.
//! 3. `visible` is raised only after the frame is durable as promised, and in order, so a reader
//!    sees a prefix of all writes.
//! 4. A group that failed is not linked anywhere. Its numbers stay unused.
//! 5. Before `visible` is raised, the group's puts end the gaps that they fall into (`gaps.rs`).
//! 6. Nobody waits for a particular thread, except one that is at work. With more writers than
//!    cores most of them are not running at any time. If the first member had to lead its group, or
//!    if a group's leader had to publish it, the writers that run would wait in each step for one
//!    that does not. So any waiter may lead the next group, and a group whose turn to be published
//!    has not come is left to the thread that publishes the one before it.
//!
//! Locks, in order: queue, then none; journal, then manifest; publication, then gaps; a group's
//! error, then none. The queue's lock is never held during I/O.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use crate::gate::was_closed;
use crate::log::LogWriter;
use crate::memtable::{Entry, Footprint, Memtable, Reservation};
use crate::read::gaps::{Gap, Gaps, Watch};
use crate::write::journal::Journal;
use firn_base::exec::relax;
use firn_base::sync::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering,
};
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The number of times a waiter checks again, yielding its time slice, before it sleeps. A frame
/// takes microseconds, and so does waking a thread, and the thread that gets the time slice may
/// join the next group.
const SPIN_ROUNDS: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// The queue of writes, the journal and the publication of groups.
pub(crate) struct Commit {
    queue: Mutex<Queue>,
    /// The number of groups that somebody has taken to lead. Set under the queue's lock.
    taken: AtomicU64,
    /// True while a leader is at the journal. Set under the queue's lock, cleared by the leader.
    is_led: AtomicBool,
    /// The number of threads that sleep until they are called, or are about to.
    sleepers: AtomicUsize,
    journal: Mutex<Option<Journal>>,
    publication: Mutex<Publication>,
    /// Notified after groups were published.
    published: Condvar,
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
    /// The groups that nobody has led yet, in order.
    waiting: VecDeque<Waiting>,
    /// True if the last of them takes members.
    is_open: bool,
    groups: u64,
    is_closed: bool,
}

/// A group that nobody has led yet.
pub(crate) struct Waiting {
    group: Arc<Group>,
    members: Members,
}

/// The writes that share one frame.
pub(crate) struct Group {
    number: u64,
    pub(crate) log_id: FileId,
    first_seqno: SeqNo,
    /// One of the states below.
    state: AtomicU8,
    /// The error of a group that failed. Held while the state changes.
    error: Mutex<Option<Error>>,
    /// Notified when the group has finished, and when a member may lead.
    called: Condvar,
}

/// The states of a group.
const UNFINISHED: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

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

/// The work that is left once groups were published.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Aftermath {
    /// The journal had no space for one.
    pub(crate) no_space: bool,
    /// One of their memtables was frozen meanwhile.
    pub(crate) froze: bool,
}

/// The publication of groups in their order.
#[derive(Default)]
struct Publication {
    /// The number of groups that are published.
    published: u64,
    /// Groups that can be published once those before them are.
    ready: BTreeMap<u64, Linked>,
    watch: Watch,
}

/// A group whose entries are linked, or that failed.
struct Linked {
    group: Arc<Group>,
    members: Members,
    result: Result<()>,
}

impl Commit {
    pub(crate) fn new(journal: Option<Journal>, last: SeqNo, group_bytes_max: usize) -> Commit {
        Commit {
            queue: Mutex::new(Queue {
                next_seqno: last.0 + 1,
                waiting: VecDeque::new(),
                is_open: false,
                groups: 0,
                is_closed: false,
            }),
            taken: AtomicU64::new(0),
            is_led: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            journal: Mutex::new(journal),
            publication: Mutex::default(),
            published: Condvar::new(),
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
        self.journal.lock().as_mut().map_or(Ok(()), body)
    }

    /// As [`Commit::with_journal`], if the journal is a log.
    pub(crate) fn with_log(&self, body: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        self.with_journal(|journal| journal.log().map_or(Ok(()), body))
    }

    /// Takes a cursor's report of a range of deleted keys.
    pub(crate) fn report(&self, walked: Gap) {
        let mut publication = self.publication.lock();
        self.gaps
            .report(&mut publication.watch, walked, self.visible());
    }

    /// Rejects all later joins and waits until every group has finished.
    pub(crate) fn close(&self) {
        let groups = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            queue.groups
        };
        let mut publication = self.publication.lock();
        while publication.published < groups {
            self.published.wait(&mut publication);
        }
    }

    /// Adds a filled write to the open group, or opens one. `None` if one of its memtables was
    /// frozen meanwhile; the caller must reserve again. Otherwise it must [`Commit::wait`] for the
    /// group.
    ///
    /// # Errors
    /// `Invalid` once the database is closed.
    pub(crate) fn join(&self, reserved: Reserved, power: bool) -> Result<Option<Arc<Group>>> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(was_closed());
        }
        let Reserved { first, more } = reserved;
        let mut all = std::iter::once(&first).chain(&more);
        if all.any(|reservation| reservation.buffer.frozen_at().is_some()) {
            return Ok(None);
        }
        let Queue {
            next_seqno,
            waiting,
            is_open,
            groups,
            ..
        } = &mut *queue;
        if !*is_open {
            waiting.push_back(Waiting::new(*groups, first.buffer.log_id, *next_seqno));
            *groups += 1;
            *is_open = true;
        }
        let Some(Waiting { group, members }) = waiting.back_mut() else {
            unreachable!("a group is open");
        };
        for reservation in std::iter::once(first).chain(more) {
            *next_seqno += reservation.count;
            members.entries += reservation.count;
            members.bytes += reservation.bytes();
            members.reservations.push(reservation);
        }
        members.power |= power;
        *is_open = members.bytes < self.group_bytes_max;
        Ok(Some(group.clone()))
    }

    /// Waits until `group` has finished. Leads groups up to it while nobody else does: `write`
    /// appends one to the journal, and `behind` does what is left once groups are published.
    ///
    /// # Errors
    /// The error of `write` for this group.
    pub(crate) fn wait(
        &self,
        group: &Group,
        mut write: impl FnMut(&mut Journal, &Group, &mut Members) -> Result<()>,
        mut behind: impl FnMut(Aftermath),
    ) -> Result<()> {
        let mut round = 0;
        loop {
            if let Some(result) = group.result() {
                return result;
            }
            if let Some(next) = self.take_up_to(group) {
                behind(self.lead(next, &mut write));
            } else if round < SPIN_ROUNDS {
                relax(round);
                round += 1;
            } else {
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                group.sleep(|| self.may_lead(group));
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// True if nobody leads, and nobody has taken `group`. A member of a group that was taken leads
    /// no later one, because its own may finish before that.
    fn may_lead(&self, group: &Group) -> bool {
        !self.is_led.load(Ordering::SeqCst) && group.number >= self.taken.load(Ordering::SeqCst)
    }

    /// Takes the next group, which the caller then leads, if nobody else leads one and `group` was
    /// not taken.
    fn take_up_to(&self, group: &Group) -> Option<Waiting> {
        if !self.may_lead(group) {
            return None;
        }
        let mut queue = self.queue.lock();
        if !self.may_lead(group) {
            return None;
        }
        let next = queue.waiting.pop_front()?;
        queue.is_open &= !queue.waiting.is_empty();
        self.taken.store(next.group.number + 1, Ordering::SeqCst);
        self.is_led.store(true, Ordering::SeqCst);
        Some(next)
    }

    /// Leaves the journal to whoever leads the next group, and wakes one of its members if they
    /// sleep.
    fn leave(&self) {
        self.is_led.store(false, Ordering::SeqCst);
        // Who sleeps was counted before it looked whether it may lead.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let next = self.queue.lock();
            let next = next.waiting.front().map(|next| next.group.clone());
            next.iter().for_each(|group| group.call());
        }
    }

    /// Leads a group to its end: `write` appends it to the journal, in the order of the groups; its
    /// entries are linked; and it is published, again in order.
    fn lead(
        &self,
        next: Waiting,
        write: impl FnOnce(&mut Journal, &Group, &mut Members) -> Result<()>,
    ) -> Aftermath {
        let Waiting { group, mut members } = next;
        let result = match &mut *self.journal.lock() {
            Some(journal) => {
                write(journal, &group, &mut members).inspect_err(|error| journal.failed(error))
            }
            None => Err(Error::invalid("the database was opened read-only")),
        };
        self.leave();
        let mut seqno = group.first_seqno;
        if result.is_ok() {
            for reservation in &members.reservations {
                reservation.link(seqno);
                seqno.0 += reservation.count;
            }
        }
        self.publish(Linked {
            group,
            members,
            result,
        })
    }

    /// Publishes a group and those that wait for it, or leaves it to the thread that publishes the
    /// one before it.
    fn publish(&self, linked: Linked) -> Aftermath {
        let mut publication = self.publication.lock();
        if linked.group.number != publication.published {
            publication.ready.insert(linked.group.number, linked);
            return Aftermath::default();
        }
        self.raise(&mut publication, &linked);
        let mut more = Vec::new();
        while let Some(next) = publication.next_ready() {
            self.raise(&mut publication, &next);
            more.push(next);
        }
        drop(publication);
        self.published.notify_all();
        let mut aftermath = Aftermath::default();
        for Linked {
            group,
            members,
            result,
        } in std::iter::once(linked).chain(more)
        {
            let mut reservations = members.reservations.iter();
            aftermath.froze |= reservations.any(|entries| entries.buffer.frozen_at().is_some());
            aftermath.no_space |=
                matches!(&result, Err(error) if error.kind() == ErrorKind::NoSpace);
            group.finish(result);
        }
        aftermath
    }

    /// Makes a group visible, whose turn it is.
    fn raise(&self, publication: &mut Publication, linked: &Linked) {
        let Linked { group, members, .. } = linked;
        if !publication.watch.is_empty() {
            let reservations = members.reservations.iter();
            let puts = reservations.flat_map(|reservation| reservation.puts());
            puts.for_each(|key| self.gaps.put(&mut publication.watch, key));
        }
        self.visible
            .store(group.first_seqno.0 + members.entries - 1, Ordering::Release);
        publication.published += 1;
    }
}

impl Publication {
    /// The next group, if it can be published.
    fn next_ready(&mut self) -> Option<Linked> {
        self.ready.remove(&self.published)
    }
}

impl Queue {
    /// Freezes `full`, after which no write in it joins a group.
    pub(crate) fn freeze(&mut self, full: &Memtable) {
        self.is_open = false;
        full.freeze(SeqNo(self.next_seqno - 1));
    }
}

impl Waiting {
    fn new(number: u64, log_id: FileId, first_seqno: u64) -> Waiting {
        let group = Arc::new(Group {
            number,
            log_id,
            first_seqno: SeqNo(first_seqno),
            state: AtomicU8::new(UNFINISHED),
            error: Mutex::new(None),
            called: Condvar::new(),
        });
        let members = Members::default();
        Waiting { group, members }
    }
}

impl Group {
    /// The sequence number of the group's first entry.
    pub(crate) fn first_seqno(&self) -> SeqNo {
        self.first_seqno
    }

    /// The result, once the group has finished.
    fn result(&self) -> Option<Result<()>> {
        match self.state.load(Ordering::Acquire) {
            UNFINISHED => None,
            WRITTEN => Some(Ok(())),
            _ => self.error.lock().clone().map(Err),
        }
    }

    fn finish(&self, result: Result<()>) {
        let mut error = self.error.lock();
        let state = if result.is_ok() { WRITTEN } else { FAILED };
        *error = result.err();
        self.state.store(state, Ordering::Release);
        drop(error);
        self.called.notify_all();
    }

    /// Wakes a member that sleeps, to lead.
    fn call(&self) {
        // Who is about to sleep sees that it may lead, or is notified.
        drop(self.error.lock());
        self.called.notify_one();
    }

    /// Sleeps until the group has finished or `may_lead`.
    fn sleep(&self, may_lead: impl Fn() -> bool) {
        let mut error = self.error.lock();
        while self.state.load(Ordering::Acquire) == UNFINISHED && !may_lead() {
            self.called.wait(&mut error);
        }
    }
}

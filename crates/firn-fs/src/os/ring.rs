//! Operations in flight over io_uring. A thread borrows a ring while it has something in flight, so
//! the lock of a ring is rarely contended, and there are never more than [`RINGS_MAX`]. A ticket
//! holds the ring it was submitted to, so it may be waited for on any thread.
//!
//! 1. A slot owns the buffer and keeps the file open from submission to completion. The kernel's
//!    pointer into the buffer's heap storage therefore stays valid however the `IoBuf` value moves.
//! 2. A slot is reused only after its completion was reaped. The slot of an abandoned operation is
//!    freed when it is reaped.
//! 3. A ring is dropped only when nothing is in flight: its destructor waits.
//! 4. Reads are queued and start with the first wait or when the queue is full; writes and syncs
//!    start at once.
//! 5. No failure of a ring fails an operation. An operation that the ring rejects, ends early or
//!    cancels is done by `pread` or `pwrite`, whose error is then the operation's own. A ring that
//!    failed is broken and accepts nothing more. Operations that the kernel has already taken still
//!    complete, which is visible in shared memory. Until then a write is not repeated, because the
//!    first one could land later, over newer bytes at its place. A sync that failed is not
//!    repeated either, because the system may have dropped the pages and would report success.
#![expect(
    unsafe_code,
    reason = "io_uring takes raw pointers; listed in UNSAFE.md"
)]

use super::direct::{Handle, Span};
use crate::buf::IoBuf;
use crate::file::{Completion, Pending};
use firn_base::clock::Clock;
use firn_base::count::CompactionIo;
use firn_base::{Error, ErrorKind, Result};
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The maximum number of operations in flight on one ring.
const DEPTH: u32 = 64;
/// The maximum number of rings in a process. Each takes a file handle and locked memory; threads
/// that get none use plain system calls.
pub(super) const RINGS_MAX: usize = 32;

#[derive(Clone, Copy)]
enum Op {
    Read(Span),
    Write { offset: u64 },
    Sync,
}

enum Slot {
    Free,
    InFlight {
        handle: Arc<Handle>,
        op: Op,
        buf: IoBuf,
        abandoned: bool,
        /// Dropped, and woken, on completion.
        tracked: Option<CompactionIo>,
        waker: Option<Waker>,
    },
    Complete {
        handle: Arc<Handle>,
        op: Op,
        buf: IoBuf,
        result: i32,
    },
}

struct Ring {
    uring: IoUring,
    slots: Vec<Slot>,
    in_flight: usize,
    /// The slots of operations that the kernel has not yet taken from the queue, in order.
    queued: Vec<usize>,
    /// Started when the ring failed. No thread enters the ring after that.
    broken: Option<Clock>,
}

/// How long to wait for the kernel after a ring broke.
const STUCK: Duration = Duration::from_secs(30);

/// The idle rings of the process, and the number of all rings.
static IDLE: Mutex<Rings> = Mutex::new(Rings {
    idle: Vec::new(),
    count: 0,
});

struct Rings {
    idle: Vec<Arc<Mutex<Ring>>>,
    count: usize,
}

thread_local! {
    /// The ring on which this thread has an operation in flight.
    static BORROWED: RefCell<Borrowed> = const { RefCell::new(Borrowed(None)) };
}

/// A borrowed ring, returned when its thread ends.
struct Borrowed(Option<Arc<Mutex<Ring>>>);

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(ring) = self.0.take() {
            give_back(ring);
        }
    }
}

/// Checks that this kernel provides io_uring, by creating a ring.
pub(super) fn probe() -> io::Result<()> {
    IoUring::new(2).map(drop)
}

pub(super) fn read(handle: &Arc<Handle>, span: Span, buf: IoBuf) -> Pending {
    submit(handle, Op::Read(span), buf)
}

pub(super) fn write(handle: &Arc<Handle>, offset: u64, buf: IoBuf) -> Pending {
    submit(handle, Op::Write { offset }, buf)
}

pub(super) fn sync(handle: &Arc<Handle>) -> Pending {
    submit(handle, Op::Sync, IoBuf::default())
}

/// Starts what this thread has queued, and records what has completed. Waits up to `at_most` for
/// one completion.
pub(super) fn complete_here(at_most: Duration) {
    let ring = BORROWED.with_borrow(|borrowed| borrowed.0.clone());
    if let Some(ring) = ring {
        let mut ring = ring.lock();
        if ring.in_flight > 0 {
            return ring.reap_within(at_most);
        }
    }
    if at_most > Duration::ZERO {
        std::thread::park_timeout(at_most);
    }
}

fn submit(handle: &Arc<Handle>, op: Op, mut buf: IoBuf) -> Pending {
    if let Some(ring) = borrow() {
        match ring.lock().submit(handle, op, buf) {
            Ok(slot) => {
                return Pending::new(Ticket {
                    ring: ring.clone(),
                    slot,
                    finished: false,
                });
            }
            Err(refused) => buf = refused,
        }
    }
    match op {
        // It is read when it is waited for, as on a ring.
        Op::Read(span) => Pending::new(Later {
            handle: handle.clone(),
            span,
            buf,
            tracked: None,
        }),
        Op::Write { .. } | Op::Sync => Pending::done(plainly(handle, op, &mut buf).map(|()| buf)),
    }
}

/// This thread's ring, an idle one, or a new one; `None` if the limit is reached or no ring can be
/// created.
fn borrow() -> Option<Arc<Mutex<Ring>>> {
    BORROWED.with_borrow_mut(|borrowed| {
        if borrowed.0.is_none() {
            borrowed.0 = take_idle();
        }
        borrowed.0.clone()
    })
}

fn take_idle() -> Option<Arc<Mutex<Ring>>> {
    let mut rings = IDLE.lock();
    if let Some(ring) = rings.idle.pop() {
        return Some(ring);
    }
    if rings.count >= RINGS_MAX {
        return None;
    }
    match Ring::new() {
        Ok(ring) => {
            rings.count += 1;
            Some(Arc::new(Mutex::new(ring)))
        }
        Err(error) => {
            tracing::debug!(%error, "no ring more; plain reads and writes");
            None
        }
    }
}

fn give_back(ring: Arc<Mutex<Ring>>) {
    let is_broken = ring.lock().is_broken();
    let mut rings = IDLE.lock();
    match is_broken {
        true => rings.count -= 1,
        false => rings.idle.push(ring),
    }
}

/// The number of rings in the process.
#[cfg(test)]
pub(super) fn rings() -> usize {
    IDLE.lock().count
}

/// True if the kernel may accept the request if it is asked again.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, ResourceBusy, WouldBlock};
    matches!(
        error.kind(),
        Interrupted | OutOfMemory | ResourceBusy | WouldBlock
    )
}

impl Ring {
    fn new() -> io::Result<Ring> {
        #[cfg(test)]
        tests::fail(Failing::Setup)?;
        Ok(Ring {
            uring: IoUring::new(DEPTH)?,
            slots: Vec::new(),
            in_flight: 0,
            queued: Vec::new(),
            broken: None,
        })
    }

    fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    fn is_stuck(&self) -> bool {
        self.broken
            .as_ref()
            .is_some_and(|clock| Duration::from_nanos(clock.now_ns()) > STUCK)
    }

    /// Removes from `queued` the operations that the kernel has taken.
    fn note_taken(&mut self) {
        let left = self.uring.submission().len();
        self.queued.drain(..self.queued.len().saturating_sub(left));
    }

    /// Puts an operation in flight. Returns the buffer if that is not possible.
    fn submit(&mut self, handle: &Arc<Handle>, op: Op, mut buf: IoBuf) -> Result<usize, IoBuf> {
        #[cfg(test)]
        if tests::fail(Failing::Submit).is_err() {
            return Err(buf);
        }
        while self.in_flight >= DEPTH as usize && !self.is_broken() {
            self.reap(1);
        }
        if self.is_broken() {
            return Err(buf);
        }
        let index = self
            .slots
            .iter()
            .position(|slot| matches!(slot, Slot::Free))
            .unwrap_or(self.slots.len());
        let fd = types::Fd(handle.fd.as_raw_fd());
        let entry = match op {
            Op::Read(span) => {
                let room = buf.room(span.len);
                opcode::Read::new(fd, room.as_mut_ptr(), room.len() as u32)
                    .offset(span.offset)
                    .build()
            }
            Op::Write { offset } => {
                let bytes = buf.bytes();
                opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32)
                    .offset(offset)
                    .build()
            }
            Op::Sync => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        let eager = !matches!(op, Op::Read(_));
        let slot = Slot::InFlight {
            handle: handle.clone(),
            op,
            buf,
            abandoned: false,
            tracked: None,
            waker: None,
        };
        match self.slots.get_mut(index) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.in_flight += 1;
        // SAFETY: invariants 1 to 3. The slot now owns buffer and file until the completion is
        // reaped, and the ring is not dropped before that. Test: `os::tests::ring_and_pool_agree`.
        let pushed = unsafe { self.uring.submission().push(&entry.user_data(index as u64)) };
        if pushed.is_err() {
            // The queue has DEPTH entries and fewer are in flight, so there is room. If not,
            // nothing was submitted.
            self.in_flight -= 1;
            return match std::mem::replace(&mut self.slots[index], Slot::Free) {
                Slot::InFlight { buf, .. } => Err(buf),
                Slot::Free | Slot::Complete { .. } => Err(IoBuf::default()),
            };
        }
        self.queued.push(index);
        if eager {
            // If it does not start now it starts with the next wait. It is queued, so it must not
            // be reported as failed.
            let _later = self.uring.submit();
            self.note_taken();
        }
        Ok(index)
    }

    /// Submits the queued operations, waits for at least `want` completions and records them in
    /// their slots. May return with fewer: if the kernel is short of a resource the caller must ask
    /// again, because the operations may still complete.
    fn reap(&mut self, want: usize) {
        let entered = match self.broken {
            None => self.enter(want),
            Some(ref clock) => {
                // Completions arrive without a system call.
                clock.sleep(Duration::from_millis(1));
                Ok(())
            }
        };
        self.note_entered(entered);
        self.record_completions();
    }

    /// As [`Ring::reap`], for at most one completion and at most this long.
    fn reap_within(&mut self, at_most: Duration) {
        if self.is_broken() {
            return self.record_completions();
        }
        let waits = at_most > Duration::ZERO && self.uring.completion().is_empty();
        if waits {
            let entered = self.enter_for(at_most);
            self.note_entered(entered);
        } else if !self.queued.is_empty() {
            let entered = self.enter(0);
            self.note_entered(entered);
        }
        self.record_completions();
    }

    /// Waits for one completion, at most this long.
    fn enter_for(&mut self, at_most: Duration) -> io::Result<()> {
        #[cfg(test)]
        tests::fail(Failing::Wait)?;
        if !self.uring.params().is_feature_ext_arg() {
            // A kernel before 5.11 waits without a limit, but something is in flight.
            return self.uring.submit_and_wait(1).map(drop);
        }
        let limit = types::Timespec::from(at_most);
        let args = types::SubmitArgs::new().timespec(&limit);
        match self.uring.submitter().submit_with_args(1, &args) {
            Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => Ok(()),
            entered => entered.map(drop),
        }
    }

    fn note_entered(&mut self, entered: io::Result<()>) {
        match entered {
            Ok(()) => {}
            Err(error) if is_passing(&error) => std::thread::yield_now(),
            Err(error) => {
                tracing::warn!(%error, "a ring failed; its operations are done by plain reads and writes");
                self.broken = Some(Clock::system());
                // Who polls a broken ring waits until the operation has ended.
                self.wake_all();
            }
        }
        self.note_taken();
    }

    fn wake_all(&mut self) {
        for slot in &mut self.slots {
            if let Slot::InFlight { waker, .. } = slot {
                waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    fn record_completions(&mut self) {
        while let Some(completion) = self.uring.completion().next() {
            let slot = &mut self.slots[completion.user_data() as usize];
            if let Slot::InFlight {
                handle,
                op,
                buf,
                abandoned,
                tracked,
                waker,
            } = std::mem::replace(slot, Slot::Free)
            {
                self.in_flight -= 1;
                drop(tracked);
                waker.into_iter().for_each(Waker::wake);
                if !abandoned {
                    *slot = Slot::Complete {
                        handle,
                        op,
                        buf,
                        result: completion.result(),
                    };
                }
            }
        }
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        #[cfg(test)]
        tests::fail(Failing::Wait)?;
        self.uring.submit_and_wait(want).map(drop)
    }

    /// Takes a completed operation out of its slot, after at most one look for completions. `None`
    /// if it is still in flight.
    fn finish(&mut self, index: usize) -> Option<Finished> {
        self.take(index).or_else(|| {
            self.reap(1);
            self.take(index)
        })
    }

    /// Takes an operation that has completed, or never will, out of its slot.
    fn take(&mut self, index: usize) -> Option<Finished> {
        match std::mem::replace(&mut self.slots[index], Slot::Free) {
            Slot::Complete {
                handle,
                op,
                buf,
                result,
            } => {
                return Some(Finished::On {
                    handle,
                    op,
                    buf,
                    result,
                });
            }
            Slot::InFlight {
                handle, op, buf, ..
            } if self.is_broken() && self.queued.contains(&index) => {
                // The kernel never took it.
                self.queued.retain(|&queued| queued != index);
                self.in_flight -= 1;
                return Some(Finished::Never { handle, op, buf });
            }
            Slot::InFlight {
                handle, op, buf, ..
            } if self.is_stuck() => {
                // The kernel may still use the buffer, so the slot keeps it forever.
                let stuck = Finished::Stuck {
                    handle: handle.clone(),
                    op,
                };
                self.slots[index] = Slot::InFlight {
                    handle,
                    op,
                    buf,
                    abandoned: true,
                    tracked: None,
                    waker: None,
                };
                return Some(stuck);
            }
            other => self.slots[index] = other,
        }
        None
    }

    fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot, Slot::Free))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.is_broken() {
                // The kernel may still write into the buffers, so they are leaked rather than
                // freed.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            self.reap(1);
        }
    }
}

/// The outcome of an operation on its ring.
enum Finished {
    On {
        handle: Arc<Handle>,
        op: Op,
        buf: IoBuf,
        result: i32,
    },
    /// The ring broke before the kernel took it.
    Never {
        handle: Arc<Handle>,
        op: Op,
        buf: IoBuf,
    },
    /// The ring broke, and the kernel never completed it.
    Stuck { handle: Arc<Handle>, op: Op },
}

impl Finished {
    fn result(self) -> Result<IoBuf> {
        match self {
            Finished::On {
                handle,
                op,
                mut buf,
                result,
            } => {
                complete(&handle, op, &mut buf, result)?;
                Ok(buf)
            }
            Finished::Never {
                handle,
                op,
                mut buf,
            } => {
                plainly(&handle, op, &mut buf)?;
                Ok(buf)
            }
            Finished::Stuck {
                handle,
                op: op @ Op::Read(_),
            } => {
                let mut buf = IoBuf::default();
                plainly(&handle, op, &mut buf)?;
                Ok(buf)
            }
            Finished::Stuck { handle, op } => {
                let (seconds, path) = (STUCK.as_secs(), handle.path.display());
                let what = match op {
                    Op::Write { offset } => format!("a write at byte {offset}"),
                    Op::Read(_) | Op::Sync => "a sync".to_owned(),
                };
                let message = format!(
                    "{path}: {what} did not end {seconds} s after its ring failed; reopen the database"
                );
                Err(Error::new(ErrorKind::Io, message))
            }
        }
    }
}

/// An operation on a ring.
struct Ticket {
    ring: Arc<Mutex<Ring>>,
    slot: usize,
    finished: bool,
}

impl Completion for Ticket {
    fn wait(mut self: Box<Self>) -> Result<IoBuf> {
        self.wait_here()
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<IoBuf>> {
        let shared = self.ring.clone();
        let mut ring = shared.lock();
        if let Some(finished) = ring.take(self.slot) {
            return Some(self.end(ring, finished));
        }
        if ring.is_broken() {
            // Nobody looks for its completions any more, so no waker would be called.
            drop(ring);
            return Some(self.wait_here());
        }
        if let Slot::InFlight { waker: slot, .. } = &mut ring.slots[self.slot] {
            *slot = Some(waker.clone());
        }
        None
    }

    fn track(&mut self, tracked: CompactionIo) {
        if let Slot::InFlight { tracked: slot, .. } = &mut self.ring.lock().slots[self.slot] {
            *slot = Some(tracked);
        }
    }
}

impl Ticket {
    fn wait_here(&mut self) -> Result<IoBuf> {
        let shared = self.ring.clone();
        loop {
            let mut ring = shared.lock();
            if let Some(finished) = ring.finish(self.slot) {
                return self.end(ring, finished);
            }
            // The completion may have been that of another thread's operation on this ring.
            parking_lot::MutexGuard::unlock_fair(ring);
        }
    }

    /// The result of an operation that was taken from its slot.
    fn end(
        &mut self,
        ring: parking_lot::MutexGuard<'_, Ring>,
        finished: Finished,
    ) -> Result<IoBuf> {
        // The slot is free, so the destructor has nothing to abandon.
        self.finished = true;
        let is_idle = ring.is_idle() || ring.is_broken();
        drop(ring);
        if is_idle {
            self.release();
        }
        finished.result()
    }

    /// Returns the ring if this thread borrowed it. A ring borrowed by another thread is returned
    /// when that thread ends or waits.
    fn release(&self) {
        let released = BORROWED
            .with_borrow_mut(|borrowed| borrowed.0.take_if(|ring| Arc::ptr_eq(ring, &self.ring)));
        if let Some(ring) = released {
            give_back(ring);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        match &mut self.ring.lock().slots[self.slot] {
            Slot::InFlight {
                abandoned,
                tracked,
                waker,
                ..
            } => {
                // Its ring may be idle for long, so it is not counted until somebody looks.
                (*abandoned, *tracked, *waker) = (true, None, None);
            }
            complete => *complete = Slot::Free,
        }
    }
}

/// A read that was not submitted to any ring.
struct Later {
    handle: Arc<Handle>,
    span: Span,
    buf: IoBuf,
    tracked: Option<CompactionIo>,
}

impl Completion for Later {
    fn wait(mut self: Box<Self>) -> Result<IoBuf> {
        self.handle.read_span(self.span, &mut self.buf)?;
        Ok(self.buf)
    }

    fn poll(&mut self, _: &Waker) -> Option<Result<IoBuf>> {
        // Nothing else will do it.
        let read = self.handle.read_span(self.span, &mut self.buf);
        self.tracked = None;
        Some(read.map(|()| std::mem::take(&mut self.buf)))
    }

    fn track(&mut self, tracked: CompactionIo) {
        self.tracked = Some(tracked);
    }
}

/// Does the whole operation with plain system calls.
fn plainly(handle: &Handle, op: Op, buf: &mut IoBuf) -> Result<()> {
    match op {
        Op::Read(span) => handle.read_span(span, buf),
        Op::Write { offset } => handle.write_full(offset, buf.bytes()),
        Op::Sync => handle.sync(),
    }
}

/// Turns a completion's count into a result. An operation that came short, failed or was cancelled
/// on the ring is done with plain system calls, which report the actual error if there is one.
fn complete(handle: &Handle, op: Op, buf: &mut IoBuf, result: i32) -> Result<()> {
    #[cfg(test)]
    let result = if tests::fail(Failing::Cancelled).is_err() {
        -125
    } else {
        result
    };
    let done = usize::try_from(result).unwrap_or(0);
    match op {
        Op::Read(span) if done == span.len => buf.set_view(span.skip, span.wanted),
        Op::Write { .. } if done == buf.len() => {}
        Op::Sync if result == 0 => {}
        Op::Sync => {
            let errno = Errno::from_raw_os_error(-result);
            let was_tried = !matches!(
                errno,
                Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::INVAL | Errno::OPNOTSUPP
            );
            if was_tried {
                return Err(handle.error("sync", errno));
            }
            plainly(handle, op, buf)?;
        }
        _ => plainly(handle, op, buf)?,
    }
    Ok(())
}

/// A way in which a ring can fail.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    Setup,
    Submit,
    Wait,
    Cancelled,
}

#[cfg(test)]
pub(super) use tests::failing;

#[cfg(test)]
mod tests {
    use super::Failing;
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static FAILING: Cell<Option<Failing>> = const { Cell::new(None) };
    }

    /// Makes rings fail in this way for this thread from now on.
    pub(in super::super) fn failing(how: Option<Failing>) {
        FAILING.set(how);
    }

    pub(super) fn fail(how: Failing) -> io::Result<()> {
        match FAILING.get() == Some(how) {
            true => Err(io::Error::other("a ring that was told to fail")),
            false => Ok(()),
        }
    }
}

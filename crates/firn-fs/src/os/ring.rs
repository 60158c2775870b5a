//! Operations in flight over io_uring. A thread borrows a ring while it has something in flight, so the lock of a ring
//! is hardly ever contended, and there are never more than [`RINGS_MAX`]. A ticket holds the ring that it was
//! submitted to, so it may be waited for on any thread.
//!
//! 1. A slot owns the buffer and keeps the file open from submission to completion; the kernel's pointer into the
//!    buffer's heap storage therefore stays valid however the `IoBuf` value moves.
//! 2. A slot is reused only after its completion was reaped. An abandoned operation's slot is freed when it is reaped.
//! 3. A ring is dropped only when nothing is in flight: its destructor waits.
//! 4. Reads are queued and start with the first wait or when the queue is full; writes start at once.
//! 5. No failure of a ring fails an operation: one that the ring does not take, ends early or cancels is done by `pread`
//!    or `pwrite`, whose error is then the operation's own. A ring that failed is broken: it takes nothing more. What
//!    the kernel has of it still ends, and shows so in shared memory; until then a write is not done again, because it
//!    could land later, over what has been written to its place since.
#![expect(unsafe_code, reason = "io_uring takes raw pointers; listed in UNSAFE.md")]

use super::direct::{Handle, Span};
use crate::buf::IoBuf;
use crate::file::{Completion, Pending};
use firn_base::{Error, ErrorKind, Result};
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use rustix::fd::AsRawFd;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Operations in flight on one ring.
const DEPTH: u32 = 64;
/// Rings in a process. Each takes a file handle and locked memory; threads that find none left use plain calls.
pub(super) const RINGS_MAX: usize = 32;

#[derive(Clone, Copy)]
enum Op {
    Read(Span),
    Write { offset: u64 },
}

enum Slot {
    Free,
    InFlight { handle: Arc<Handle>, op: Op, buf: IoBuf, abandoned: bool },
    Complete { handle: Arc<Handle>, op: Op, buf: IoBuf, result: i32 },
}

struct Ring {
    uring: IoUring,
    slots: Vec<Slot>,
    in_flight: usize,
    /// The slots of operations that the kernel has not taken from the queue yet, in their order.
    queued: Vec<usize>,
    /// When it failed: nobody enters it from then on.
    broken: Option<Instant>,
}

/// So long after a ring broke the kernel is waited for.
const STUCK: Duration = Duration::from_secs(30);

/// The rings of the process that nobody uses, and how many there are in all.
static IDLE: Mutex<Rings> = Mutex::new(Rings { idle: Vec::new(), count: 0 });

struct Rings {
    idle: Vec<Arc<Mutex<Ring>>>,
    count: usize,
}

thread_local! {
    /// The ring that this thread has something in flight on.
    static BORROWED: RefCell<Borrowed> = const { RefCell::new(Borrowed(None)) };
}

/// A borrowed ring, given back when its thread ends.
struct Borrowed(Option<Arc<Mutex<Ring>>>);

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(ring) = self.0.take() {
            give_back(ring);
        }
    }
}

/// Whether this kernel gives us a ring, by making one.
pub(super) fn probe() -> io::Result<()> {
    IoUring::new(2).map(drop)
}

pub(super) fn read(handle: &Arc<Handle>, span: Span, buf: IoBuf) -> Pending {
    submit(handle, Op::Read(span), buf)
}

pub(super) fn write(handle: &Arc<Handle>, offset: u64, buf: IoBuf) -> Pending {
    submit(handle, Op::Write { offset }, buf)
}

fn submit(handle: &Arc<Handle>, op: Op, mut buf: IoBuf) -> Pending {
    if let Some(ring) = borrow() {
        match ring.lock().submit(handle, op, buf) {
            Ok(slot) => return Pending::new(Ticket { ring: ring.clone(), slot, finished: false }),
            Err(refused) => buf = refused,
        }
    }
    match op {
        // It is read when it is waited for, as it would be from a ring.
        Op::Read(span) => Pending::new(Later { handle: handle.clone(), span, buf }),
        Op::Write { .. } => Pending::done(plainly(handle, op, &mut buf).map(|()| buf)),
    }
}

/// The ring that this thread has, or one that nobody uses, or a new one; `None` if there can be no more.
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

/// How many rings the process has.
#[cfg(test)]
pub(super) fn rings() -> usize {
    IDLE.lock().count
}

/// Whether the kernel may do what it refuses now if it is asked again.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, ResourceBusy, WouldBlock};
    matches!(error.kind(), Interrupted | OutOfMemory | ResourceBusy | WouldBlock)
}

impl Ring {
    fn new() -> io::Result<Ring> {
        #[cfg(test)]
        tests::fail(Failing::Setup)?;
        Ok(Ring { uring: IoUring::new(DEPTH)?, slots: Vec::new(), in_flight: 0, queued: Vec::new(), broken: None })
    }

    fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Notes what the kernel took from the queue.
    fn note_taken(&mut self) {
        let left = self.uring.submission().len();
        self.queued.drain(..self.queued.len().saturating_sub(left));
    }

    /// Puts an operation in flight; gives the buffer back if that cannot be.
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
        let index = self.slots.iter().position(|slot| matches!(slot, Slot::Free)).unwrap_or(self.slots.len());
        let fd = types::Fd(handle.fd.as_raw_fd());
        let entry = match op {
            Op::Read(span) => {
                let room = buf.room(span.len);
                opcode::Read::new(fd, room.as_mut_ptr(), room.len() as u32).offset(span.offset).build()
            }
            Op::Write { offset } => {
                let bytes = buf.bytes();
                opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32).offset(offset).build()
            }
        };
        let eager = matches!(op, Op::Write { .. });
        let slot = Slot::InFlight { handle: handle.clone(), op, buf, abandoned: false };
        match self.slots.get_mut(index) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.in_flight += 1;
        // SAFETY: invariants 1 to 3: the slot now owns buffer and file until the completion is reaped, and the ring
        // does not go away before that. Test: `os::tests::ring_and_pool_agree`.
        let pushed = unsafe { self.uring.submission().push(&entry.user_data(index as u64)) };
        if pushed.is_err() {
            // The queue has DEPTH entries and fewer are in flight, so there is room; if not, nothing was submitted.
            self.in_flight -= 1;
            return match std::mem::replace(&mut self.slots[index], Slot::Free) {
                Slot::InFlight { buf, .. } => Err(buf),
                Slot::Free | Slot::Complete { .. } => Err(IoBuf::default()),
            };
        }
        self.queued.push(index);
        if eager {
            // If it does not start now it starts with the next wait. It is queued, so nobody may think that it failed.
            let _later = self.uring.submit();
            self.note_taken();
        }
        Ok(index)
    }

    /// Submits what is queued, waits for at least `want` completions and files them. It may come back with fewer: a
    /// kernel that is short of something is to be asked again, because what is queued or in flight may yet happen.
    fn reap(&mut self, want: usize) {
        let entered = match self.broken {
            None => self.enter(want),
            Some(_) => {
                // Completions come without being asked for.
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            }
        };
        match entered {
            Ok(()) => {}
            Err(error) if is_passing(&error) => std::thread::yield_now(),
            Err(error) => {
                tracing::warn!(%error, "a ring failed; its operations are done by plain reads and writes");
                self.broken = Some(Instant::now());
            }
        }
        self.note_taken();
        while let Some(completion) = self.uring.completion().next() {
            let slot = &mut self.slots[completion.user_data() as usize];
            if let Slot::InFlight { handle, op, buf, abandoned } = std::mem::replace(slot, Slot::Free) {
                self.in_flight -= 1;
                if !abandoned {
                    *slot = Slot::Complete { handle, op, buf, result: completion.result() };
                }
            }
        }
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        #[cfg(test)]
        tests::fail(Failing::Wait)?;
        self.uring.submit_and_wait(want).map(drop)
    }

    /// Takes a completed operation out of its slot, after one look for completions; `None` if it is still in flight.
    fn finish(&mut self, index: usize) -> Option<Finished> {
        for looks in 0..2 {
            match std::mem::replace(&mut self.slots[index], Slot::Free) {
                Slot::Complete { handle, op, buf, result } => return Some(Finished::On { handle, op, buf, result }),
                Slot::InFlight { handle, op, buf, .. } if self.is_broken() && self.queued.contains(&index) => {
                    // The kernel has never seen it.
                    self.queued.retain(|&queued| queued != index);
                    self.in_flight -= 1;
                    return Some(Finished::Never { handle, op, buf });
                }
                Slot::InFlight { handle, op, buf, .. } if self.broken.is_some_and(|at| at.elapsed() > STUCK) => {
                    // The kernel may still use the buffer, so the slot keeps it for ever.
                    let stuck = Finished::Stuck { handle: handle.clone(), op };
                    self.slots[index] = Slot::InFlight { handle, op, buf, abandoned: true };
                    return Some(stuck);
                }
                other => self.slots[index] = other,
            }
            if looks == 0 {
                self.reap(1);
            }
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
                // The kernel may still write into the buffers: leak them rather than free them.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            self.reap(1);
        }
    }
}

/// How an operation left its ring.
enum Finished {
    On {
        handle: Arc<Handle>,
        op: Op,
        buf: IoBuf,
        result: i32,
    },
    /// The ring broke before it was begun.
    Never {
        handle: Arc<Handle>,
        op: Op,
        buf: IoBuf,
    },
    /// The ring broke, and the kernel has it for ever.
    Stuck {
        handle: Arc<Handle>,
        op: Op,
    },
}

/// An operation on a ring.
struct Ticket {
    ring: Arc<Mutex<Ring>>,
    slot: usize,
    finished: bool,
}

impl Completion for Ticket {
    fn wait(mut self: Box<Self>) -> Result<IoBuf> {
        // The slot is freed here, so the destructor has nothing to abandon.
        self.finished = true;
        let finished = loop {
            let mut ring = self.ring.lock();
            if let Some(finished) = ring.finish(self.slot) {
                let is_idle = ring.is_idle() || ring.is_broken();
                drop(ring);
                if is_idle {
                    self.release();
                }
                break finished;
            }
            // Another thread's operation on this ring may be the one that completed.
            parking_lot::MutexGuard::unlock_fair(ring);
        };
        match finished {
            Finished::On { handle, op, mut buf, result } => {
                complete(&handle, op, &mut buf, result)?;
                Ok(buf)
            }
            Finished::Never { handle, op, mut buf } => {
                plainly(&handle, op, &mut buf)?;
                Ok(buf)
            }
            Finished::Stuck { handle, op: op @ Op::Read(_) } => {
                let mut buf = IoBuf::default();
                plainly(&handle, op, &mut buf)?;
                Ok(buf)
            }
            Finished::Stuck { handle, op: Op::Write { offset } } => {
                let seconds = STUCK.as_secs();
                let message = format!(
                    "{}: a write at byte {offset} did not end {seconds} s after its ring failed; reopen the database",
                    handle.path.display()
                );
                Err(Error::new(ErrorKind::Io, message))
            }
        }
    }
}

impl Ticket {
    /// Gives the ring back if it is the one that this thread borrowed. Another thread does so when it ends or waits.
    fn release(&self) {
        let released = BORROWED.with_borrow_mut(|borrowed| borrowed.0.take_if(|ring| Arc::ptr_eq(ring, &self.ring)));
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
            Slot::InFlight { abandoned, .. } => *abandoned = true,
            complete => *complete = Slot::Free,
        }
    }
}

/// A read that no ring took.
struct Later {
    handle: Arc<Handle>,
    span: Span,
    buf: IoBuf,
}

impl Completion for Later {
    fn wait(mut self: Box<Self>) -> Result<IoBuf> {
        self.handle.read_span(self.span, &mut self.buf)?;
        Ok(self.buf)
    }
}

/// Does the whole operation without a ring.
fn plainly(handle: &Handle, op: Op, buf: &mut IoBuf) -> Result<()> {
    match op {
        Op::Read(span) => handle.read_span(span, buf),
        Op::Write { offset } => handle.write_full(offset, buf.bytes()),
    }
}

/// Turns a completion's count into the operation's end. One that is short, or that the ring failed or cancelled, is
/// done the plain way, which tells whether it can be done at all.
fn complete(handle: &Handle, op: Op, buf: &mut IoBuf, result: i32) -> Result<()> {
    #[cfg(test)]
    let result = if tests::fail(Failing::Cancelled).is_err() { -125 } else { result };
    let done = usize::try_from(result).unwrap_or(0);
    match op {
        Op::Read(span) if done == span.len => buf.set_view(span.skip, span.wanted),
        Op::Write { .. } if done == buf.len() => {}
        _ => plainly(handle, op, buf)?,
    }
    Ok(())
}

/// A way for a ring to fail.
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

    /// From now on rings fail this thread in this way.
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

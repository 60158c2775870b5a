//! Operations in flight over io_uring: one ring per thread, so that its lock is hardly ever contended. A ticket holds
//! the ring that it was submitted to, so it may be waited for on any thread.
//!
//! 1. A slot owns the buffer and keeps the file open from submission to completion; the kernel's pointer into the
//!    buffer's heap storage therefore stays valid however the `IoBuf` value moves.
//! 2. A slot is reused only after its completion was reaped. An abandoned operation's slot is freed when it is reaped.
//! 3. A ring is dropped only when nothing is in flight: its destructor waits.
//! 4. Reads are queued and start with the first wait or when the queue is full; writes start at once.
#![expect(unsafe_code, reason = "io_uring takes raw pointers; listed in UNSAFE.md")]

use super::direct::{Handle, Span};
use crate::buf::IoBuf;
use crate::file::{Completion, Pending};
use firn_base::{Error, Result};
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use rustix::fd::AsRawFd;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Operations in flight per thread.
const DEPTH: u32 = 64;

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
}

thread_local! {
    static RING: RefCell<Option<Arc<Mutex<Ring>>>> = const { RefCell::new(None) };
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

fn submit(handle: &Arc<Handle>, op: Op, buf: IoBuf) -> Pending {
    let submitted = this_threads_ring().and_then(|ring| {
        let slot = ring.lock().submit(handle, op, buf)?;
        Ok(Ticket { ring, slot, finished: false })
    });
    match submitted {
        Ok(ticket) => Pending::new(ticket),
        Err(error) => Pending::done(Err(Error::from_io("submit I/O for", &handle.path, error))),
    }
}

fn this_threads_ring() -> io::Result<Arc<Mutex<Ring>>> {
    RING.with_borrow_mut(|cell| match cell {
        Some(ring) => Ok(ring.clone()),
        None => Ok(cell.insert(Arc::new(Mutex::new(Ring::new()?))).clone()),
    })
}

/// Whether the kernel may do what it refuses now if it is asked again.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, ResourceBusy, WouldBlock};
    matches!(error.kind(), Interrupted | OutOfMemory | ResourceBusy | WouldBlock)
}

impl Ring {
    fn new() -> io::Result<Ring> {
        Ok(Ring { uring: IoUring::new(DEPTH)?, slots: Vec::new(), in_flight: 0 })
    }

    fn submit(&mut self, handle: &Arc<Handle>, op: Op, mut buf: IoBuf) -> io::Result<usize> {
        while self.in_flight >= DEPTH as usize {
            self.reap(1)?;
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
            self.slots[index] = Slot::Free;
            self.in_flight -= 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if eager {
            // If it does not start now it starts with the next wait. It is queued, so nobody may think that it failed.
            let _later = self.uring.submit();
        }
        Ok(index)
    }

    /// Submits what is queued, waits for at least `want` completions and files them. It may come back with fewer: a
    /// kernel that is short of something is to be asked again, because what is queued or in flight may yet happen.
    fn reap(&mut self, want: usize) -> io::Result<()> {
        match self.uring.submit_and_wait(want) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
        while let Some(completion) = self.uring.completion().next() {
            let slot = &mut self.slots[completion.user_data() as usize];
            if let Slot::InFlight { handle, op, buf, abandoned } = std::mem::replace(slot, Slot::Free) {
                self.in_flight -= 1;
                if !abandoned {
                    *slot = Slot::Complete { handle, op, buf, result: completion.result() };
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, index: usize) -> io::Result<(Arc<Handle>, Op, IoBuf, i32)> {
        loop {
            match std::mem::replace(&mut self.slots[index], Slot::Free) {
                Slot::Complete { handle, op, buf, result } => return Ok((handle, op, buf, result)),
                other => self.slots[index] = other,
            }
            self.reap(1)?;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.reap(1).is_err() {
                // The kernel may still write into the buffers: leak them rather than free them.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
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
        // The slot is emptied here, so the destructor has nothing to abandon.
        self.finished = true;
        let finished = self.ring.lock().finish(self.slot);
        let (handle, op, mut buf, result) =
            finished.map_err(|error| Error::from_io("wait for I/O on", Path::new("io_uring"), error))?;
        complete(&handle, op, &mut buf, result)?;
        Ok(buf)
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

/// Turns a completion's count into the operation's end; a short or interrupted one is finished the plain way.
fn complete(handle: &Handle, op: Op, buf: &mut IoBuf, result: i32) -> Result<()> {
    const EINTR: i32 = 4;
    const EAGAIN: i32 = 11;
    let done = match result {
        n if n >= 0 => n as usize,
        n if n == -EINTR || n == -EAGAIN => 0,
        n => {
            let verb = if matches!(op, Op::Read(_)) { "read" } else { "write" };
            return Err(Error::from_io(verb, &handle.path, io::Error::from_raw_os_error(-n)));
        }
    };
    match op {
        Op::Read(span) if done == span.len => buf.set_view(span.skip, span.wanted),
        Op::Read(span) => handle.read_span(span, buf)?,
        Op::Write { offset } if done < buf.len() => handle.write_full(offset, buf.bytes())?,
        Op::Write { .. } => {}
    }
    Ok(())
}

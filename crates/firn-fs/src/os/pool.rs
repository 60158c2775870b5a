//! Operations in flight where io_uring is refused: a few threads that pread and pwrite.
//!
//! The threads start with the first operation and live as long as the process; one that only waits costs a stack.

use super::direct::{Handle, Span};
use crate::buf::IoBuf;
use crate::file::{Completion, Pending};
use firn_base::{Error, ErrorKind, Result, exec};
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

/// Operations that may be in flight at once.
const THREADS: usize = 8;

enum Op {
    Read(Span),
    Write(u64),
}

struct Job {
    handle: Arc<Handle>,
    op: Op,
    buf: IoBuf,
    reply: Sender<Result<IoBuf>>,
}

/// The submitting side of the pool.
#[derive(Debug)]
pub(super) struct Pool {
    jobs: Sender<Job>,
}

impl Pool {
    /// The process's pool.
    pub(super) fn shared() -> &'static Pool {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(Pool::start)
    }

    fn start() -> Pool {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for i in 0..THREADS {
            let queue = queue.clone();
            if let Err(error) = exec::spawn(&format!("firn-io-{i}"), move || serve(&queue)) {
                tracing::error!(%error, "cannot start an I/O thread");
            }
        }
        Pool { jobs }
    }

    pub(super) fn read(&self, handle: &Arc<Handle>, span: Span, buf: IoBuf) -> Pending {
        self.submit(handle, Op::Read(span), buf)
    }

    pub(super) fn write(&self, handle: &Arc<Handle>, offset: u64, buf: IoBuf) -> Pending {
        self.submit(handle, Op::Write(offset), buf)
    }

    fn submit(&self, handle: &Arc<Handle>, op: Op, buf: IoBuf) -> Pending {
        let (reply, answer) = channel();
        // A send fails only when no thread could be started; the receiver then reports it.
        let _unsent = self.jobs.send(Job { handle: handle.clone(), op, buf, reply });
        Pending::new(Answer(answer))
    }
}

fn serve(queue: &Mutex<Receiver<Job>>) {
    loop {
        let Ok(job) = queue.lock().recv() else { return };
        let Job { handle, op, mut buf, reply } = job;
        let result = match op {
            Op::Read(span) => handle.read_span(span, &mut buf),
            Op::Write(offset) => handle.write_full(offset, buf.bytes()),
        };
        // The submitter may have gone away; its result goes with it.
        let _abandoned = reply.send(result.map(|()| buf));
    }
}

struct Answer(Receiver<Result<IoBuf>>);

impl Completion for Answer {
    fn wait(self: Box<Self>) -> Result<IoBuf> {
        self.0.recv().unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "no I/O thread could be started")))
    }
}

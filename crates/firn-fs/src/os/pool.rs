//! Operations in flight where io_uring is not available: a few threads that pread and pwrite.
//!
//! The threads start with the first operation and live as long as the process. An idle thread costs
//! a stack.

use super::direct::{Handle, Span};
use crate::buf::IoBuf;
use crate::file::{Completion, Pending};
use firn_base::{Error, ErrorKind, Result, exec};
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

/// The maximum number of operations in flight.
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
    /// `None` if no thread could be started.
    jobs: Option<Sender<Job>>,
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
        let start = |i: usize| {
            let queue = queue.clone();
            exec::spawn(&format!("firn-io-{i}"), move || serve(&queue))
        };
        let mut started = 0;
        for i in 0..THREADS {
            match start(i) {
                Ok(_) => started += 1,
                Err(error) => tracing::warn!(%error, started, "cannot start an I/O thread"),
            }
        }
        Pool {
            jobs: (started > 0).then_some(jobs),
        }
    }

    pub(super) fn read(&self, handle: &Arc<Handle>, span: Span, buf: IoBuf) -> Pending {
        self.submit(handle, Op::Read(span), buf)
    }

    pub(super) fn write(&self, handle: &Arc<Handle>, offset: u64, buf: IoBuf) -> Pending {
        self.submit(handle, Op::Write(offset), buf)
    }

    fn submit(&self, handle: &Arc<Handle>, op: Op, buf: IoBuf) -> Pending {
        let (reply, answer) = channel();
        let job = Job {
            handle: handle.clone(),
            op,
            buf,
            reply,
        };
        match &self.jobs {
            // A send fails only if no thread is left; the receiver then reports it.
            Some(jobs) => drop(jobs.send(job)),
            // Without threads the caller does the work.
            None => job.perform(),
        }
        Pending::new(Answer(answer))
    }
}

impl Job {
    fn perform(self) {
        let Job {
            handle,
            op,
            mut buf,
            reply,
        } = self;
        let result = match op {
            Op::Read(span) => handle.read_span(span, &mut buf),
            Op::Write(offset) => handle.write_full(offset, buf.bytes()),
        };
        // The submitter may have dropped its receiver; then the result is discarded.
        let _abandoned = reply.send(result.map(|()| buf));
    }
}

fn serve(queue: &Mutex<Receiver<Job>>) {
    loop {
        let Ok(job) = queue.lock().recv() else { return };
        job.perform();
    }
}

struct Answer(Receiver<Result<IoBuf>>);

impl Completion for Answer {
    fn wait(self: Box<Self>) -> Result<IoBuf> {
        self.0
            .recv()
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "the I/O threads ended")))
    }
}

//! Operations in flight where io_uring is not available: a few threads that pread and pwrite.
//!
//! The threads start with the first operation and live as long as the process. An idle thread costs
//! a stack.

use super::direct::{Handle, Span};
use crate::buf::IoBuf;
use crate::file::{Completion, Pending};
use firn_base::count::CompactionIo;
use firn_base::{Error, ErrorKind, Result, exec};
use parking_lot::{Condvar, Mutex};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// The maximum number of operations in flight.
const THREADS: usize = 8;

enum Op {
    Read(Span),
    Write(u64),
    Sync,
}

struct Job {
    handle: Arc<Handle>,
    op: Op,
    buf: IoBuf,
    reply: Reply,
}

/// Where an operation leaves its result.
#[derive(Default)]
struct Place {
    state: Mutex<PlaceState>,
    left: Condvar,
}

#[derive(Default)]
struct PlaceState {
    result: Option<Result<IoBuf>>,
    tracked: Option<CompactionIo>,
    waker: Option<Waker>,
}

/// The obligation to leave a result. Dropped before that, it leaves an error.
struct Reply(Option<Arc<Place>>);

impl Reply {
    fn leave(mut self, result: Result<IoBuf>) {
        self.leave_once(result);
    }

    fn leave_once(&mut self, result: Result<IoBuf>) {
        let Some(place) = self.0.take() else { return };
        let mut state = place.state.lock();
        state.result = Some(result);
        state.tracked = None;
        let waker = state.waker.take();
        drop(state);
        place.left.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.leave_once(Err(Error::new(ErrorKind::Io, "the I/O threads ended")));
    }
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

    pub(super) fn sync(&self, handle: &Arc<Handle>) -> Pending {
        self.submit(handle, Op::Sync, IoBuf::default())
    }

    fn submit(&self, handle: &Arc<Handle>, op: Op, buf: IoBuf) -> Pending {
        let place = Arc::<Place>::default();
        let reply = Reply(Some(place.clone()));
        let job = Job {
            handle: handle.clone(),
            op,
            buf,
            reply,
        };
        match &self.jobs {
            // A send fails only if no thread is left; the dropped job reports that.
            Some(jobs) => drop(jobs.send(job)),
            // Without threads the caller does the work.
            None => job.perform(),
        }
        Pending::new(Answer(place))
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
            Op::Sync => handle.sync(),
        };
        reply.leave(result.map(|()| buf));
    }
}

fn serve(queue: &Mutex<Receiver<Job>>) {
    loop {
        let Ok(job) = queue.lock().recv() else { return };
        job.perform();
    }
}

struct Answer(Arc<Place>);

impl Completion for Answer {
    fn wait(self: Box<Self>) -> Result<IoBuf> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            self.0.left.wait(&mut state);
        }
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<IoBuf>> {
        let mut state = self.0.state.lock();
        if state.result.is_none() {
            state.waker = Some(waker.clone());
        }
        state.result.take()
    }

    fn track(&mut self, tracked: CompactionIo) {
        let mut state = self.0.state.lock();
        state.tracked = state.result.is_none().then_some(tracked);
    }
}

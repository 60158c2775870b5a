//! Executors: who runs background work. The only place where threads start.
//!
//! Work is a state machine that is asked for one step at a time ([`Work::step`]). [`Threads`] asks from a fixed number
//! of workers that sleep while there is none; [`Inline`] asks only when a test (or a caller that would otherwise wait)
//! says so, which makes a whole run deterministic. Both are driven through [`Executor`].
//!
//! Merges are `async` so that one piece of code serves threads (which block on it) and coroutines (which poll it).
//! [`block_on`] is the blocking side; [`yield_now`] is a yield point.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use crate::clock::Clock;
use crate::sync::{Condvar, Mutex, hint, thread};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Something with background work to do.
pub trait Work: Send + Sync + 'static {
    /// Does one unit of work if there is any. Returns whether it did.
    fn step(&self) -> bool;

    /// How long an idle worker may sleep before it asks again without having been woken.
    fn idle_wait(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Runs a [`Work`]'s steps.
pub trait Executor: Send + Sync {
    /// Gives the executor its work. It is held weakly: work that is dropped stops being asked.
    fn attach(&self, work: Weak<dyn Work>);
    /// Says that there may be something to do.
    fn wake(&self);
    /// Called by a thread that cannot go on until background work was done. True if a step was made here, so that the
    /// caller should look again at once; false if others will do it and the caller may sleep.
    fn help(&self) -> bool;
    /// Stops: no step starts after this returns.
    fn stop(&self);
}

/// A fixed number of worker threads. If the system starts none of them, whoever waits for work does it.
pub struct Threads {
    shared: Arc<Shared>,
    count: usize,
    workers: Mutex<Vec<thread::JoinHandle<()>>>,
    /// Work that no thread could be started for.
    orphaned: Mutex<Option<Weak<dyn Work>>>,
}

struct Shared {
    signal: Mutex<Signal>,
    condvar: Condvar,
}

#[derive(Default)]
struct Signal {
    generation: u64,
    stopping: bool,
}

impl Threads {
    /// An executor with `count` workers, which start when work is attached.
    pub fn new(count: usize) -> Self {
        let shared = Shared { signal: Mutex::new(Signal::default()), condvar: Condvar::new() };
        Self { shared: Arc::new(shared), count, workers: Mutex::new(Vec::new()), orphaned: Mutex::new(None) }
    }
}

/// How long a worker keeps its core from others that want to run.
const TURN_NS: u64 = 100_000;

static CLOCK: OnceLock<Clock> = OnceLock::new();

thread_local! {
    /// Since when this thread has had its core; 0 if it is no worker.
    static TURN_SINCE: Cell<u64> = const { Cell::new(0) };
}

fn begin_turn() {
    TURN_SINCE.set(CLOCK.get_or_init(Clock::system).now_ns().max(1));
}

/// Lets who waits for this core run, if this is a worker that has had it for long; for places where it holds no lock
/// that a reader or writer may want.
///
/// Left to itself the system takes a core from who computes at its next tick, up to 4 ms after somebody else began to
/// wait for it; and with a group's leader the whole group waits. If nobody waits this returns at once.
#[inline]
pub fn give_way() {
    let since = TURN_SINCE.get();
    if since > 0 && CLOCK.get().is_some_and(|clock| clock.now_ns() >= since + TURN_NS) {
        thread::yield_now();
        begin_turn();
    }
}

fn work_loop(shared: &Shared, work: &Weak<dyn Work>) {
    if cfg!(not(shuttle)) {
        // A model goes by no clock.
        begin_turn();
    }
    loop {
        let seen = {
            let signal = shared.signal.lock();
            if signal.stopping {
                return;
            }
            signal.generation
        };
        let Some(alive) = work.upgrade() else { return };
        if alive.step() {
            continue;
        }
        let wait = alive.idle_wait();
        drop(alive);
        let mut signal = shared.signal.lock();
        if signal.generation == seen && !signal.stopping {
            let _timed_out = shared.condvar.wait_for(&mut signal, wait);
        }
    }
}

impl Executor for Threads {
    fn attach(&self, work: Weak<dyn Work>) {
        let mut workers = self.workers.lock();
        for i in 0..self.count {
            let (shared, work) = (self.shared.clone(), work.clone());
            let spawned = thread::Builder::new().name(format!("firn-{i}")).spawn(move || work_loop(&shared, &work));
            match spawned {
                Ok(handle) => workers.push(handle),
                Err(error) => tracing::warn!(%error, started = workers.len(), "cannot start a background worker"),
            }
        }
        if workers.is_empty() {
            tracing::warn!("no background worker could be started: calls that wait for background work do it");
            *self.orphaned.lock() = Some(work);
        }
    }

    fn wake(&self) {
        self.shared.signal.lock().generation += 1;
        self.shared.condvar.notify_all();
    }

    fn help(&self) -> bool {
        let orphaned = self.orphaned.lock().clone();
        orphaned.and_then(|work| work.upgrade()).is_some_and(|work| work.step())
    }

    fn stop(&self) {
        *self.orphaned.lock() = None;
        self.shared.signal.lock().stopping = true;
        self.shared.condvar.notify_all();
        let me = thread::current().id();
        for handle in self.workers.lock().drain(..) {
            // The last owner of the work may be a worker itself: it cannot wait for its own end.
            if handle.thread().id() != me && handle.join().is_err() {
                tracing::error!("a background worker panicked");
            }
        }
    }
}

/// Steps only when asked: by a test, or by a caller that would wait.
#[derive(Default)]
pub struct Inline {
    work: Mutex<Option<Weak<dyn Work>>>,
}

impl Inline {
    /// An executor that does nothing by itself.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes one step. False if there was nothing to do.
    pub fn step(&self) -> bool {
        let work = self.work.lock().clone();
        work.and_then(|w| w.upgrade()).is_some_and(|w| w.step())
    }

    /// Makes steps until there is nothing to do.
    pub fn run(&self) {
        while self.step() {}
    }
}

impl Executor for Inline {
    fn attach(&self, work: Weak<dyn Work>) {
        *self.work.lock() = Some(work);
    }

    fn wake(&self) {}

    fn help(&self) -> bool {
        self.step()
    }

    fn stop(&self) {
        *self.work.lock() = None;
    }
}

/// Runs `future` to its end on this thread.
///
/// I/O inside completes synchronously under threads, so `Pending` is only ever a yield point: this polls again.
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_with(future, thread::yield_now)
}

/// Like [`block_on`], and calls `between` at every yield point: more urgent work can be done there.
pub fn block_on_with<F: Future>(future: F, mut between: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        between();
    }
}

/// A yield point: lets other tasks run, then goes on.
pub fn yield_now() -> impl Future<Output = ()> {
    struct Yield(bool);
    impl Future for Yield {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
        }
    }
    Yield(false)
}

/// Gives up the rest of this thread's time slice; for short waits on a thread that is running.
pub fn relax(round: u32) {
    if round < 8 {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

/// Starts a named thread, for the few that are not background work (a server, a benchmark's clients).
///
/// # Errors
/// Whatever the operating system says when it cannot start one.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<thread::JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counter;

    struct Countdown(Mutex<u32>, Counter);

    impl Work for Countdown {
        fn step(&self) -> bool {
            let mut left = self.0.lock();
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.1.add(1);
            true
        }
    }

    #[test]
    fn inline_steps_only_when_told() {
        let work = Arc::new(Countdown(Mutex::new(3), Counter::default()));
        let inline = Inline::new();
        let weak: Weak<Countdown> = Arc::downgrade(&work);
        inline.attach(weak);
        inline.wake();
        assert_eq!(work.1.get(), 0);
        assert!(inline.step());
        inline.run();
        assert_eq!(work.1.get(), 3);
        assert!(!inline.help());
    }

    #[test]
    fn threads_run_all_and_stop() {
        let work = Arc::new(Countdown(Mutex::new(1000), Counter::default()));
        let threads = Threads::new(2);
        let weak: Weak<Countdown> = Arc::downgrade(&work);
        threads.attach(weak);
        while work.1.get() < 1000 {
            std::thread::yield_now();
        }
        *work.0.lock() = 5;
        threads.wake();
        while work.1.get() < 1005 {
            std::thread::yield_now();
        }
        threads.stop();
        *work.0.lock() = 5;
        threads.wake();
        assert_eq!(work.1.get(), 1005);
    }

    #[test]
    fn work_without_a_thread_is_done_by_whoever_waits() {
        let work = Arc::new(Countdown(Mutex::new(2), Counter::default()));
        let threads = Threads::new(0);
        let weak: Weak<Countdown> = Arc::downgrade(&work);
        threads.attach(weak);
        assert!(threads.help() && threads.help());
        assert!(!threads.help(), "all is done");
        *work.0.lock() = 1;
        threads.stop();
        assert!(!threads.help());
        assert_eq!(work.1.get(), 2);
    }

    #[test]
    fn block_on_crosses_yield_points() {
        assert_eq!(
            block_on(async {
                yield_now().await;
                yield_now().await;
                7
            }),
            7
        );
    }
}

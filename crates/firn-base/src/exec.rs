//! Executors, which run background work. The only place where threads start.
//!
//! Work is a state machine that is asked for one step at a time ([`Work::step`]). [`Threads`] asks
//! from a fixed number of workers, which sleep while there is no work. [`Inline`] asks only when a
//! test (or a caller that would otherwise wait) tells it to, which makes a whole run deterministic.
//! Both are driven through [`Executor`].
//!
//! Merges are `async` so that the same code serves threads (which block on it) and coroutines
//! (which poll it). [`block_on`] is the blocking side, [`run_crew`] the polling one; [`yield_now`]
//! is a yield point.

mod crew;
#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

pub use self::crew::{Crew, Task, may_suspend, run_crew};

use crate::clock::Clock;
use crate::sync::{Condvar, Mutex, hint, thread};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A source of background work.
pub trait Work: Send + Sync + 'static {
    /// Does one unit of work if there is any. Returns true if it did.
    fn step(&self) -> bool;

    /// The longest sleep of an idle worker before it asks again without having been woken.
    fn idle_wait(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Runs a [`Work`]'s steps.
pub trait Executor: Send + Sync {
    /// Gives the executor its work. The executor holds it weakly and stops asking once it is
    /// dropped.
    fn attach(&self, work: Weak<dyn Work>);
    /// Announces that there may be work.
    fn wake(&self);
    /// Called by a thread that cannot proceed until background work is done. True if this call made
    /// a step, so the caller should check again at once. False if other threads will do it, so the
    /// caller may sleep.
    fn help(&self) -> bool;
    /// Stops the executor. No step starts after this returns.
    fn stop(&self);
}

/// A fixed number of worker threads. If the system starts none of them, a thread that waits for
/// work does the work itself.
pub struct Threads {
    shared: Arc<Shared>,
    count: usize,
    workers: Mutex<Vec<thread::JoinHandle<()>>>,
    /// Work for which no thread could be started.
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
        let shared = Shared {
            signal: Mutex::new(Signal::default()),
            condvar: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            count,
            workers: Mutex::new(Vec::new()),
            orphaned: Mutex::new(None),
        }
    }
}

/// The time a worker keeps its core before it yields, in nanoseconds.
const TURN_NS: u64 = 100_000;

static CLOCK: OnceLock<Clock> = OnceLock::new();

thread_local! {
    /// The time at which this thread's turn on its core began; 0 if it is not a worker.
    static TURN_SINCE: Cell<u64> = const { Cell::new(0) };
}

fn begin_turn() {
    TURN_SINCE.set(CLOCK.get_or_init(Clock::system).now_ns().max(1));
}

/// Yields the core if this is a worker whose turn has lasted 100 us. Call it where no lock is
/// held that a reader or writer may want.
///
/// The scheduler preempts a computing thread only at its next tick, up to 4 ms after another thread
/// began to wait for the core; if that thread leads a commit group, the whole group waits with it.
/// Returns at once if no thread waits.
#[inline]
pub fn give_way() {
    let since = TURN_SINCE.get();
    if since > 0
        && CLOCK
            .get()
            .is_some_and(|clock| clock.now_ns() >= since + TURN_NS)
    {
        thread::yield_now();
        begin_turn();
    }
}

fn work_loop(shared: &Shared, work: &Weak<dyn Work>) {
    if cfg!(not(shuttle)) {
        // Models do not use a clock.
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
            let spawned = thread::Builder::new()
                .name(format!("firn-{i}"))
                .spawn(move || work_loop(&shared, &work));
            match spawned {
                Ok(handle) => workers.push(handle),
                Err(error) => {
                    tracing::warn!(%error, started = workers.len(), "cannot start a background worker")
                }
            }
        }
        if workers.is_empty() {
            tracing::warn!(
                "no background worker could be started: calls that wait for background work do it"
            );
            *self.orphaned.lock() = Some(work);
        }
    }

    fn wake(&self) {
        self.shared.signal.lock().generation += 1;
        self.shared.condvar.notify_all();
    }

    fn help(&self) -> bool {
        let orphaned = self.orphaned.lock().clone();
        orphaned
            .and_then(|work| work.upgrade())
            .is_some_and(|work| work.step())
    }

    fn stop(&self) {
        *self.orphaned.lock() = None;
        self.shared.signal.lock().stopping = true;
        self.shared.condvar.notify_all();
        let me = thread::current().id();
        for handle in self.workers.lock().drain(..) {
            // The last owner of the work may be a worker itself, which cannot join its own thread.
            if handle.thread().id() != me && handle.join().is_err() {
                tracing::error!("a background worker panicked");
            }
        }
    }
}

/// An executor that steps only when asked, by a test or by a caller that would otherwise wait.
#[derive(Default)]
pub struct Inline {
    work: Mutex<Option<Weak<dyn Work>>>,
}

impl Inline {
    /// An executor with no work attached.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes one step. Returns false if there was no work.
    pub fn step(&self) -> bool {
        let work = self.work.lock().clone();
        work.and_then(|w| w.upgrade()).is_some_and(|w| w.step())
    }

    /// Makes steps until there is no work left.
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

/// Runs `future` to completion on this thread.
///
/// I/O inside it completes synchronously ([`may_suspend`] is false), so `Pending` only ever means a
/// yield point. This polls again after each.
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_with(future, thread::yield_now)
}

/// Like [`block_on`], but calls `between` at every yield point, where more urgent work can be done.
pub fn block_on_with<F: Future>(future: F, mut between: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let polled = crew::suspending(false, || future.as_mut().poll(&mut context));
        if let Poll::Ready(output) = polled {
            return output;
        }
        between();
    }
}

/// A yield point: lets other tasks run, then continues.
pub fn yield_now() -> impl Future<Output = ()> {
    struct Yield(bool);
    impl Future for Yield {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                Poll::Ready(())
            } else {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
    Yield(false)
}

/// Spins for the first 8 rounds and yields the core after that. For short waits on a thread that is
/// running.
pub fn relax(round: u32) {
    if round < 8 {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

/// Starts a named thread. For the few threads that are not background work (a server, a benchmark's
/// clients).
///
/// # Errors
/// The operating system's error if it cannot start one.
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

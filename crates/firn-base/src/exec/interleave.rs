//! Worker threads that sleep and are woken, in every order. A lost wake-up leaves all of them
//! asleep, which ends the model with an error because no wait times out under the scheduler.

use super::*;
use crate::sync::{AtomicBool, AtomicU64, Ordering, explore};

/// A number of steps to do, and a signal for the thread that waits for the last one.
#[derive(Default)]
struct Steps {
    left: AtomicU64,
    stopped: AtomicBool,
    done: (Mutex<u64>, Condvar),
}

impl Work for Steps {
    fn step(&self) -> bool {
        assert!(!self.stopped.load(Ordering::SeqCst), "a step after the end");
        let taken = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_ok();
        if taken {
            *self.done.0.lock() += 1;
            self.done.1.notify_all();
        }
        taken
    }
}

fn started() -> (Arc<Steps>, Arc<Threads>) {
    let (work, threads) = (Arc::new(Steps::default()), Arc::new(Threads::new(2)));
    let weak: Weak<Steps> = Arc::downgrade(&work);
    threads.attach(weak);
    (work, threads)
}

#[test]
fn no_wake_is_lost_and_no_step_follows_the_end() {
    explore::random(|| {
        let (work, threads) = started();
        let (other, waker) = (work.clone(), threads.clone());
        let second = thread::spawn(move || {
            other.left.fetch_add(1, Ordering::SeqCst);
            waker.wake();
        });
        work.left.fetch_add(2, Ordering::SeqCst);
        threads.wake();
        let mut done = work.done.0.lock();
        while *done < 3 {
            work.done.1.wait(&mut done);
        }
        drop(done);
        threads.stop();
        work.stopped.store(true, Ordering::SeqCst);
        second.join().unwrap();
    });
}

/// Work whose drop stops the executor, as a database's does. The last holder may be a worker.
struct Owner {
    executor: Arc<Threads>,
    is_idle: AtomicBool,
}

impl Work for Owner {
    fn step(&self) -> bool {
        !self.is_idle.swap(true, Ordering::SeqCst)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.executor.stop();
    }
}

#[test]
fn the_last_owner_may_be_a_worker() {
    explore::random(|| {
        let owner = Arc::new(Owner {
            executor: Arc::new(Threads::new(2)),
            is_idle: AtomicBool::new(false),
        });
        let executor = owner.executor.clone();
        let weak: Weak<Owner> = Arc::downgrade(&owner);
        executor.attach(weak);
        drop(owner);
        executor.wake();
    });
}

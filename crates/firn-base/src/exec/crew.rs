//! A crew: several tasks of one worker, polled in turn. While one waits for its I/O, another
//! computes.
//!
//! 1. A task is polled only after its waker was called, except the service. A task that suspends
//!    must have arranged for that: I/O does ([`may_suspend`]), and so does `yield_now`.
//! 2. Only [`Crew::between`] and [`Crew::wait`] may block, because everything else stops all tasks.

use crate::sync::{AtomicBool, Ordering, thread};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A task of a crew.
pub type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The longest wait of a crew whose tasks all wait. A task may wait for something that wakes
/// nobody, such as the end of users' reads.
const WAIT: Duration = Duration::from_millis(1);

/// The surroundings of a crew.
pub trait Crew<'a> {
    /// The next task, if there is one. Asked while there are fewer than the crew's width.
    fn next(&mut self) -> Option<Task<'a>>;
    /// A task that serves the others. It is polled in every round, and dropped when they have
    /// ended.
    fn service(&mut self) -> Option<Task<'a>>;
    /// Called after each round of polls, for more urgent work and to slow the crew down.
    fn between(&mut self);
    /// Starts the I/O that tasks have queued, and wakes the tasks whose I/O has completed. If
    /// `at_most` is not zero, waits that long for the first.
    fn wait(&mut self, at_most: Duration);
}

thread_local! {
    /// True while a crew polls a task on this thread.
    static SUSPENDS: Cell<bool> = const { Cell::new(false) };
}

/// True if the code that runs is polled by a crew, so it should suspend instead of waiting for
/// I/O.
pub fn may_suspend() -> bool {
    SUSPENDS.get()
}

/// Runs `body` with [`may_suspend`] set to `suspends`.
pub(super) fn suspending<T>(suspends: bool, body: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SUSPENDS.set(self.0);
        }
    }
    let _restore = Restore(SUSPENDS.replace(suspends));
    body()
}

/// Tells a crew that a task can go on.
struct Flag {
    woken: AtomicBool,
    worker: thread::Thread,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.worker.unpark();
        }
    }
}

struct Member<'a> {
    task: Task<'a>,
    flag: Arc<Flag>,
    waker: Waker,
}

impl<'a> Member<'a> {
    fn new(task: Task<'a>) -> Member<'a> {
        let flag = Arc::new(Flag {
            woken: AtomicBool::new(true),
            worker: thread::current(),
        });
        let waker = Waker::from(flag.clone());
        Member { task, flag, waker }
    }

    fn is_woken(&self) -> bool {
        self.flag.woken.load(Ordering::Acquire)
    }

    /// Returns true if the task has ended.
    fn poll(&mut self) -> bool {
        // Cleared first, so that a wake during the poll is not lost.
        self.flag.woken.store(false, Ordering::Release);
        let mut context = Context::from_waker(&self.waker);
        let task = &mut self.task;
        suspending(true, || task.as_mut().poll(&mut context)) == Poll::Ready(())
    }
}

/// Runs the tasks of `crew` on this thread, up to `width` at a time, until there is none left.
pub fn run_crew<'a>(width: usize, crew: &mut impl Crew<'a>) {
    let mut members: Vec<Member<'a>> = Vec::new();
    let mut service = crew.service().map(Member::new);
    let mut is_drained = false;
    loop {
        while !is_drained && members.len() < width.max(1) {
            match crew.next() {
                Some(task) => members.push(Member::new(task)),
                None => is_drained = true,
            }
        }
        if members.is_empty() {
            return;
        }
        let before = members.len();
        members.retain_mut(|member| !(member.is_woken() && member.poll()));
        // After them, so that it serves what they have just asked for.
        if let Some(member) = &mut service {
            member.poll();
        }
        crew.between();
        let can_go_on = members.len() < before || members.iter().any(Member::is_woken);
        crew.wait(if can_go_on { Duration::ZERO } else { WAIT });
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::super::{block_on, yield_now};
    use super::*;
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;

    /// A crew of prepared tasks, which counts the rounds and the waits.
    #[derive(Default)]
    struct Prepared<'a> {
        tasks: Vec<Task<'a>>,
        service: Option<Task<'a>>,
        rounds: usize,
        waits: usize,
        asleep: Rc<RefCell<Vec<Waker>>>,
    }

    impl<'a> Crew<'a> for Prepared<'a> {
        fn next(&mut self) -> Option<Task<'a>> {
            self.tasks.pop()
        }

        fn service(&mut self) -> Option<Task<'a>> {
            self.service.take()
        }

        fn between(&mut self) {
            assert!(!may_suspend(), "between polls it may block");
            self.rounds += 1;
        }

        fn wait(&mut self, at_most: Duration) {
            if at_most > Duration::ZERO {
                self.waits += 1;
                self.asleep.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    fn yields<'a>(log: &'a RefCell<Vec<u32>>, id: u32) -> Task<'a> {
        Box::pin(async move {
            for _ in 0..3 {
                log.borrow_mut().push(id);
                yield_now().await;
            }
        })
    }

    #[test]
    fn tasks_take_turns_and_no_more_than_the_width_run() {
        let log = RefCell::new(Vec::new());
        let mut crew = Prepared {
            tasks: (0..3).rev().map(|id| yields(&log, id)).collect(),
            ..Prepared::default()
        };
        run_crew(2, &mut crew);
        assert_eq!(crew.waits, 0, "each could always go on");
        assert_eq!(*log.borrow(), [0, 1, 0, 1, 0, 1, 2, 2, 2]);
    }

    #[test]
    fn a_task_that_waits_is_polled_once_it_is_woken() {
        let asleep = Rc::new(RefCell::new(Vec::new()));
        let (mut polls, waits) = (0, asleep.clone());
        let counted = &mut polls;
        let task = poll_fn(move |context| {
            *counted += 1;
            assert!(may_suspend());
            if *counted == 3 {
                return Poll::Ready(());
            }
            waits.borrow_mut().push(context.waker().clone());
            Poll::Pending
        });
        let mut crew = Prepared {
            tasks: vec![Box::pin(task)],
            asleep,
            ..Prepared::default()
        };
        run_crew(4, &mut crew);
        let (rounds, waits) = (crew.rounds, crew.waits);
        drop(crew);
        assert_eq!((polls, rounds, waits), (3, 3, 2));
    }

    #[test]
    fn a_service_is_polled_in_every_round_and_ends_with_the_crew() {
        let (log, served) = (RefCell::new(Vec::new()), Cell::new(0));
        let service = poll_fn(|_| {
            served.set(served.get() + 1);
            Poll::Pending
        });
        let mut crew = Prepared {
            tasks: vec![yields(&log, 0)],
            service: Some(Box::pin(service)),
            ..Prepared::default()
        };
        run_crew(1, &mut crew);
        assert_eq!((served.get(), crew.rounds), (4, 4));
    }

    #[test]
    fn a_service_serves_what_was_asked_for_in_the_same_round() {
        let asked: RefCell<Vec<Waker>> = RefCell::new(Vec::new());
        let service = poll_fn(|_| {
            asked.take().into_iter().for_each(Waker::wake);
            Poll::Pending
        });
        let mut polls = 0;
        let task = poll_fn(|context| {
            polls += 1;
            if polls == 4 {
                return Poll::Ready(());
            }
            asked.borrow_mut().push(context.waker().clone());
            Poll::Pending
        });
        let mut crew = Prepared {
            tasks: vec![Box::pin(task)],
            service: Some(Box::pin(service)),
            ..Prepared::default()
        };
        run_crew(1, &mut crew);
        assert_eq!((crew.rounds, crew.waits), (4, 0));
    }

    #[test]
    fn code_that_blocks_inside_a_crew_does_not_suspend() {
        let task: Task<'_> = Box::pin(async {
            assert!(may_suspend());
            block_on(async { assert!(!may_suspend()) });
            assert!(may_suspend());
        });
        let mut crew = Prepared {
            tasks: vec![task],
            ..Prepared::default()
        };
        run_crew(1, &mut crew);
    }
}

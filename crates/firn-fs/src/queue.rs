//! Writes and syncs that one submitter puts in flight, in order, when it sees fit.
//!
//! 1. A [`Pending`] of a queue completes once the submitter has submitted the operation and found
//!    it complete.
//! 2. Whoever waits for one that is not submitted yet performs it itself, so a wait always ends,
//!    also where the submitter is a task of the same thread.
//! 3. An operation whose `Pending` was dropped still happens if the submitter goes on.

use crate::buf::IoBuf;
use crate::file::{Completion, File, Pending};
use firn_base::Result;
use firn_base::count::CompactionIo;
use firn_base::site::Site;
use firn_base::sync::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

/// Operations that wait to be submitted.
#[derive(Default)]
pub struct WriteQueue {
    waiting: Mutex<VecDeque<Arc<Mutex<Entry>>>>,
}

impl fmt::Debug for WriteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteQueue")
            .field("waiting", &self.waiting.lock().len())
            .finish()
    }
}

enum Op {
    Write(u64, IoBuf),
    Sync(&'static Site),
}

enum Stage {
    Queued(Arc<dyn File>, Op),
    InFlight(Pending),
    Done(Result<IoBuf>),
    /// The result was taken, or the operation is being performed by whoever waits for it.
    Taken,
}

struct Entry {
    stage: Stage,
    /// The task that waits for it.
    waker: Option<Waker>,
}

impl Entry {
    fn wake(&mut self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// An operation that the submitter has put in flight.
pub struct Submitted(Arc<Mutex<Entry>>);

impl WriteQueue {
    /// Queues a write of `buf` at `offset`. The rules of [`File::write`] apply.
    pub fn write(&self, file: &Arc<dyn File>, offset: u64, buf: IoBuf) -> Pending {
        self.push(file, Op::Write(offset, buf))
    }

    /// Queues a sync. It covers the writes that completed before it was queued.
    pub fn sync(&self, file: &Arc<dyn File>, site: &'static Site) -> Pending {
        self.push(file, Op::Sync(site))
    }

    fn push(&self, file: &Arc<dyn File>, op: Op) -> Pending {
        let entry = Arc::new(Mutex::new(Entry {
            stage: Stage::Queued(file.clone(), op),
            waker: None,
        }));
        self.waiting.lock().push_back(entry.clone());
        Pending::new(Queued(entry))
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Puts the next operation in flight, counted by `track`. `None` if nothing waits.
    pub fn submit(&self, track: impl FnOnce() -> CompactionIo) -> Option<Submitted> {
        loop {
            let entry = self.waiting.lock().pop_front()?;
            let mut locked = entry.lock();
            match std::mem::replace(&mut locked.stage, Stage::Taken) {
                Stage::Queued(file, op) => {
                    let pending = match op {
                        Op::Write(offset, buf) => file.submit_write(offset, buf),
                        Op::Sync(site) => file.submit_sync(site),
                    };
                    locked.stage = Stage::InFlight(pending.tracked(track()));
                    drop(locked);
                    return Some(Submitted(entry));
                }
                // Whoever waited for it has performed it.
                other => locked.stage = other,
            }
        }
    }
}

impl Submitted {
    /// True if the operation has completed; its task is then awake. Otherwise `waker` is woken once
    /// it has.
    pub fn poll(&self, waker: &Waker) -> bool {
        let mut entry = self.0.lock();
        let Stage::InFlight(pending) = &mut entry.stage else {
            return true;
        };
        if !pending.poll(waker) {
            return false;
        }
        if let Stage::InFlight(pending) = std::mem::replace(&mut entry.stage, Stage::Taken) {
            entry.stage = Stage::Done(pending.wait());
        }
        entry.wake();
        true
    }
}

/// The side of whoever queued the operation.
struct Queued(Arc<Mutex<Entry>>);

impl Completion for Queued {
    fn wait(self: Box<Self>) -> Result<IoBuf> {
        let stage = std::mem::replace(&mut self.0.lock().stage, Stage::Taken);
        match stage {
            Stage::Queued(file, Op::Write(offset, buf)) => {
                file.write(offset, &[buf.bytes()])?;
                Ok(buf)
            }
            Stage::Queued(file, Op::Sync(site)) => file.sync(site).map(|()| IoBuf::default()),
            Stage::InFlight(pending) => pending.wait(),
            Stage::Done(result) => result,
            Stage::Taken => Ok(IoBuf::default()),
        }
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<IoBuf>> {
        let mut entry = self.0.lock();
        if matches!(entry.stage, Stage::Queued(..) | Stage::InFlight(_)) {
            entry.waker = Some(waker.clone());
            return None;
        }
        match std::mem::replace(&mut entry.stage, Stage::Taken) {
            Stage::Done(result) => Some(result),
            _ => Some(Ok(IoBuf::default())),
        }
    }

    fn track(&mut self, _: CompactionIo) {
        // It is counted once it is submitted.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fs, OpenMode, SimFs, open_file};
    use firn_base::count::IoCounters;
    use firn_base::site::TEST;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    fn file() -> (SimFs, Arc<dyn File>) {
        let fs = SimFs::new(1);
        let file = open_file(&fs, Path::new("/file"), OpenMode::Create).unwrap();
        (fs, file)
    }

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn bytes(text: &str) -> IoBuf {
        let mut buf = IoBuf::default();
        buf.push(text.as_bytes());
        buf
    }

    fn contents(file: &dyn File) -> Vec<u8> {
        let mut buf = IoBuf::default();
        file.read(0, 100, &mut buf).unwrap();
        buf.bytes().to_vec()
    }

    #[test]
    fn an_operation_happens_when_it_is_submitted_and_its_task_is_woken() {
        let ((fs, file), counters) = (file(), Arc::new(IoCounters::default()));
        let queue = WriteQueue::default();
        fs.defer();
        let (task, flusher) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
        let wakers = (Waker::from(task.clone()), Waker::from(flusher.clone()));
        let mut pending = queue.write(&file, 0, bytes("abc"));
        assert!(!pending.poll(&wakers.0));
        assert_eq!(contents(&*file), b"");
        let submitted = queue.submit(|| counters.begin_compaction_io()).unwrap();
        while !submitted.poll(&wakers.1) {
            assert!(!task.0.load(Ordering::SeqCst), "it is in flight");
            assert_eq!(counters.compactions.now(), 1);
            while !flusher.0.swap(false, Ordering::SeqCst) {
                fs.complete(Duration::from_millis(1));
            }
        }
        assert!(task.0.load(Ordering::SeqCst), "the task can go on");
        assert!(pending.poll(&wakers.0));
        assert_eq!(pending.wait().unwrap().bytes(), b"abc");
        assert_eq!(contents(&*file), b"abc");
        assert!(queue.submit(|| counters.begin_compaction_io()).is_none());
        assert_eq!(counters.compactions.now(), 0);
    }

    #[test]
    fn whoever_waits_does_not_need_the_submitter() {
        let ((_fs, file), counters) = (file(), Arc::new(IoCounters::default()));
        let queue = WriteQueue::default();
        let (first, second) = (
            queue.write(&file, 0, bytes("abc")),
            queue.write(&file, 3, bytes("def")),
        );
        let synced = queue.sync(&file, &TEST);
        first.wait().unwrap();
        assert_eq!(contents(&*file), b"abc");
        let submitted = queue.submit(|| counters.begin_compaction_io()).unwrap();
        second.wait().unwrap();
        assert!(submitted.poll(Waker::noop()), "it was taken");
        assert_eq!(contents(&*file), b"abcdef");
        synced.wait().unwrap();
        assert!(queue.submit(|| counters.begin_compaction_io()).is_none());
    }

    #[test]
    fn what_nobody_waits_for_happens_all_the_same() {
        let ((_fs, file), counters) = (file(), Arc::new(IoCounters::default()));
        let queue = WriteQueue::default();
        drop(queue.write(&file, 0, bytes("abc")));
        let submitted = queue.submit(|| counters.begin_compaction_io()).unwrap();
        assert!(submitted.poll(Waker::noop()));
        assert_eq!(contents(&*file), b"abc");
    }
}

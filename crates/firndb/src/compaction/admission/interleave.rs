//! Flush coroutines of several workers ask for admission at the same time.

use super::Admission;
use crate::interleave::join;
use crate::interleave::thread;
use firn_base::count::IoCounters;
use firn_base::sync::{AtomicUsize, Ordering, explore};
use std::sync::Arc;

/// No more writes than the depth are in flight, however the workers ask.
#[test]
fn writes_in_flight_stay_within_the_depth() {
    const DEPTH: usize = 2;
    explore::random(|| {
        let admission = Arc::new(Admission::new(DEPTH));
        let counters = Arc::new(IoCounters::default());
        let now = Arc::new(AtomicUsize::new(0));
        let worker = || {
            let (admission, counters, now) = (admission.clone(), counters.clone(), now.clone());
            thread::spawn(move || {
                (0..3)
                    .filter(|_| match admission.admit(0, &counters) {
                        Some(admitted) => {
                            let before = now.fetch_add(1, Ordering::SeqCst);
                            assert!(before < DEPTH, "{before} were in flight already");
                            now.fetch_sub(1, Ordering::SeqCst);
                            drop(admitted);
                            true
                        }
                        None => false,
                    })
                    .count()
            })
        };
        let admitted: usize = join((0..3).map(|_| worker()).collect()).into_iter().sum();
        let (counted, refused) = (admission.admitted.get(), admission.refused.get());
        assert_eq!((counted, refused), (admitted as u64, 9 - admitted as u64));
        assert!(admission.most() <= DEPTH);
    });
}

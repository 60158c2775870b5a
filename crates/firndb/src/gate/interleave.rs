//! Calls that enter, stay and leave while the gate is closed, in every order.

use super::Gate;
use crate::interleave::thread;
use firn_base::sync::explore;
use firn_base::sync::{AtomicU64, Ordering};
use std::sync::Arc;

#[test]
fn nobody_is_inside_a_closed_gate() {
    explore::all(|| {
        let (gate, open) = (Arc::new(Gate::default()), Arc::new(AtomicU64::new(1)));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let (gate, open) = (gate.clone(), open.clone());
                thread::spawn(move || {
                    if let Ok(_entered) = gate.enter() {
                        assert_eq!(open.load(Ordering::SeqCst), 1, "inside after the close");
                    }
                })
            })
            .collect();
        gate.close();
        open.store(0, Ordering::SeqCst);
        assert!(gate.enter().is_err());
        callers
            .into_iter()
            .for_each(|caller| caller.join().unwrap());
    });
}

//! Suite pm_lint, second part: the cost of each operation in flushes and fences is checked in, so
//! that a change is noticed.

use super::{BTrees, LogBuffer, PoolSpace, Structure};
use firn_pm::sim::{Mode, SimRegion};
use std::fmt::Write;

/// Each operation of the alphabet, applied once to a fresh structure, with its flushes and fences.
fn costs<S: Structure>() -> String {
    let mut told = String::new();
    for op in S::alphabet() {
        let (sim, beside) = (SimRegion::new(S::POOL_BYTES, Mode::Adr), S::beside());
        let mut structure = S::open(&sim, &beside).expect("a fresh one");
        let (_, flushes, fences) = sim.instruction_counts();
        structure.apply(&op).expect("what the alphabet has");
        sim.assert_clean();
        let (_, flushes_after, fences_after) = sim.instruction_counts();
        let _written = writeln!(
            told,
            "{op:?}: {} flushes, {} fences",
            flushes_after - flushes,
            fences_after - fences
        );
    }
    told
}

#[test]
fn of_the_pool() {
    assert_eq!(
        costs::<PoolSpace>(),
        "Put { kind: 1, len: 100 }: 2 flushes, 2 fences\n\
         Put { kind: 1, len: 700 }: 2 flushes, 2 fences\n\
         Put { kind: 2, len: 5000 }: 2 flushes, 2 fences\n\
         Store { kind: 2, len: 130 }: 2 flushes, 2 fences\n\
         Store { kind: 3, len: 64 }: 2 flushes, 2 fences\n\
         Remove(1): 0 flushes, 1 fences\n\
         Grow: 0 flushes, 1 fences\n\
         Reopen: 3 flushes, 2 fences\n"
    );
}

#[test]
fn of_the_log() {
    assert_eq!(
        costs::<LogBuffer>(),
        "Put { key: 1, len: 20 }: 1 flushes, 1 fences\n\
         Put { key: 1, len: 300 }: 1 flushes, 1 fences\n\
         Put { key: 2, len: 5000 }: 1 flushes, 1 fences\n\
         Put { key: 3, len: 13000 }: 3 flushes, 5 fences\n\
         Delete(1): 1 flushes, 1 fences\n\
         Flush: 0 flushes, 0 fences\n"
    );
}

#[test]
fn of_the_trees() {
    assert_eq!(
        costs::<BTrees>(),
        "Put(7): 2 flushes, 2 fences\n\
         Put(61): 2 flushes, 2 fences\n\
         Put(130): 2 flushes, 2 fences\n\
         Bulk(50): 8 flushes, 6 fences\n\
         Bulk(52): 8 flushes, 6 fences\n\
         Rotate: 2 flushes, 2 fences\n\
         Evict: 0 flushes, 0 fences\n\
         End: 0 flushes, 0 fences\n"
    );
}

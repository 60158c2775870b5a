//! A database of profile `tlsm` in a simulated pool, and a power cut or kill inside one of its
//! compactions.

use super::Rig;
use firn_pm::sim::{Cut, Mode, SimRegion};
use firndb::{Options, PmConfig, Tiering, TlsmStats, TlsmTuning};
use std::sync::{Arc, Mutex};

/// Lists of 4 KiB units in a simulated pool of `bytes`.
pub(crate) fn lists(bytes: u64, tiering: Tiering) -> impl FnOnce(&mut Options) {
    move |options| {
        options.tuning.tlsm = TlsmTuning {
            tiering,
            unit_bytes: Some(4 << 10),
            ..TlsmTuning::default()
        };
        options.pm = Some(PmConfig::volatile(0));
        options.environment.memory = Some(SimRegion::new(bytes, Mode::Adr));
    }
}

pub(crate) const POOL_BYTES: u64 = 4 << 20;

pub(crate) fn tlsm(rig: &Rig) -> TlsmStats {
    rig.stats().design.tlsm.unwrap()
}

pub(crate) fn count(lists: &[usize]) -> usize {
    lists.iter().sum()
}

/// Kills a rig at the `stores`-th store to persistent memory of a compaction of everything. `None`
/// if it ends before.
pub(crate) fn cut_in_a_compaction(rig: Rig, stores: u64) -> Option<Rig> {
    killed_in_a_compaction(rig, stores, |cut| cut.killed())
}

/// The same, with the memory that `leave` makes of the cut.
pub(crate) fn killed_in_a_compaction(
    mut rig: Rig,
    stores: u64,
    leave: impl FnOnce(Cut) -> SimRegion,
) -> Option<Rig> {
    let slot: Arc<Mutex<Option<Cut>>> = Arc::default();
    let memory = rig.options.environment.memory.clone().unwrap();
    let (at_cut, fs) = (slot.clone(), rig.fs.clone());
    memory.cut_after(stores, move |cut| {
        *at_cut.lock().unwrap() = Some(cut);
        fs.halt();
    });
    let _cut = rig.db.compact();
    let cut = slot.lock().unwrap().take()?;
    rig.options.environment.memory = Some(leave(cut));
    Some(rig.killed())
}

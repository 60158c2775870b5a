//! The rows of TLSM (docs/design/tlsm.md): what makes the design one, each in a small database that
//! shows it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_pm::sim::{Mode, SimRegion};
use firndb::{Options, PmConfig, Profile, Tiering, TlsmStats, TlsmTuning};
use rig::Rig;
use std::sync::{Arc, Mutex};

/// Lists of 4 KiB units in a simulated pool of `bytes`.
fn lists(bytes: u64, tiering: Tiering) -> impl FnOnce(&mut Options) {
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

fn tlsm(rig: &Rig) -> TlsmStats {
    rig.stats().tlsm.unwrap()
}

#[test]
fn tlsm_holds_what_a_map_holds() {
    for tiering in [Tiering::Lru, Tiering::Leveled(1), Tiering::None] {
        let mut rig = Rig::loaded(Profile::Tlsm, 6_000, lists(4 << 20, tiering));
        rig.check();
        rig.delete_some();
        rig.put(2_000, 1_000_000);
        rig.check();
        let rig = rig.reopened();
        rig.check();
        let rig = rig.killed();
        rig.check();
        rig.db.compact().unwrap();
        rig.check();
    }
}

#[test]
fn tlsm_small_pools_lose_nothing() {
    for kib in [192, 320, 640] {
        for tiering in [Tiering::Lru, Tiering::Leveled(2)] {
            let mut rig = Rig::loaded(Profile::Tlsm, 6_000, lists(kib << 10, tiering));
            rig.check();
            rig.delete_some();
            rig.put(3_000, 5_000);
            rig.check();
            rig.killed().check();
        }
    }
}

/// A compaction is cut at every store to persistent memory: the next process goes on with it, and
/// nothing that it dropped comes back.
#[test]
fn tlsm_10_a_cut_compaction_goes_on() {
    let (mut resumed, mut cuts) = (0, 0);
    for stores in (3..4000).step_by(11) {
        let mut rig = Rig::loaded(Profile::Tlsm, 1_200, lists(4 << 20, Tiering::Lru));
        rig.delete_some();
        let (slot, fs) = (Arc::new(Mutex::new(None)), rig.fs.clone());
        let memory = rig.options.environment.memory.clone().unwrap();
        let at_cut = slot.clone();
        memory.cut_after(stores, move |cut| {
            *at_cut.lock().unwrap() = Some(cut);
            fs.halt();
        });
        if rig.db.compact().is_ok() {
            break;
        }
        let Some(cut) = slot.lock().unwrap().take() else {
            panic!("no cut")
        };
        cuts += 1;
        rig.options.environment.memory = Some(cut.killed());
        let rig = rig.killed();
        rig.check();
        rig.settle();
        rig.check();
        resumed += tlsm(&rig).resumed;
    }
    assert!(cuts > 5, "{cuts} cuts");
    assert!(resumed > 0, "none of {cuts} compactions went on");
}

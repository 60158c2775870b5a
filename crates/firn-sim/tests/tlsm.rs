//! The rows of TLSM (docs/design/tlsm.md): what makes the design one, each in a small database that
//! shows it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_pm::sim::{Mode, SimRegion};
use firndb::{Options, PmConfig, Profile, Tiering, TlsmStats, TlsmTuning};
use rig::Rig;

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
        eprintln!("loaded");
        rig.check();
        eprintln!("checked");
        rig.delete_some();
        eprintln!("deleted");
        rig.put(2_000, 1_000_000);
        eprintln!("put");
        rig.check();
        let rig = rig.reopened();
        eprintln!("reopened");
        rig.check();
        let rig = rig.killed();
        eprintln!("killed");
        rig.check();
        rig.db.compact().unwrap();
        eprintln!("compacted");
        rig.check();
        println!("{tiering:?} {:?}", tlsm(&rig));
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
            println!("{kib} {tiering:?} {:?}", tlsm(&rig));
            rig.killed().check();
        }
    }
}

#[test]
fn debug_one() {
    let mut rig = Rig::loaded(Profile::Tlsm, 6_000, lists(4 << 20, Tiering::Lru));
    rig.check();
    rig.delete_some();
    rig.events.0.lock().unwrap().clear();
    for i in 0..300 {
        if !rig.inline.step() {
            eprintln!("idle after {i}");
            break;
        }
    }
    eprintln!("{:?}", tlsm(&rig));
    for event in rig.events.0.lock().unwrap().drain(..).take(60) {
        eprintln!("   {event:?}");
    }
}

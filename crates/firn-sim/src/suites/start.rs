//! The starting points of a run: no database, of any profile, or a database of `block` with several
//! levels whose tables grew.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::contents::read_all;
use crate::machine::Machine;
use crate::model::{Death, History};
use crate::session::Session;
use crate::setup::Setup;
use firn_base::exec;
use firn_base::seed::Seed;
use firndb::{LogPlacement, Profile, Tiering};
use std::sync::OnceLock;

/// A machine, and the expected contents of its database.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) setup: Setup,
    pub(crate) machine: Machine,
    pub(crate) history: History,
}

impl Start {
    /// No database yet.
    pub(crate) fn empty(setup: Setup, seed: u64) -> Start {
        Start {
            machine: Machine::new(&setup, seed),
            setup,
            history: History::default(),
        }
    }

    /// No database yet, of a profile whose level 0 is a pair of trees, in persistent memory or
    /// rebuilt from logs.
    pub(crate) fn trees(random: &mut Seed, seed: u64) -> Start {
        let log_placement = if random.one_in(2) {
            LogPlacement::Rest
        } else {
            LogPlacement::Ssd
        };
        let (pool, direct, grows_below_trees) =
            (random.one_in(2), random.one_in(2), random.one_in(2));
        let reuse_min = if random.one_in(2) { 0.3 } else { 0.0 };
        let small = Setup {
            reuse_min,
            ..Setup::small()
        };
        Start::empty(
            Setup {
                profile: Profile::Lab,
                pool,
                direct,
                log_placement,
                grows_below_trees,
                ..small
            },
            seed,
        )
    }

    /// No database yet, of a profile whose tables are lists in persistent memory as far as there is
    /// room.
    pub(crate) fn lists(random: &mut Seed, seed: u64) -> Start {
        let tiering = match random.below(3) {
            0 => Tiering::Leveled(1),
            _ => Tiering::Lru,
        };
        Start::empty(
            Setup {
                profile: Profile::Tlsm,
                pool: true,
                direct: random.one_in(2),
                keys: if random.one_in(2) { 60 } else { 400 },
                tiering,
                ..Setup::small()
            },
            seed,
        )
    }

    /// No database yet, of a profile whose upper tables are in persistent memory as far as there is
    /// room.
    pub(crate) fn sorted(random: &mut Seed, seed: u64) -> Start {
        Start::empty(
            Setup {
                profile: Profile::Blade,
                pool: true,
                direct: random.one_in(2),
                keys: if random.one_in(2) { 60 } else { 400 },
                ..Setup::small()
            },
            seed,
        )
    }

    /// No database yet, of a profile whose partitions have ranges with stacks of tables.
    pub(crate) fn stacks(random: &mut Seed, seed: u64) -> Start {
        Start::empty(
            Setup {
                profile: Profile::Pmdb,
                direct: random.one_in(2),
                keys: if random.one_in(2) { 60 } else { 400 },
                partitions: if random.one_in(2) { 1 } else { 4 },
                ..Setup::small()
            },
            seed,
        )
    }

    /// A database whose tables grew. It is the same each time; the seed determines the faults of
    /// its disk.
    pub(crate) fn grown(seed: u64) -> Start {
        static GROWN: OnceLock<Start> = OnceLock::new();
        // On a separate thread, where all mechanisms are on, whatever is switched off on this one.
        let start = GROWN.get_or_init(|| exec::spawn("grow", grow).unwrap().join().unwrap());
        let machine = start.machine.duplicate();
        machine.fs.reseed(seed);
        Start {
            machine,
            ..start.clone()
        }
    }
}

fn grow() -> Start {
    let setup = Setup {
        profile: Profile::Block,
        keys: 3000,
        value_bytes_max: 150,
        write_buffer_bytes: 8 << 10,
        eager_appends: true,
        ..Setup::small()
    };
    let (machine, mut random) = (Machine::new(&setup, 1), Seed::new(1));
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    for _ in 0..400 {
        session
            .write(
                (0..12)
                    .map(|_| (setup.key(&mut random), Some(setup.value(&mut random))))
                    .collect(),
                setup.durability(&mut random),
            )
            .unwrap();
        session.inline.run();
    }
    session.settle().unwrap();
    let stats = session.db().stats();
    assert!(
        stats
            .levels
            .iter()
            .map(|level| level.growth.grown_tables)
            .sum::<u64>()
            > 5,
        "{:?}",
        stats.levels
    );
    let mut history = session.history.clone();
    history.restart(read_all(session.db()).unwrap());
    let machine = machine.die(Death::Kill, &mut random);
    Start {
        setup,
        machine,
        history,
    }
}

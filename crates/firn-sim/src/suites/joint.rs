//! One cut through the whole engine at any point: run, die, recover, compare; and again during the
//! recovery.

use crate::contents::read_all;
use crate::machine::{Machine, fingerprint};
use crate::model::{Death, History, Map};
use crate::session::{Session, orphans};
use crate::setup::Setup;
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firndb::{Durability, Profile};

/// The state after a death.
struct Remains {
    machine: Machine,
    history: History,
    death: Death,
}

/// Runs one seed. Panics if an invariant does not hold.
pub(crate) fn joint(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let setup = Setup::random(&mut random);
    let machine = Machine::new(&setup, seed);
    lives(
        &setup,
        Remains {
            machine,
            history: History::default(),
            death: Death::Kill,
        },
        &mut random,
    )
}

/// The same for a database whose keys are divided into up to 4 or 32 partitions, so that cuts hit
/// changes of their borders.
pub(crate) fn partitions(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let profile = if random.one_in(4) {
        Profile::Block
    } else {
        Profile::Classic
    };
    divided(seed, profile, random)
}

/// `pmdb_joint`: the same for a database whose partitions are divided into ranges with stacks of
/// tables.
pub(crate) fn pmdb_joint(seed: u64) -> Tally {
    divided(seed, Profile::Pmdb, Seed::new(mix(seed)))
}

fn divided(seed: u64, profile: Profile, mut random: Seed) -> Tally {
    let setup = Setup {
        profile,
        keys: 4000,
        value_bytes_max: 150,
        write_buffer_bytes: 6 << 10,
        partitions: if random.one_in(2) { 4 } else { 32 },
        ..Setup::random(&mut random)
    };
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).expect("a new database");
    session
        .run(300 + random.below(500), &mut random)
        .expect("no fault");
    session.settle().expect("no fault");
    if random.one_in(2) {
        // Partitions that become small are joined, now or in one of the lives.
        let keys: Vec<Vec<u8>> = session.history.now().keys().cloned().collect();
        let from = random.below(keys.len().max(1) as u64) as usize;
        for keys in keys[from..].chunks(40) {
            let changes = keys.iter().map(|key| (key.clone(), None)).collect();
            session
                .write(changes, Durability::Process)
                .expect("no fault");
        }
    }
    let mut tally = Tally::default();
    tally.lived(&session.db().stats());
    let after = machine.die(Death::Kill, &mut random);
    let history = std::mem::take(&mut session.history);
    drop(session);
    let remains = Remains {
        machine: after,
        history,
        death: Death::Kill,
    };
    tally.and(lives(&setup, remains, &mut random))
}

/// The same for a database with several levels whose tables grow, so that cuts hit appends.
pub(crate) fn block_append(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let setup = Setup {
        profile: Profile::Block,
        keys: 4000,
        value_bytes_max: 150,
        write_buffer_bytes: 8 << 10,
        eager_appends: random.one_in(2),
        ..Setup::random(&mut random)
    };
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).expect("a new database");
    session.run(1500, &mut random).expect("no fault");
    session.settle().expect("no fault");
    let after = machine.die(Death::Kill, &mut random);
    let history = std::mem::take(&mut session.history);
    drop(session);
    lives(
        &setup,
        Remains {
            machine: after,
            history,
            death: Death::Kill,
        },
        &mut random,
    )
}

/// The same for a database whose level 0 is a pair of trees, in persistent memory or rebuilt from
/// logs.
pub(crate) fn lab_joint(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let setup = Setup {
        profile: Profile::Lab,
        ..Setup::random(&mut random)
    };
    let machine = Machine::new(&setup, seed);
    lives(
        &setup,
        Remains {
            machine,
            history: History::default(),
            death: Death::Kill,
        },
        &mut random,
    )
}

/// The same for a database whose tables are lists in persistent memory as far as there is room, so
/// that cuts hit links.
pub(crate) fn tlsm_joint(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let mut setup = Setup {
        profile: Profile::Tlsm,
        pool: true,
        ..Setup::random(&mut random)
    };
    let mut remains = Remains {
        machine: Machine::new(&setup, seed),
        history: History::default(),
        death: Death::Kill,
    };
    if random.one_in(2) {
        // So many entries that compactions make several lists.
        (setup.keys, setup.value_bytes_max) = (4000, 60);
        let mut session =
            Session::open(&setup, &remains.machine, History::default()).expect("a new database");
        session.run(700, &mut random).expect("no fault");
        remains.machine = remains.machine.die(Death::Kill, &mut random);
        remains.history = std::mem::take(&mut session.history);
    }
    lives(&setup, remains, &mut random)
}

/// The same for a database whose upper tables are in persistent memory as far as there is room.
pub(crate) fn blade_joint(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let setup = Setup {
        profile: Profile::Blade,
        pool: true,
        ..Setup::random(&mut random)
    };
    let remains = Remains {
        machine: Machine::new(&setup, seed),
        history: History::default(),
        death: Death::Kill,
    };
    lives(&setup, remains, &mut random)
}

/// `tlsm_link_cut`: a process is killed inside a compaction that links, the next one goes on with
/// it, and then the power fails: what the first one had not fenced is durable by then.
pub(crate) fn tlsm_link_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let setup = Setup {
        profile: Profile::Tlsm,
        pool: true,
        keys: 4000,
        value_bytes_max: 20,
        write_buffer_bytes: 128 << 10,
        ..Setup::small()
    };
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).expect("a new database");
    // So many entries that the compaction makes several lists.
    for _ in 0..150 {
        let mut entry = || {
            let key = format!("{:06}", random.below(10_000)).into_bytes();
            (key, Some(vec![b'v'; random.below(20) as usize]))
        };
        let changes = (0..12).map(|_| entry()).collect();
        session.write(changes, Durability::Power).expect("no fault");
    }
    machine.crash_after_stores(1 + random.below(300));
    let _cut = session.db().compact();
    let killed = machine.die(Death::Kill, &mut random);
    tally.recovered(fingerprint(&killed));
    let history = std::mem::take(&mut session.history);
    let mut next = Session::open(&setup, &killed, history.clone()).expect("the next process");
    let got = read_all(next.db()).expect("no fault");
    if let Err(account) = history.check(&got, Death::Kill) {
        panic!("{account}");
    }
    next.history.restart(got);
    next.settle().expect("no fault");
    tally.lived(&next.db().stats());
    let cut = killed.die(Death::Power, &mut random);
    tally.recovered(fingerprint(&cut));
    let last = Session::open(&setup, &cut, History::default()).expect("after the power cut");
    let got = read_all(last.db()).expect("what was continued");
    last.db().verify().expect("what was continued");
    if let Err(account) = next.history.check(&got, Death::Power) {
        panic!("{account}");
    }
    tally
}

fn lives(setup: &Setup, mut remains: Remains, random: &mut Seed) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..1 + random.below(3) {
        remains = live_and_die(setup, remains, random, &mut tally);
        recover_thrice(setup, &remains, random, &mut tally);
    }
    let mut session = recover(setup, &remains, &mut tally);
    session.run(50, random).expect("fifty more operations");
    session.settle().expect("the end");
    tally.lived(&session.db().stats());
    tally
}

/// Opens the remains, runs, and dies at some operation.
fn live_and_die(setup: &Setup, remains: Remains, random: &mut Seed, tally: &mut Tally) -> Remains {
    let Remains {
        machine,
        history,
        death: before,
    } = remains;
    let operations = 20 + random.below(300);
    // A quarter of the deaths come between operations, when nothing is in progress.
    if !random.one_in(4) {
        machine.arm(4 << random.below(9), random);
    }
    let cut = if random.one_in(3) {
        Death::Kill
    } else {
        Death::Power
    };
    let death = promised(setup, cut);
    // Until everything was recovered and read, data that an earlier power cut may have taken need
    // not exist.
    let both = if before == Death::Power {
        Death::Power
    } else {
        death
    };
    let mut session = match Session::open(setup, &machine, history.clone()) {
        Ok(session) => session,
        Err(error) => {
            assert!(machine.fs.crashed(), "open: {error}");
            return Remains {
                machine: machine.die(cut, random),
                history,
                death: both,
            };
        }
    };
    tally.recovered(fingerprint(&machine));
    match read_all(session.db()) {
        Ok(_) if machine.fs.crashed() => {
            return Remains {
                machine: machine.die(cut, random),
                history,
                death: both,
            };
        }
        Ok(got) => {
            if let Err(account) = history.check(&got, before) {
                panic!("{account}");
            }
            session.history.restart(got);
        }
        Err(error) => {
            assert!(machine.fs.crashed(), "read: {error}");
            return Remains {
                machine: machine.die(cut, random),
                history,
                death: both,
            };
        }
    }
    match session.run(operations, random) {
        Ok(()) => tally.lived(&session.db().stats()),
        Err(error) => assert!(machine.fs.crashed(), "without a fault: {error:?}"),
    }
    let after = machine.die(cut, random);
    if let Err(error) = session.check_checkpoints(&after.fs.duplicate()) {
        panic!("a checkpoint: {error:?}");
    }
    Remains {
        machine: after,
        history: std::mem::take(&mut session.history),
        death,
    }
}

/// The guarantee that applies after `cut`. A pool under the log is durable at the fence, so even a
/// power cut takes nothing acknowledged, whatever its durability.
fn promised(setup: &Setup, cut: Death) -> Death {
    if setup.pool { Death::Kill } else { cut }
}

/// Recovers copies of the remains: once completely, and with cuts during recovery. The contents are
/// the same each time (I4).
fn recover_thrice(setup: &Setup, remains: &Remains, random: &mut Seed, tally: &mut Tally) {
    let session = recover(setup, remains, tally);
    let (mutations, got) = (session.fs().mutations(), session.history.now().clone());
    drop(session);
    for _ in 0..random.below(3) {
        let machine = remains.machine.duplicate();
        machine.arm(mutations, random);
        let cut = Session::open(setup, &machine, remains.history.clone());
        let how = if random.one_in(2) {
            Death::Kill
        } else {
            Death::Power
        };
        let machine = machine.die(how, random);
        drop(cut);
        let death = promised(setup, how);
        // A kill leaves unsynced bytes; a power cut in the following recovery may take them.
        let weaker = remains.death == Death::Kill && death == Death::Power;
        let history = remains.history.clone();
        let again = Remains {
            machine,
            history,
            death: if weaker { death } else { remains.death },
        };
        let session = recover(setup, &again, tally);
        // Unacknowledged writes survived the kill; a power cut may take them until a recovery is
        // complete.
        if remains.death == Death::Power || how == Death::Kill {
            assert_same(&got, session.history.now());
        }
    }
}

fn assert_same(once: &Map, twice: &Map) {
    assert!(
        once == twice,
        "I4: a recovery that was cut and made again gives {} entries, not {}",
        twice.len(),
        once.len()
    );
}

/// Recovers a copy of the remains and checks what came back.
fn recover(setup: &Setup, remains: &Remains, tally: &mut Tally) -> Session {
    let machine = remains.machine.duplicate();
    tally.recovered(fingerprint(&machine));
    let mut session = match Session::open(setup, &machine, remains.history.clone()) {
        Ok(session) => session,
        Err(error) => panic!(
            "recovery after {:?} (pool: {}): {error:?}",
            remains.death, setup.pool
        ),
    };
    let wrong = orphans(session.db(), &machine.fs, Session::dir()).expect("a directory");
    assert!(wrong.is_empty(), "I5: {wrong:?}");
    session.db().verify().expect("I7");
    let got = read_all(session.db()).expect("readable");
    if let Err(account) = remains.history.check(&got, remains.death) {
        panic!("{account} (pool: {})", setup.pool);
    }
    session.history.restart(got);
    session
}

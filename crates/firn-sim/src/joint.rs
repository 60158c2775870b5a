//! One cut through the whole engine, anywhere: run, die, recover, compare; and again inside the recovery.

use crate::contents::read_all;
use crate::model::{Death, History, Map};
use crate::session::{Session, orphans};
use crate::setup::{Pool, Setup};
use firn_base::checksum::crc32c;
use firn_base::seed::{Seed, mix};
use firn_fs::{Fault, SimFs};
use std::collections::HashSet;

/// What a suite has seen.
#[derive(Debug, Default)]
pub struct Tally {
    /// Times that a database was opened after a death.
    pub recoveries: u64,
    /// Distinct disks that were recovered, by fingerprint.
    pub images: HashSet<u64>,
}

impl Tally {
    /// Adds another's.
    pub fn add(&mut self, other: Tally) {
        self.recoveries += other.recoveries;
        self.images.extend(other.images);
    }

    fn recovering(&mut self, fs: &SimFs) {
        self.recoveries += 1;
        self.images.insert(fingerprint(fs));
    }
}

/// A hash over all files of a file system.
pub fn fingerprint(fs: &SimFs) -> u64 {
    fs.files().iter().fold(0, |hash, (path, len)| {
        let bytes = fs.read_file(path).unwrap_or_default();
        let name = u64::from(crc32c(path.to_string_lossy().as_bytes()));
        mix(hash ^ mix(name) ^ mix(u64::from(crc32c(&bytes)) << 20 ^ len))
    })
}

/// What a death left.
struct Remains {
    fs: SimFs,
    pool: Option<Pool>,
    history: History,
    death: Death,
}

/// Runs one seed. Panics if an invariant does not hold.
///
/// # Panics
/// Then.
pub fn joint(seed: u64) -> Tally {
    joint_against(seed, &[])
}

/// Like [`joint`] with faults while the database is in use: with syncs that are lost it must notice.
///
/// # Panics
/// If an invariant does not hold.
pub fn joint_against(seed: u64, faults: &[Fault]) -> Tally {
    let mut random = Seed::new(mix(seed));
    let mut tally = Tally::default();
    let setup = Setup::random(&mut random);
    let pool = random.one_in(8).then(Pool::new);
    let mut remains = Remains { fs: setup.file_system(seed), pool, history: History::default(), death: Death::Kill };
    for _ in 0..1 + random.below(3) {
        faults.iter().for_each(|fault| remains.fs.inject(fault.clone()));
        remains = live_and_die(&setup, remains, &mut random, &mut tally);
        recover_thrice(&setup, &remains, &mut random, &mut tally);
    }
    let mut session = recover(&setup, &remains, &mut tally);
    session.run(50, &mut random).expect("fifty more operations");
    session.settle().expect("the end");
    tally
}

/// Opens what is there, runs, and dies at some operation.
fn live_and_die(setup: &Setup, remains: Remains, random: &mut Seed, tally: &mut Tally) -> Remains {
    let Remains { fs, mut pool, history, death: before } = remains;
    let operations = 20 + random.below(300);
    let reach = 4 << random.below(9);
    let mutations = 1 + random.below(reach);
    // Half of the deaths come between operations, when nothing is under way.
    let in_operation = !random.one_in(4);
    if in_operation {
        fs.crash_after(mutations);
    }
    let cut = if random.one_in(3) { Death::Kill } else { Death::Power };
    let death = promised(pool.as_ref(), cut);
    // Until everything was recovered and read, what an earlier power cut may have taken need not be there.
    let both = if before == Death::Power { Death::Power } else { death };
    let opened = Session::open(setup, &fs, pool.as_ref().map(Pool::path), history.clone());
    let mut session = match opened {
        Ok(session) => session,
        Err(error) => {
            assert!(fs.crashed(), "open: {error}");
            let fs = die(&fs, pool.as_mut(), cut, random);
            return Remains { fs, pool, history, death: both };
        }
    };
    tally.recovering(&fs);
    match read_all(session.db()) {
        Ok(got) => {
            if let Err(account) = history.check(&got, before) {
                panic!("{account}");
            }
            session.history.restart(got);
        }
        Err(error) => {
            assert!(fs.crashed(), "read: {error}");
            let fs = die(&fs, pool.as_mut(), cut, random);
            return Remains { fs, pool, history, death: both };
        }
    }
    if let Err(error) = session.run(operations, random) {
        assert!(fs.crashed(), "without a fault: {error:?}");
    }
    let after = die(&fs, pool.as_mut(), cut, random);
    if let Err(error) = session.check_checkpoints(&after.duplicate()) {
        panic!("a checkpoint: {error:?}");
    }
    Remains { fs: after, pool, history: std::mem::take(&mut session.history), death }
}

/// What must survive `cut`: with a pool under the log, which is durable at the fence and so keeps what it holds, even a
/// power cut takes nothing that was acknowledged, whatever its durability.
fn promised(pool: Option<&Pool>, cut: Death) -> Death {
    if pool.is_some() { Death::Kill } else { cut }
}

fn die(fs: &SimFs, pool: Option<&mut Pool>, death: Death, random: &mut Seed) -> SimFs {
    if let Some(pool) = pool {
        pool.kill();
    }
    match death {
        Death::Kill => fs.kill(),
        Death::Power => fs.power_cut(random.next_u64()),
    }
}

/// Recovers copies of the remains: once whole, and with cuts inside; what comes back is the same (I4).
fn recover_thrice(setup: &Setup, remains: &Remains, random: &mut Seed, tally: &mut Tally) {
    let session = recover(setup, remains, tally);
    let (mutations, got) = (session.fs.mutations(), session.history.now().clone());
    drop(session);
    for _ in 0..random.below(3) {
        let (fs, mut pool) = (remains.fs.duplicate(), remains.pool.as_ref().map(Pool::duplicate));
        fs.crash_after(1 + random.below(mutations));
        let cut = Session::open(setup, &fs, pool.as_ref().map(Pool::path), remains.history.clone());
        let how = if random.one_in(2) { Death::Kill } else { Death::Power };
        let death = promised(pool.as_ref(), how);
        let fs = die(&fs, pool.as_mut(), how, random);
        drop(cut);
        // A kill leaves bytes unsynced; a power cut in the recovery that follows may take them.
        let weaker = remains.death == Death::Kill && death == Death::Power;
        let history = remains.history.clone();
        let again = Remains { fs, pool, history, death: if weaker { death } else { remains.death } };
        let session = recover(setup, &again, tally);
        if !weaker {
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
    let fs = remains.fs.duplicate();
    tally.recovering(&fs);
    let pool = remains.pool.as_ref().map(Pool::duplicate);
    let opened = Session::open(setup, &fs, pool.as_ref().map(Pool::path), remains.history.clone());
    let mut session = match opened {
        Ok(session) => session,
        Err(error) => panic!("recovery after {:?} (pool: {}): {error:?}", remains.death, remains.pool.is_some()),
    };
    let wrong = orphans(session.db(), &fs, Session::dir()).expect("a directory");
    assert!(wrong.is_empty(), "I5: {wrong:?}");
    session.db().verify().expect("I7");
    let got = read_all(session.db()).expect("readable");
    if let Err(account) = remains.history.check(&got, remains.death) {
        panic!("{account} (pool: {})", pool.is_some());
    }
    session.history.restart(got);
    session.keep(pool);
    session
}

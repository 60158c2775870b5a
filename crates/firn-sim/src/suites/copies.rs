//! Suites checkpoint_cut and repair_cut: operations that create one database from another, under
//! power cuts.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::contents::read_all;
use crate::machine::{Machine, fingerprint};
use crate::model::{Death, History, Map};
use crate::session::Session;
use crate::setup::{Setup, kind};
use crate::suites::start::Start;
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firn_fs::{Fault, FaultKind, OpKind};
use firndb::{Profile, repair};
use std::path::{Path, PathBuf};

/// A checkpoint survives the power cut that follows, whether made by links or by copies. Both it
/// and its source can then be written to.
pub(crate) fn checkpoint_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let setup = Setup {
        pool: random.one_in(3),
        ..Setup::small()
    };
    cut_a_checkpoint(Start::empty(setup, seed), random)
}

/// `block_checkpoint_cut`: the same for a database whose tables grow.
pub(crate) fn block_checkpoint_cut(seed: u64) -> Tally {
    cut_a_checkpoint(Start::grown(seed), Seed::new(mix(seed)))
}

/// `lab_checkpoint_cut`: the same for a database whose level 0 is a pair of trees over its logs.
pub(crate) fn lab_checkpoint_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    cut_a_checkpoint(Start::trees(&mut random, seed), random)
}

/// `tlsm_checkpoint_cut`: the same for a database whose tables are lists in persistent memory.
pub(crate) fn tlsm_checkpoint_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    cut_a_checkpoint(Start::lists(&mut random, seed), random)
}

/// `blade_checkpoint_cut`: the same for a database whose upper tables are in persistent memory.
pub(crate) fn blade_checkpoint_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    cut_a_checkpoint(Start::sorted(&mut random, seed), random)
}

/// `pmdb_checkpoint_cut`: the same for a database of ranges with stacks of tables.
pub(crate) fn pmdb_checkpoint_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    cut_a_checkpoint(Start::stacks(&mut random, seed), random)
}

fn cut_a_checkpoint(start: Start, mut random: Seed) -> Tally {
    let mut tally = Tally::default();
    let Start {
        setup,
        machine,
        history,
    } = start;
    let mut session = Session::open(&setup, &machine, history).unwrap();
    session.run(30 + random.below(150), &mut random).unwrap();
    if random.one_in(2) {
        machine
            .fs
            .inject(Fault::for_ever(FaultKind::Exdev).on(OpKind::Link));
    }
    let copied = session.history.now().clone();
    session.db().checkpoint("/copy").unwrap();
    machine.fs.heal();
    if random.one_in(2) {
        session.run(random.below(60), &mut random).unwrap();
    }
    let after = machine.die(Death::Power, &mut random);
    tally.recovered(fingerprint(&after));
    let promised = if setup.pool {
        Death::Kill
    } else {
        Death::Power
    };
    let mut source = Session::open(&setup, &after, session.history.clone()).expect("the source");
    let got = read_all(source.db()).unwrap();
    session
        .history
        .check(&got, promised)
        .unwrap_or_else(|account| panic!("the source: {account}"));
    source.history.restart(got);
    let (mut options, _inline, _clock) = setup.options(&after.fs, None);
    options.create_if_missing = false;
    let copy = firndb::Db::open("/copy", options).expect("the copy");
    assert!(read_all(&copy).unwrap() == copied, "the copy differs");
    // Both continue independently.
    let mut expected = copied;
    for n in 0..40u8 {
        copy.put([b'c', n], vec![n; 200]).unwrap();
        expected.insert(vec![b'c', n], vec![n; 200]);
    }
    source.run(40, &mut random).unwrap();
    copy.compact().unwrap();
    source.settle().unwrap();
    assert!(
        read_all(&copy).unwrap() == expected,
        "the copy differs after both were written on"
    );
    copy.verify().unwrap();
    tally
}

/// Repairs a database that lost its manifest, a table, a leaf of level 0 or nothing. The repair is
/// cut anywhere and run again. Everything acknowledged outside the damaged part comes back, and
/// files set aside stay there. The contents of a leaf come back from the logs, except for values in
/// the hot buffer, whose keys only the leaf has once their logs are gone.
pub(crate) fn repair_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let (profile, pool) = kind(&mut random);
    let setup = Setup {
        profile,
        pool,
        ..Setup::small()
    };
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    session.run(60 + random.below(200), &mut random).unwrap();
    let mut expected = Expected::of(&session);
    let mut machine = machine.die(Death::Kill, &mut random);
    drop(session);
    let loss = random.below(5);
    expected.is_whole = loss == 4;
    let is_damaged = match loss {
        0 | 4 => false,
        1 => {
            expected.leaf_is_lost = damage_a_leaf(&setup, &mut machine, &mut random);
            expected.leaf_is_lost
        }
        _ => {
            expected.table = damage_a_table(&setup, &machine, &mut random);
            expected.table.is_some()
        }
    };
    if !is_damaged && !expected.is_whole {
        machine.fs.cut(Path::new("/db/CURRENT"), 3).unwrap();
    }
    let cut = machine.duplicate();
    if random.one_in(2) {
        cut.fs
            .inject(Fault::for_ever(FaultKind::Exdev).on(OpKind::Link));
    }
    // A repair makes few stores to a pool.
    match pool && random.one_in(2) {
        true => cut.crash_after_stores(1 + random.below(8)),
        false => cut.crash_after(1 + random.below(40)),
    }
    let _cut_short = repair(
        Session::dir(),
        &setup.options(&cut.fs, cut.memory.as_ref()).0,
    );
    let after = cut.die(Death::Power, &mut random);
    if expected.table.is_none()
        && !expected.is_whole
        && Session::open(&setup, &after.duplicate(), History::default()).is_ok()
    {
        // The cut came after the repair had done its work.
        expected.check(&setup, &after.duplicate());
    }
    let repaired = repair(
        Session::dir(),
        &setup.options(&after.fs, after.memory.as_ref()).0,
    )
    .expect("repair");
    // Without the manifest, a log that nothing needs any more may name a value that is gone.
    let may_lose = !repaired.manifest_read || expected.leaf_is_lost;
    assert!(repaired.values_lost == 0 || may_lose, "{repaired:?}");
    let after = after.die(Death::Power, &mut random);
    tally.recovered(fingerprint(&after.duplicate()));
    expected.check(&setup, &after);
    tally
}

/// The contents that a repair must bring back.
struct Expected {
    now: Map,
    /// A damaged table, with its bytes.
    table: Option<(PathBuf, Vec<u8>)>,
    leaf_is_lost: bool,
    has_hot_values: bool,
    /// True if nothing was lost.
    is_whole: bool,
}

impl Expected {
    fn of(session: &Session) -> Expected {
        let hot = session.db().stats().design.lab.and_then(|lab| lab.hot);
        Expected {
            now: session.history.now().clone(),
            table: None,
            leaf_is_lost: false,
            has_hot_values: hot.is_some_and(|hot| hot.values > 0),
            is_whole: false,
        }
    }

    fn check(&self, setup: &Setup, machine: &Machine) {
        let session = Session::open(setup, machine, History::default()).expect("what was repaired");
        session.db().verify().expect("what was repaired is whole");
        let got = read_all(session.db()).unwrap();
        if let Some((table, bytes)) = &self.table {
            // The damaged file is kept, so that someone may be able to read more of it.
            let aside = Path::new("/db/lost").join(table.file_name().unwrap());
            let is_kept = machine
                .fs
                .read_file(&aside)
                .is_ok_and(|kept| kept == *bytes);
            assert!(is_kept, "{} is gone or changed", aside.display());
            return;
        }
        if self.is_whole {
            assert!(got == self.now, "a repair of what was whole changed it");
        }
        if self.leaf_is_lost && self.has_hot_values {
            return;
        }
        // Without the manifest a deleted key may come back. No existing key may be missing or old.
        let mut now = self.now.iter();
        let lost = now.find(|(key, value)| got.get(*key) != Some(value));
        assert!(
            lost.is_none(),
            "repair lost {:?}",
            lost.map(|(key, _)| key.escape_ascii().to_string())
        );
    }
}

/// True if an open or verify finds damage.
fn is_found(setup: &Setup, machine: &Machine) -> bool {
    let opened = Session::open(setup, &machine.duplicate(), History::default());
    opened
        .and_then(|session| session.db().verify().map(drop))
        .is_err()
}

/// Flips a byte in the middle of a table, if there is one.
fn damage_a_table(
    setup: &Setup,
    machine: &Machine,
    random: &mut Seed,
) -> Option<(PathBuf, Vec<u8>)> {
    let fs = &machine.fs;
    let tables: Vec<_> = fs
        .files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().ends_with(".sst"))
        .collect();
    let (path, len) = tables.get(random.below(tables.len().max(1) as u64) as usize)?;
    fs.flip(path, *len as usize / 3, 1).unwrap();
    // Damage to an obsolete table is no loss.
    let matters = is_found(setup, machine);
    if !matters {
        fs.flip(path, *len as usize / 3, 1).unwrap();
    }
    matters.then(|| (path.clone(), fs.read_file(path).unwrap()))
}

/// Flips a bit where the first leaves of a tree are, if there are any.
fn damage_a_leaf(setup: &Setup, machine: &mut Machine, random: &mut Seed) -> bool {
    const LEAVES_AT: u64 = 3 * 4096;
    if setup.profile != Profile::Lab || machine.memory.is_none() {
        return false;
    }
    machine.flip_memory(
        (LEAVES_AT + random.below(1 << 10)) as usize,
        random.below(8) as u8,
    );
    is_found(setup, machine)
}

//! Suites checkpoint_cut and repair_cut: what makes a database of another, under power cuts.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::contents::read_all;
use crate::machine::{Machine, fingerprint};
use crate::model::{Death, History, Map};
use crate::session::Session;
use crate::setup::Setup;
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firn_fs::{Fault, FaultKind, OpKind, SimFs};
use firndb::repair;
use std::path::{Path, PathBuf};

/// A checkpoint survives the power cut that follows, by links or by copies; it and its source are both written on.
pub(crate) fn checkpoint_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let setup = Setup { pool: random.one_in(3), ..Setup::small() };
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    session.run(30 + random.below(150), &mut random).unwrap();
    if random.one_in(2) {
        machine.fs.inject(Fault::for_ever(FaultKind::Eio).on(OpKind::Link));
    }
    let copied = session.history.now().clone();
    session.db().checkpoint("/copy").unwrap();
    machine.fs.heal();
    if random.one_in(2) {
        session.run(random.below(60), &mut random).unwrap();
    }
    let after = machine.die(Death::Power, &mut random);
    tally.recovered(fingerprint(&after));
    let promised = if setup.pool { Death::Kill } else { Death::Power };
    let mut source = Session::open(&setup, &after, session.history.clone()).expect("the source");
    let got = read_all(source.db()).unwrap();
    session.history.check(&got, promised).unwrap_or_else(|account| panic!("the source: {account}"));
    source.history.restart(got);
    let (mut options, _inline, _clock) = setup.options(&after.fs, None);
    options.create_if_missing = false;
    let copy = firndb::Db::open("/copy", options).expect("the copy");
    assert!(read_all(&copy).unwrap() == copied, "the copy differs");
    // Both go on, each on its own.
    let mut expected = copied;
    for n in 0..40u8 {
        copy.put([b'c', n], vec![n; 200]).unwrap();
        expected.insert(vec![b'c', n], vec![n; 200]);
    }
    source.run(40, &mut random).unwrap();
    copy.compact_range(None, None).unwrap();
    source.settle().unwrap();
    assert!(read_all(&copy).unwrap() == expected, "the copy differs after both were written on");
    copy.verify().unwrap();
    tally
}

/// Repair of a database whose manifest or a table is lost, cut anywhere and made again: what was acknowledged and is
/// not in the damaged part comes back, and what was set aside stays there.
pub(crate) fn repair_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let setup = Setup::small();
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    session.run(60 + random.below(200), &mut random).unwrap();
    let now = session.history.now().clone();
    let fs = machine.die(Death::Kill, &mut random).fs;
    drop(session);
    let table = random.one_in(2).then(|| damage_a_table(&setup, &fs, &mut random)).flatten();
    if table.is_none() {
        fs.cut(Path::new("/db/CURRENT"), 3).unwrap();
    }
    let cut = fs.duplicate();
    if random.one_in(2) {
        cut.inject(Fault::for_ever(FaultKind::Eio).on(OpKind::Link));
    }
    cut.crash_after(1 + random.below(40));
    let _cut_short = repair(Session::dir(), &setup.options(&cut, None).0);
    let after = cut.power_cut(random.next_u64());
    repair(Session::dir(), &setup.options(&after, None).0).expect("repair");
    let after = after.power_cut(random.next_u64());
    tally.recovered(fingerprint(&Machine::of(after.duplicate(), None)));
    check_repaired(&setup, &after, &now, table.as_ref());
    tally
}

/// Flips a byte in the middle of a table, if there is one.
fn damage_a_table(setup: &Setup, fs: &SimFs, random: &mut Seed) -> Option<(PathBuf, Vec<u8>)> {
    let tables: Vec<_> = fs.files().into_iter().filter(|(path, _)| path.to_string_lossy().ends_with(".sst")).collect();
    let (path, len) = tables.get(random.below(tables.len().max(1) as u64) as usize)?;
    fs.flip(path, *len as usize / 3, 1).unwrap();
    // One that waited to be removed is nobody's loss.
    let machine = Machine::of(fs.duplicate(), None);
    let opened = Session::open(setup, &machine, History::default());
    let matters = opened.and_then(|session| session.db().verify().map(drop)).is_err();
    if !matters {
        fs.flip(path, *len as usize / 3, 1).unwrap();
    }
    matters.then(|| (path.clone(), fs.read_file(path).unwrap()))
}

fn check_repaired(setup: &Setup, fs: &SimFs, now: &Map, table: Option<&(PathBuf, Vec<u8>)>) {
    let session = Session::open(setup, &Machine::of(fs.clone(), None), History::default()).expect("what was repaired");
    session.db().verify().expect("what was repaired is whole");
    let got = read_all(session.db()).unwrap();
    if let Some((table, bytes)) = table {
        // The file that lost something is kept for whoever can read more of it.
        let aside = Path::new("/db/lost").join(table.file_name().unwrap());
        assert!(fs.read_file(&aside).is_ok_and(|kept| kept == *bytes), "{} is gone or changed", aside.display());
        return;
    }
    // A key that was deleted may come back without the manifest; none that is there may be missing or old.
    let lost = now.iter().find(|(key, value)| got.get(*key) != Some(value));
    assert!(lost.is_none(), "repair lost {:?}", lost.map(|(key, _)| key.escape_ascii().to_string()));
}

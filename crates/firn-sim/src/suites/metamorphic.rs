//! Suite metamorphic: the same operations under different options and on every kind of database
//! give the same history, with restarts and with temporary faults.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::machine::{Machine, fingerprint};
use crate::model::Death;
use crate::session::Session;
use crate::setup::{KINDS, Setup};
use crate::tally::Tally;
use firn_base::checksum::crc32c;
use firn_base::seed::{Seed, mix};
use firn_fs::{Fault, FaultKind, OpKind};
use firndb::{Codec, Db, Profile, Result, WriteBatch};
use std::time::Duration;

/// The number of option sets for each kind.
const OPTION_SETS: u64 = 6;
const OPERATIONS: u64 = 250;
/// The maximum number of attempts while the disk fails. Every fault ends before that.
const TRIES: usize = 40;

/// An operation, applied to every database in the same way.
#[derive(Debug)]
enum Op {
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Get(Vec<u8>),
    /// Scans entries from a key on, in either direction.
    Scan(Vec<u8>, u64, bool),
    /// Takes a snapshot, or shows the contents of the one taken earlier.
    Snapshot,
    Flush,
    Compact,
    Work,
    Close,
    Kill,
    Power,
    Fault(FaultKind, OpKind, u64),
}

fn script(setup: &Setup, random: &mut Seed) -> Vec<Op> {
    let kinds = [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite];
    let ops = [OpKind::Write, OpKind::Create, OpKind::Read];
    let op = |random: &mut Seed| match random.below(60) {
        0 => Op::Flush,
        1 => Op::Compact,
        2 => Op::Close,
        3 => Op::Kill,
        4 => Op::Power,
        5 | 6 => Op::Fault(
            kinds[random.below(3) as usize],
            ops[random.below(3) as usize],
            random.below(30),
        ),
        7..12 => Op::Work,
        12..14 => Op::Snapshot,
        14..22 => Op::Get(setup.key(random)),
        22..28 => Op::Scan(setup.key(random), 1 + random.below(20), random.one_in(2)),
        _ => {
            let change = |random: &mut Seed| {
                (
                    setup.key(random),
                    (!random.one_in(4)).then(|| setup.value(random)),
                )
            };
            Op::Write((0..1 + random.below(4)).map(|_| change(random)).collect())
        }
    };
    (0..OPERATIONS).map(|_| op(random)).collect()
}

/// Runs the same script on every kind of database.
pub(crate) fn metamorphic(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let base = Setup {
        keys: 40,
        ..Setup::small()
    };
    let script = script(&base, &mut random);
    let mut first = None;
    for (profile, pool) in KINDS {
        for set in 0..OPTION_SETS {
            let grows_small = profile == Profile::Block && set % 2 == 1;
            let setup = Setup {
                profile,
                pool,
                grows_small,
                ..options(&base, set)
            };
            let machine = Machine::new(&setup, seed ^ set);
            let (told, machine, grown_tables) = run(&setup, machine, &script, &mut random.clone());
            tally.recovered(fingerprint(&machine));
            tally.grown_tables += grown_tables;
            let expected = first.get_or_insert_with(|| told.clone());
            let differs = told.iter().zip(expected.iter()).position(|(a, b)| a != b);
            assert!(
                told == *expected,
                "{setup:?}: operation {differs:?} tells another thing: {:?}",
                differs.map(|at| &script[at])
            );
        }
    }
    tally
}

fn options(base: &Setup, set: u64) -> Setup {
    let base = base.clone();
    match set {
        0 => base,
        1 => Setup {
            write_buffer_bytes: 64 << 10,
            compression: Codec::None,
            ..base
        },
        2 => Setup {
            filter_bits: 0,
            max_open_files: 2,
            ..base
        },
        3 => Setup {
            direct: false,
            write_buffer_bytes: 4 << 10,
            ..base
        },
        4 => Setup {
            direct: false,
            compression: Codec::None,
            max_open_files: 1,
            filter_bits: 2,
            ..base
        },
        _ => Setup {
            write_buffer_bytes: 16 << 10,
            filter_bits: 20,
            ..base
        },
    }
}

/// A database that is reopened whenever necessary.
struct Runner<'a> {
    setup: &'a Setup,
    machine: Machine,
    db: Option<Db>,
    inline: std::sync::Arc<firn_base::exec::Inline>,
    clock: firn_base::clock::Clock,
}

impl Runner<'_> {
    fn open(&mut self) {
        for _ in 0..TRIES {
            let (options, inline, clock) = self
                .setup
                .options(&self.machine.fs, self.machine.memory.as_ref());
            (self.inline, self.clock) = (inline, clock);
            self.db = Db::open(Session::dir(), options).ok();
            if self.db.is_some() {
                return;
            }
        }
        panic!("the disk works again, but the database does not open");
    }

    /// Retries until the fault has passed. A handle poisoned by a fault is reopened.
    fn until_done<T>(&mut self, body: impl Fn(&Db) -> Result<T>) -> T {
        for _ in 0..TRIES {
            match body(self.db.as_ref().unwrap()) {
                Ok(done) => return done,
                Err(error) if error.kind() == firndb::ErrorKind::Poisoned => {
                    self.db = None;
                    self.open();
                }
                Err(_) => {
                    self.clock.advance(Duration::from_secs(2));
                    self.inline.run();
                }
            }
        }
        panic!("the fault has passed, but the operation still fails");
    }
}

/// Runs the script. Returns the result of each operation, the machine, and the number of tables
/// that had grown at the end.
fn run(
    setup: &Setup,
    machine: Machine,
    script: &[Op],
    random: &mut Seed,
) -> (Vec<u32>, Machine, u64) {
    let (_, inline, clock) = setup.options(&machine.fs, None);
    let mut runner = Runner {
        setup,
        machine,
        db: None,
        inline,
        clock,
    };
    runner.open();
    let mut snapshot = None;
    let mut told = Vec::new();
    for op in script {
        let shown = match op {
            Op::Write(changes) => {
                runner.until_done(|db| write(db, changes));
                0
            }
            Op::Get(key) => {
                runner.until_done(|db| Ok(db.get(key)?.map_or(1, |value| crc32c(&value))))
            }
            Op::Scan(key, count, forward) => {
                runner.until_done(|db| scan(db.cursor()?, Some(key), *count, *forward))
            }
            Op::Snapshot => match snapshot.take() {
                None => {
                    snapshot = runner.db.as_ref().map(Db::snapshot);
                    2
                }
                Some(taken) => {
                    let taken: firndb::Snapshot = taken;
                    runner.until_done(|_| scan(taken.cursor()?, None, u64::MAX, true))
                }
            },
            Op::Flush => {
                runner.until_done(Db::flush);
                3
            }
            Op::Compact => {
                runner.until_done(|db| db.compact());
                4
            }
            Op::Work => {
                runner.inline.step();
                5
            }
            Op::Fault(kind, op, after) => {
                runner
                    .machine
                    .fs
                    .inject(Fault::once(*kind).on(*op).after(*after));
                6
            }
            Op::Close | Op::Kill | Op::Power => {
                snapshot = None;
                restart(&mut runner, op, random);
                7
            }
        };
        told.push(shown);
    }
    told.push(runner.until_done(|db| scan(db.cursor()?, None, u64::MAX, true)));
    runner.machine.fs.heal();
    runner.until_done(Db::wait_idle);
    runner.until_done(|db| db.verify().map(drop));
    told.push(runner.until_done(|db| scan(db.cursor()?, None, u64::MAX, false)));
    drop(snapshot);
    let grown_tables = runner
        .db
        .as_ref()
        .unwrap()
        .stats()
        .levels
        .iter()
        .map(|level| level.growth.grown_tables)
        .sum();
    (told, runner.machine, grown_tables)
}

/// Restarts the database. Every write is acknowledged with `Durability::Power`, so nothing is lost,
/// whatever the death.
fn restart(runner: &mut Runner<'_>, op: &Op, random: &mut Seed) {
    match op {
        Op::Close => drop(runner.db.take().map(Db::close)),
        op => {
            let death = if matches!(op, Op::Kill) {
                Death::Kill
            } else {
                Death::Power
            };
            let after = runner.machine.die(death, random);
            runner.db = None;
            runner.machine = after;
        }
    }
    runner.open();
}

fn write(db: &Db, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<()> {
    let mut batch = WriteBatch::new();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
    }
    db.write(&batch, &Default::default())
}

/// A checksum over up to `count` entries.
fn scan(
    mut iter: firndb::Cursor,
    from: Option<&Vec<u8>>,
    count: u64,
    forward: bool,
) -> Result<u32> {
    match (from, forward) {
        (Some(key), true) => iter.seek(key)?,
        (Some(key), false) => iter.seek_for_prev(key)?,
        (None, _) => iter.first()?,
    }
    let mut seen = Vec::new();
    for _ in 0..count {
        if !iter.valid() {
            break;
        }
        seen.extend_from_slice(iter.key());
        seen.extend_from_slice(iter.value());
        if forward || from.is_none() {
            iter.next()?
        } else {
            iter.prev()?
        }
    }
    Ok(crc32c(&seen))
}

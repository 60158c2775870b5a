//! Suite pm_file: a pool of the `file` backend in a simulated file, whose machine dies at every
//! operation of the file. The file model determines the effect of its syncs. Recovery finds the old
//! root or the new one, whole.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use super::structure::live;
use crate::tally::Tally;
use firn_base::checksum::crc32c;
use firn_base::seed::{Seed, mix};
use firn_base::site::{Site, TEST};
use firn_base::{Error, Result};
use firn_fs::{File, IoBuf, OpenMode, SimFs};
use firn_pm::{Backing, Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const UUID: [u8; 16] = [8; 16];
const BYTES: u64 = 64 << 10;

static CONTENTS: Site = Site::new("proof.file.contents");

/// A simulated file under a pool.
#[derive(Debug)]
struct SimFile(Arc<dyn File>, SimFs);

impl Backing for SimFile {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let mut buf = IoBuf::default();
        self.0
            .read(at, out.len(), &mut buf)
            .map_err(io::Error::other)?;
        // If a cut left the file shorter than its space, the rest reads as zeros, as in a file with
        // allocated space.
        out.fill(0);
        out[..buf.len()].copy_from_slice(buf.bytes());
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(at, &[bytes]).map_err(io::Error::other)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync(&TEST).map_err(io::Error::other)
    }

    fn extend(&self, site: &'static Site, len: u64) -> io::Result<()> {
        let had = self.0.len().map_err(io::Error::other)?;
        let zeros = vec![0; len.saturating_sub(had) as usize];
        if !site.is_on() {
            return self.write_at(had, &zeros);
        }
        // Allocated space reads as zeros in any case: the file system ensures it, not the writes.
        let path = self.0.path();
        let mut bytes = self.1.read_file(path).map_err(io::Error::other)?;
        bytes.extend_from_slice(&zeros);
        self.1.write_file(path, &bytes);
        self.0.sync(site).map_err(io::Error::other)
    }
}

/// The length of the bytes of each kind.
type State = BTreeMap<u16, u64>;

/// An operation: replaces the bytes of a kind with bytes of a length, or removes the kind.
type Op = (u16, Option<u64>);

fn open(fs: &SimFs) -> Result<Pool> {
    let path = Path::new("/pool");
    // A file that is too short was being created.
    let is_new = fs.len(path).map_or(true, |len| len < BYTES);
    let is_there = fs.len(path).is_ok();
    let file = fs.open(
        path,
        if is_there {
            OpenMode::Append
        } else {
            OpenMode::Create
        },
    )?;
    if is_new {
        // As for a real pool, the creator of the file makes its name durable.
        fs.sync_dir(&TEST, Path::new("/"))?;
    }
    let pool = Pool::open_backed(Box::new(SimFile(file, fs.clone())), BYTES, is_new, UUID)?;
    pool.finish_recovery()?;
    Ok(pool)
}

fn pattern(kind: u16, len: u64) -> Vec<u8> {
    (0..len)
        .map(|at| (mix((u64::from(kind) << 32 | len << 16) ^ (at / 8)) >> (at % 8 * 8)) as u8)
        .collect()
}

fn apply(pool: &Pool, (kind, len): Op) -> Result<()> {
    let mut before = None;
    match len {
        Some(len) => {
            let extent = pool.alloc(len, Owner::Test)?;
            let fenced = pool.write_durable(&CONTENTS, extent.offset, &[&pattern(kind, len)])?;
            let frozen = pool.freeze(extent, &fenced)?;
            pool.persist(&[&frozen])?;
            pool.commit_with(fenced, |root| {
                before = root.remove(Owner::Test, kind);
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind,
                    word: len,
                    extent: Some(extent),
                });
                Ok(())
            })?;
        }
        None => {
            pool.commit_with(Fenced::nothing(), |root| {
                before = root.remove(Owner::Test, kind);
                Ok(())
            })?;
        }
    }
    // The previous extent stays frozen in this session and is free in the next.
    Ok(())
}

fn state(pool: &Pool) -> Result<State> {
    let mut state = State::new();
    for entry in &pool.root().entries {
        let mut bytes = vec![0; entry.word as usize];
        let extent = entry
            .extent
            .ok_or_else(|| Error::invalid("an entry without its extent"))?;
        pool.read(extent.offset, &mut bytes)?;
        if bytes != pattern(entry.kind, entry.word) {
            return Err(Error::corruption(
                "the pool",
                extent.offset.get(),
                "the bytes that were committed",
            ));
        }
        state.insert(entry.kind, entry.word);
    }
    Ok(state)
}

/// The states after the creation and after each operation.
fn states(ops: &[Op]) -> Vec<State> {
    let mut states = vec![State::new()];
    for &(kind, len) in ops {
        let mut next = states[states.len() - 1].clone();
        match len {
            Some(len) => drop(next.insert(kind, len)),
            None => drop(next.remove(&kind)),
        }
        states.push(next);
    }
    states
}

/// Runs the operations. Returns the number acknowledged.
fn run(fs: &SimFs, ops: &[Op], close: bool) -> usize {
    let Ok(pool) = open(fs) else { return 0 };
    let done = ops
        .iter()
        .take_while(|op| apply(&pool, **op).is_ok())
        .count();
    if close && done == ops.len() {
        let _died = pool.close();
    }
    done
}

/// Random operations, cut at every operation of the file.
pub(crate) fn file_pool(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let op = |random: &mut Seed| {
        (
            random.below(3) as u16,
            (!random.one_in(4)).then(|| 1 + random.below(6000)),
        )
    };
    let ops: Vec<Op> = (0..1 + random.below(4)).map(|_| op(&mut random)).collect();
    let states = states(&ops);
    for count in 1.. {
        let fs = SimFs::new(seed ^ count);
        fs.crash_after(count);
        let done = run(&fs, &ops, random.one_in(2));
        let whole = !fs.crashed();
        let allowed = &states[done..(done + 2).min(states.len())];
        for cut in 0..6 {
            // A killed process leaves unsynced bytes, and the next process continues from them.
            let after = if cut == 0 {
                fs.duplicate()
            } else {
                fs.duplicate().power_cut(random.next_u64())
            };
            check(&after, allowed, &mut tally);
        }
        if whole {
            break;
        }
    }
    tally
}

/// Recovers, compares, and continues.
fn check(fs: &SimFs, allowed: &[State], tally: &mut Tally) {
    let bytes = fs.read_file(Path::new("/pool")).unwrap_or_default();
    tally.recovered(u64::from(crc32c(&bytes)) << 32 | bytes.len() as u64);
    let pool = open(fs).unwrap_or_else(|error| panic!("pm_file: {error}"));
    let mut state = state_of(&pool);
    assert!(
        allowed.contains(&state),
        "pm_file: {state:?} came back, not one of {allowed:?}"
    );
    let expected: u64 = state
        .values()
        .map(|len| len.next_multiple_of(GRANULE_BYTES))
        .sum();
    assert_eq!(live(&pool).unwrap(), expected, "pm_file: I5");
    drop(pool);
    let pool = open(fs).unwrap();
    assert_eq!(state_of(&pool), state, "pm_file: I4");
    apply(&pool, (7, Some(300))).unwrap();
    state.insert(7, 300);
    drop(pool);
    // Operations acknowledged after a recovery survive the next cut.
    let pool = open(&fs.duplicate().power_cut(tally.recoveries))
        .unwrap_or_else(|error| panic!("pm_file: {error}"));
    assert_eq!(state_of(&pool), state, "pm_file: I6");
}

fn state_of(pool: &Pool) -> State {
    state(pool).unwrap_or_else(|error| panic!("pm_file: {error}"))
}

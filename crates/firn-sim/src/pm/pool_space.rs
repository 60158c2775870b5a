//! The pool itself as a structure: extents with known bytes, named by the root, are replaced and
//! dropped, and the pool grows.

use super::structure::{Structure, live, pattern};
use firn_base::site::Site;
use firn_base::{Error, Result};
use firn_pm::sim::SimRegion;
use firn_pm::{Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use std::collections::BTreeMap;

const UUID: [u8; 16] = [7; 16];

/// Stands in for the sites of a structure that makes data durable before a commit. The commit's
/// sites are the pool's own.
static CONTENTS: Site = Site::new("proof.contents");

/// A pool.
pub(crate) struct PoolSpace {
    sim: SimRegion,
    pool: Pool,
}

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Replaces the bytes of `kind` with `len` bytes, past the cache.
    Put {
        kind: u16,
        len: u64,
    },
    /// The same, through the cache.
    Store {
        kind: u16,
        len: u64,
    },
    Remove(u16),
    Grow,
    /// Closes the pool and opens it again.
    Reopen,
}

/// The bytes of each kind, with the number of the put, and the number of times the pool grew.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct State {
    puts: BTreeMap<u16, u64>,
    grown: u64,
}

impl PoolSpace {
    fn put(&mut self, kind: u16, len: u64, through_cache: bool) -> Result<()> {
        let extent = self.pool.alloc(len, Owner::Test)?;
        let bytes = pattern(u64::from(kind), len);
        let fenced = match through_cache {
            true => {
                let dirty = self.pool.store(extent.offset, &bytes)?;
                self.pool
                    .fence(&CONTENTS, self.pool.flush(&CONTENTS, dirty))
            }
            false => {
                let (a, b) = bytes.split_at(bytes.len() / 2);
                self.pool.write_durable(&CONTENTS, extent.offset, &[a, b])?
            }
        };
        let mut before = None;
        self.pool.commit_with(fenced, |root| {
            before = root.remove(Owner::Test, kind);
            root.set(RootEntry {
                owner: Owner::Test,
                kind,
                word: len,
                extent: Some(extent),
            });
            Ok(())
        })?;
        before
            .and_then(|entry| entry.extent)
            .map_or(Ok(()), |extent| self.pool.free(extent))
    }
}

impl Structure for PoolSpace {
    const NAME: &'static str = "pool";
    const POOL_BYTES: u64 = 64 << 10;
    type Op = Op;
    type State = State;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Put { kind: 1, len: 100 },
            Op::Put { kind: 1, len: 700 },
            Op::Put { kind: 2, len: 5000 },
            Op::Store { kind: 2, len: 130 },
            Op::Store { kind: 3, len: 64 },
            Op::Remove(1),
            Op::Grow,
            Op::Reopen,
        ]
    }

    fn model(state: &mut State, op: &Op) {
        match *op {
            Op::Put { kind, len } | Op::Store { kind, len } => drop(state.puts.insert(kind, len)),
            Op::Remove(kind) => drop(state.puts.remove(&kind)),
            Op::Grow => state.grown += 1,
            Op::Reopen => {}
        }
    }

    fn live_bytes(state: &State) -> u64 {
        state
            .puts
            .values()
            .map(|len| len.next_multiple_of(GRANULE_BYTES))
            .sum()
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Pool::open_simulated(sim, UUID)?;
        pool.finish_recovery()?;
        Ok(PoolSpace {
            sim: sim.clone(),
            pool,
        })
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        match *op {
            Op::Put { kind, len } => self.put(kind, len, false),
            Op::Store { kind, len } => self.put(kind, len, true),
            Op::Remove(kind) => {
                let mut before = None;
                self.pool.commit_with(Fenced::nothing(), |root| {
                    before = root.remove(Owner::Test, kind);
                    Ok(())
                })?;
                before
                    .and_then(|entry| entry.extent)
                    .map_or(Ok(()), |extent| self.pool.free(extent))
            }
            Op::Grow => self.pool.grow(self.pool.size_bytes() + GRANULE_BYTES),
            Op::Reopen => {
                self.pool.close()?;
                *self = Self::open(&self.sim, &())?;
                Ok(())
            }
        }
    }

    fn state(&self) -> Result<State> {
        let mut puts = BTreeMap::new();
        for entry in &self.pool.root().entries {
            let mut bytes = vec![0; entry.word as usize];
            let extent = entry
                .extent
                .ok_or_else(|| Error::invalid("an entry without its extent"))?;
            self.pool.read(extent.offset, &mut bytes)?;
            if bytes != pattern(u64::from(entry.kind), entry.word) {
                return Err(Error::corruption(
                    "the image",
                    extent.offset.get(),
                    "the bytes that were committed",
                ));
            }
            puts.insert(entry.kind, entry.word);
        }
        let grown = self.pool.size_bytes().saturating_sub(Self::POOL_BYTES) / GRANULE_BYTES;
        Ok(State { puts, grown })
    }

    fn live(&self) -> Result<u64> {
        live(&self.pool)
    }
}

//! The log's buffer in persistent memory as a structure, optionally with the hot buffer. It is
//! tested through the whole engine, because its contents are complete only with the log's file,
//! which dies with it.

use super::structure::{Structure, live};
use crate::contents::read_all;
use crate::setup::Setup;
use firn_base::{Error, Result};
use firn_fs::SimFs;
use firn_pm::sim::{SimRegion, act_as};
use firn_pm::{GRANULE_BYTES, Owner};
use firndb::{Db, Durability, Limits, LogPlacement, Profile, WriteBatch, WriteOptions, proof};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// A database whose log goes through a pool.
pub(crate) struct LogBuffer<K = Plain> {
    db: Db,
    kind: PhantomData<K>,
}

/// The other structures in the pool.
pub(crate) trait Kind: Sized + 'static {
    const NAME: &'static str;
    const POOL_BYTES: u64;
    /// Live bytes in addition to the two halves and logs.
    const LIVE_BYTES: u64;
    const PLACEMENT: LogPlacement = LogPlacement::Ssd;
    const PROFILE: Profile;
    fn alphabet() -> Vec<Op>;
}

/// No other structures: profile `classic`.
pub(crate) struct Plain;

/// Trees and a hot buffer in which every key is hot: profile `lab`.
pub(crate) struct Hot;

/// The same, with logs in the pool as long as there is room.
pub(crate) struct Placed;

impl Kind for Placed {
    const NAME: &'static str = "placed";
    const POOL_BYTES: u64 = 128 << 10;
    const LIVE_BYTES: u64 = Hot::LIVE_BYTES;
    const PROFILE: Profile = Profile::Lab;
    const PLACEMENT: LogPlacement = LogPlacement::Rest;

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Put { key: 1, len: 20 },
            Op::Put { key: 1, len: 60 },
            // Not in the hot buffer, and more than fits into one extent of a log.
            Op::Put { key: 2, len: 5000 },
            Op::Put {
                key: 3,
                len: 13_000,
            },
            Op::Delete(1),
            Op::Flush,
        ]
    }
}

impl Kind for Plain {
    const NAME: &'static str = "log";
    const POOL_BYTES: u64 = 64 << 10;
    const LIVE_BYTES: u64 = 0;
    const PROFILE: Profile = Profile::Classic;

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Put { key: 1, len: 20 },
            Op::Put { key: 1, len: 300 },
            Op::Put { key: 2, len: 5000 },
            // More than fits into a half.
            Op::Put {
                key: 3,
                len: 13_000,
            },
            Op::Delete(1),
            Op::Flush,
        ]
    }
}

const LEAVES_BYTES: u64 = 8 << 10;
const HOT_BYTES: u64 = 8 << 10;

impl Kind for Hot {
    const NAME: &'static str = "hot";
    const POOL_BYTES: u64 = 128 << 10;
    // The directory takes less than a granule.
    const LIVE_BYTES: u64 = LEAVES_BYTES + GRANULE_BYTES + HOT_BYTES;
    const PROFILE: Profile = Profile::Lab;

    fn alphabet() -> Vec<Op> {
        vec![
            // Too short for the hot buffer.
            Op::Put { key: 1, len: 20 },
            Op::Put { key: 1, len: 60 },
            Op::Put { key: 1, len: 250 },
            Op::Put { key: 2, len: 130 },
            Op::Both { len: 100 },
            Op::Delete(1),
            Op::Flush,
        ]
    }
}

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Put {
        key: u8,
        len: usize,
    },
    Delete(u8),
    /// Keys 1 and 2, in one batch.
    Both {
        len: usize,
    },
    /// Empties the memtable and switches to another log.
    Flush,
}

fn value(key: u8, len: usize) -> Vec<u8> {
    vec![key ^ len as u8; len]
}

impl<K> LogBuffer<K> {
    fn options() -> WriteOptions {
        // Nevertheless durable at the fence.
        WriteOptions::new().durability(Durability::Process)
    }
}

impl<K: Kind> Structure for LogBuffer<K> {
    const NAME: &'static str = K::NAME;
    const POOL_BYTES: u64 = K::POOL_BYTES;
    type Op = Op;
    type State = BTreeMap<u8, usize>;
    type Beside = SimFs;

    fn alphabet() -> Vec<Op> {
        K::alphabet()
    }

    fn model(state: &mut BTreeMap<u8, usize>, op: &Op) {
        match *op {
            Op::Put { key, len } => drop(state.insert(key, len)),
            Op::Both { len } => state.extend([(1, len), (2, len)]),
            Op::Delete(key) => drop(state.remove(&key)),
            Op::Flush => {}
        }
    }

    fn live_bytes(_: &BTreeMap<u8, usize>) -> u64 {
        const HEADERS_BYTES: u64 = 128;
        let halves = 2
            * (HEADERS_BYTES + Limits::tiny().pm_log_buffer_bytes as u64)
                .next_multiple_of(GRANULE_BYTES);
        halves + K::LIVE_BYTES
    }

    fn beside() -> SimFs {
        SimFs::direct(1)
    }

    fn duplicate(beside: &SimFs) -> SimFs {
        beside.duplicate()
    }

    fn after_power_cut(beside: &SimFs, seed: u64) -> SimFs {
        beside.duplicate().power_cut(seed)
    }

    fn open(sim: &SimRegion, beside: &SimFs) -> Result<Self> {
        let setup = Setup {
            profile: K::PROFILE,
            pool: true,
            write_buffer_bytes: 12 << 10,
            ..Setup::small()
        };
        let (mut options, _inline, _clock) = setup.options(beside, Some(sim));
        options.tuning.lab.tree_bytes = Some(LEAVES_BYTES);
        options.tuning.lab.hot_bytes = Some(HOT_BYTES);
        options.tuning.lab.hot_writes = 1;
        options.tuning.lab.log_placement = K::PLACEMENT;
        Ok(LogBuffer {
            db: Db::open("/db", options)?,
            kind: PhantomData,
        })
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        // By a different thread from the one that opened it.
        act_as(1, || match *op {
            Op::Put { key, len } => self.db.put_with([key], value(key, len), &Self::options()),
            Op::Delete(key) => self.db.delete_with([key], &Self::options()),
            Op::Both { len } => {
                let mut batch = WriteBatch::new();
                batch.put([1], value(1, len)).put([2], value(2, len));
                self.db.write(&batch, &Self::options())
            }
            Op::Flush => self.db.flush(),
        })
    }

    fn state(&self) -> Result<BTreeMap<u8, usize>> {
        let entry = |(key, got): (Vec<u8>, Vec<u8>)| match got == value(key[0], got.len()) {
            true => Ok((key[0], got.len())),
            false => Err(Error::corruption(
                "the database",
                0,
                "the value that was put",
            )),
        };
        read_all(&self.db)?.into_iter().map(entry).collect()
    }

    fn live(&self) -> Result<u64> {
        let pool =
            proof::pool(&self.db).ok_or_else(|| Error::invalid("a database without its pool"))?;
        // The number of logs does not depend on the contents.
        Ok(live(&pool)? - pool.usage().live(Owner::Log))
    }
}

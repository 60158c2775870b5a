//! The log's buffer in persistent memory as a structure: through the whole engine, as what it holds is only whole with
//! the log's file, which dies with it.

use super::structure::{Structure, live};
use crate::contents::read_all;
use crate::setup::Setup;
use firn_base::{Error, Result};
use firn_fs::SimFs;
use firn_pm::GRANULE_BYTES;
use firn_pm::sim::{SimRegion, act_as};
use firndb::{Db, Durability, Limits, Profile, WriteOptions, proof};
use std::collections::BTreeMap;

/// A database whose log goes through a pool.
pub(crate) struct LogBuffer {
    db: Db,
}

/// What is done with it.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Put {
        key: u8,
        len: usize,
    },
    Delete(u8),
    /// Writes tables and goes on in another log.
    Flush,
}

fn value(key: u8, len: usize) -> Vec<u8> {
    vec![key ^ len as u8; len]
}

impl LogBuffer {
    fn options() -> WriteOptions {
        // Durable at the fence all the same.
        WriteOptions { durability: Durability::Process }
    }
}

impl Structure for LogBuffer {
    const NAME: &'static str = "log";
    const POOL_BYTES: u64 = 64 << 10;
    type Op = Op;
    type State = BTreeMap<u8, usize>;
    type Beside = SimFs;

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Put { key: 1, len: 20 },
            Op::Put { key: 1, len: 300 },
            Op::Put { key: 2, len: 5000 },
            // More than a half holds.
            Op::Put { key: 3, len: 13_000 },
            Op::Delete(1),
            Op::Flush,
        ]
    }

    fn model(state: &mut BTreeMap<u8, usize>, op: &Op) {
        match *op {
            Op::Put { key, len } => drop(state.insert(key, len)),
            Op::Delete(key) => drop(state.remove(&key)),
            Op::Flush => {}
        }
    }

    fn live_bytes(_: &BTreeMap<u8, usize>) -> u64 {
        const HEADERS_BYTES: u64 = 128;
        2 * (HEADERS_BYTES + Limits::tiny().pm_log_buffer_bytes as u64).next_multiple_of(GRANULE_BYTES)
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
        let setup = Setup { profile: Profile::Classic, pool: true, write_buffer_bytes: 12 << 10, ..Setup::small() };
        let (options, _inline, _clock) = setup.options(beside, Some(sim));
        Ok(LogBuffer { db: Db::open("/db", options)? })
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        // By another thread than the one that opened it.
        act_as(1, || match *op {
            Op::Put { key, len } => self.db.put_with([key], value(key, len), &Self::options()),
            Op::Delete(key) => self.db.delete_with([key], &Self::options()),
            Op::Flush => self.db.flush(),
        })
    }

    fn state(&self) -> Result<BTreeMap<u8, usize>> {
        let entry = |(key, got): (Vec<u8>, Vec<u8>)| match got == value(key[0], got.len()) {
            true => Ok((key[0], got.len())),
            false => Err(Error::corruption("the database", 0, "the value that was put")),
        };
        read_all(&self.db)?.into_iter().map(entry).collect()
    }

    fn live(&self) -> Result<u64> {
        live(&*proof::pool(&self.db).ok_or_else(|| Error::invalid("a database without its pool"))?)
    }
}

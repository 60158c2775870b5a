//! A sample structure, a stack of records, and eight typical bugs that can be planted in it. The
//! harness is tested by whether it finds them.
//!
//! ```text
//! anchor   the top record's pointer: u64
//! record   the pointer of the one below: u64 | length: u64 | bytes
//! pointer  offset of an extent, plus its granules; 0 for none
//! ```
//! A record is durable before the anchor points to it. A push or pop is one store of the anchor.

use super::structure::{Structure, live, pattern};
use firn_base::site::Site;
use firn_base::{Error, Result};
use firn_pm::sim::SimRegion;
use firn_pm::{Extent, Fenced, GRANULE_BYTES, LINE_BYTES, Owner, Pool, RootEntry};

const UUID: [u8; 16] = [9; 16];
const HEAD_BYTES: u64 = 16;

static RECORD: Site = Site::new("proof.shelf.record");
static ANCHOR: Site = Site::new("proof.shelf.anchor");

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A record is not flushed.
    MissingFlush = 1,
    /// A push returns without a fence.
    MissingFence,
    /// The anchor points to a record before the record is durable.
    PublishBeforeFence,
    /// The last line of a record is not flushed.
    TailLine,
    /// Two words that belong together are stored in one store of 16 bytes.
    Tear,
    /// A pop does not free.
    Leak,
    /// A pop frees twice.
    DoubleFree,
    /// The root still names an anchor that was replaced.
    StaleRoot,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 8] = [
        Bug::MissingFlush,
        Bug::MissingFence,
        Bug::PublishBeforeFence,
        Bug::TailLine,
        Bug::Tear,
        Bug::Leak,
        Bug::DoubleFree,
        Bug::StaleRoot,
    ];
}

/// The stack, with the bug of this number; 0 for none.
pub struct Shelf<const BUG: u8> {
    pool: Pool,
    anchor: Extent,
}

/// One operation.
#[derive(Debug, Clone)]
pub enum Op {
    /// Pushes a record of this many bytes.
    Push(u64),
    /// Removes the top record.
    Pop,
    /// Removes all records by installing a new anchor.
    Clear,
}

fn pointer(extent: Extent) -> u64 {
    extent.offset.get() + extent.len / GRANULE_BYTES
}

fn extent(pointer: u64) -> Result<Option<Extent>> {
    match (pointer - pointer % GRANULE_BYTES, pointer % GRANULE_BYTES) {
        (0, 0) => Ok(None),
        (offset, granules) if granules > 0 => {
            Ok(Some(Extent::new(offset, granules * GRANULE_BYTES)))
        }
        _ => Err(Error::corruption("the shelf", pointer, "a pointer")),
    }
}

impl<const BUG: u8> Shelf<BUG> {
    fn has(bug: Bug) -> bool {
        BUG == bug as u8
    }

    /// A new anchor without records, named by the root.
    fn new_anchor(pool: &Pool, stale: bool) -> Result<Extent> {
        let anchor = pool.alloc(GRANULE_BYTES, Owner::Test)?;
        let fenced = pool.write_durable(&ANCHOR, anchor.offset, &[&[0; 16]])?;
        if !stale {
            pool.commit_with(fenced, |root| {
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind: 0,
                    word: 0,
                    extent: Some(anchor),
                });
                Ok(())
            })?;
        }
        Ok(anchor)
    }

    fn top(&self) -> Result<Option<Extent>> {
        extent(self.pool.load_u64(self.anchor.offset)?)
    }

    fn below(&self, record: Extent) -> Result<Option<Extent>> {
        extent(self.pool.load_u64(record.offset)?)
    }

    /// The records, from the top.
    fn records(&self) -> Result<Vec<Extent>> {
        let (mut records, mut next) = (Vec::new(), self.top()?);
        while let Some(record) = next {
            if records.contains(&record) {
                return Err(Error::corruption(
                    "the shelf",
                    record.offset.get(),
                    "records without a ring",
                ));
            }
            records.push(record);
            next = self.below(record)?;
        }
        Ok(records)
    }

    fn push(&self, len: u64) -> Result<()> {
        let pool = &self.pool;
        let record = pool.alloc(HEAD_BYTES + len, Owner::Test)?;
        let (top, height) = (self.top()?, self.records()?.len() as u64);
        let mut bytes = top.map_or(0, pointer).to_le_bytes().to_vec();
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&pattern(height, len));
        if Self::has(Bug::PublishBeforeFence) {
            let flushed = pool.flush(&RECORD, pool.store(record.offset, &bytes)?);
            let word = pool.publish(self.anchor.offset, pointer(record), &Fenced::nothing())?;
            let _durable = pool.fence(&ANCHOR, [flushed, pool.flush(&ANCHOR, word)]);
            return Ok(());
        }
        let fenced = self.store_record(record, &bytes)?;
        self.point_to(pointer(record), height + 1, &fenced)
    }

    fn store_record(&self, record: Extent, bytes: &[u8]) -> Result<Fenced> {
        let pool = &self.pool;
        if Self::has(Bug::MissingFlush) {
            let _dirty = pool.store(record.offset, bytes)?;
            return Ok(pool.fence(&RECORD, []));
        }
        // The bug: the length of a long record is rounded down to whole lines.
        let rounds_down = Self::has(Bug::TailLine) && bytes.len() > LINE_BYTES as usize;
        let whole = if rounds_down {
            bytes.len() & !(LINE_BYTES as usize - 1)
        } else {
            bytes.len()
        };
        let dirty = pool.store(record.offset, &bytes[..whole])?;
        if whole < bytes.len() {
            let tail = record
                .at(whole as u64)
                .ok_or_else(|| Error::invalid("a place outside the record"))?;
            let _dirty = pool.store(tail, &bytes[whole..])?;
        }
        Ok(pool.fence(&RECORD, pool.flush(&RECORD, dirty)))
    }

    /// Makes the anchor point to `top`.
    fn point_to(&self, top: u64, height: u64, fenced: &Fenced) -> Result<()> {
        let pool = &self.pool;
        let dirty = if Self::has(Bug::Tear) {
            let mut both = top.to_le_bytes().to_vec();
            both.extend_from_slice(&height.to_le_bytes());
            pool.store(self.anchor.offset, &both)?
        } else {
            pool.publish(self.anchor.offset, top, fenced)?
        };
        let flushed = pool.flush(&ANCHOR, dirty);
        if !Self::has(Bug::MissingFence) {
            let _durable = pool.fence(&ANCHOR, flushed);
        }
        Ok(())
    }

    fn pop(&self) -> Result<()> {
        let records = self.records()?;
        let Some(&top) = records.first() else {
            return Ok(());
        };
        let below = self.below(top)?.map_or(0, pointer);
        self.point_to(below, records.len() as u64 - 1, &Fenced::nothing())?;
        match () {
            () if Self::has(Bug::Leak) => Ok(()),
            () if Self::has(Bug::DoubleFree) => {
                self.pool.free(top).and_then(|()| self.pool.free(top))
            }
            () => self.pool.free(top),
        }
    }

    fn clear(&mut self) -> Result<()> {
        let (old, records) = (self.anchor, self.records()?);
        self.anchor = Self::new_anchor(&self.pool, Self::has(Bug::StaleRoot))?;
        if !Self::has(Bug::StaleRoot) {
            self.pool.free(old)?;
        }
        records
            .into_iter()
            .try_for_each(|record| self.pool.free(record))
    }
}

impl<const BUG: u8> Structure for Shelf<BUG> {
    const NAME: &'static str = "shelf";
    const POOL_BYTES: u64 = 64 << 10;
    type Op = Op;
    type State = Vec<u64>;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Push(8),
            Op::Push(200),
            Op::Push(5000),
            Op::Pop,
            Op::Clear,
        ]
    }

    fn model(state: &mut Vec<u64>, op: &Op) {
        match op {
            Op::Push(len) => state.push(*len),
            Op::Pop => drop(state.pop()),
            Op::Clear => state.clear(),
        }
    }

    fn live_bytes(state: &Vec<u64>) -> u64 {
        let records = state
            .iter()
            .map(|len| (HEAD_BYTES + len).next_multiple_of(GRANULE_BYTES));
        GRANULE_BYTES + records.sum::<u64>()
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Pool::open_simulated(sim, UUID)?;
        let named = pool
            .root()
            .find(Owner::Test, 0)
            .and_then(|entry| entry.extent);
        let Some(anchor) = named else {
            pool.finish_recovery()?;
            let anchor = Self::new_anchor(&pool, false)?;
            return Ok(Shelf { pool, anchor });
        };
        let shelf = Shelf { pool, anchor };
        for record in shelf.records()? {
            shelf.pool.claim(record, Owner::Test)?;
        }
        shelf.pool.finish_recovery()?;
        Ok(shelf)
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Push(len) => self.push(*len),
            Op::Pop => self.pop(),
            Op::Clear => self.clear(),
        }
    }

    fn state(&self) -> Result<Vec<u64>> {
        let records = self.records()?;
        let mut state = Vec::new();
        for (height, record) in records.iter().rev().enumerate() {
            let at = |at: u64| {
                record
                    .at(at)
                    .ok_or_else(|| Error::invalid("a place outside the record"))
            };
            let len = self.pool.load_u64(at(8)?)?;
            let mut bytes = vec![0; len.min(record.len - HEAD_BYTES) as usize];
            self.pool.read(at(HEAD_BYTES)?, &mut bytes)?;
            if bytes != pattern(height as u64, len) {
                return Err(Error::corruption(
                    "the shelf",
                    record.offset.get(),
                    "the bytes that were pushed",
                ));
            }
            state.push(len);
        }
        if Self::has(Bug::Tear) {
            let count = self
                .anchor
                .at(8)
                .ok_or_else(|| Error::invalid("an anchor of 16 bytes"))?;
            let count = self.pool.load_u64(count)?;
            if count != state.len() as u64 {
                return Err(Error::corruption(
                    "the shelf",
                    8,
                    format!("a count of {}, not {count}", state.len()),
                ));
            }
        }
        Ok(state)
    }

    fn live(&self) -> Result<u64> {
        live(&self.pool)
    }
}

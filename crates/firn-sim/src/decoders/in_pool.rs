//! Tables in a pool: pools of given bytes, and a walk over a table of either kind.

use firn_base::{Result, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{DATA_START, Pool};
use firn_table::pm_skiplist::ListIter;
use firn_table::pm_table::PmTableIter;
use firn_table::sst::{Got, Query};
use std::sync::Arc;

pub(super) const UUID: [u8; 16] = [12; 16];

/// A pool of `pool_bytes` without data.
pub(super) fn empty(pool_bytes: u64) -> Result<(SimRegion, Arc<Pool>)> {
    let sim = SimRegion::new(pool_bytes, Mode::Adr);
    let pool = Arc::new(Pool::open_simulated(&sim, UUID)?);
    pool.finish_recovery()?;
    Ok((sim, pool))
}

/// A pool of `pool_bytes` whose data begins with `bytes`, up to `bytes_max` of them.
pub(super) fn pool_of(bytes: &[u8], pool_bytes: u64, bytes_max: usize) -> Result<Arc<Pool>> {
    let (sim, pool) = empty(pool_bytes)?;
    pool.close()?;
    let mut image = sim.durable();
    let (at, len) = (DATA_START as usize, bytes.len().min(bytes_max));
    image[at..at + len].copy_from_slice(&bytes[..len]);
    let sim = SimRegion::from_image(image, Mode::Adr);
    Pool::open_simulated(&sim, UUID).map(Arc::new)
}

/// A cursor over a table in persistent memory.
pub(super) trait Walk {
    fn entry(&self) -> Option<(&[u8], Tag)>;
    fn begin(&mut self, backward: bool) -> Result<()>;
    fn step(&mut self, backward: bool) -> Result<()>;
}

macro_rules! walk {
    ($cursor:ty) => {
        impl Walk for $cursor {
            fn entry(&self) -> Option<(&[u8], Tag)> {
                self.valid().then(|| (self.key(), self.tag()))
            }

            fn begin(&mut self, backward: bool) -> Result<()> {
                match backward {
                    true => self.last(),
                    false => self.first(),
                }
            }

            fn step(&mut self, backward: bool) -> Result<()> {
                match backward {
                    true => self.prev(),
                    false => self.next(),
                }
            }
        }
    };
}

walk!(ListIter);
walk!(PmTableIter);

/// The keys of a verified table, after checking that `get` finds each version.
pub(super) fn walk(
    cursor: &mut impl Walk,
    get: impl Fn(&Query<'_>) -> Result<Got>,
    backward: bool,
) -> Vec<(Vec<u8>, Tag)> {
    let mut keys = Vec::new();
    let whole = "what was verified can be read";
    cursor.begin(backward).expect(whole);
    while let Some((key, tag)) = cursor.entry() {
        let found = get(&Query::new(key, tag.seqno())).expect(whole);
        let is_it = matches!(found, Got::Found { tag: of, .. } if of.seqno() == tag.seqno());
        assert!(is_it, "a key that is there is not found");
        keys.push((key.to_vec(), tag));
        cursor.step(backward).expect(whole);
    }
    if backward {
        keys.reverse();
    }
    keys
}

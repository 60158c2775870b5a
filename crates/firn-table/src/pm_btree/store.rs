//! The trees' place in a pool: the region, the directory, and steps that replace leaves by others.
//!
//! 1. A leaf is durable before a word names it. A word is stored whole.
//! 2. If a leaf is split into several, the words of the right ones are durable, from right to left,
//!    before the word that takes the old leaf's place. So after a crash, every entry of a leaf at
//!    or above the next one's bound is also in the later leaves, as new or newer, and recovery
//!    drops it.
//! 3. The space of a leaf is reused only after its word is durably gone and its owner has declared
//!    that no view has it.
//!
//! Thread safety: `Send + Sync`. Only one thread at a time may run a step, as flush and eviction
//! do. Readers need no lock.

use super::layout::{Header, Place, UNIT_BYTES, WORD_BYTES, units};
use super::leaf::Leaf;
use super::space::Space;
use crate::sites;
use firn_base::sync::Mutex;
use firn_base::{Error, ErrorKind, Result};
use firn_pm::{DurableAt, Extent, Fenced, Flushed, Owner, PmOffset, Pool, RootEntry};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) const REGION_KIND: u16 = 0;
pub(super) const DIRECTORY_KIND: u16 = 1;
/// Words of the directory for each target-size leaf of the region. More than one, because a leaf
/// may be only half of the target size, or less.
const SLOTS_PER_LEAF: u64 = 3;

/// The numbers of the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trees {
    /// The tree into which flushes go.
    pub mutable: u32,
    /// The tree that is being evicted, if there is one.
    pub immutable: Option<u32>,
}

impl Trees {
    pub(super) fn word(self) -> u64 {
        u64::from(self.immutable.unwrap_or(0)) << 32 | u64::from(self.mutable)
    }

    /// The trees that a root's word encodes; `None` if it is not valid.
    pub(super) fn of_word(word: u64) -> Option<Trees> {
        let (mutable, immutable) = (word as u32, (word >> 32) as u32);
        (mutable > immutable).then_some(Trees {
            mutable,
            immutable: (immutable > 0).then_some(immutable),
        })
    }
}

/// The usage of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of leaves, including those not released yet.
    pub used_bytes: u64,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Words of the directory in use.
    pub used_slots: u64,
    /// Words of the directory.
    pub slots: u64,
}

impl Usage {
    /// The used share of bytes or of words, whichever is larger: 0 to 1.
    pub fn share(&self) -> f64 {
        let bytes = self.used_bytes as f64 / self.region_bytes.max(1) as f64;
        bytes.max(self.used_slots as f64 / self.slots.max(1) as f64)
    }
}

/// Both trees in a pool.
#[derive(Debug)]
pub struct TreeStore {
    pub(super) pool: Arc<Pool>,
    pub(super) region: Extent,
    pub(super) directory: Extent,
    pub(super) leaf_bytes: u32,
    pub(super) state: Mutex<State>,
    /// The leaves copied by a read-only open, by their first units.
    pub(super) held: HashMap<u32, Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) space: Space,
    pub(super) free_slots: Vec<u32>,
    pub(super) next_version: u32,
    pub(super) trees: Trees,
    /// True if a step found no room and nothing was released since.
    pub(super) is_short: bool,
}

impl TreeStore {
    /// Creates an empty mutable tree in `region_bytes` of `pool`, which must not have trees yet.
    /// DURABLE AFTER.
    ///
    /// # Errors
    /// `NoSpace` if the pool has no room; `Invalid` for a size of leaves outside
    /// [`super::LEAF_BYTES_RANGE`].
    pub fn create(pool: Arc<Pool>, region_bytes: u64, leaf_bytes: u32) -> Result<TreeStore> {
        check_leaf_bytes(leaf_bytes)?;
        let region_bytes = region_bytes.min(u64::from(u32::MAX) * UNIT_BYTES);
        let slots = region_bytes * SLOTS_PER_LEAF / u64::from(leaf_bytes);
        let region = pool.alloc(region_bytes, Owner::Btree)?;
        let directory = pool.alloc(slots.max(1) * WORD_BYTES, Owner::Btree)?;
        let zeros = vec![0; directory.len as usize];
        let fenced = pool.write_durable(&sites::BTREE_CREATE_FENCE, directory.offset, &[&zeros])?;
        let trees = Trees {
            mutable: 1,
            immutable: None,
        };
        pool.commit_with(fenced, |root| {
            root.set(RootEntry {
                owner: Owner::Btree,
                kind: REGION_KIND,
                word: trees.word(),
                extent: Some(region),
            });
            root.set(RootEntry {
                owner: Owner::Btree,
                kind: DIRECTORY_KIND,
                word: 0,
                extent: Some(directory),
            });
            Ok(())
        })?;
        let slots = (directory.len / WORD_BYTES) as u32;
        let space = Space::new((region.len / UNIT_BYTES) as u32);
        let free_slots = (0..slots).rev().collect();
        let state = State {
            space,
            free_slots,
            next_version: 1,
            trees,
            is_short: false,
        };
        Ok(TreeStore {
            pool,
            region,
            directory,
            leaf_bytes,
            state: Mutex::new(state),
            held: HashMap::new(),
        })
    }

    /// The trees that the root of `pool` names.
    pub fn named(pool: &Pool) -> Option<Trees> {
        pool.root()
            .find(Owner::Btree, REGION_KIND)
            .and_then(|entry| Trees::of_word(entry.word))
    }

    /// True if the trees outlive the process.
    pub fn is_durable(&self) -> bool {
        self.pool.durable_at() == DurableAt::Fence
    }

    /// The numbers of the trees.
    pub fn trees(&self) -> Trees {
        self.state.lock().trees
    }

    /// The number of leaves of the target size for which there is room.
    pub fn leaves_max(&self) -> u64 {
        self.region.len / u64::from(self.leaf_bytes)
    }

    /// The usage of region and directory.
    pub fn usage(&self) -> Usage {
        let state = self.state.lock();
        let slots = self.directory.len / WORD_BYTES;
        Usage {
            used_bytes: u64::from(state.space.units() - state.space.free_units()) * UNIT_BYTES,
            region_bytes: u64::from(state.space.units()) * UNIT_BYTES,
            used_slots: slots - state.free_slots.len() as u64,
            slots,
        }
    }

    /// True if a step found no room and nothing was released since: its leaves were large, or all
    /// free runs are short.
    pub fn is_short(&self) -> bool {
        self.state.lock().is_short
    }

    /// Clears [`TreeStore::is_short`], so that the next step is tried although nothing was
    /// released.
    pub fn forget_shortage(&self) {
        self.state.lock().is_short = false;
    }

    /// Makes the mutable tree the immutable one and begins an empty one. DURABLE AFTER.
    ///
    /// # Errors
    /// `Invalid` if there is an immutable tree already.
    pub fn rotate(&self) -> Result<Trees> {
        let Trees { mutable, immutable } = self.trees();
        match immutable {
            Some(_) => Err(Error::invalid("the immutable tree is not evicted yet")),
            None => self.commit_trees(Trees {
                mutable: mutable + 1,
                immutable: Some(mutable),
            }),
        }
    }

    /// Ends the immutable tree: all entries of its leaves are gone. DURABLE AFTER. Its places are
    /// then to be [removed](TreeStore::remove) and released.
    ///
    /// # Errors
    /// The errors of the commit.
    pub fn end_immutable(&self) -> Result<Trees> {
        let trees = self.trees();
        self.commit_trees(Trees {
            immutable: None,
            ..trees
        })
    }

    fn commit_trees(&self, trees: Trees) -> Result<Trees> {
        self.pool.commit_with(Fenced::nothing(), |root| {
            let region = Some(self.region);
            root.set(RootEntry {
                owner: Owner::Btree,
                kind: REGION_KIND,
                word: trees.word(),
                extent: region,
            });
            Ok(())
        })?;
        self.state.lock().trees = trees;
        Ok(trees)
    }

    /// Removes leaves from the directory. DURABLE AFTER. Views may still have them; release them
    /// once none does.
    ///
    /// # Errors
    /// The errors of the pool's verbs.
    pub fn remove(&self, places: &[Place]) -> Result<()> {
        let words: Vec<(u32, u64)> = places.iter().map(|place| (place.slot, 0)).collect();
        self.publish(&words, &Fenced::nothing())?;
        self.state
            .lock()
            .free_slots
            .extend(places.iter().map(|place| place.slot));
        Ok(())
    }

    /// Frees the space of leaves that were replaced or removed. REQUIRES: no view in use has them.
    pub fn release(&self, places: &[Place]) {
        let mut state = self.state.lock();
        places
            .iter()
            .for_each(|place| state.space.free(place.unit, place.units()));
        // Another try is worthwhile even if `places` is empty, because the queue of places to
        // release may be empty now.
        state.is_short = false;
    }

    /// Reads the leaf at `place`, which a view has.
    ///
    /// # Errors
    /// `Corruption` if anything else is found there.
    pub fn read(&self, place: Place) -> Result<Leaf> {
        let bytes = match self.held.get(&place.unit) {
            Some(held) => held.clone(),
            None => {
                let mut bytes = vec![0; place.bytes as usize];
                self.pool.read(self.offset(place.unit)?, &mut bytes)?;
                bytes
            }
        };
        Leaf::decode(bytes, place.version, place.unit)
            .ok_or_else(|| self.wrong(place.unit, "a leaf with its checksum"))
    }

    /// The error for damage in the leaf that begins at `unit`.
    pub(super) fn wrong(&self, unit: u32, expected: &str) -> Error {
        let at = self.region.offset.get() + u64::from(unit) * UNIT_BYTES;
        Error::corruption(
            format!(
                "the B+ trees' region of the {} pool",
                self.pool.backend_name()
            ),
            at,
            expected,
        )
    }

    pub(super) fn offset(&self, unit: u32) -> Result<PmOffset> {
        self.region
            .at(u64::from(unit) * UNIT_BYTES)
            .ok_or_else(|| self.wrong(unit, "a leaf inside the region"))
    }

    /// Stores words of the directory. DURABLE AFTER.
    pub(super) fn publish(&self, words: &[(u32, u64)], fenced: &Fenced) -> Result<()> {
        let mut flushed = Vec::with_capacity(words.len());
        for &(slot, word) in words {
            let at = self.directory.at(u64::from(slot) * WORD_BYTES);
            let at = at.ok_or_else(|| Error::invalid("a word outside the directory"))?;
            let dirty = self.pool.publish(at, word, fenced)?;
            flushed.push(self.pool.flush(&sites::BTREE_WORD_FLUSH, dirty));
        }
        let _durable = self.pool.fence(&sites::BTREE_WORD_FENCE, flushed);
        Ok(())
    }

    /// Begins a step.
    pub(super) fn begin(&self) -> Step<'_> {
        Step {
            store: self,
            flushed: Vec::new(),
            ranks: Vec::new(),
            new: Vec::new(),
        }
    }
}

pub(super) fn check_leaf_bytes(leaf_bytes: u32) -> Result<()> {
    let range = super::LEAF_BYTES_RANGE;
    match range.contains(&leaf_bytes) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "leaves of {leaf_bytes} bytes: from {} to {}",
            range.start(),
            range.end()
        ))),
    }
}

/// Leaves on their way into the trees. A step dropped before its commit has no effect.
#[derive(Debug)]
pub(super) struct Step<'a> {
    store: &'a TreeStore,
    flushed: Vec<Flushed>,
    /// Words by the number of leaves to the right of theirs in the same split.
    ranks: Vec<Vec<(u32, u64)>>,
    /// The leaves written, each with true if this step took a new word for it.
    new: Vec<(Place, bool)>,
}

impl Step<'_> {
    /// Writes `leaves` of `tree`, from left to right, in the place of `old` if there is one.
    pub(super) fn put(
        &mut self,
        tree: u32,
        leaves: Vec<(Vec<u8>, Header)>,
        old: Option<Place>,
    ) -> Result<Vec<Place>> {
        let count = leaves.len();
        let mut places = Vec::with_capacity(count);
        for (i, (mut bytes, header)) in leaves.into_iter().enumerate() {
            let place = self.reserve(&header, old.filter(|_| i == 0))?;
            Header {
                tree,
                version: place.version,
                ..header
            }
            .seal(&mut bytes, place.unit);
            self.flushed.push(
                self.store
                    .pool
                    .copy_nt(self.store.offset(place.unit)?, &bytes)?,
            );
            let rank = count - 1 - i;
            self.ranks
                .resize_with(self.ranks.len().max(rank + 1), Vec::new);
            self.ranks[rank].push((place.slot, place.word()));
            places.push(place);
        }
        Ok(places)
    }

    /// Reserves space for a leaf, and `old`'s word or a free one.
    fn reserve(&mut self, header: &Header, old: Option<Place>) -> Result<Place> {
        let full = |state: &mut State, what: &str| {
            state.is_short = true;
            Error::new(
                ErrorKind::NoSpace,
                format!("the B+ trees in persistent memory have no {what}"),
            )
        };
        let mut state = self.store.state.lock();
        let Some(unit) = state.space.alloc(units(header.bytes)) else {
            return Err(full(&mut state, "room for a leaf"));
        };
        let slot = match old {
            Some(old) => Some(old.slot),
            None => state.free_slots.pop(),
        };
        let Some(slot) = slot else {
            state.space.free(unit, units(header.bytes));
            return Err(full(&mut state, "free word in their directory"));
        };
        let version = state.next_version;
        state.next_version = version.checked_add(1).unwrap_or(1);
        let place = Place {
            unit,
            version,
            slot,
            bytes: header.bytes,
            entries: header.entries,
        };
        self.new.push((place, old.is_none()));
        Ok(place)
    }

    /// Publishes all leaves. DURABLE AFTER.
    pub(super) fn commit(mut self) -> Result<()> {
        let fenced = self
            .store
            .pool
            .fence(&sites::BTREE_LEAF_FENCE, std::mem::take(&mut self.flushed));
        for words in std::mem::take(&mut self.ranks) {
            self.store.publish(&words, &fenced)?;
        }
        self.new.clear();
        Ok(())
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        for (place, own_word) in self.new.drain(..) {
            state.space.free(place.unit, place.units());
            if own_word {
                state.free_slots.push(place.slot);
            }
        }
    }
}

//! Recovers the trees from a pool, however the previous session ended.

use super::index::{Bounded, View};
use super::layout::{HEADER_BYTES, Header, Place, UNIT_BYTES, WORD_BYTES};
use super::leaf::{Entry, Leaf};
use super::space::Space;
use super::store::{DIRECTORY_KIND, REGION_KIND, State, TreeStore, Trees, check_leaf_bytes};
use super::write::Gathered;
use firn_base::sync::Mutex;
use firn_base::{Error, Result};
use firn_pm::{Owner, Pool};
use std::collections::HashMap;
use std::sync::Arc;

/// The result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    /// The trees' place in the pool.
    pub store: TreeStore,
    /// The mutable tree.
    pub mutable: View,
    /// The immutable tree, if there is one.
    pub immutable: Option<View>,
    /// The number of words that were removed because their leaves belong to no tree, were evicted,
    /// or are damaged.
    pub swept: usize,
}

/// True if the leaf with this lower bound was evicted.
pub type IsEvicted<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// The callbacks of a recovery.
pub struct Seen<'a> {
    /// True if the leaf of the immutable tree with this lower bound was evicted.
    pub evicted: &'a IsEvicted<'a>,
    /// Called for every remaining entry, with true if it belongs to the immutable tree.
    pub entry: &'a mut dyn FnMut(&Entry<'_>, bool),
    /// Called for every leaf that cannot be read. An error ends the recovery; `Ok` skips the leaf.
    pub damage: &'a mut dyn FnMut(Error) -> Result<()>,
    /// The copies that a read-only open makes, because a writer beside it reuses the places.
    pub hold: Option<Hold<'a>>,
}

/// Copies of the leaves at one moment.
pub struct Hold<'a> {
    /// The limit on the bytes of all copies. If the leaves are larger in total, they are read in
    /// place instead.
    pub bytes_max: u64,
    /// Called after the leaves were copied, to check that their values still exist. Called again if
    /// the directory changed meanwhile.
    pub copied: &'a mut dyn FnMut() -> Result<()>,
}

impl Seen<'_> {
    /// Reports a damaged leaf. If recovery may go on, its word is to be removed.
    fn lose(&mut self, place: Place, error: Error, stray: &mut Vec<Place>) -> Result<()> {
        (self.damage)(error)?;
        stray.push(place);
        Ok(())
    }
}

/// The leaves of one tree named by the directory.
type Found = Vec<(Place, Leaf)>;

/// The leaves of one tree in order. `overhanging` holds the indexes of those with entries that
/// belong to the next leaf, and the lower bound of that leaf, which may be gone by now.
#[derive(Default)]
struct Sifted {
    leaves: Vec<Bounded>,
    overhanging: Vec<(usize, Vec<u8>)>,
}

/// The number of times to read a directory that a writer keeps changing: some seconds, longer than
/// a flush takes.
const READS_MAX: usize = 20_000;

impl TreeStore {
    /// Recovers the trees of `pool`; `None` if its root names none. Does not change a read-only
    /// pool.
    ///
    /// # Errors
    /// `Corruption` of the root's words, the directory or a leaf, unless `seen.damage` accepts it.
    pub fn recover(pool: Arc<Pool>, leaf_bytes: u32, seen: Seen<'_>) -> Result<Option<Recovered>> {
        check_leaf_bytes(leaf_bytes)?;
        let root = pool.root();
        let (region, directory) = (
            root.find(Owner::Btree, REGION_KIND),
            root.find(Owner::Btree, DIRECTORY_KIND),
        );
        let (Some(region), Some(directory)) = (region, directory) else {
            return Ok(None);
        };
        let trees = Trees::of_word(region.word);
        let (Some(trees), Some(region), Some(directory)) = (trees, region.extent, directory.extent)
        else {
            return Err(Error::corruption(
                "the pool's root",
                root.generation,
                "B+ trees with a region and a directory",
            ));
        };
        let units = u32::try_from(region.len / UNIT_BYTES).unwrap_or(u32::MAX);
        let state = State {
            space: Space::new(units),
            free_slots: Vec::new(),
            next_version: 1,
            trees,
            is_short: false,
        };
        let held = HashMap::new();
        let mut store = TreeStore {
            pool,
            region,
            directory,
            leaf_bytes,
            state: Mutex::new(state),
            held,
        };
        let mut seen = seen;
        let words = store.words(seen.hold.as_mut())?;
        store.recover_trees(words, seen).map(Some)
    }

    fn recover_trees(self, words: Vec<u64>, mut seen: Seen<'_>) -> Result<Recovered> {
        let trees = self.trees();
        let (mut mutable, mut immutable, mut stray) = (Found::new(), Found::new(), Vec::new());
        for (slot, word) in (0..).zip(words) {
            let (version, unit) = ((word >> 32) as u32, word as u32);
            let unread = Place {
                unit,
                version,
                slot,
                bytes: 0,
                entries: 0,
            };
            match self.read_named(slot, version, unit) {
                Ok((place, leaf)) if leaf.header.tree == trees.mutable => {
                    mutable.push((place, leaf))
                }
                Ok((place, leaf)) if Some(leaf.header.tree) == trees.immutable => {
                    immutable.push((place, leaf))
                }
                Ok((place, leaf)) if leaf.header.tree < trees.mutable => stray.push(place),
                Ok(_) => seen.lose(
                    unread,
                    self.wrong(unit, "a leaf of a tree that there is"),
                    &mut stray,
                )?,
                Err(None) => self.state.lock().free_slots.push(slot),
                Err(Some(error)) => seen.lose(unread, error, &mut stray)?,
            }
        }
        let mutable = self.sift(mutable, false, &mut seen, &mut stray)?;
        let immutable = self.sift(immutable, true, &mut seen, &mut stray)?;
        for &(_, place) in mutable.leaves.iter().chain(&immutable.leaves) {
            let mut state = self.state.lock();
            state.next_version = state.next_version.max(place.version.wrapping_add(1).max(1));
            if !state.space.claim(place.unit, place.units()) {
                drop(state);
                return Err(self.wrong(place.unit, "one leaf for each place"));
            }
        }
        let swept = stray.len();
        // No view has them, and their space was not claimed.
        if !self.pool.is_read_only() && swept > 0 {
            self.remove(&stray)?;
        }
        let mutable = self.mend(trees.mutable, mutable)?;
        let immutable = trees
            .immutable
            .map(|tree| self.mend(tree, immutable))
            .transpose()?;
        Ok(Recovered {
            store: self,
            mutable,
            immutable,
            swept,
        })
    }

    /// Builds the view of the sifted leaves. If the session ended while a leaf was being split, the
    /// leaf still has entries that the next ones have too. It is rewritten without them, because
    /// they would reappear once those leaves are gone.
    fn mend(&self, tree: u32, mut sifted: Sifted) -> Result<View> {
        let overhanging = if self.pool.is_read_only() {
            Vec::new()
        } else {
            sifted.overhanging
        };
        let mut gathered = Gathered::default();
        // From the right, because a leaf with no entries left is removed.
        for (i, upper) in overhanging.into_iter().rev() {
            let (bound, old) = &sifted.leaves[i];
            let leaf = self.read(*old)?;
            gathered.clear();
            let damaged = leaf.check(Some(&upper), |entry| gathered.push(entry));
            damaged.map_err(|_damaged| self.damaged(*old))?;
            let old = *old;
            if gathered.is_empty() {
                self.remove(&[old])?;
                sifted.leaves.remove(i);
            } else {
                let leaf = gathered.encode(0..gathered.len(), bound);
                let mut step = self.begin();
                let places = step.put(tree, vec![leaf], Some(old))?;
                step.commit()?;
                sifted.leaves[i].1 = places[0];
            }
            self.release(&[old]);
        }
        Ok(View::new(&sifted.leaves))
    }

    /// Reads the directory's words as they were at one moment. A writer beside a read-only open
    /// publishes them one by one: of the two parts of a split leaf, the right one first. If two
    /// consecutive reads are equal, all of it existed together between them, because a leaf's
    /// version does not come back. The same holds for the copied leaves.
    fn words(&mut self, mut hold: Option<&mut Hold<'_>>) -> Result<Vec<u64>> {
        let mut words = self.read_words()?;
        if !self.pool.is_read_only() {
            return Ok(words);
        }
        for _ in 0..READS_MAX {
            if let Some(hold) = &mut hold {
                self.hold_leaves(&words, hold.bytes_max)?;
                (hold.copied)()?;
            }
            let again = self.read_words()?;
            if again == words {
                return Ok(words);
            }
            words = again;
            std::thread::yield_now();
        }
        Err(Error::corruption(
            "the pool's trees",
            self.directory.offset.get(),
            "a directory that rests for a moment",
        ))
    }

    /// Copies the leaves that `words` name. Words that name no leaf are detected later.
    fn hold_leaves(&mut self, words: &[u64], bytes_max: u64) -> Result<()> {
        self.held.clear();
        let mut left = bytes_max;
        for &word in words.iter().filter(|&&word| word != 0) {
            let unit = word as u32;
            let mut head = [0; HEADER_BYTES];
            let start = u64::from(unit) * UNIT_BYTES;
            if start + HEADER_BYTES as u64 > self.region.len {
                continue;
            }
            self.pool.read(self.offset(unit)?, &mut head)?;
            let header = Header::peek(&head)
                .filter(|header| start + u64::from(header.bytes) <= self.region.len);
            let Some(header) = header else { continue };
            let Some(rest) = left.checked_sub(u64::from(header.bytes)) else {
                self.held.clear();
                return Ok(());
            };
            left = rest;
            let mut bytes = vec![0; header.bytes as usize];
            self.pool.read(self.offset(unit)?, &mut bytes)?;
            self.held.insert(unit, bytes);
        }
        Ok(())
    }

    fn read_words(&self) -> Result<Vec<u64>> {
        let mut bytes = vec![0; self.directory.len as usize];
        self.pool.read(self.directory.offset, &mut bytes)?;
        let word = |chunk: &[u8; WORD_BYTES as usize]| u64::from_le_bytes(*chunk);
        Ok(bytes.as_chunks().0.iter().map(word).collect())
    }

    /// Reads the leaf that a word names; `Err(None)` for the word 0.
    fn read_named(
        &self,
        slot: u32,
        version: u32,
        unit: u32,
    ) -> Result<(Place, Leaf), Option<Error>> {
        if (version, unit) == (0, 0) {
            return Err(None);
        }
        let mut head = [0; HEADER_BYTES];
        let wrong = || self.wrong(unit, "a leaf that a word of the directory names");
        let start = u64::from(unit) * UNIT_BYTES;
        if start + HEADER_BYTES as u64 > self.region.len {
            return Err(Some(wrong()));
        }
        match self.held.get(&unit) {
            Some(leaf) => head.copy_from_slice(&leaf[..HEADER_BYTES]),
            None => self.pool.read(self.offset(unit)?, &mut head)?,
        }
        let header =
            Header::peek(&head).filter(|header| start + u64::from(header.bytes) <= self.region.len);
        let header = header.ok_or_else(wrong)?;
        let place = Place {
            unit,
            version,
            slot,
            bytes: header.bytes,
            entries: header.entries,
        };
        Ok((place, self.read(place)?))
    }

    /// Sorts the leaves of one tree by their bounds. Evicted leaves go to `stray`.
    fn sift(
        &self,
        mut found: Found,
        immutable: bool,
        seen: &mut Seen<'_>,
        stray: &mut Vec<Place>,
    ) -> Result<Sifted> {
        found.sort_by(|a, b| a.1.bound().cmp(b.1.bound()));
        let mut sifted = Sifted::default();
        for (i, (place, leaf)) in found.iter().enumerate() {
            let upper = found.get(i + 1).map(|(_, next)| next.bound());
            if upper == Some(leaf.bound()) {
                seen.lose(
                    *place,
                    self.wrong(place.unit, "one leaf for each lower bound"),
                    stray,
                )?;
                continue;
            }
            if immutable && (seen.evicted)(leaf.bound()) {
                stray.push(*place);
                continue;
            }
            let mut below = 0;
            // The whole leaf is checked before any of its entries is reported.
            let checked = leaf.check(upper, |_| below += 1);
            if checked
                .and_then(|()| leaf.check(upper, |entry| (seen.entry)(entry, immutable)))
                .is_err()
            {
                seen.lose(*place, self.damaged(*place), stray)?;
                continue;
            }
            if let Some(upper) = upper.filter(|_| below < place.entries) {
                sifted
                    .overhanging
                    .push((sifted.leaves.len(), upper.to_vec()));
            }
            sifted.leaves.push((leaf.bound().to_vec(), *place));
        }
        Ok(sifted)
    }
}

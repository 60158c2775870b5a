//! The pair of B+ trees of profile `lab`, with leaves so small that a few keys split them. Root
//! entries stand in for the engine's files: a log for an insertion into several leaves, and a
//! manifest for how far the immutable tree is evicted.

use super::structure::{Structure, live};
use crate::tally::Tally;
use firn_base::ErrorKind::{Corruption, Incompatible};
use firn_base::key::Kind;
use firn_base::site::Site;
use firn_base::{Error, FileId, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use firn_table::pm_btree::{Entry, Recovered, Seen, TreeIter, TreeStore, ValueAddress, View};
use std::collections::BTreeMap;
use std::sync::Arc;

const UUID: [u8; 16] = [11; 16];
const LEAF_BYTES: u32 = 128;
const REGION_BYTES: u64 = 8 << 10;
static SOIL: Site = Site::new("proof.trees.soil");
/// Kinds of root entries. `EVICTED`: whether the immutable tree is evicted, and up to which leaf.
/// `INTENT`: the insertion into several leaves that is in progress.
const EVICTED: u16 = 0;
const IS_EVICTED: u64 = 1 << 8;
const INTENT: u16 = 1;
/// The number of keys of a bulk, and the distance between them.
const BULK: u8 = 8;
const DISTANCE: u8 = 3;
const MIDDLE: u8 = 70;

/// The trees in a pool.
pub(crate) struct BTrees {
    pool: Arc<Pool>,
    store: Arc<TreeStore>,
    mutable: View,
    immutable: Option<View>,
}

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Puts a key into the mutable tree. The key's length depends on its number.
    Put(u8),
    /// Puts several keys, starting with this one: enough to split a leaf into several.
    Bulk(u8),
    /// Makes the mutable tree the immutable one, if there is none.
    Rotate,
    /// Evicts the leaves before the middle of the immutable tree.
    Evict,
    /// Evicts the rest of it.
    End,
}

/// The keys of a tree, each with the number of its write.
type Tree = BTreeMap<u8, u64>;

/// The contents of the trees.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct State {
    mutable: Tree,
    immutable: Option<Tree>,
}

fn key(number: u8) -> Vec<u8> {
    let mut key = vec![number];
    key.resize(1 + usize::from(number % 7) * 6, b'.');
    key
}

fn bulk(from: u8) -> impl Iterator<Item = u8> {
    (0..BULK).map(move |i| from + DISTANCE * i)
}

/// The number of the next write into a tree.
fn next_write(tree: &Tree) -> u64 {
    1 + tree.values().max().unwrap_or(&0)
}

/// The address of the value of write `n`.
fn address(n: u64) -> ValueAddress {
    ValueAddress {
        log_id: FileId(3 + n / 4),
        offset: n << 8,
        len: n as u32,
    }
}

/// Leaves garbage where the directory will be, because a new extent contains whatever was there
/// before.
fn soil(pool: &Pool) -> Result<()> {
    let extent = pool.alloc(REGION_BYTES + GRANULE_BYTES, Owner::Test)?;
    let at = extent
        .at(REGION_BYTES)
        .ok_or_else(|| Error::invalid("an extent too short"))?;
    let _durable = pool.write_durable(&SOIL, at, &[&[0xA5; 8]])?;
    pool.free(extent)
}

/// True if a leaf that starts at `bound` comes before the one that starts with `edge`. An edge of 0
/// is the start.
fn is_evicted(bound: &[u8], edge: u8) -> bool {
    bound.first().copied().unwrap_or(0) < edge
}

impl BTrees {
    fn word(pool: &Pool, kind: u16) -> u64 {
        pool.root()
            .find(Owner::Test, kind)
            .map_or(0, |entry| entry.word)
    }

    fn set_word(&self, kind: u16, word: u64) -> Result<()> {
        self.pool.commit_with(Fenced::nothing(), |root| {
            root.set(RootEntry {
                owner: Owner::Test,
                kind,
                word,
                extent: None,
            });
            Ok(())
        })?;
        Ok(())
    }

    fn contents(&self, view: &View) -> Result<Tree> {
        let mut iter = TreeIter::new(self.store.clone(), view.clone());
        let mut found = Tree::new();
        iter.first()?;
        while let Some(entry) = iter.entry() {
            let (number, n) = (entry.key[0], entry.tag.seqno().0);
            if entry.key != key(number)
                || entry.address != Some(address(n))
                || found.insert(number, n).is_some()
            {
                return Err(Error::corruption(
                    "the trees",
                    n,
                    "entries as they were written",
                ));
            }
            iter.next()?;
        }
        Ok(found)
    }

    fn put(&mut self, numbers: impl Iterator<Item = u8>, n: u64) -> Result<()> {
        let keys: Vec<Vec<u8>> = numbers.map(key).collect();
        let tag = Tag::new(SeqNo(n), Kind::Pointer);
        let entries: Vec<Entry<'_>> = keys
            .iter()
            .map(|key| Entry {
                key,
                tag,
                address: Some(address(n)),
            })
            .collect();
        let inserted = self.store.insert(
            self.store.trees().mutable,
            &self.mutable,
            &entries,
            &mut |_| {},
        )?;
        self.store.release(&inserted.replaced);
        self.mutable = inserted.view;
        Ok(())
    }

    /// Puts keys into several leaves. They are recorded first, because a crash may come between any
    /// two leaves.
    fn put_bulk(&mut self, from: u8) -> Result<()> {
        let n = next_write(&self.contents(&self.mutable)?);
        self.set_word(INTENT, n << 8 | u64::from(from))?;
        self.finish_bulk()
    }

    fn finish_bulk(&mut self) -> Result<()> {
        let intent = Self::word(&self.pool, INTENT);
        if intent != 0 {
            self.put(bulk(intent as u8), intent >> 8)?;
            self.set_word(INTENT, 0)?;
        }
        Ok(())
    }

    /// Removes the leaves for whose bounds `goes` is true from the immutable tree. Returns the
    /// rest.
    fn take_out(&self, view: &View, goes: impl Fn(&[u8]) -> bool) -> Result<View> {
        let (left, gone) = view.without(goes);
        self.store.remove(&gone)?;
        self.store.release(&gone);
        Ok(left)
    }
}

impl Structure for BTrees {
    const NAME: &'static str = "trees";
    const POOL_BYTES: u64 = 32 << 10;
    type Op = Op;
    type State = State;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Put(7),
            Op::Put(61),
            Op::Put(130),
            Op::Bulk(50),
            Op::Bulk(52),
            Op::Rotate,
            Op::Evict,
            Op::End,
        ]
    }

    fn model(state: &mut State, op: &Op) {
        let next = next_write(&state.mutable);
        match op {
            Op::Put(number) => state.mutable.extend([(*number, next)]),
            Op::Bulk(from) => state
                .mutable
                .extend(bulk(*from).map(|number| (number, next))),
            Op::Rotate if state.immutable.is_none() => {
                state.immutable = Some(std::mem::take(&mut state.mutable))
            }
            Op::Rotate => {}
            Op::Evict => state
                .immutable
                .iter_mut()
                .for_each(|tree| tree.retain(|&number, _| number >= MIDDLE)),
            Op::End => state.immutable = None,
        }
    }

    fn live_bytes(_: &State) -> u64 {
        REGION_BYTES + GRANULE_BYTES
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
        pool.finish_recovery()?;
        let edge = Self::word(&pool, EVICTED) as u8;
        let evicted = |bound: &[u8]| is_evicted(bound, edge);
        let seen = Seen {
            evicted: &evicted,
            entry: &mut |_, _| {},
            damage: &mut Err,
            hold: None,
        };
        let mut trees = match TreeStore::recover(pool.clone(), LEAF_BYTES, seen)? {
            Some(Recovered {
                store,
                mutable,
                immutable,
                ..
            }) => Self {
                pool,
                store: Arc::new(store),
                mutable,
                immutable,
            },
            None => {
                soil(&pool)?;
                let store = Arc::new(TreeStore::create(pool.clone(), REGION_BYTES, LEAF_BYTES)?);
                Self {
                    pool,
                    store,
                    mutable: View::default(),
                    immutable: None,
                }
            }
        };
        trees.finish_bulk()?;
        Ok(trees)
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Put(number) => {
                let next = next_write(&self.contents(&self.mutable)?);
                self.put([*number].into_iter(), next)?;
            }
            Op::Bulk(from) => self.put_bulk(*from)?,
            Op::Rotate if self.immutable.is_none() => {
                self.set_word(EVICTED, 0)?;
                self.store.rotate()?;
                self.immutable = Some(std::mem::take(&mut self.mutable));
            }
            Op::Rotate => {}
            Op::Evict => {
                if let Some(view) = self.immutable.take() {
                    let mut edge = 0;
                    self.store.for_each_leaf(&view, |leaf| {
                        let from = leaf.from.first().copied().unwrap_or(0);
                        edge = if from <= MIDDLE { from } else { edge };
                        from <= MIDDLE
                    })?;
                    self.set_word(EVICTED, IS_EVICTED | u64::from(edge))?;
                    self.immutable = Some(self.take_out(&view, |bound| is_evicted(bound, edge))?);
                }
            }
            Op::End => {
                if let Some(view) = self.immutable.take() {
                    self.store.end_immutable()?;
                    self.take_out(&view, |_| true)?;
                }
            }
        }
        Ok(())
    }

    fn state(&self) -> Result<State> {
        // Keys before the middle are gone, whichever leaf contains them.
        let edge = if Self::word(&self.pool, EVICTED) & IS_EVICTED == 0 {
            0
        } else {
            MIDDLE
        };
        let immutable = self
            .immutable
            .as_ref()
            .map(|view| self.contents(view))
            .transpose()?;
        let left = |tree: Tree| {
            tree.into_iter()
                .filter(|(number, _)| *number >= edge)
                .collect()
        };
        Ok(State {
            mutable: self.contents(&self.mutable)?,
            immutable: immutable.map(left),
        })
    }

    fn live(&self) -> Result<u64> {
        let (used, leaves) = (self.store.usage(), |view: &View| view.leaves() as u64);
        let named = leaves(&self.mutable) + self.immutable.as_ref().map_or(0, leaves);
        if used.used_slots != named {
            return Err(Error::invalid(format!(
                "I5: {} words for {named} leaves",
                used.used_slots
            )));
        }
        live(&self.pool)
    }
}

/// Suite trees_damage: one bit of every byte of a pool with trees, with the bytes divided among the
/// seeds. A recovery returns the original contents, or an error that names the place.
pub(crate) fn damage(seed: u64) -> Tally {
    let (image, state) = golden().expect("a pool without a fault");
    let mut tally = Tally::default();
    for at in (seed..image.len() as u64).step_by(DAMAGE_SEEDS as usize) {
        let mut damaged = image.clone();
        damaged[at as usize] ^= 1 << (at % 8);
        let sim = SimRegion::from_image(damaged, Mode::Adr);
        match BTrees::open(&sim, &()).and_then(|trees| trees.state()) {
            Ok(found) => assert_eq!(found, state, "byte {at} is damaged and nobody says so"),
            Err(error) => assert!(
                matches!(error.kind(), Corruption | Incompatible),
                "byte {at}: {error:?}"
            ),
        }
        tally.recovered(at);
    }
    tally
}

/// The number of seeds among which the bytes are divided.
pub(crate) const DAMAGE_SEEDS: u64 = 16;

/// Both trees, with several leaves each.
fn golden() -> Result<(Vec<u8>, State)> {
    let sim = SimRegion::new(BTrees::POOL_BYTES, Mode::Adr);
    let mut trees = BTrees::open(&sim, &())?;
    for op in [
        Op::Bulk(50),
        Op::Put(7),
        Op::Rotate,
        Op::Bulk(52),
        Op::Put(130),
    ] {
        trees.apply(&op)?;
    }
    let state = trees.state()?;
    trees.pool.close()?;
    Ok((sim.durable(), state))
}

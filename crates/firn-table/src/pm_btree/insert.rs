//! Inserts the entries of a flush into a tree.

use super::index::{At, Change, View};
use super::layout::Place;
use super::leaf::Entry;
use super::store::TreeStore;
use super::write::Gathered;
use firn_base::Result;
use firn_base::exec::give_way;

/// The result of an insertion.
#[derive(Debug)]
pub struct Inserted {
    /// The tree with the new entries.
    pub view: View,
    /// The leaves that are in no newer view, to be released once no older view is read.
    pub replaced: Vec<Place>,
}

impl TreeStore {
    /// Inserts `entries` into `tree`, of which `view` is the current state. They are in key order,
    /// one per key. The newer of two entries of a key stays; `on_replaced` is called with the other
    /// one, which may be an identical entry. DURABLE AFTER. After a crash before that, any subset
    /// of them may be in the tree.
    ///
    /// # Errors
    /// `NoSpace` if the new leaves do not fit beside the old ones; nothing has changed then.
    /// `Corruption` of a leaf.
    pub fn insert(
        &self,
        tree: u32,
        view: &View,
        entries: &[Entry<'_>],
        on_replaced: &mut dyn FnMut(&Entry<'_>),
    ) -> Result<Inserted> {
        let mut step = self.begin();
        let (mut changes, mut replaced, mut gathered) =
            (Vec::new(), Vec::new(), Gathered::default());
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let at = view.locate(first.key);
            let upper = match at {
                Some(at) => view.upper(at),
                None => view.first().map(|first| view.bound(first)),
            };
            let count = upper.map_or(rest.len(), |upper| {
                rest.partition_point(|entry| entry.key < upper)
            });
            let (now, later) = rest.split_at(count);
            gathered.clear();
            self.merge(view, at, now, &mut gathered, on_replaced)?;
            let bound = at.map_or(&[][..], |at| view.bound(at));
            let cuts = gathered.cut(bound, self.leaf_bytes as usize);
            let leaves = cuts
                .iter()
                .map(|(range, bound)| gathered.encode(range.clone(), bound))
                .collect();
            let old = at.map(|at| view.place(at));
            let places = step.put(tree, leaves, old)?;
            replaced.extend(old);
            let leaves = cuts
                .into_iter()
                .map(|(_, bound)| bound)
                .zip(places)
                .collect();
            changes.push(Change {
                at: at.or(view.first()).unwrap_or(At::START),
                replaces: at.is_some(),
                leaves,
            });
            rest = later;
            give_way();
        }
        step.commit()?;
        Ok(Inserted {
            view: view.with(changes),
            replaced,
        })
    }

    /// Gathers the entries of the leaf at `at` and the `new` ones, in key order.
    fn merge(
        &self,
        view: &View,
        at: Option<At>,
        mut new: &[Entry<'_>],
        gathered: &mut Gathered,
        on_replaced: &mut dyn FnMut(&Entry<'_>),
    ) -> Result<()> {
        if let Some(at) = at {
            let (place, upper) = (view.place(at), view.upper(at));
            let leaf = self.read(place)?;
            let mut entries = leaf.entries();
            while let Some(old) = entries.next().map_err(|_damaged| self.damaged(place))? {
                if upper.is_some_and(|upper| old.key >= upper) {
                    break;
                }
                let below = new.partition_point(|entry| entry.key < old.key);
                new[..below].iter().for_each(|entry| gathered.push(entry));
                new = &new[below..];
                match new.first().filter(|entry| entry.key == old.key) {
                    None => gathered.push(&old),
                    Some(entry) => {
                        let (stays, goes) = if entry.tag >= old.tag {
                            (*entry, old)
                        } else {
                            (old, *entry)
                        };
                        gathered.push(&stays);
                        on_replaced(&goes);
                        new = &new[1..];
                    }
                }
            }
        }
        new.iter().for_each(|entry| gathered.push(entry));
        Ok(())
    }

    pub(super) fn damaged(&self, place: Place) -> firn_base::Error {
        self.wrong(place.unit, "entries of a leaf")
    }
}

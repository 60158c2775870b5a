//! Builds leaves from entries: how many, and their bytes.

use super::layout::{HEADER_BYTES, Header, KEYS_BYTES_MAX};
use super::leaf::{Entry, ValueAddress};
use crate::mechanisms;
use firn_base::coding::{put_varint, varint_len};
use firn_base::key::shared_prefix_len;
use firn_base::{FileId, SeqNo, Tag};
use std::ops::Range;

/// Entries in key order, with their keys concatenated in one buffer.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    keys: Vec<u8>,
    items: Vec<Item>,
    /// Approximate bytes they take in one leaf, without its header.
    bytes: usize,
}

#[derive(Debug)]
struct Item {
    key: Range<usize>,
    shared: usize,
    tag: Tag,
    address: Option<ValueAddress>,
    bytes: usize,
}

impl Gathered {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.items.clear();
        self.bytes = 0;
    }

    /// Appends an entry.
    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        let shared = self.items.last().map_or(0, |last| {
            shared_prefix_len(&self.keys[last.key.clone()], entry.key)
        });
        let start = self.keys.len();
        self.keys.extend_from_slice(entry.key);
        // Sequence numbers and logs within a leaf are close to each other, so five of the 8 bytes
        // stand for both differences.
        let address = entry.address.map_or(0, |at| {
            varint_len(at.offset) + varint_len(u64::from(at.len))
        });
        let bytes = 8 + address + entry.key.len() - omitted(shared);
        self.bytes += bytes;
        let (key, tag, address) = (start..self.keys.len(), entry.tag, entry.address);
        self.items.push(Item {
            key,
            shared,
            tag,
            address,
            bytes,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Cuts the entries into as few leaves of at most about `leaf_bytes` as possible, of even size.
    /// Returns each as a range of entries and the lower bound of its keys; the first one's bound is
    /// `bound`.
    pub(super) fn cut(&self, bound: &[u8], leaf_bytes: usize) -> Vec<(Range<usize>, Vec<u8>)> {
        let room = leaf_bytes - HEADER_BYTES;
        let parts = self.bytes.div_ceil(room).max(1);
        let even = self.bytes.div_ceil(parts);
        let mut leaves = Vec::with_capacity(parts);
        let (mut start, mut bytes, mut keys) = (0, 0, 0);
        for (i, item) in self.items.iter().enumerate() {
            let is_full = bytes >= even
                || bytes + item.bytes > room
                || keys + item.key.len() > KEYS_BYTES_MAX;
            if i > start && is_full {
                leaves.push((start..i, self.bound(start, bound)));
                (start, bytes, keys) = (i, 0, 0);
            }
            bytes += item.bytes;
            keys += item.key.len();
        }
        leaves.push((start..self.items.len(), self.bound(start, bound)));
        leaves
    }

    /// The shortest prefix of the key of entry `i` that is above the key before it.
    fn bound(&self, i: usize, first: &[u8]) -> Vec<u8> {
        if i == 0 {
            first.to_vec()
        } else {
            self.key(i)[..self.items[i].shared + 1].to_vec()
        }
    }

    fn key(&self, i: usize) -> &[u8] {
        &self.keys[self.items[i].key.clone()]
    }

    /// Encodes the leaf of `entries`, without its header. `seal` the header once the leaf's place
    /// is known.
    pub(super) fn encode(&self, entries: Range<usize>, bound: &[u8]) -> (Vec<u8>, Header) {
        let items = &self.items[entries.clone()];
        let lowest = items
            .iter()
            .map(|item| item.tag.seqno())
            .min()
            .unwrap_or_default();
        let newest_log = items
            .iter()
            .filter_map(|item| item.address)
            .map(|at| at.log_id)
            .max()
            .unwrap_or_default();
        let mut leaf = vec![0; HEADER_BYTES];
        leaf.extend_from_slice(bound);
        for (i, item) in entries.clone().zip(items) {
            let is_first = i == entries.start;
            let shared = if is_first { 0 } else { omitted(item.shared) };
            put_entry(
                &mut leaf,
                shared,
                &self.key(i)[shared..],
                item,
                (lowest, newest_log),
            );
        }
        let header = Header {
            bytes: leaf.len() as u32,
            tree: 0,
            version: 0,
            entries: items.len() as u32,
            bound_bytes: bound.len() as u16,
            lowest,
            newest_log,
        };
        (leaf, header)
    }
}

/// The bytes that an entry omits of the `shared` bytes at the start of its key.
fn omitted(shared: usize) -> usize {
    if mechanisms::LAB_PREFIX.is_on() {
        shared
    } else {
        0
    }
}

fn put_entry(
    leaf: &mut Vec<u8>,
    shared: usize,
    rest: &[u8],
    item: &Item,
    (lowest, newest_log): (SeqNo, FileId),
) {
    put_varint(leaf, shared as u64);
    put_varint(leaf, rest.len() as u64);
    put_varint(leaf, item.tag.seqno().0 - lowest.0);
    leaf.push(item.tag.kind_byte());
    if let Some(at) = item.address {
        put_varint(leaf, newest_log.0 - at.log_id.0);
        put_varint(leaf, at.offset);
        put_varint(leaf, u64::from(at.len));
    }
    leaf.extend_from_slice(rest);
}

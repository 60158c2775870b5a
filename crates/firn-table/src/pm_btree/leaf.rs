//! Reading one leaf: finding a key and iterating over the entries.

use super::layout::{HEADER_BYTES, Header, KEYS_BYTES_MAX};
use crate::mechanisms;
use firn_base::coding::Reader;
use firn_base::key::{KEY_BYTES_MAX, Kind};
use firn_base::{FileId, SeqNo, Tag};
use std::cmp::Ordering;

/// The [`ValueAddress::log_id`] of a value in the pool's hot buffer. No log has this number.
pub const HOT_LOG: FileId = FileId(0);

/// The location of a value in a log. Its header and its bytes are read to get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueAddress {
    /// The log, or [`HOT_LOG`].
    pub log_id: FileId,
    /// The offset in the log where the value's header begins, or the offset in the hot buffer where
    /// its slot begins.
    pub offset: u64,
    /// Bytes of the value, without its header.
    pub len: u32,
}

/// An entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Sequence number, and [`Kind::Pointer`] or [`Kind::Delete`].
    pub tag: Tag,
    /// The location of its value; `None` for a delete.
    pub address: Option<ValueAddress>,
}

/// A leaf, copied out of persistent memory and checked.
#[derive(Debug)]
pub struct Leaf {
    bytes: Vec<u8>,
    pub(super) header: Header,
}

/// The error for a damaged leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

impl Leaf {
    /// Decodes `bytes` as the leaf of `version` at `unit`; `None` if they are not that leaf.
    pub(super) fn decode(bytes: Vec<u8>, version: u32, unit: u32) -> Option<Leaf> {
        let header = Header::decode(&bytes, version, unit)?;
        Some(Leaf { bytes, header })
    }

    /// The inclusive lower bound of the leaf's keys.
    pub fn bound(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + usize::from(self.header.bound_bytes)]
    }

    /// The entries, in key order.
    pub(super) fn entries(&self) -> Entries<'_> {
        let reader =
            Reader::new(&self.bytes[HEADER_BYTES + usize::from(self.header.bound_bytes)..]);
        Entries {
            reader,
            header: &self.header,
            left: self.header.entries,
            key: Vec::new(),
            key_bytes: 0,
        }
    }

    /// Looks up `key`. Nothing is copied, and only the bytes of keys that decide are compared.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<(Tag, Option<ValueAddress>)>, Damaged> {
        let mut entries = self.entries();
        // The number of bytes that `key` shares with the previous entry, which is below it.
        let mut matched = 0;
        while let Some(step) = entries.step()? {
            if !mechanisms::LAB_PREFIX.is_on() {
                // Every key is stored whole.
                matched = 0;
            }
            // If this entry shares more with the previous one than `key` does, it is below `key`
            // too, because of the same byte.
            match step.shared.cmp(&matched) {
                Ordering::Greater => continue,
                Ordering::Less => return Ok(None),
                Ordering::Equal => {}
            }
            let wanted = key.get(matched..).unwrap_or_default();
            let same = firn_base::key::shared_prefix_len(step.rest, wanted);
            match (step.rest.get(same), wanted.get(same)) {
                (None, None) => return Ok(Some((step.tag, step.address))),
                (Some(theirs), Some(ours)) if theirs > ours => return Ok(None),
                (Some(_), None) => return Ok(None),
                (None, Some(_)) | (Some(_), Some(_)) => matched += same,
            }
        }
        Ok(None)
    }
}

/// An entry as it is stored.
struct Step<'a> {
    shared: usize,
    rest: &'a [u8],
    tag: Tag,
    address: Option<ValueAddress>,
}

/// An iterator over a leaf's entries.
pub(super) struct Entries<'a> {
    reader: Reader<'a>,
    header: &'a Header,
    left: u32,
    key: Vec<u8>,
    /// Bytes of all keys so far.
    key_bytes: usize,
}

impl Entries<'_> {
    /// The next entry; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Entry<'_>>, Damaged> {
        let Some(step) = self.step()? else {
            return Ok(None);
        };
        let (shared, rest, tag, address) = (step.shared, step.rest, step.tag, step.address);
        let len = shared + rest.len();
        self.key_bytes += len;
        // `find` relies on keys sharing exactly as much as they claim.
        let shares_more = rest
            .first()
            .is_some_and(|first| self.key.get(shared) == Some(first))
            && mechanisms::LAB_PREFIX.is_on();
        let too_long = len > KEY_BYTES_MAX || self.key_bytes > KEYS_BYTES_MAX;
        if shared > self.key.len() || len == 0 || shares_more || too_long {
            return Err(Damaged);
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        Ok(Some(Entry {
            key: &self.key,
            tag,
            address,
        }))
    }
}

impl<'a> Entries<'a> {
    fn step(&mut self) -> Result<Option<Step<'a>>, Damaged> {
        if self.left == 0 {
            return if self.reader.is_empty() {
                Ok(None)
            } else {
                Err(Damaged)
            };
        }
        self.left -= 1;
        self.read_step().map(Some).ok_or(Damaged)
    }

    fn read_step(&mut self) -> Option<Step<'a>> {
        let reader = &mut self.reader;
        let shared = reader.varint_max(KEY_BYTES_MAX)?;
        let rest_len = reader.varint_max(KEY_BYTES_MAX)?;
        let seqno = self
            .header
            .lowest
            .0
            .checked_add(reader.varint()?)
            .filter(|&seqno| seqno <= SeqNo::MAX.0)?;
        let kind = Kind::from_byte(reader.u8()?)?;
        let address = match kind {
            Kind::Delete => None,
            Kind::Pointer => Some(ValueAddress {
                log_id: FileId(self.header.newest_log.0.checked_sub(reader.varint()?)?),
                offset: reader.varint()?,
                len: u32::try_from(reader.varint()?).ok()?,
            }),
            Kind::Put => return None,
        };
        let rest = reader.take(rest_len)?;
        Some(Step {
            shared,
            rest,
            tag: Tag::new(SeqNo(seqno), kind),
            address,
        })
    }
}

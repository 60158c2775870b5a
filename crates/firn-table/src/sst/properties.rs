//! A table's properties: counts and bounds, as tagged fields so that later versions can add some.
//!
//! ```text
//! field    tag: varint | value: varint, or length-prefixed bytes for keys
//! ```

use firn_base::SeqNo;
use firn_base::coding::{Reader, put_bytes, put_varint};
use firn_base::key::{Kind, Tag};

/// Counts and bounds of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// Entries, including tombstones.
    pub entries: u64,
    /// Tombstones.
    pub deletes: u64,
    /// Bytes of user keys.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
    /// The number of keys for which the filter has bits. At least the number of distinct keys that
    /// the table was first written with.
    pub filter_capacity: u64,
    /// The lowest sequence number.
    pub seqno_min: SeqNo,
    /// The highest sequence number.
    pub seqno_max: SeqNo,
    /// Keys that were inserted into the filter, including keys that are gone.
    pub filter_keys: u64,
    /// The number of appends to the table. If there were any, the sequence numbers are bounds that
    /// need not be tight.
    pub appends: u64,
    /// Bytes of keys and values that are superseded by a newer entry of their key in the table,
    /// kept for snapshots. For a table that grew, the value from before the first append.
    pub superseded_bytes: u64,
    /// The smallest user key.
    pub smallest: Vec<u8>,
    /// The largest user key.
    pub largest: Vec<u8>,
}

const NUMBERS: u64 = 10;
const SMALLEST: u64 = 16;
const LARGEST: u64 = 17;

impl Properties {
    fn numbers(&self) -> [u64; NUMBERS as usize] {
        [
            self.entries,
            self.deletes,
            self.key_bytes,
            self.value_bytes,
            self.filter_capacity,
            self.seqno_min.0,
            self.seqno_max.0,
            self.filter_keys,
            self.appends,
            self.superseded_bytes,
        ]
    }

    /// Counts an entry.
    pub(super) fn count(&mut self, key: &[u8], tag: Tag, value: &[u8]) {
        self.entries += 1;
        self.deletes += u64::from(tag.kind() == Some(Kind::Delete));
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        self.seqno_min = self.seqno_min.min(tag.seqno());
        self.seqno_max = self.seqno_max.max(tag.seqno());
    }

    /// The number of keys that may still be inserted into the filter.
    pub fn filter_left(&self) -> u64 {
        self.filter_capacity.saturating_sub(self.filter_keys)
    }

    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (tag, number) in self.numbers().into_iter().enumerate() {
            put_varint(&mut out, tag as u64);
            put_varint(&mut out, number);
        }
        put_varint(&mut out, SMALLEST);
        put_bytes(&mut out, &self.smallest);
        put_varint(&mut out, LARGEST);
        put_bytes(&mut out, &self.largest);
        out
    }

    /// Decodes stored properties; `None` if they are not valid.
    pub fn decode(bytes: &[u8]) -> Option<Properties> {
        let mut reader = Reader::new(bytes);
        let mut numbers = [0; NUMBERS as usize];
        let mut properties = Properties::default();
        while !reader.is_empty() {
            match reader.varint()? {
                tag @ 0..NUMBERS => numbers[tag as usize] = reader.varint()?,
                SMALLEST => properties.smallest = reader.bytes()?.to_vec(),
                LARGEST => properties.largest = reader.bytes()?.to_vec(),
                _ => return None,
            }
        }
        let [
            entries,
            deletes,
            key_bytes,
            value_bytes,
            filter_capacity,
            seqno_min,
            seqno_max,
            filter_keys,
            appends,
            superseded_bytes,
        ] = numbers;
        let numbered = Properties {
            entries,
            deletes,
            key_bytes,
            value_bytes,
            filter_capacity,
            filter_keys,
            appends,
            superseded_bytes,
            seqno_min: SeqNo(seqno_min),
            seqno_max: SeqNo(seqno_max),
            ..properties
        };
        (numbered.seqno_max <= SeqNo::MAX).then_some(numbered)
    }
}

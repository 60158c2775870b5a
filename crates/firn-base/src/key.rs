//! Keys, sequence numbers and kinds: the order of entries everywhere in the engine.
//!
//! 1. User keys compare as bytes.
//! 2. Entries of one user key are sorted newest first: by descending [`Tag`].
//! 3. A tag is `seqno << 8 | kind`; sequence numbers have 56 bits.

use std::cmp::Ordering;
use std::fmt;

/// The maximum length of a user key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// The maximum length of a value, in bytes (256 MiB).
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// The position of a write in the one order of all writes. 56 bits; 0 is before the first write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// The largest sequence number that fits in 56 bits.
    pub const MAX: SeqNo = SeqNo((1 << 56) - 1);
}

impl fmt::Display for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a database's file. No two of its files ever have the same one, whatever their
/// kind, and a newer file has a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u64);

impl FileId {
    /// The number after this one.
    #[must_use]
    pub fn next(self) -> FileId {
        FileId(self.0.saturating_add(1))
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The effect of an entry on its key. The numbers are stored on media and never change their
/// meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is deleted as of this sequence number.
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// The key's value is stored elsewhere; the entry holds its address. (Numbers 3 to 5 are
    /// reserved for merge, range delete and expiry.)
    Pointer = 2,
}

impl Kind {
    /// The kind with this number, or `None` if this version does not know it.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            0 => Some(Kind::Delete),
            1 => Some(Kind::Put),
            2 => Some(Kind::Pointer),
            _ => None,
        }
    }
}

/// Sequence number and kind in one word: `seqno << 8 | kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

impl Tag {
    /// The tag of an entry.
    pub fn new(seqno: SeqNo, kind: Kind) -> Tag {
        debug_assert!(seqno <= SeqNo::MAX);
        Tag(seqno.0 << 8 | kind as u64)
    }

    /// The tag at which a search "as of `seqno`" starts. It sorts at or before every entry with
    /// that sequence number or a lower one.
    pub fn seek(seqno: SeqNo) -> Tag {
        Tag(seqno.0 << 8 | 0xff)
    }

    /// The sequence number.
    pub fn seqno(self) -> SeqNo {
        SeqNo(self.0 >> 8)
    }

    /// The kind's number, known to this version or not.
    pub fn kind_byte(self) -> u8 {
        self.0 as u8
    }

    /// The kind, if this version knows it.
    pub fn kind(self) -> Option<Kind> {
        Kind::from_byte(self.0 as u8)
    }
}

/// The order of entries: user key ascending, then tag descending (newest first).
#[inline]
pub fn compare(key_a: &[u8], tag_a: Tag, key_b: &[u8], tag_b: Tag) -> Ordering {
    key_a.cmp(key_b).then_with(|| tag_b.cmp(&tag_a))
}

/// The number of leading bytes that `a` and `b` share.
#[inline]
pub fn shared_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The smallest key greater than every key that starts with `prefix`. `None` if there is none
/// because all its bytes are 0xff.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_entries_of_a_key_come_first() {
        let old = Tag::new(SeqNo(1), Kind::Put);
        let new = Tag::new(SeqNo(2), Kind::Delete);
        assert_eq!(compare(b"a", new, b"a", old), Ordering::Less);
        assert_eq!(compare(b"a", old, b"b", new), Ordering::Less);
        assert_eq!(
            compare(b"a", Tag::seek(SeqNo(2)), b"a", new),
            Ordering::Less
        );
        assert_eq!(new.seqno(), SeqNo(2));
        assert_eq!(new.kind(), Some(Kind::Delete));
        assert_eq!(Tag(7).kind(), None);
    }

    #[test]
    fn prefix_end_carries() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}

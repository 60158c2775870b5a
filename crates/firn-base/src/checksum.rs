//! CRC-32C, the checksum of every block, frame and record. A salted form keeps bytes that were
//! valid elsewhere from passing.
//!
//! A salted checksum starts from (file id, offset), so a recycled page, a misplaced write or a
//! value that happens to hold a copy of a log frame fails its check. A value's checksum is computed
//! before its place is known, so it is tied to its entry's sequence number afterwards.

use crate::SeqNo;
use crate::seed::mix;
use crate::site::Site;
use crc_fast::{CrcAlgorithm, Digest, checksum};

/// True if `stored` equals the checksum that `computed` returns. Every comparison goes through
/// here, so that each one has a site.
#[inline]
pub fn matches(site: &'static Site, stored: u32, computed: impl FnOnce() -> u32) -> bool {
    !site.is_on() || stored == computed()
}

/// CRC-32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm yields 32 bits in a 64-bit word.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of the salt followed by `parts`, in order.
pub fn crc32c_salted(file_id: u64, offset: u64, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut salt = [0u8; 16];
    salt[..8].copy_from_slice(&file_id.to_le_bytes());
    salt[8..].copy_from_slice(&offset.to_le_bytes());
    digest.update(&salt);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// Computes [`crc32c`] of bytes that arrive in pieces.
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all bytes so far.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// The checksum of entry `seqno`'s value, whose CRC-32C is `crc`. The value of another entry fails
/// it.
pub fn of_entry(crc: u32, seqno: SeqNo) -> u32 {
    crc ^ mix(seqno.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_do_not_share_their_sums() {
        let sums: std::collections::HashSet<u32> =
            (0..10_000).map(|seqno| of_entry(7, SeqNo(seqno))).collect();
        // Two may collide by chance, with probability 2^-32.
        assert!(sums.len() >= 9_999, "{}", sums.len());
    }

    #[test]
    fn known_answer() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
        let mut pieces = Crc32c::default();
        [&b"1234"[..], b"", b"56789"]
            .iter()
            .for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.finish(), crc32c(b"123456789"));
    }

    #[test]
    fn salt_changes_the_sum_and_parts_do_not() {
        let whole = crc32c_salted(1, 2, &[b"abcdef"]);
        assert_eq!(whole, crc32c_salted(1, 2, &[b"abc", b"def"]));
        assert_ne!(whole, crc32c_salted(1, 3, &[b"abcdef"]));
        assert_ne!(whole, crc32c_salted(2, 2, &[b"abcdef"]));
    }
}

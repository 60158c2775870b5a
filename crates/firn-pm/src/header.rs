//! The header page: the identity of a pool (written once, magic last) and how its last session
//! ended (one word).
//!
//! 1. The magic is stored only after everything else of a new pool is durable, so a pool with a
//!    magic is complete.
//! 2. The session word changes by one aligned 8-byte store and carries its own checksum, so it is
//!    never torn.
//! 3. A word that says "closed cleanly" names the root generation at the close. A clean pool with a
//!    different newest root has lost an acknowledged root, and that is damage, not a torn commit.

use crate::layout::{GRANULE_BYTES, HEADER_CRC_AT, HeaderLine, POOL_MAGIC, SESSION_AT, VERSION};
use crate::sites;
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::{Error, ErrorKind, Result};
use zerocopy::{FromBytes, IntoBytes};

/// The state of the header page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// Empty, or a creation that a crash cut short. A pool may be created here.
    Unfinished,
    /// A complete pool.
    Complete { session: Session },
}

/// How the last session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) clean: bool,
    pub(crate) unsafe_shutdowns: u16,
    pub(crate) generation_low: u16,
}

const MAX_UNSAFE_SHUTDOWNS: u16 = 0x7fff;

impl Session {
    pub(crate) fn encode(self, uuid: &[u8; 16]) -> u64 {
        let count = u32::from(self.unsafe_shutdowns.min(MAX_UNSAFE_SHUTDOWNS));
        let low = u32::from(self.clean) | count << 1 | u32::from(self.generation_low) << 16;
        u64::from(low) | u64::from(session_crc(low, uuid)) << 32
    }

    pub(crate) fn decode(word: u64, uuid: &[u8; 16]) -> Option<Self> {
        let low = word as u32;
        matches(&sites::PM_SESSION_CHECK, (word >> 32) as u32, || {
            session_crc(low, uuid)
        })
        .then_some(Self {
            clean: low & 1 == 1,
            unsafe_shutdowns: (low >> 1) as u16 & MAX_UNSAFE_SHUTDOWNS,
            generation_low: (low >> 16) as u16,
        })
    }

    /// The session that an open starts after this one.
    pub(crate) fn next_open(self) -> Self {
        let count = self.unsafe_shutdowns
            + u16::from(!self.clean && self.unsafe_shutdowns < MAX_UNSAFE_SHUTDOWNS);
        Self {
            clean: false,
            unsafe_shutdowns: count,
            generation_low: 0,
        }
    }
}

fn session_crc(low: u32, uuid: &[u8; 16]) -> u32 {
    crc32c_salted(POOL_MAGIC, SESSION_AT, &[uuid, &low.to_le_bytes()])
}

fn header_crc(line: &[u8]) -> u32 {
    crc32c_salted(POOL_MAGIC, 0, &[&line[..HEADER_CRC_AT]])
}

/// The header line of a new pool, magic included.
pub(crate) fn encode_header(uuid: &[u8; 16], pool_bytes: u64) -> HeaderLine {
    let mut line = HeaderLine {
        magic: POOL_MAGIC.into(),
        version: VERSION.into(),
        granule_bytes: (GRANULE_BYTES as u32).into(),
        uuid: *uuid,
        created_bytes: pool_bytes.into(),
        reserved: [0; 16],
        crc: 0.into(),
        reserved_end: 0.into(),
    };
    line.crc = header_crc(line.as_bytes()).into();
    line
}

/// Decodes and checks the header page of `place`. `uuid` is the database that the caller expects
/// the pool to belong to.
pub(crate) fn decode_header(page: &[u8], uuid: &[u8; 16], place: &str) -> Result<HeaderState> {
    let damaged = |at: u64, expected: &str| Err(Error::corruption(place, at, expected));
    let Ok((line, rest)) = HeaderLine::ref_from_prefix(page) else {
        return damaged(0, "a header page of 4096 bytes");
    };
    if line.magic.get() != POOL_MAGIC {
        return without_magic(line, rest, uuid, place);
    }
    if line.version.get() != VERSION {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "{place} has pool format {}, this program reads {VERSION}: use the release that wrote it, or move the \
                 file away and let the pool be rebuilt",
                line.version.get()
            ),
        ));
    }
    if !matches(&sites::PM_HEADER_CHECK, line.crc.get(), || {
        header_crc(line.as_bytes())
    }) {
        return damaged(HEADER_CRC_AT as u64, "the checksum of the header line");
    }
    if u64::from(line.granule_bytes.get()) != GRANULE_BYTES {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "{place} has granules of {} bytes, this program uses {GRANULE_BYTES}",
                line.granule_bytes.get()
            ),
        ));
    }
    if &line.uuid != uuid {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "{place} belongs to the database {}, not to {}: give this database its own pool path",
                hex(&line.uuid),
                hex(uuid)
            ),
        ));
    }
    if line.reserved_end.get() != 0 {
        return damaged(60, "zero in the reserved bytes");
    }
    let word = rest
        .first_chunk::<8>()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    match Session::decode(word, uuid) {
        Some(session) => Ok(HeaderState::Complete { session }),
        None => damaged(SESSION_AT, "the checksum of the session word"),
    }
}

/// Classifies a page without a magic: an unfinished creation, a pool whose magic was damaged, or
/// foreign data.
fn without_magic(
    line: &HeaderLine,
    rest: &[u8],
    uuid: &[u8; 16],
    place: &str,
) -> Result<HeaderState> {
    let mut healed = *line;
    healed.magic = POOL_MAGIC.into();
    let is_sound = matches(&sites::PM_MAGIC_CHECK, line.crc.get(), || {
        header_crc(healed.as_bytes())
    });
    let is_blank_after = rest.iter().skip(8).all(|&byte| byte == 0);
    let is_foreign = is_sound && &line.uuid != uuid;
    match (line.magic.get(), is_sound, is_blank_after) {
        (0, _, true) if !is_foreign => Ok(HeaderState::Unfinished),
        (_, true, _) => Err(Error::corruption(place, 0, "the magic number of a pool")),
        _ => Err(Error::invalid(format!(
            "{place} is not a FirnDB pool and holds other data: name another path, or remove it if it is not needed"
        ))),
    }
}

/// Recomputes the checksums of a damaged header page, to test the checks after them.
#[cfg(test)]
pub(crate) fn refit_checksums(page: &mut [u8], uuid: &[u8; 16]) {
    let crc = header_crc(&page[..64]);
    page[HEADER_CRC_AT..HEADER_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    let low = u32::from_le_bytes([page[64], page[65], page[66], page[67]]);
    page[68..72].copy_from_slice(&session_crc(low, uuid).to_le_bytes());
}

/// A uuid as hexadecimal digits.
pub(crate) fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;

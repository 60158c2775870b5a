//! What a benchmark's value holds: its id, its version, and bytes that follow from both.
//!
//! So a reader can tell, from the value alone, that it belongs to the key it asked for, which write made it, and that
//! no byte of it changed. The bytes are random in one half and repeat themselves in the other: compression halves them.

use firn_base::seed::{Seed, mix};
use firn_base::{Error, ErrorKind, Result};

/// The id and the version come first.
pub(crate) const VALUE_BYTES_MIN: usize = 16;

/// Writes the value of (`id`, `version`), `bytes` long, into `value`.
///
/// REQUIRES: `bytes` is at least [`VALUE_BYTES_MIN`].
pub(crate) fn write_value(id: u64, version: u64, bytes: usize, value: &mut Vec<u8>) {
    assert!(bytes >= VALUE_BYTES_MIN, "a value must hold its id and version");
    value.clear();
    value.resize(bytes, 0);
    value[..8].copy_from_slice(&id.to_le_bytes());
    value[8..16].copy_from_slice(&version.to_le_bytes());
    let body = &mut value[16..];
    let random_bytes = body.len().div_ceil(2);
    let (random, repeated) = body.split_at_mut(random_bytes);
    body_seed(id, version).fill(random);
    repeated.copy_from_slice(&random[..repeated.len()]);
}

/// The version of `value`, once it is sure that it is `id`'s and whole.
///
/// # Errors
/// [`ErrorKind::Corruption`] saying what is wrong with it.
pub(crate) fn check_value(id: u64, bytes: usize, value: &[u8]) -> Result<u64> {
    if value.len() != bytes {
        return Err(wrong(id, format!("{} bytes long and should be {bytes}", value.len())));
    }
    let (found, version) = (word(&value[..8]), word(&value[8..16]));
    if found != id {
        return Err(wrong(id, format!("record {found}'s")));
    }
    let body = &value[16..];
    let (random, repeated) = body.split_at(body.len().div_ceil(2));
    let mut seed = body_seed(id, version);
    let whole = random.chunks(8).all(|chunk| chunk == &seed.next_u64().to_le_bytes()[..chunk.len()]);
    if !whole || repeated != &random[..repeated.len()] {
        return Err(wrong(id, format!("not the bytes that version {version} was written with")));
    }
    Ok(version)
}

/// The number that `value` says it belongs to. Only [`check_value`] can tell whether that is so.
pub(crate) fn claimed_id(value: &[u8]) -> Option<u64> {
    value.get(..8).map(word)
}

pub(crate) fn wrong(id: u64, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corruption, format!("a wrong answer: the value of record {id} is {what}"))
}

fn body_seed(id: u64, version: u64) -> Seed {
    Seed::new(mix(id.wrapping_add(mix(version))))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_passes_and_every_flip_does_not() {
        for bytes in [16, 17, 31, 100, 1024] {
            let mut value = Vec::new();
            write_value(7, 1 << 40, bytes, &mut value);
            assert_eq!(check_value(7, bytes, &value).unwrap(), 1 << 40);
            assert!(check_value(8, bytes, &value).is_err());
            assert!(check_value(7, bytes, &value[1..]).is_err());
            // In 16 bytes there is nothing that a changed version could contradict.
            for at in (0..bytes).filter(|_| bytes > 16) {
                value[at] ^= 1;
                assert!(check_value(7, bytes, &value).is_err(), "byte {at} of {bytes}");
                value[at] ^= 1;
            }
        }
    }
}

//! The contents of a benchmark's value: its id, its version, and bytes derived from both.
//!
//! A reader can therefore tell from the value alone that it belongs to the requested key, which
//! write made it, and that no byte of it changed. Some of the bytes are random and the rest repeat
//! them, so compression removes that rest.

use crate::size::Sizes;
use firn_base::seed::{Seed, mix};
use firn_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The id and the version come first.
pub(crate) const VALUE_BYTES_MIN: usize = 16;
const VALUE_BYTES_MAX: usize = 16 << 20;

/// The properties of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// Their sizes in bytes.
    pub sizes: Sizes,
    /// The fraction of the bytes that compression can remove, 0 to 1.
    pub compressibility: f64,
}

impl Values {
    /// Values of these sizes, half of which compression removes.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            compressibility: 0.5,
        }
    }

    /// Refuses values that cannot be checked.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] stating the possible range.
    pub fn check(&self) -> Result<()> {
        if self.sizes.min() < VALUE_BYTES_MIN || self.sizes.max() > VALUE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the value size must be {VALUE_BYTES_MIN} bytes to 16 MiB"
            )));
        }
        match (0.0..=1.0).contains(&self.compressibility) {
            true => Ok(()),
            false => Err(Error::invalid("the compressibility must be 0 to 1")),
        }
    }

    fn bytes_of(&self, id: u64, version: u64) -> usize {
        self.sizes.of(id.wrapping_add(mix(version)))
    }

    fn random_bytes(&self, body: usize) -> usize {
        ((body as f64 * (1.0 - self.compressibility)).ceil() as usize).clamp(8.min(body), body)
    }

    /// Writes the value of (`id`, `version`) into `value`.
    pub(crate) fn write(&self, id: u64, version: u64, value: &mut Vec<u8>) {
        value.clear();
        value.resize(self.bytes_of(id, version), 0);
        value[..8].copy_from_slice(&id.to_le_bytes());
        value[8..16].copy_from_slice(&version.to_le_bytes());
        let body = &mut value[16..];
        let random_bytes = self.random_bytes(body.len());
        fill(body, random_bytes, &mut body_seed(id, version));
    }

    /// Checks that `value` is an intact value of `id`. Returns its version.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] stating what is wrong with it.
    pub(crate) fn check_value(&self, id: u64, value: &[u8]) -> Result<u64> {
        if value.len() < VALUE_BYTES_MIN {
            return Err(wrong(id, format!("only {} bytes long", value.len())));
        }
        let (found, version) = (word(&value[..8]), word(&value[8..16]));
        if found != id {
            return Err(wrong(id, format!("record {found}'s")));
        }
        let bytes = self.bytes_of(id, version);
        if value.len() != bytes {
            return Err(wrong(
                id,
                format!("{} bytes long and should be {bytes}", value.len()),
            ));
        }
        let body = &value[16..];
        let random_bytes = self.random_bytes(body.len());
        let (random, repeated) = body.split_at(random_bytes);
        let mut seed = body_seed(id, version);
        let whole = random
            .chunks(8)
            .all(|chunk| chunk == &seed.next_u64().to_le_bytes()[..chunk.len()]);
        let mut again = repeated.chunks(random_bytes.max(1));
        if !whole || !again.all(|chunk| chunk == &random[..chunk.len()]) {
            return Err(wrong(
                id,
                format!("not the bytes that version {version} was written with"),
            ));
        }
        Ok(version)
    }
}

/// Fills the first `random_bytes` of `body` with random bytes and the rest with repetitions of
/// them, which compression removes.
pub(crate) fn fill(body: &mut [u8], random_bytes: usize, seed: &mut Seed) {
    let (random, repeated) = body.split_at_mut(random_bytes);
    seed.fill(random);
    for chunk in repeated.chunks_mut(random_bytes.max(1)) {
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
}

/// The id that `value` claims to belong to. Only [`check_value`] verifies it.
pub(crate) fn claimed_id(value: &[u8]) -> Option<u64> {
    value.get(..8).map(word)
}

pub(crate) fn wrong(id: u64, what: impl std::fmt::Display) -> Error {
    wrong_answer(format_args!("the value of record {id} is {what}"))
}

/// The error for an answer that is not what was written, as `what` states.
pub(crate) fn wrong_answer(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corruption, format!("a wrong answer: {what}"))
}

fn body_seed(id: u64, version: u64) -> Seed {
    Seed::new(mix(id.wrapping_add(mix(version))))
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_passes_and_every_flip_does_not() {
        for (sizes, compressibility) in [
            ("16", 0.5),
            ("17", 0.5),
            ("31", 0.0),
            ("100", 1.0),
            ("1024", 0.5),
            ("1024", 0.9),
            ("16-300", 0.3),
        ] {
            let values = Values {
                sizes: sizes.parse().unwrap(),
                compressibility,
            };
            let mut value = Vec::new();
            values.write(7, 1 << 40, &mut value);
            assert_eq!(values.check_value(7, &value).unwrap(), 1 << 40);
            assert!(values.check_value(8, &value).is_err());
            assert!(values.check_value(7, &value[1..]).is_err());
            let bytes = value.len();
            // A value of 16 bytes has no body that could contradict a changed version.
            for at in (0..bytes).filter(|_| bytes > 16) {
                value[at] ^= 1;
                assert!(
                    values.check_value(7, &value).is_err(),
                    "byte {at} of {bytes}"
                );
                value[at] ^= 1;
            }
        }
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        assert!(Values::new(Sizes::fixed(15)).check().is_err());
        assert!(
            Values {
                sizes: Sizes::fixed(16),
                compressibility: 1.5
            }
            .check()
            .is_err()
        );
        assert!(Values::new(Sizes::fixed(16)).check().is_ok());
    }
}

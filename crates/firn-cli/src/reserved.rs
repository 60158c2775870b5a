//! Keys that belong to the `firn` command: the positions of interrupted loads.

/// The prefix of all reserved keys.
pub(crate) const PREFIX: &[u8] = b"\0firn/";

/// True if `key` is reserved. Such keys are hidden from scan, dump and export unless requested, and
/// refused by put and load.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(PREFIX)
}

/// The reason why a reserved key is refused.
pub(crate) const REFUSAL: &str =
    "a key that begins with \\x00firn/ is reserved for the firn command";

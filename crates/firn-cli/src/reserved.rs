//! Keys that belong to the `firn` command: where a load that was cut short left off.

/// What they begin with.
pub(crate) const PREFIX: &[u8] = b"\0firn/";

/// Whether `key` is one of them. Hidden from scan, dump and export unless asked for, and refused by put and load.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(PREFIX)
}

/// Why a reserved key is refused.
pub(crate) const REFUSAL: &str = "a key that begins with \\x00firn/ is reserved for the firn command";

//! The encoding of bytes in a CSV, TSV or JSON Lines file: unchanged, or in a form that can
//! represent any byte.

use clap::ValueEnum;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use std::borrow::Cow;

/// An encoding of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// Unchanged; text only
    Raw,
    /// Hexadecimal
    Hex,
    /// Base64 with padding (RFC 4648, section 4)
    Base64,
}

impl Encoding {
    /// The bytes that `field` encodes, or why it is not valid.
    pub(crate) fn decode(self, field: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Encoding::Raw => Ok(field.to_vec()),
            Encoding::Hex => HEXLOWER_PERMISSIVE
                .decode(field)
                .map_err(|e| format!("not hexadecimal: {e}")),
            Encoding::Base64 => BASE64.decode(field).map_err(|e| format!("not base64: {e}")),
        }
    }

    /// `bytes` as a field; `None` if this encoding cannot represent them.
    pub(crate) fn encode(self, bytes: &[u8]) -> Option<Cow<'_, str>> {
        match self {
            Encoding::Raw => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Encoding::Hex => Some(Cow::Owned(HEXLOWER.encode(bytes))),
            Encoding::Base64 => Some(Cow::Owned(BASE64.encode(bytes))),
        }
    }

    /// The word on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::Raw => "raw",
            Encoding::Hex => "hex",
            Encoding::Base64 => "base64",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for encoding in [Encoding::Hex, Encoding::Base64] {
            let field = encoding.encode(&bytes).unwrap();
            assert_eq!(encoding.decode(field.as_bytes()).unwrap(), bytes);
        }
        assert!(Encoding::Raw.encode(&bytes).is_none());
        assert_eq!(Encoding::Raw.decode(b"x").unwrap(), b"x");
        assert!(Encoding::Hex.decode(b"abc").is_err());
        assert!(Encoding::Base64.decode(b"a").is_err());
    }
}

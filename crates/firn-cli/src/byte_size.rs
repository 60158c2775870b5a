//! Human-readable sizes in bytes: `4096`, `64K`, `512M`, `2G`, in powers of 1024.

use serde::de::{Deserialize, Deserializer, Error as _};
use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is no size: write bytes, or a number with K, M, G or T, such as 512M")
        };
        let trimmed = text.trim().trim_end_matches("iB").trim_end_matches('B');
        let (digits, shift) = match trimmed.char_indices().last().ok_or_else(wrong)? {
            (at, 'k' | 'K') => (&trimmed[..at], 10),
            (at, 'm' | 'M') => (&trimmed[..at], 20),
            (at, 'g' | 'G') => (&trimmed[..at], 30),
            (at, 't' | 'T') => (&trimmed[..at], 40),
            _ => (trimmed, 0),
        };
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        number
            .checked_mul(1 << shift)
            .map(ByteSize)
            .ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(ByteSize(bytes)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// Human-readable: three digits and a unit.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while size >= 1000.0 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        let digits = if size < 10.0 {
            2
        } else {
            usize::from(size < 100.0)
        };
        write!(f, "{size:.digits$} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65536),
            ("512M", 512 << 20),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "K", "12X", "-1", "1.5M", "99999999999T"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.50 KiB"),
            (123 << 20, "123 MiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }
}

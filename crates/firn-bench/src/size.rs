//! Sizes of keys and values: fixed, or uniformly distributed over a range.

use firn_base::seed::mix;
use firn_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Sizes in bytes. Written as `1024`, or as `100-4000` for a uniform distribution over the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sizes {
    min: usize,
    max: usize,
}

impl Sizes {
    /// Only the size `bytes`.
    pub fn fixed(bytes: usize) -> Self {
        Self {
            min: bytes,
            max: bytes,
        }
    }

    /// Sizes from `min` to `max`, both at least 1.
    pub(crate) fn between(min: usize, max: usize) -> Self {
        Self { min, max }
    }

    /// The smallest size.
    pub fn min(self) -> usize {
        self.min
    }

    /// The largest size.
    pub fn max(self) -> usize {
        self.max
    }

    /// The arithmetic mean of the sizes.
    pub fn mean(self) -> f64 {
        (self.min + self.max) as f64 / 2.0
    }

    /// The size for `number`, always the same.
    pub fn of(self, number: u64) -> usize {
        let span = (self.max - self.min + 1) as u64;
        self.min
            + if span == 1 {
                0
            } else {
                (mix(number) % span) as usize
            }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{}-{}", self.min, self.max)
        }
    }
}

impl FromStr for Sizes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |text: &str| {
            text.parse().map_err(|_| {
                Error::invalid(format!(
                    "`{text}` is no size: say 1024, or 100-4000 for a range"
                ))
            })
        };
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min == 0 || min > max {
            return Err(Error::invalid(format!(
                "`{text}` is no range of sizes: the smaller comes first, from 1 on"
            )));
        }
        Ok(Self { min, max })
    }
}

impl TryFrom<String> for Sizes {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> Self {
        sizes.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_back_and_evenly_spread() {
        for text in ["1024", "100-4000"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        for text in ["", "0", "9-3", "x", "3-"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
        let sizes: Sizes = "10-19".parse().unwrap();
        let mut counts = [0u32; 10];
        (0..10_000).for_each(|number| counts[sizes.of(number) - 10] += 1);
        assert!(
            counts.iter().all(|count| count.abs_diff(1000) < 150),
            "{counts:?}"
        );
        assert_eq!(sizes.mean(), 14.5);
    }
}

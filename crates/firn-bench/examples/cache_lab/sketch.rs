//! A count-min sketch of small counters: how often keys were asked for of late.
//!
//! 1. A count is never below the true one since the last aging, up to the maximum of 15.
//! 2. After ten notes for each expected entry, all counts are halved. So the past loses weight.

use firn_base::seed::mix;

const ROWS: usize = 4;
const COUNT_MAX: u64 = 15;
/// Counters in a row for each expected entry.
const COUNTERS_AN_ENTRY: usize = 4;
const NOTES_AN_ENTRY: u64 = 10;
/// Counters in a word of 64 bits.
const COUNTERS_A_WORD: u64 = 16;
/// All counters of a word without their highest bits.
const WITHOUT_HIGHEST: u64 = 0x7777_7777_7777_7777;

/// A sketch of four rows of counters of four bits.
pub(crate) struct Sketch {
    words: Vec<u64>,
    /// Counters in a row, a power of two.
    width: u64,
    notes: u64,
    notes_max: u64,
}

impl Sketch {
    /// A sketch for a cache of about `entries` entries.
    pub(crate) fn new(entries: usize) -> Self {
        let width = (entries * COUNTERS_AN_ENTRY).next_power_of_two().max(64) as u64;
        Self {
            words: vec![0; ROWS * (width / COUNTERS_A_WORD) as usize],
            width,
            notes: 0,
            notes_max: (entries as u64 * NOTES_AN_ENTRY).max(NOTES_AN_ENTRY),
        }
    }

    /// Counts a get of `key`.
    pub(crate) fn note(&mut self, key: u64) {
        for row in 0..ROWS {
            let (word, shift) = self.counter(key, row);
            if self.words[word] >> shift & COUNT_MAX < COUNT_MAX {
                self.words[word] += 1 << shift;
            }
        }
        self.notes += 1;
        if self.notes == self.notes_max {
            self.notes /= 2;
            for word in &mut self.words {
                *word = *word >> 1 & WITHOUT_HIGHEST;
            }
        }
    }

    /// The estimated number of gets of `key`.
    pub(crate) fn count(&self, key: u64) -> u64 {
        let counts = (0..ROWS).map(|row| {
            let (word, shift) = self.counter(key, row);
            self.words[word] >> shift & COUNT_MAX
        });
        counts.min().unwrap_or(0)
    }

    /// The word and the shift of the counter of `key` in `row`.
    fn counter(&self, key: u64, row: usize) -> (usize, u64) {
        let at = mix(key ^ mix(row as u64 + 1)) & (self.width - 1);
        let word = row as u64 * (self.width / COUNTERS_A_WORD) + at / COUNTERS_A_WORD;
        (word as usize, at % COUNTERS_A_WORD * 4)
    }
}

//! What a suite has seen.

use std::collections::HashSet;
use std::fmt;

/// Counts of one run, or of several together.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Times that something was opened after a death, a fault or damage.
    pub recoveries: u64,
    /// Distinct crash images, disks or damaged databases, by fingerprint.
    pub images: HashSet<u64>,
    /// Real processes that were killed.
    pub kills: u64,
    /// Tables that had grown, where a suite counts them.
    pub grown_tables: u64,
    /// Write buffers that went past the trees of profile `lab`, likewise.
    pub past_trees: u64,
    /// Chunks that were evicted from these, likewise.
    pub chunks: u64,
    /// Those that ended within a leaf, likewise.
    pub edges: u64,
    /// Entries of chunks that were replaced meanwhile, likewise.
    pub replaced: u64,
}

impl Tally {
    /// Adds another's.
    pub fn add(&mut self, other: Tally) {
        self.recoveries += other.recoveries;
        self.kills += other.kills;
        self.grown_tables += other.grown_tables;
        self.past_trees += other.past_trees;
        self.chunks += other.chunks;
        self.edges += other.edges;
        self.replaced += other.replaced;
        self.images.extend(other.images);
    }

    /// This and another's.
    #[must_use]
    pub fn and(mut self, other: Tally) -> Tally {
        self.add(other);
        self
    }

    /// Something with this fingerprint was recovered.
    pub fn recovered(&mut self, fingerprint: u64) {
        self.recoveries += 1;
        self.images.insert(fingerprint);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} recoveries of {} distinct images", self.recoveries, self.images.len())?;
        if self.kills > 0 {
            write!(f, ", {} kills", self.kills)?;
        }
        if self.grown_tables > 0 {
            write!(f, ", {} tables that had grown", self.grown_tables)?;
        }
        if self.past_trees + self.chunks > 0 {
            write!(f, ", {} buffers past trees, {} chunks out of them", self.past_trees, self.chunks)?;
            write!(f, ", {} of these within a leaf, {} entries replaced", self.edges, self.replaced)?;
        }
        Ok(())
    }
}

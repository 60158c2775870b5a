//! The counts of a suite.

use firndb::Stats;
use std::collections::HashSet;
use std::fmt;

/// Counts of one run, or of several together.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// The number of opens after a death, a fault or damage.
    pub recoveries: u64,
    /// Distinct crash images, disks or damaged databases, by fingerprint.
    pub images: HashSet<u64>,
    /// The number of real processes killed.
    pub kills: u64,
    /// Tables that had grown, if the suite counts them.
    pub grown_tables: u64,
    /// Memtables flushed past the trees of profile `lab`, if the suite counts them.
    pub past_trees: u64,
    /// Chunks evicted from the trees, if the suite counts them.
    pub chunks: u64,
    /// Chunks that ended within a leaf, if the suite counts them.
    pub edges: u64,
    /// Entries of chunks that were replaced meanwhile, if the suite counts them.
    pub replaced: u64,
    /// Entries that compactions linked in profile `tlsm`, if the suite counts them.
    pub linked: u64,
    /// Compactions that went on after a crash, if the suite counts them.
    pub resumed: u64,
    /// Lists that left persistent memory, if the suite counts them.
    pub evicted_lists: u64,
    /// Merges within persistent memory in profile `blade`, if the suite counts them.
    pub internal: u64,
    /// Merges out of persistent memory, if the suite counts them.
    pub major: u64,
    /// Merges of flushed tables into ranges in profile `pmdb`, if the suite counts them.
    pub stash_merges: u64,
    /// Merges of whole ranges, if the suite counts them.
    pub range_merges: u64,
    /// Partitions that were divided, if the suite counts them.
    pub divided: u64,
    /// Pairs of partitions that were joined, if the suite counts them.
    pub joined: u64,
    /// The largest number of partitions at the end of a life, if the suite counts them.
    pub partitions_most: usize,
}

impl Tally {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Tally) {
        self.recoveries += other.recoveries;
        self.kills += other.kills;
        self.grown_tables += other.grown_tables;
        self.past_trees += other.past_trees;
        self.chunks += other.chunks;
        self.edges += other.edges;
        self.replaced += other.replaced;
        self.linked += other.linked;
        self.resumed += other.resumed;
        self.evicted_lists += other.evicted_lists;
        self.internal += other.internal;
        self.major += other.major;
        self.stash_merges += other.stash_merges;
        self.range_merges += other.range_merges;
        self.divided += other.divided;
        self.joined += other.joined;
        self.partitions_most = self.partitions_most.max(other.partitions_most);
        self.images.extend(other.images);
    }

    /// The sum of both tallies.
    #[must_use]
    pub fn and(mut self, other: Tally) -> Tally {
        self.add(other);
        self
    }

    /// Adds the counts that a database has at the end of a life.
    pub(crate) fn lived(&mut self, stats: &Stats) {
        self.divided += stats.background.divided_partitions;
        self.joined += stats.background.joined_partitions;
        self.partitions_most = self.partitions_most.max(stats.partitions.len());
        if let Some(tlsm) = &stats.design.tlsm {
            self.linked += tlsm.linked;
            self.resumed += tlsm.resumed;
            self.evicted_lists += tlsm.evictions;
        }
        if let Some(blade) = &stats.design.blade {
            self.internal += blade.internal_compactions;
            self.major += blade.major_compactions;
        }
        if let Some(pmdb) = &stats.design.pmdb {
            self.stash_merges += pmdb.stash_merges;
            self.range_merges += pmdb.range_merges;
        }
        if let Some(lab) = &stats.design.lab {
            self.past_trees += lab.buffers_past;
            self.chunks += lab.chunks;
            self.edges += lab.chunk_edges;
            self.replaced += lab.chunk_entries_replaced;
        }
    }

    /// Counts the recovery of a state with this fingerprint.
    pub fn recovered(&mut self, fingerprint: u64) {
        self.recoveries += 1;
        self.images.insert(fingerprint);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} recoveries of {} distinct images",
            self.recoveries,
            self.images.len()
        )?;
        if self.kills > 0 {
            write!(f, ", {} kills", self.kills)?;
        }
        if self.grown_tables > 0 {
            write!(f, ", {} tables that had grown", self.grown_tables)?;
        }
        if self.past_trees + self.chunks > 0 {
            write!(
                f,
                ", {} buffers past trees, {} chunks out of them",
                self.past_trees, self.chunks
            )?;
            write!(
                f,
                ", {} of these within a leaf, {} entries replaced",
                self.edges, self.replaced
            )?;
        }
        if self.linked > 0 {
            write!(
                f,
                ", {} entries linked, {} lists out of persistent memory, {} compactions gone on",
                self.linked, self.evicted_lists, self.resumed
            )?;
        }
        if self.internal + self.major > 0 {
            write!(
                f,
                ", {} merges within persistent memory, {} out of it",
                self.internal, self.major
            )?;
        }
        if self.stash_merges + self.range_merges > 0 {
            write!(
                f,
                ", {} merges into ranges, {} of whole ranges",
                self.stash_merges, self.range_merges
            )?;
        }
        if self.divided > 0 {
            write!(
                f,
                ", {} partitions divided, {} pairs joined, {} at most",
                self.divided, self.joined, self.partitions_most
            )?;
        }
        Ok(())
    }
}

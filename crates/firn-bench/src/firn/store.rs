//! An open FirnDB database as a store under test.

use crate::counters::{CompactionIo, Counters, Traffic};
use crate::machine::directory_bytes;
use crate::store::{Change, OpeningStep, Store};
use firn_base::Result;
use firndb::{BladeStats, Db, DesignStats, Durability, ReadOptions, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A FirnDB database under test.
pub struct FirnStore {
    db: Db,
    directory: PathBuf,
}

impl FirnStore {
    /// Wraps `db`, open in `directory`. The caller keeps its own handle.
    pub fn new(db: &Db, directory: impl Into<PathBuf>) -> Self {
        Self {
            db: db.clone(),
            directory: directory.into(),
        }
    }
}

/// Bytes of tables by the kind of job that wrote them.
fn job_bytes(blade: &BladeStats) -> BTreeMap<String, u64> {
    let jobs = [
        ("flush", blade.flushed_bytes),
        ("internal", blade.internal_bytes),
        ("major", blade.major_bytes),
    ];
    jobs.map(|(job, bytes)| (job.to_owned(), bytes)).into()
}

/// Cache lines that searches of gets read in tables or trees in persistent memory.
fn pm_search_lines(design: &DesignStats) -> Option<u64> {
    let trees = design.pmdb.as_ref().and_then(|pmdb| pmdb.trees.as_ref());
    let lists = design.tlsm.as_ref().map(|tlsm| tlsm.searches.lines);
    let tables = design.blade.as_ref().map(|blade| blade.search_lines);
    trees.map(|trees| trees.lines).or(lists).or(tables)
}

impl Store for FirnStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.db
            .put_with(key, value, &WriteOptions::new().durability(durability))
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let lower = (!from.is_empty()).then(|| from.to_vec());
        let mut iter = self.db.cursor_with(ReadOptions {
            lower,
            ..ReadOptions::default()
        })?;
        iter.first()?;
        for _ in 0..count {
            if !iter.valid() {
                break;
            }
            see(iter.key(), iter.value());
            iter.next()?;
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.db
            .delete_with(key, &WriteOptions::new().durability(durability))
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        let mut changes = WriteBatch::new();
        for change in batch {
            match change {
                Change::Put { key, value } => changes.put(key, value),
                Change::Delete { key } => changes.delete(key),
            };
        }
        let options = WriteOptions::new().durability(durability);
        self.db.write(&changes, &options)
    }

    fn settle(&self) -> Result<()> {
        let pmdb = self.db.stats().design.pmdb;
        // What is in persistent memory may stay there, as tables in it do.
        if pmdb.is_none_or(|pmdb| pmdb.buffers.is_none()) {
            self.db.flush()?;
        }
        self.db.wait_idle()
    }

    fn compact(&self) -> Result<()> {
        self.db.compact()
    }

    fn describe(&self) -> String {
        let stats = self.db.stats();
        format!(
            "FirnDB {}, log: {}, tables: {}",
            stats.profile, stats.log, stats.io
        )
    }

    fn counters(&self) -> Counters {
        let stats = self.db.stats();
        let ssd = stats.ssd.iter().map(|cause| Traffic {
            medium: "ssd".to_owned(),
            cause: cause.cause.to_owned(),
            written_bytes: cause.written_bytes,
            read_bytes: cause.read_bytes,
            reads: Some(cause.reads),
        });
        let pm = stats.pm.iter().map(|owner| Traffic {
            medium: "pm".to_owned(),
            cause: owner.owner.clone(),
            written_bytes: owner.written_bytes,
            read_bytes: owner.read_bytes,
            reads: None,
        });
        Counters {
            traffic: ssd.chain(pm).collect(),
            is_partial: false,
            stall_seconds: Some(
                stats
                    .stalls
                    .seconds
                    .iter()
                    .map(|(_, seconds)| seconds)
                    .sum(),
            ),
            cache_misses: Some(stats.memory.cache_misses),
            grains: stats
                .background
                .grains
                .iter()
                .map(|grain| (grain.to_string(), grain.count))
                .collect(),
            job_bytes: stats
                .design
                .blade
                .as_ref()
                .map_or_else(BTreeMap::new, job_bytes),
            hits: stats.user.hits.into_iter().collect(),
            compaction_io: Some(CompactionIo {
                ended: stats.background.io.ended,
                mean_us: stats.background.io.mean_us,
                busy_seconds: stats.background.io.busy_seconds,
                worker_seconds: stats.background.io.worker_seconds,
                worker_cpu_seconds: stats.background.io.worker_cpu_seconds,
            }),
            compaction_seconds: Some(
                stats
                    .levels
                    .iter()
                    .map(|level| level.compaction_seconds)
                    .sum(),
            ),
            level0_seconds: stats.levels.first().map(|level| level.compaction_seconds),
            table_seconds: stats
                .levels
                .iter()
                .map(|level| level.replaced_table_seconds)
                .collect(),
            log_bytes: stats.design.lab.as_ref().map(|lab| lab.log_file_bytes),
            index_bytes: Some(stats.levels.iter().map(|level| level.index_bytes).sum()),
            pm_table_bytes: stats.design.blade.as_ref().map(|blade| blade.used_bytes),
            pm_bytes: (stats.pm.iter())
                .map(|owner| (owner.owner.clone(), owner.live_bytes))
                .collect(),
            pm_search_lines: pm_search_lines(&stats.design),
            space_bytes: directory_bytes(&self.directory),
            opening: None,
        }
    }

    fn opening_steps(&self) -> Vec<OpeningStep> {
        let step = |(step, seconds): (&str, f64)| OpeningStep {
            step: step.to_owned(),
            seconds,
        };
        self.db
            .stats()
            .recovery
            .steps
            .into_iter()
            .map(step)
            .collect()
    }
}

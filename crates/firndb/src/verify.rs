//! Reading everything and checking all that it claims.

use crate::db::Inner;
use firn_base::{Error, Result};
use serde::Serialize;
use std::sync::Arc;

/// What a clean database holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Data blocks read.
    pub blocks: u64,
    /// Entries read, superseded versions and tombstones among them.
    pub entries: u64,
    /// Bytes of keys and values read.
    pub bytes: u64,
    /// Entries that the logs held when the database was opened.
    pub log_entries: u64,
}

impl Inner {
    pub(crate) fn verify(&self) -> Result<VerifyReport> {
        let state = self.state.load_full();
        let mut report = VerifyReport { log_entries: self.recovery.replayed_entries, ..VerifyReport::default() };
        for (level, run) in state.parts.iter().flat_map(|part| part.tables()) {
            // Opened anew, so that footer, index and filter are read from media too.
            let table = Arc::new(self.tables.open(&run.meta)?);
            let checked = table.verify()?;
            let properties = table.properties();
            let agrees = properties.entries == run.meta.entries
                && properties.smallest == run.meta.smallest
                && properties.largest == run.meta.largest
                && properties.seqno_max == run.meta.seqno_max
                && table.dead_bytes() == run.meta.dead_bytes;
            if !agrees {
                let place = self.files.table(run.meta.id);
                let expected = format!("the counts, bounds and dead bytes that the manifest names for level {level}");
                return Err(Error::corruption(place.display(), table.extent().footer_offset, expected));
            }
            report.tables += 1;
            report.blocks += checked.blocks;
            report.entries += checked.entries;
            report.bytes += checked.bytes;
        }
        for trees in state.parts.iter().filter_map(|part| part.trees.as_ref()) {
            trees.verify(&mut report)?;
        }
        if let Some(pool) = &self.pm {
            pool.check()?;
        }
        Ok(report)
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use crate::manifest::TableMeta;
    use crate::sst_run::SstRun;
    use crate::state::{Level, Part};
    use crate::{Db, ErrorKind, Options};
    use std::sync::Arc;

    #[test]
    fn a_table_that_is_not_what_the_manifest_says_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), Options::tiny()).unwrap();
        db.put(b"a", b"1").unwrap();
        db.flush().unwrap();
        db.verify().unwrap();
        let inner = &db.inner;
        inner.state.rcu(|state| {
            let part = &state.parts[0];
            let mut levels = part.levels.clone();
            let true_meta = &part.levels[0].runs[0].meta;
            let meta = TableMeta { dead_bytes: true_meta.dead_bytes + 1, ..TableMeta::clone(true_meta) };
            levels[0] = Level::new(false, vec![Arc::new(SstRun::new(Arc::new(meta), inner.tables.clone()))]);
            state.with_part(0, Part { levels, ..Part::clone(part) })
        });
        let error = db.verify().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("dead bytes"), "{error}");
    }
}

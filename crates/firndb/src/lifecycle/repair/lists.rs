//! Entries of lists in persistent memory. They go into temporary tables.

use super::Repair;
use crate::memtable::Entry;
use firn_base::{ErrorKind, FileId, Result};
use firn_pm::Pool;
use firn_table::pm_skiplist::{Chunks, List, ListPlace, claim, find_lists, salvage};
use std::sync::Arc;

impl Repair {
    /// Copies the entries of the lists that the manifest names, or of all that are there if the
    /// manifest is lost.
    pub(super) fn read_lists(&mut self) -> Result<()> {
        let named: Option<Vec<(FileId, ListPlace)>> = self.known.as_ref().map(|known| {
            let lists = known.tables();
            lists
                .filter_map(|table| Some((table.id, table.list?)))
                .collect()
        });
        let Some(pool) = self.pool.clone() else {
            for (id, _) in named.unwrap_or_default() {
                self.report.tables_lost.push(name(id));
            }
            return Ok(());
        };
        let lists = match named {
            Some(named) => named,
            None => find_lists(&pool)?,
        };
        let mut chunks = Chunks::default();
        for (id, place) in lists {
            match self.read_list(&pool, id, place, &mut chunks) {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.report.tables_lost.push(name(id));
                }
                other => other?,
            }
        }
        self.end_buffer()
    }

    fn read_list(
        &mut self,
        pool: &Arc<Pool>,
        id: FileId,
        place: ListPlace,
        chunks: &mut Chunks,
    ) -> Result<()> {
        let found = claim(pool, id, place, chunks)?;
        let list = List::open(Arc::new(found.space), found.totals)?;
        let lost = salvage(&list, |key, tag, value| {
            let Some(kind) = tag.kind() else {
                return Ok(());
            };
            self.keep(Entry { kind, key, value }, tag.seqno())
        })?;
        match lost {
            0 => self.report.tables_whole += 1,
            _ => self.report.tables_damaged.push(name(id)),
        }
        self.report.blocks_lost += lost;
        Ok(())
    }
}

fn name(id: FileId) -> String {
    format!("list {id:06}")
}

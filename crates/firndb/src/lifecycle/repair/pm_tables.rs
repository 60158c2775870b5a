//! Entries of tables in persistent memory. They go into temporary tables.

use super::Repair;
use crate::manifest::Place;
use crate::memtable::Entry;
use firn_base::{ErrorKind, FileId, Result, Tag};
use firn_pm::Pool;
use firn_table::pm_skiplist::{self, Chunks, List, ListPlace};
use firn_table::pm_table::{self, PmTable};
use std::sync::Arc;

impl Repair {
    /// Copies the entries of the tables in persistent memory that the manifest names, or of all
    /// that are there if the manifest is lost.
    pub(super) fn read_pm_tables(&mut self) -> Result<()> {
        let named: Option<Vec<(FileId, Place)>> = self.known.as_ref().map(|known| {
            let tables = known.tables().filter(|table| !table.is_file());
            tables.map(|table| (table.id, table.place)).collect()
        });
        let Some(pool) = self.pool.clone() else {
            for (id, place) in named.unwrap_or_default() {
                self.report.tables_lost.push(name(id, place));
            }
            return Ok(());
        };
        let tables = match named {
            Some(named) => named,
            None => find(&pool)?,
        };
        let mut chunks = Chunks::default();
        for (id, place) in tables {
            match self.read_pm_table(&pool, id, place, &mut chunks) {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.report.tables_lost.push(name(id, place));
                }
                other => other?,
            }
        }
        self.end_buffer()
    }

    fn read_pm_table(
        &mut self,
        pool: &Arc<Pool>,
        id: FileId,
        place: Place,
        chunks: &mut Chunks,
    ) -> Result<()> {
        let mut keep = |key: &[u8], tag: Tag, value: &[u8]| match tag.kind() {
            Some(kind) => self.keep(Entry { kind, key, value }, tag.seqno()),
            None => Ok(()),
        };
        let lost = match place {
            Place::File => 0,
            Place::List(place) => {
                let found = pm_skiplist::claim(pool, id, place, chunks)?;
                let list = List::open_damaged(Arc::new(found.space), found.totals)?;
                pm_skiplist::salvage(&list, &mut keep)?
            }
            Place::Sorted(extent) => {
                let (space, _) = pm_table::claim(pool, id, extent)?;
                let table = Arc::new(PmTable::open(Arc::new(space))?);
                pm_table::salvage(&table, &mut keep)?
            }
        };
        match lost {
            0 => self.report.tables_whole += 1,
            _ => self.report.tables_damaged.push(name(id, place)),
        }
        self.report.blocks_lost += lost;
        Ok(())
    }
}

/// All tables that are there.
fn find(pool: &Pool) -> Result<Vec<(FileId, Place)>> {
    let lists = pm_skiplist::find_lists(pool)?.into_iter();
    let lists = lists.map(|(id, place): (FileId, ListPlace)| (id, Place::List(place)));
    let sorted = pm_table::find_tables(pool)?.into_iter();
    let sorted = sorted.map(|(id, extent)| (id, Place::Sorted(extent)));
    Ok(lists.chain(sorted).collect())
}

fn name(id: FileId, place: Place) -> String {
    match place {
        Place::List(_) => format!("list {id:06}"),
        Place::File | Place::Sorted(_) => format!("table {id:06} in persistent memory"),
    }
}

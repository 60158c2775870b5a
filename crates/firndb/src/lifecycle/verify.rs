//! Verification: reads the whole database and checks it.

mod buffers;

use crate::engine::Engine;
use crate::files::FileName;
use crate::manifest::{Level, TableMeta};
use crate::read::block_trees::TreeRun;
use crate::read::table::Table;
use crate::read::table_run::TableRun;
use firn_base::{Error, ErrorKind, Result};
use firn_table::if_tree;
use firn_table::pm_skiplist::{self, ChunkSums};
use firn_table::pm_table::{self, PmTable};
use firn_table::sst::{DamagedBlock, Sst};
use serde::Serialize;
use std::sync::Arc;

/// The contents of a database that was verified.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The number of tables read.
    pub tables: u64,
    /// The number of data blocks read.
    pub blocks: u64,
    /// The number of entries read, including superseded versions and tombstones.
    pub entries: u64,
    /// Bytes of keys and values read.
    pub bytes: u64,
    /// The number of entries that the logs held when the database was opened.
    pub log_entries: u64,
}

/// A place where the bytes read are not the bytes written.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The error, with the file or pool, the place in it, and what was expected there.
    pub error: Error,
    /// The smallest and the largest key that may be affected, if known.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
}

impl Engine {
    pub(crate) fn verify(&self) -> Result<VerifyReport> {
        self.examine(&mut |damage| Err(damage.error))
    }

    pub(crate) fn find_damage(&self) -> Result<(VerifyReport, Vec<Damage>)> {
        let mut damages = Vec::new();
        let report = self.examine(&mut |damage| {
            damages.push(damage);
            Ok(())
        })?;
        Ok((report, damages))
    }

    /// Reads everything and passes each damage to `found`, whose error ends the examination.
    fn examine(&self, found: &mut dyn FnMut(Damage) -> Result<()>) -> Result<VerifyReport> {
        let _entered = self.calls.enter()?;
        let state = self.state.load_full();
        let mut report = VerifyReport {
            log_entries: self.recovery.replayed_entries,
            ..VerifyReport::default()
        };
        let mut chunks = ChunkSums::default();
        for (level, run) in state.tables() {
            self.calls.check()?;
            match run.meta.is_file() {
                false => self.examine_in_memory(run, &mut chunks, &mut report, found)?,
                true => self.examine_sst(level, run, &mut report, found)?,
            }
        }
        self.examine_buffers(&state, &mut report, found)?;
        for run in state.trees() {
            self.calls.check()?;
            self.examine_tree(run, found)?;
        }
        for result in self.examine_pool(&mut report) {
            let told = result.map_err(|error| {
                let again = |fresh: &Arc<Engine>| {
                    fresh
                        .examine_pool(&mut VerifyReport::default())
                        .into_iter()
                        .collect()
                };
                self.told_apart(error, again)
            });
            match told {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    found(Damage { error, keys: None })?
                }
                other => other?,
            }
        }
        Ok(report)
    }

    /// Reads a table in a file.
    fn examine_sst(
        &self,
        level: Level,
        run: &Arc<TableRun>,
        report: &mut VerifyReport,
        found: &mut dyn FnMut(Damage) -> Result<()>,
    ) -> Result<()> {
        let keys = || Some((run.meta.smallest.clone(), run.meta.largest.clone()));
        // Footer, index and filter are read from the media, too, through the open file, because
        // a concurrent writer may have removed its name.
        let table = match run.table().and_then(|table| table.sst()?.reopen()) {
            Ok(table) => Arc::new(table),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                found(Damage {
                    error,
                    keys: keys(),
                })?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if let Some(what) = differs(&table, &run.meta) {
            let place = self.files.path_of(FileName::Table(run.meta.id));
            let expected = format!("the {what} that the manifest names for level {level}");
            let error = Error::corruption(place.display(), table.extent().footer_offset, expected);
            found(Damage {
                error,
                keys: keys(),
            })?;
        }
        match table.verify() {
            Ok(checked) => {
                report.tables += 1;
                report.blocks += checked.blocks;
                report.entries += checked.entries;
                report.bytes += checked.bytes;
            }
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let blocks = table.damaged_blocks()?;
                if blocks.is_empty() {
                    found(Damage {
                        error,
                        keys: keys(),
                    })?;
                }
                for DamagedBlock {
                    error,
                    smallest,
                    largest,
                } in blocks
                {
                    found(Damage {
                        error,
                        keys: Some((smallest, largest)),
                    })?;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads a table in persistent memory.
    fn examine_in_memory(
        &self,
        run: &Arc<TableRun>,
        chunks: &mut ChunkSums,
        report: &mut VerifyReport,
        found: &mut dyn FnMut(Damage) -> Result<()>,
    ) -> Result<()> {
        let checked = run.table().and_then(|table| match &*table {
            Table::List(list) => {
                let checked = pm_skiplist::verify(list)?;
                chunks.add(list.space())?;
                Ok((checked.entries, checked.entry_bytes))
            }
            Table::Sorted(table) => {
                // What is kept in memory while the table is open is read anew.
                let table = Arc::new(PmTable::open(table.space().clone())?);
                let checked = pm_table::verify(&table)?;
                let named = (&*run.meta.smallest, &*run.meta.largest);
                if table.bounds() != named || checked.entries != run.meta.entries {
                    let place = format!("table {} in the pool", run.meta.id);
                    let expected = "the keys that the manifest names";
                    return Err(Error::corruption(place, 0, expected));
                }
                Ok((checked.entries, checked.data_bytes))
            }
            Table::Sst(_) => Ok((0, 0)),
        });
        match checked {
            Ok((entries, bytes)) => {
                report.tables += 1;
                report.entries += entries;
                report.bytes += bytes;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let keys = Some((run.meta.smallest.clone(), run.meta.largest.clone()));
                found(Damage { error, keys })
            }
            Err(error) => Err(error),
        }
    }

    /// Compares a tree over blocks with the tables that it is over.
    fn examine_tree(
        &self,
        run: &TreeRun,
        found: &mut dyn FnMut(Damage) -> Result<()>,
    ) -> Result<()> {
        let open = |table: &Arc<TableRun>| Ok(table.table()?.sst()?.clone());
        let tables: Vec<Arc<Sst>> = run.tables().iter().map(open).collect::<Result<_>>()?;
        let files = run.tree().files().iter().copied();
        let summaries = tables.iter().map(|table| table.block_summaries());
        match if_tree::verify(run.tree(), files.zip(summaries)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                // Its tables have all that it says, so no key is affected.
                found(Damage { error, keys: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the memory that a writing process may change in place.
    fn examine_pool(&self, report: &mut VerifyReport) -> Vec<Result<()>> {
        let state = self.state.load_full();
        let mut count = |entries: u64, bytes: u64| {
            report.entries += entries;
            report.bytes += bytes;
        };
        let upper = state.upper().map(|upper| upper.verify(&mut count));
        upper
            .into_iter()
            .chain(self.pm.iter().map(|pool| pool.check().map(drop)))
            .chain(self.pm.iter().flat_map(|pool| self.check_directory(pool)))
            .collect()
    }
}

/// The first property in which `meta` differs from the table itself, if any. The number of small
/// blocks is not compared, because it depends on an option.
fn differs(table: &Sst, meta: &TableMeta) -> Option<&'static str> {
    let properties = table.properties();
    let claims = [
        ("entries", properties.entries == meta.entries),
        ("tombstones", properties.deletes == meta.deletes),
        ("smallest key", properties.smallest == meta.smallest),
        ("largest key", properties.largest == meta.largest),
        (
            "sequence numbers",
            (properties.seqno_min, properties.seqno_max) == (meta.seqno_min, meta.seqno_max),
        ),
        ("dead bytes", table.dead_bytes() == meta.dead_bytes),
        ("live bytes", table.data_bytes() == meta.data_bytes),
        (
            "room in the filter",
            properties.filter_left() == meta.filter_left,
        ),
        ("number of appends", properties.appends == meta.appends),
    ];
    claims
        .iter()
        .find(|(_, holds)| !holds)
        .map(|(what, _)| *what)
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use crate::manifest::{Level, PartId, TableMeta};
    use crate::read::state::{LevelRuns, Part};
    use crate::read::table_run::TableRun;
    use crate::{Db, ErrorKind, Options};
    use firn_base::SeqNo;
    use firn_table::sst::Extent;
    use std::sync::Arc;

    #[test]
    fn a_table_that_is_not_what_the_manifest_says_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), Options::tiny()).unwrap();
        db.put(b"a", b"1").unwrap();
        db.flush().unwrap();
        db.verify().unwrap();
        let engine = &db.engine;
        let true_meta = TableMeta::clone(&engine.state.load().runs(Level::ZERO)[0].meta);
        let found = |meta: TableMeta| {
            engine.state.rcu(|state| {
                let part = &state.parts[0];
                let mut levels = part.levels.clone();
                let run = TableRun::new(Arc::new(meta.clone()), engine.tables.clone());
                let level0 = LevelRuns::new(false, vec![Arc::new(run)]);
                *levels.get_or_add(Level::ZERO) = Arc::new(level0);
                state.with_part(
                    PartId(0),
                    Part {
                        levels,
                        ..Part::clone(part)
                    },
                )
            });
            db.verify().err().map(|error| {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                error.to_string()
            })
        };
        assert_eq!(found(true_meta.clone()), None);
        let says = |meta: TableMeta, what: &str| {
            let error = found(meta).unwrap();
            assert!(error.contains(what), "{error}, without: {what}");
        };
        let truth = || true_meta.clone();
        says(
            TableMeta {
                dead_bytes: truth().dead_bytes + 1,
                ..truth()
            },
            "dead bytes",
        );
        says(
            TableMeta {
                data_bytes: truth().data_bytes - 1,
                ..truth()
            },
            "live bytes",
        );
        says(
            TableMeta {
                entries: 2,
                ..truth()
            },
            "entries",
        );
        says(
            TableMeta {
                deletes: 1,
                ..truth()
            },
            "tombstones",
        );
        says(
            TableMeta {
                smallest: b"A".to_vec(),
                ..truth()
            },
            "smallest key",
        );
        says(
            TableMeta {
                seqno_min: SeqNo(0),
                ..truth()
            },
            "sequence numbers",
        );
        says(
            TableMeta {
                filter_left: truth().filter_left + 1,
                ..truth()
            },
            "room in the filter",
        );
        says(
            TableMeta {
                appends: 1,
                ..truth()
            },
            "number of appends",
        );
        let Extent {
            valid_len,
            footer_offset,
        } = truth().extent;
        let beyond = Extent {
            valid_len,
            footer_offset: footer_offset + 1,
        };
        says(
            TableMeta {
                extent: beyond,
                ..truth()
            },
            "footer at the end of its valid length",
        );
        let longer = Extent {
            valid_len: valid_len + (1 << 20),
            footer_offset: footer_offset + (1 << 20),
        };
        says(
            TableMeta {
                extent: longer,
                ..truth()
            },
            "of which the file has",
        );
        found(true_meta.clone());
    }
}

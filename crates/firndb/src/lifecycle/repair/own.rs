//! The files that a repair reads: the database's own, judged by their contents.

use super::{RepairReport, not_given};
use crate::files::Owner;
use crate::files::{FileName, Files};
use crate::lifecycle::owner;
use crate::log::{LogSource, Replay};
use crate::manifest::Version;
use firn_base::count::IoCounters;
use firn_base::{ErrorKind, FileId, Result, SeqNo};
use firn_fs::OpenMode;
use firn_table::BlockCache;
use firn_table::TableContext;
use firn_table::sst::{Extent, HEADER_BYTES, Sst, TableOwner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The files that a repair reads.
pub(super) struct Inputs {
    /// (file id, extent of the table in the file)
    pub(super) tables: Vec<(FileId, Option<Extent>)>,
    /// The logs to be replayed.
    pub(super) logs: BTreeSet<FileId>,
    /// All existing logs.
    pub(super) all_logs: BTreeSet<FileId>,
}

/// The inputs among the `own` files: those that the manifest names and newer ones, or all if the
/// manifest is lost or lacks records. `in_buffers` is the last number up to which all entries are
/// in tables that it names or in write buffers in a pool, if they are.
pub(super) fn inputs(
    files: &Files,
    (known, in_buffers): (Option<&Version>, Option<SeqNo>),
    own: &[FileName],
    counters: &Arc<IoCounters>,
) -> Result<Inputs> {
    let log_ids = own.iter().filter_map(|name| {
        if let FileName::Log(id) = name {
            Some(*id)
        } else {
            None
        }
    });
    let table_ids = own.iter().filter_map(|name| {
        if let FileName::Table(id) = name {
            Some(*id)
        } else {
            None
        }
    });
    let all_logs: BTreeSet<FileId> = log_ids.collect();
    let (mut tables, logs): (BTreeMap<FileId, Option<Extent>>, BTreeSet<FileId>) = match known {
        Some(version) => {
            let named = version
                .tables()
                .filter(|table| table.is_file())
                .map(|table| (table.id, Some(table.extent)))
                .collect();
            // Also unnamed logs that are not obsolete, because a manifest that lost its end does
            // not know them.
            let known = version
                .logs
                .keys()
                .chain(all_logs.range(version.log_floor..));
            (named, known.copied().collect())
        }
        None => (BTreeMap::new(), all_logs.clone()),
    };
    let lacks_records = match known {
        Some(known) => {
            let last = in_buffers.unwrap_or_default().max(known.last_seqno);
            lost_records(files, (known, last), own, counters)?
        }
        None => true,
    };
    if lacks_records {
        for id in table_ids {
            tables.entry(id).or_insert(None);
        }
    }
    Ok(Inputs {
        tables: tables.into_iter().collect(),
        logs,
        all_logs,
    })
}

/// The files in the directory that belong to the database, or to one that its tables may come from,
/// judged by their contents. A file with damaged first bytes is ours if its shape fits its name.
pub(super) fn own_files(
    files: &Files,
    origins: &[[u8; 16]],
    report: &mut RepairReport,
) -> Result<Vec<FileName>> {
    let mut own = Vec::new();
    for name in files.list()? {
        let name = FileName::parse(&name);
        if name.number().is_none() {
            continue;
        }
        let is_ours = match owner::owner_of(files.dir(), name).map_err(not_given)? {
            Owner::Database(uuid) => uuid == files.uuid || origins.contains(&uuid),
            Owner::Nobody | Owner::OtherVersion => false,
            Owner::Unknown => has_our_shape(files, name)?,
        };
        if is_ours {
            own.push(name);
        } else {
            report.not_ours.push(name.to_string());
        }
    }
    Ok(own)
}

/// True if a file with a damaged header is still a table or log of ours: it has a table's footer,
/// or a frame.
fn has_our_shape(files: &Files, name: FileName) -> Result<bool> {
    let counters = Arc::new(IoCounters::default());
    let shaped = match name {
        FileName::Table(id) => {
            Sst::find_extent(&*files.open(name, OpenMode::Read)?, id).map(|_| true)
        }
        FileName::Log(id) => LogSource::new(files.open(name, OpenMode::Read)?, counters)
            .and_then(|source| Replay::open_any(source, id, &files.uuid))
            .and_then(|mut replay| replay.next(|_| Ok(()))),
        _ => Ok(false),
    };
    match shaped {
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(false),
        shaped => shaped.map_err(not_given),
    }
}

/// True if `known` lacks records: a table that it names is missing, or one that it does not name
/// has entries above number `last` which cannot be in a log (`lifecycle/open/unnamed.rs`).
fn lost_records(
    files: &Files,
    (known, last): (&Version, SeqNo),
    own: &[FileName],
    counters: &Arc<IoCounters>,
) -> Result<bool> {
    let named: BTreeSet<FileId> = known.tables().map(|table| table.id).collect();
    let is_there = |name: FileName| match files.len(name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(not_given(error)),
    };
    for table in known.tables().filter(|table| table.is_file()) {
        if !is_there(FileName::Table(table.id))? {
            return Ok(true);
        }
    }
    for name in own {
        let FileName::Table(id) = *name else { continue };
        if named.contains(&id) {
            continue;
        }
        let Some(newest) = newest_of(files, id, counters)? else {
            continue;
        };
        let head = owner::head(files.dir(), *name, HEADER_BYTES).map_err(not_given)?;
        let log_id = TableOwner::decode(&head, id).map_or(FileId(0), |owner| owner.log_id);
        let may_be_in_log =
            log_id > FileId(0) && (log_id < known.log_floor || is_there(FileName::Log(log_id))?);
        if newest > last && !may_be_in_log {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The highest sequence number in table `id`; `None` if the table is not whole.
fn newest_of(files: &Files, id: FileId, counters: &Arc<IoCounters>) -> Result<Option<SeqNo>> {
    let context = TableContext::new(Arc::new(BlockCache::new(0)), counters.clone());
    let read = files
        .open(FileName::Table(id), OpenMode::Read)
        .and_then(|file| {
            let extent = Sst::find_extent(&*file, id)?;
            Ok(Sst::open(file, id, extent, context)?.properties().seqno_max)
        });
    match read {
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(None),
        read => read.map(Some).map_err(not_given),
    }
}

//! One change of the readable state, as recorded in the manifest.
//!
//! ```text
//! edit     field ...
//! field    tag: varint | contents by tag (see `decode_field`)
//! ```
//! An unknown tag is an error, because an edit of a later version must not be half understood.

use super::Level;
use super::block_trees::BlockTreeMeta;
use super::evicted::Evicted;
use super::parts::{Cut, PartId};
use crate::files::NUMBER_MAX;
use crate::log::LogEnd;
use firn_base::FileId;
use firn_base::SeqNo;
use firn_base::coding::{Reader, put_bytes, put_varint};
use firn_base::key::KEY_BYTES_MAX;
use firn_table::pm_skiplist::{ListPlace, ListSpace, ListTotals};
use firn_table::pm_table::{PmTableSpace, PmTotals};
use firn_table::sst::{Extent, SstMeta};

/// The medium of a table, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Place {
    /// A file, which has the table's id in its name.
    #[default]
    File,
    /// A list in persistent memory.
    List(ListPlace),
    /// A sorted table in persistent memory.
    Sorted(firn_pm::Extent),
}

/// A table as recorded in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub(crate) id: FileId,
    pub(crate) extent: Extent,
    /// The medium. If it is not a file, `extent` has only the table's length.
    pub(crate) place: Place,
    /// Bytes of live data blocks.
    pub(crate) data_bytes: u64,
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    pub(crate) seqno_min: SeqNo,
    pub(crate) seqno_max: SeqNo,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// The file has a second name in a checkpoint, so nothing may ever be appended to it or punched
    /// out of it.
    pub(crate) shared: bool,
    /// Bytes of the file that are in no live block.
    pub(crate) dead_bytes: u64,
    /// Data blocks of less than half the target size.
    pub(crate) small_blocks: u64,
    /// Bytes of the largest data block before compression.
    pub(crate) block_bytes_max: u64,
    /// The number of keys for which the filter has room.
    pub(crate) filter_left: u64,
    /// The number of appends to the table.
    pub(crate) appends: u64,
    /// Approximate bytes of data blocks taken by versions that are superseded within the table,
    /// kept for snapshots.
    pub(crate) superseded_bytes: u64,
    /// Estimated entries below that the table's entries hide, where a profile looks at these.
    pub(crate) hides: u64,
}

impl TableMeta {
    pub(crate) fn new(id: FileId, meta: SstMeta) -> TableMeta {
        let properties = &meta.properties;
        let raw_bytes = (properties.key_bytes + properties.value_bytes).max(1);
        let stored = u128::from(properties.superseded_bytes) * u128::from(meta.data_bytes)
            / u128::from(raw_bytes);
        TableMeta {
            id,
            superseded_bytes: (stored as u64).min(meta.data_bytes),
            hides: 0,
            extent: meta.extent,
            place: Place::File,
            data_bytes: meta.data_bytes,
            dead_bytes: meta.dead_bytes,
            small_blocks: meta.small_blocks,
            block_bytes_max: meta.block_bytes_max,
            filter_left: meta.properties.filter_left(),
            appends: meta.properties.appends,
            entries: meta.properties.entries,
            deletes: meta.properties.deletes,
            seqno_min: meta.properties.seqno_min,
            seqno_max: meta.properties.seqno_max,
            smallest: meta.properties.smallest,
            largest: meta.properties.largest,
            shared: false,
        }
    }

    /// A list in persistent memory, whose keys are those from the first to the second of `keys`.
    /// Its entries are its data.
    pub(crate) fn of_list(
        space: &ListSpace,
        totals: &ListTotals,
        keys: (Vec<u8>, Vec<u8>),
    ) -> TableMeta {
        TableMeta {
            place: space.place().map_or(Place::File, Place::List),
            data_bytes: totals.entry_bytes,
            entries: totals.entries,
            deletes: totals.deletes,
            seqno_min: totals.seqno_min,
            seqno_max: totals.seqno_max,
            ..TableMeta::in_memory(space.id(), totals.entry_bytes + space.node_bytes(), keys)
        }
    }

    /// A sorted table in persistent memory. Its keys and values are its data.
    pub(crate) fn of_sorted(
        space: &PmTableSpace,
        totals: &PmTotals,
        keys: (Vec<u8>, Vec<u8>),
    ) -> TableMeta {
        TableMeta {
            place: Place::Sorted(space.extent()),
            data_bytes: totals.data_bytes,
            entries: totals.entries,
            deletes: totals.deletes,
            seqno_min: totals.seqno_min,
            seqno_max: totals.seqno_max,
            block_bytes_max: u64::from(totals.entry_bytes_max),
            superseded_bytes: totals.superseded_bytes,
            hides: 0,
            ..TableMeta::in_memory(space.id(), space.extent().len, keys)
        }
    }

    /// A table of `bytes` that has none of what only files have, and no entries yet.
    fn in_memory(id: FileId, bytes: u64, (smallest, largest): (Vec<u8>, Vec<u8>)) -> TableMeta {
        TableMeta {
            id,
            extent: Extent {
                valid_len: bytes,
                footer_offset: 0,
            },
            place: Place::File,
            data_bytes: 0,
            entries: 0,
            deletes: 0,
            seqno_min: SeqNo(0),
            seqno_max: SeqNo(0),
            smallest,
            largest,
            shared: false,
            dead_bytes: 0,
            small_blocks: 0,
            block_bytes_max: 0,
            filter_left: 0,
            appends: 0,
            superseded_bytes: 0,
            hides: 0,
        }
    }

    /// True if it is in a file, not in persistent memory.
    pub(crate) fn is_file(&self) -> bool {
        self.place == Place::File
    }

    /// Bytes of the table in its file or in persistent memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.extent.valid_len
    }

    /// True if no read point is before `oldest`, `oldest` sees the whole table, and the table has
    /// enough droppable contents to be worth rewriting: superseded versions of more than an
    /// eleventh of its bytes or, with nothing `below` its keys, tombstones of more than an eleventh
    /// of its entries.
    pub(crate) fn holds_much_that_may_go(&self, oldest: SeqNo, below: bool) -> bool {
        const SHARE: u64 = 11;
        let has_much = self.superseded_bytes * SHARE > self.live_bytes()
            || (!below && self.deletes * SHARE > self.entries);
        self.seqno_max <= oldest && has_much
    }

    /// True if some of its contents can be dropped once no read point before `oldest` is left.
    pub(crate) fn holds_what_may_go(&self, oldest: SeqNo, below: bool) -> bool {
        let has_any = self.superseded_bytes + self.dead_bytes > 0 || (!below && self.deletes > 0);
        self.seqno_max <= oldest && has_any
    }

    /// True if more than half of its entries are tombstones.
    pub(crate) fn is_mostly_tombstones(&self) -> bool {
        self.deletes * 2 > self.entries
    }

    /// True if `key` lies between its smallest and its largest key.
    #[inline]
    pub(crate) fn spans(&self, key: &[u8]) -> bool {
        self.smallest.as_slice() <= key && key <= self.largest.as_slice()
    }

    /// Bytes of the table that its newest state needs.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.extent.valid_len.saturating_sub(self.dead_bytes)
    }
}

#[cfg(test)]
impl TableMeta {
    /// A table of `kib` KiB with ten entries. Its keys are those from `smallest` to `largest`, and
    /// its sequence numbers are its id.
    pub(crate) fn of_test(id: u64, smallest: &str, largest: &str, kib: u64) -> TableMeta {
        TableMeta {
            entries: 10,
            seqno_min: SeqNo(id),
            seqno_max: SeqNo(id),
            ..TableMeta::in_memory(FileId(id), kib << 10, (smallest.into(), largest.into()))
        }
    }
}

/// The pool that belongs to this database: the lowest generation its root must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PmPairing {
    pub(crate) generation: u64,
}

/// Changes of what a pool has beside tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PoolEdit {
    pub(crate) pairing: Option<PmPairing>,
    /// Trees over the blocks of tables. A change of their tables drops them without saying so.
    pub(crate) trees_added: Vec<BlockTreeMeta>,
    /// Trees that are dropped although their tables are the same.
    pub(crate) trees_dropped: Vec<FileId>,
    /// Partitions, and the sequence numbers up to which all their entries are in tables, whatever
    /// the write buffers in the pool have.
    pub(crate) flushed: Vec<(PartId, SeqNo)>,
    /// True if write buffers in the pool may have entries that are in no table.
    pub(crate) holds_entries: Option<bool>,
}

impl PoolEdit {
    /// One more tree.
    pub(crate) fn with_tree(tree: BlockTreeMeta) -> PoolEdit {
        PoolEdit {
            trees_added: vec![tree],
            ..PoolEdit::default()
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let holds_entries = self.holds_entries.map(u64::from);
        let numbers = [
            (PM, self.pairing.map(|pm| pm.generation)),
            (HOLDS_ENTRIES, holds_entries),
        ];
        for (tag, number) in numbers {
            if let Some(number) = number {
                put_varint(out, tag);
                put_varint(out, number);
            }
        }
        for tree in &self.trees_added {
            put_tree(out, tree);
        }
        for id in &self.trees_dropped {
            put_varint(out, TREE_DROPPED);
            put_varint(out, id.0);
        }
        for (part, through) in &self.flushed {
            put_varint(out, FLUSHED);
            put_varint(out, u64::from(part.0));
            put_varint(out, through.0);
        }
    }
}

/// Changes of the borders of ranges inside partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeBorders {
    /// No table below level 0 crosses one.
    pub(crate) added: Vec<Vec<u8>>,
    /// Two ranges become one there, or two partitions begin.
    pub(crate) dropped: Vec<Vec<u8>>,
}

impl RangeBorders {
    /// These borders, added.
    pub(crate) fn of(added: &[Box<[u8]>]) -> RangeBorders {
        RangeBorders {
            added: added.iter().map(|cut| cut.to_vec()).collect(),
            dropped: Vec::new(),
        }
    }
}

/// A change: the values it sets, and the items it adds and drops. Empty fields change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The number of this edit; grows by one.
    pub(crate) id: u64,
    /// Set only by a snapshot record, which replaces all records before it.
    pub(crate) uuid: Option<[u8; 16]>,
    /// The databases whose tables this one may hold, because it began as a checkpoint. Set only by
    /// a snapshot record.
    pub(crate) origins: Vec<[u8; 16]>,
    /// The version of the file formats. Set only by a snapshot record.
    pub(crate) format: Option<u64>,
    pub(crate) profile: Option<u8>,
    pub(crate) next_file_id: Option<FileId>,
    pub(crate) last_seqno: Option<SeqNo>,
    /// Logs below this id hold nothing that is not in tables.
    pub(crate) log_floor: Option<FileId>,
    pub(crate) logs_added: Vec<FileId>,
    pub(crate) logs_sealed: Vec<LogEnd>,
    /// Logs whose names are durable.
    pub(crate) logs_named: Vec<FileId>,
    /// (level, table)
    pub(crate) add: Vec<(Level, TableMeta)>,
    /// (level, file id)
    pub(crate) drop: Vec<(Level, FileId)>,
    /// Partition borders. No table crosses one.
    pub(crate) cuts_added: Vec<Cut>,
    /// Borders at which two partitions become the one that begins before the border.
    pub(crate) cuts_dropped: Vec<Vec<u8>>,
    /// Borders of ranges inside partitions.
    pub(crate) ranges: RangeBorders,
    pub(crate) pool: PoolEdit,
    /// The evicted part of a tree of level 0.
    pub(crate) evicted: Option<Evicted>,
    /// Everything up to this sequence number is in tables. Set only by a snapshot record.
    pub(crate) evicted_through: Option<SeqNo>,
}

const ID: u64 = 1;
const UUID: u64 = 2;
const PROFILE: u64 = 3;
const NEXT_FILE_ID: u64 = 4;
const LAST_SEQNO: u64 = 5;
const LOG_FLOOR: u64 = 6;
const LOG_ADDED: u64 = 7;
const LOG_SEALED: u64 = 8;
const ADD: u64 = 9;
const DROP: u64 = 10;
const PM: u64 = 11;
const LOG_NAMED: u64 = 12;
const FORMAT: u64 = 13;
// 14 and 15 were earlier encodings of 17.
const EVICTED_THROUGH: u64 = 16;
const EVICTED: u64 = 17;
const ORIGIN: u64 = 18;
const CUT_ADDED: u64 = 19;
const CUT_DROPPED: u64 = 20;
const LIST_ADDED: u64 = 21;
const SORTED_ADDED: u64 = 22;
const RANGE_ADDED: u64 = 23;
const RANGE_DROPPED: u64 = 24;
const TREE_ADDED: u64 = 25;
const FLUSHED: u64 = 26;
const HOLDS_ENTRIES: u64 = 27;
const TREE_DROPPED: u64 = 28;

/// The version of all formats that this build writes.
pub(crate) const FORMAT_VERSION: u64 = 7;

/// The oldest version that this build reads. An open for writing rewrites the manifest, so that the
/// database is of the current version from then on; its older tables and logs stay readable.
///
/// Before version 7 the frames of logs have longer headers; a build that knows only those would
/// take newer logs for empty ones. Before version 6 the manifest has no borders of ranges, and does
/// not know what a table hides. Before version 5 it does not know the largest block of a table.
/// Before version 4 it does not know the superseded bytes either, and no file but the manifest says
/// whose it is.
pub(crate) const FORMAT_VERSION_MIN: u64 = 3;

/// The first version in which the files of tables say whose they are.
pub(crate) const TABLES_HAVE_HEADERS: u64 = 4;

/// The version from which on the manifest knows the largest block of each table.
pub(crate) const KNOWS_LARGEST_BLOCKS: u64 = 5;

/// The limit on the levels that a record may name.
const LEVELS_MAX: usize = 64;

impl Edit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut number = |tag: u64, value: Option<u64>| {
            if let Some(value) = value {
                put_varint(&mut out, tag);
                put_varint(&mut out, value);
            }
        };
        number(ID, Some(self.id));
        number(FORMAT, self.format);
        number(PROFILE, self.profile.map(u64::from));
        number(NEXT_FILE_ID, self.next_file_id.map(|id| id.0));
        number(LAST_SEQNO, self.last_seqno.map(|seqno| seqno.0));
        number(EVICTED_THROUGH, self.evicted_through.map(|seqno| seqno.0));
        number(LOG_FLOOR, self.log_floor.map(|id| id.0));
        for &log in &self.logs_added {
            number(LOG_ADDED, Some(log.0));
        }
        for &log in &self.logs_named {
            number(LOG_NAMED, Some(log.0));
        }
        if let Some(uuid) = &self.uuid {
            put_varint(&mut out, UUID);
            out.extend_from_slice(uuid);
        }
        for origin in &self.origins {
            put_varint(&mut out, ORIGIN);
            out.extend_from_slice(origin);
        }
        for end in &self.logs_sealed {
            put_varint(&mut out, LOG_SEALED);
            put_varint(&mut out, end.log_id.0);
            put_varint(&mut out, end.end);
            put_varint(&mut out, end.synced_through);
        }
        if let Some(evicted) = &self.evicted {
            put_varint(&mut out, EVICTED);
            evicted.put(&mut out);
        }
        for (level, table) in &self.add {
            let (tag, extent) = match table.place {
                Place::File => (ADD, None),
                Place::List(ListPlace { first }) => (LIST_ADDED, Some(first)),
                Place::Sorted(extent) => (SORTED_ADDED, Some(extent)),
            };
            put_varint(&mut out, tag);
            put_varint(&mut out, level.0 as u64);
            if let Some(extent) = extent {
                put_varint(&mut out, extent.offset.get());
                put_varint(&mut out, extent.len);
            }
            put_table(&mut out, table);
        }
        for (level, id) in &self.drop {
            put_varint(&mut out, DROP);
            put_varint(&mut out, level.0 as u64);
            put_varint(&mut out, id.0);
        }
        for (cut, id) in &self.cuts_added {
            put_varint(&mut out, CUT_ADDED);
            put_varint(&mut out, u64::from(id.0));
            put_bytes(&mut out, cut);
        }
        let mut keys = |tag: u64, keys: &[Vec<u8>]| {
            for key in keys {
                put_varint(&mut out, tag);
                put_bytes(&mut out, key);
            }
        };
        keys(CUT_DROPPED, &self.cuts_dropped);
        keys(RANGE_ADDED, &self.ranges.added);
        keys(RANGE_DROPPED, &self.ranges.dropped);
        self.pool.put(&mut out);
        out
    }

    /// Decodes a record's payload; `None` if it is not an edit that this version understands. For
    /// an edit of another format version only that number is returned, because the rest may mean
    /// anything.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Edit> {
        Edit::decode_as(bytes, FORMAT_VERSION)
    }

    /// As [`Edit::decode`], for a record of format version `version` unless it names another.
    pub(super) fn decode_as(bytes: &[u8], mut version: u64) -> Option<Edit> {
        let mut reader = Reader::new(bytes);
        let mut edit = Edit::default();
        while !reader.is_empty() {
            edit.decode_field(&mut reader, version)?;
            version = edit.format.unwrap_or(version);
            let is_read = (FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version);
            if let Some(format) = edit.format.filter(|_| !is_read) {
                return Some(Edit {
                    format: Some(format),
                    ..Edit::default()
                });
            }
        }
        Some(edit)
    }

    fn decode_field(&mut self, reader: &mut Reader<'_>, version: u64) -> Option<()> {
        match reader.varint()? {
            ID => self.id = number(reader)?,
            UUID => self.uuid = Some(reader.take(16)?.try_into().ok()?),
            ORIGIN => self.origins.push(reader.take(16)?.try_into().ok()?),
            FORMAT => self.format = Some(reader.varint()?),
            PROFILE => self.profile = Some(u8::try_from(reader.varint()?).ok()?),
            NEXT_FILE_ID => self.next_file_id = Some(FileId(number(reader)?)),
            LAST_SEQNO => self.last_seqno = Some(seqno(reader)?),
            LOG_FLOOR => self.log_floor = Some(FileId(number(reader)?)),
            LOG_ADDED => self.logs_added.push(file_id(reader)?),
            LOG_NAMED => self.logs_named.push(file_id(reader)?),
            LOG_SEALED => self.logs_sealed.push(LogEnd {
                log_id: FileId(number(reader)?),
                end: number(reader)?,
                synced_through: number(reader)?,
            }),
            ADD => {
                let level = reader.varint_max(LEVELS_MAX)?;
                self.add.push((Level(level), table(reader, version)?));
            }
            LIST_ADDED => {
                let level = reader.varint_max(LEVELS_MAX)?;
                let first = firn_pm::Extent::new(number(reader)?, number(reader)?);
                let place = Place::List(ListPlace { first });
                let table = table(reader, version)?;
                self.add.push((Level(level), TableMeta { place, ..table }));
            }
            SORTED_ADDED => {
                let level = reader.varint_max(LEVELS_MAX)?;
                let extent = firn_pm::Extent::new(number(reader)?, number(reader)?);
                let place = Place::Sorted(extent);
                let table = table(reader, version)?;
                self.add.push((Level(level), TableMeta { place, ..table }));
            }
            DROP => self.drop.push((
                Level(reader.varint_max(LEVELS_MAX)?),
                FileId(number(reader)?),
            )),
            PM => {
                self.pool.pairing = Some(PmPairing {
                    generation: number(reader)?,
                })
            }
            EVICTED => self.evicted = Some(Evicted::take(reader)?),
            CUT_ADDED => {
                let id = PartId(u32::try_from(reader.varint()?).ok()?);
                self.cuts_added.push((key(reader)?, id));
            }
            CUT_DROPPED => self.cuts_dropped.push(key(reader)?),
            RANGE_ADDED => self.ranges.added.push(key(reader)?),
            RANGE_DROPPED => self.ranges.dropped.push(key(reader)?),
            TREE_ADDED => self.pool.trees_added.push(tree(reader)?),
            TREE_DROPPED => self.pool.trees_dropped.push(file_id(reader)?),
            FLUSHED => {
                let part = PartId(u32::try_from(reader.varint()?).ok()?);
                self.pool.flushed.push((part, seqno(reader)?));
            }
            HOLDS_ENTRIES => self.pool.holds_entries = Some(flag(reader)?),
            EVICTED_THROUGH => self.evicted_through = Some(seqno(reader)?),
            _ => return None,
        }
        Some(())
    }
}

fn number(reader: &mut Reader<'_>) -> Option<u64> {
    reader.varint().filter(|&number| number <= NUMBER_MAX)
}

fn flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.varint()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn file_id(reader: &mut Reader<'_>) -> Option<FileId> {
    number(reader).map(FileId)
}

fn seqno(reader: &mut Reader<'_>) -> Option<SeqNo> {
    Some(SeqNo(reader.varint()?)).filter(|&seqno| seqno <= SeqNo::MAX)
}

fn key(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    let key = reader.bytes()?;
    (1..=KEY_BYTES_MAX)
        .contains(&key.len())
        .then(|| key.to_vec())
}

fn put_tree(out: &mut Vec<u8>, tree: &BlockTreeMeta) {
    let (first, last) = tree.levels;
    let extent = (tree.extent.offset.get(), tree.extent.len);
    let numbers = [tree.id.0, first.0 as u64, last.0 as u64, extent.0, extent.1];
    put_varint(out, TREE_ADDED);
    for number in numbers {
        put_varint(out, number);
    }
    put_bytes(out, &tree.from);
}

fn tree(reader: &mut Reader<'_>) -> Option<BlockTreeMeta> {
    let id = file_id(reader)?;
    let levels = (
        reader.varint_max(LEVELS_MAX)?,
        reader.varint_max(LEVELS_MAX)?,
    );
    let extent = firn_pm::Extent::new(number(reader)?, number(reader)?);
    let from = reader.bytes()?;
    (levels.0 <= levels.1 && from.len() <= KEY_BYTES_MAX).then(|| BlockTreeMeta {
        id,
        levels: (Level(levels.0), Level(levels.1)),
        extent,
        from: from.to_vec(),
    })
}

fn put_table(out: &mut Vec<u8>, table: &TableMeta) {
    let numbers = [
        table.id.0,
        table.extent.valid_len,
        table.extent.footer_offset,
        table.data_bytes,
        table.entries,
        table.deletes,
        table.seqno_min.0,
        table.seqno_max.0,
        u64::from(table.shared),
        table.dead_bytes,
        table.small_blocks,
        table.filter_left,
        table.appends,
        table.superseded_bytes,
        table.block_bytes_max,
        table.hides,
    ];
    for number in numbers {
        put_varint(out, number);
    }
    put_bytes(out, &table.smallest);
    put_bytes(out, &table.largest);
}

fn table(reader: &mut Reader<'_>, version: u64) -> Option<TableMeta> {
    let since = |first| {
        if version >= first {
            number
        } else {
            |_: &mut Reader<'_>| Some(0)
        }
    };
    let table = TableMeta {
        id: FileId(number(reader)?),
        extent: Extent {
            valid_len: number(reader)?,
            footer_offset: number(reader)?,
        },
        place: Place::File,
        data_bytes: number(reader)?,
        entries: number(reader)?,
        deletes: number(reader)?,
        seqno_min: seqno(reader)?,
        seqno_max: seqno(reader)?,
        shared: flag(reader)?,
        dead_bytes: number(reader)?,
        small_blocks: number(reader)?,
        filter_left: number(reader)?,
        appends: number(reader)?,
        superseded_bytes: since(4)(reader)?,
        block_bytes_max: since(5)(reader)?,
        hides: since(6)(reader)?,
        smallest: key(reader)?,
        largest: key(reader)?,
    };
    (table.smallest <= table.largest).then_some(table)
}

//! The state of a database on one screen of 80 columns and 24 lines, with one sentence of advice.

use crate::byte_size::ByteSize;
use crate::exit::Outcome;
use crate::output::{grouped, table};
use firndb::{BladePartitionStats, Db, Limits, Stats};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) const COLUMNS: usize = 80;
/// The partitions on the screen.
const PARTITIONS_SHOWN: usize = 5;

/// The facts on the screen in addition to those of the engine.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Summary {
    /// Entries in tables and logs, including superseded ones and deletions.
    entries_about: u64,
    /// Disk space of the directory's files, in bytes.
    disk_bytes: u64,
    /// The part of it used by logs.
    log_bytes: u64,
    /// Loads that were interrupted and can be resumed.
    unfinished_loads: usize,
    memory_limit_bytes: u64,
    advice: String,
}

impl Summary {
    pub(super) fn of(
        path: &Path,
        db: &Db,
        stats: &Stats,
        memory_limit_bytes: u64,
    ) -> Outcome<Self> {
        let (disk_bytes, log_bytes) = disk_bytes(path);
        // Trees without durable memory are rebuilt from the logs, so their entries are the logs'
        // entries.
        let in_trees = stats
            .design
            .lab
            .as_ref()
            .map_or(0, |lab| lab.mutable_entries + lab.immutable_entries);
        let above = stats.recovery.replayed_entries.max(in_trees);
        let mut summary = Self {
            entries_about: above + stats.levels.iter().map(|level| level.entries).sum::<u64>(),
            disk_bytes,
            log_bytes,
            unfinished_loads: unfinished_loads(db)?,
            memory_limit_bytes,
            advice: String::new(),
        };
        summary.advice = advice(&summary, stats);
        Ok(summary)
    }

    /// The screen for the database at `path`.
    pub(super) fn screen(&self, path: &Path, stats: &Stats) -> Result<String, fmt::Error> {
        let mut text = String::new();
        writeln!(
            text,
            "{}",
            cut_left(&format!("{} database {}", stats.profile, path.display()))
        )?;
        let entries = grouped(self.entries_about);
        writeln!(
            text,
            "entries  about {entries}, superseded ones and deletions among them"
        )?;
        let in_lists = stats
            .design
            .tlsm
            .as_ref()
            .map_or(0, |lists| lists.table_bytes);
        let sorted = stats
            .design
            .blade
            .as_ref()
            .map_or(0, |tables| tables.table_bytes);
        let (disk, tables, logs) = (
            ByteSize(self.disk_bytes),
            ByteSize(stats.table_bytes - in_lists - sorted),
            ByteSize(self.log_bytes),
        );
        writeln!(text, "on disk  {disk}: tables {tables}, logs {logs}")?;
        let memory = &stats.memory;
        let used = ByteSize(memory.buffer_bytes + memory.cache_bytes + memory.open_table_bytes);
        let limit = ByteSize(self.memory_limit_bytes);
        writeln!(
            text,
            "memory   {used} in this process; the limit is {limit}"
        )?;
        text.push_str(&design(stats)?);
        let debt = match stats.background.debt_bytes {
            0 => "none: no merge is due".to_owned(),
            bytes => format!("{} to be merged", ByteSize(bytes)),
        };
        writeln!(text, "debt     {debt}")?;
        let rows: Vec<Vec<String>> = stats
            .levels
            .iter()
            .filter(|level| level.tables > 0)
            .map(|level| level_row(level, stats))
            .collect();
        if rows.is_empty() {
            writeln!(text, "levels   all empty")?;
        } else {
            writeln!(text, "{}", table(&headings(stats), rows, true))?;
        }
        if let Some(tables) = &stats.design.blade
            && tables.partitions.len() > 1
        {
            text.push_str(&partitions(&tables.partitions));
        }
        text.push_str(&wrapped(&self.advice));
        Ok(text)
    }
}

/// The lines about what the profile alone has.
fn design(stats: &Stats) -> Result<String, fmt::Error> {
    let mut text = String::new();
    if let Some(lists) = &stats.design.tlsm {
        let used = ByteSize(lists.node_bytes + lists.chunk_bytes);
        let (of, garbage) = (
            ByteSize(lists.capacity_bytes),
            ByteSize(lists.garbage_bytes),
        );
        writeln!(
            text,
            "in PM    {used} of {of} for tables; {garbage} of it is garbage"
        )?;
    }
    if let Some(tables) = &stats.design.blade {
        let (used, of) = (ByteSize(tables.used_bytes), ByteSize(tables.capacity_bytes));
        writeln!(
            text,
            "in PM    {used} of {of} for tables: {} as they were flushed, {} merged",
            grouped(tables.unsorted_tables as u64),
            grouped(tables.sorted_tables as u64)
        )?;
    }
    if let Some(ranges) = &stats.design.pmdb {
        writeln!(
            text,
            "ranges   {} in {} partitions, {:.1} tables over a key; {} flushed tables wait",
            grouped(ranges.ranges as u64),
            grouped(ranges.partitions as u64),
            ranges.height_mean,
            grouped(ranges.stash_tables as u64)
        )?;
    }
    if let Some(trees) = stats
        .design
        .pmdb
        .as_ref()
        .and_then(|ranges| ranges.trees.as_ref())
    {
        writeln!(
            text,
            "trees    {} over {} blocks, {} in PM; a search reads {:.1} lines there and excludes {:.0} % of blocks",
            grouped(trees.trees as u64),
            grouped(trees.blocks),
            ByteSize(trees.bytes),
            trees.lines as f64 / trees.searches.max(1) as f64,
            100.0 * trees.rejected as f64 / trees.tests.max(1) as f64
        )?;
    }
    if let Some(buffers) = stats
        .design
        .pmdb
        .as_ref()
        .and_then(|ranges| ranges.buffers.as_ref())
    {
        writeln!(
            text,
            "buffers  {} in PM, {} of them full; {} of entries in {}, of at most {}; lists of {} in DRAM",
            grouped(buffers.buffers as u64),
            grouped(buffers.frozen as u64),
            ByteSize(buffers.used_bytes),
            ByteSize(buffers.bytes),
            ByteSize(buffers.most_bytes),
            ByteSize(buffers.list_bytes)
        )?;
    }
    Ok(text)
}

/// The partitions with most bytes in persistent memory, in key order.
fn partitions(all: &[BladePartitionStats]) -> String {
    let mut shown: Vec<(usize, &BladePartitionStats)> = all.iter().enumerate().collect();
    shown.sort_by_key(|(_, part)| Reverse(part.memory_bytes));
    shown.truncate(PARTITIONS_SHOWN);
    shown.sort_by_key(|(place, _)| *place);
    let row = |part: &BladePartitionStats| {
        vec![
            part.id.to_string(),
            ByteSize(part.memory_bytes).to_string(),
            ByteSize(part.ssd_bytes).to_string(),
            grouped(part.unsorted_tables as u64),
            grouped(part.hits as u64),
            grouped(part.wasted_searches),
        ]
    };
    let rows = shown.iter().map(|(_, part)| row(part)).collect();
    let headings = vec![
        "partition",
        "in PM",
        "on disk",
        "as flushed",
        "hits",
        "in vain",
    ];
    let mut text = format!("{}\n", table(&headings, rows, true));
    if let Some(more) = all
        .len()
        .checked_sub(PARTITIONS_SHOWN)
        .filter(|more| *more > 0)
    {
        let _infallible = writeln!(
            text,
            "and {} more, with all numbers: --json",
            grouped(more as u64)
        );
    }
    text
}

fn headings(stats: &Stats) -> Vec<&'static str> {
    let mut headings = vec!["level", "tables", "size", "entries", "dead"];
    if stats.design.tlsm.is_some() {
        headings.insert(2, "in PM");
    }
    headings
}

fn level_row(level: &firndb::LevelStats, stats: &Stats) -> Vec<String> {
    let mut row = vec![
        level.level.to_string(),
        grouped(level.tables as u64),
        ByteSize(level.bytes).to_string(),
        grouped(level.entries),
        ByteSize(level.dead_bytes).to_string(),
    ];
    if let Some(lists) = &stats.design.tlsm {
        let count = lists.lists.get(level.level).copied().unwrap_or_default();
        row.insert(2, grouped(count as u64));
    }
    row
}

/// Disk space of all files in `path`, and of the logs among them, in bytes. A file that vanishes
/// meanwhile counts as 0.
fn disk_bytes(path: &Path) -> (u64, u64) {
    const BLOCK_BYTES: u64 = 512;
    let (mut all, mut logs) = (0, 0);
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let bytes = entry
            .metadata()
            .map_or(0, |data| data.blocks() * BLOCK_BYTES);
        all += bytes;
        if Path::new(&entry.file_name())
            .extension()
            .is_some_and(|extension| extension == "log")
        {
            logs += bytes;
        }
    }
    (all, logs)
}

fn unfinished_loads(db: &Db) -> Outcome<usize> {
    let positions = db.prefix([crate::reserved::PREFIX, b"load/"].concat());
    positions
        .map(|entry| Ok(entry?))
        .try_fold(0, |count, entry: Outcome<_>| entry.map(|_| count + 1))
}

/// One sentence with the most useful next step.
fn advice(summary: &Summary, stats: &Stats) -> String {
    const LOG_BYTES_WORTH_A_MERGE: u64 = 256 << 20;
    let level0 = stats.levels.first().map_or(0, |level| level.tables);
    let dead: u64 = stats.levels.iter().map(|level| level.dead_bytes).sum();
    if let Some(error) = &stats.background.error {
        return format!("Flushes and merges have stopped: {error}.");
    }
    if summary.unfinished_loads > 0 {
        return format!(
            "Start {} that was cut short again, with the same arguments: it goes on where it stopped.",
            loads(summary.unfinished_loads)
        );
    }
    if level0 >= Limits::default().level0_slow {
        return format!(
            "Run `firn compact`: each read looks into up to {level0} tables of level 0."
        );
    }
    if stats.background.debt_bytes > 0 {
        return "Leave the database open in a program, or run `firn compact`: merges are due."
            .to_owned();
    }
    // In profile `lab`, the values of level 0 are in logs.
    let is_in_logs = stats.design.lab.is_none() && summary.log_bytes > stats.table_bytes;
    if is_in_logs && summary.log_bytes > LOG_BYTES_WORTH_A_MERGE {
        return "Run `firn compact`: most of the data is in logs, which each open reads again."
            .to_owned();
    }
    if dead > stats.table_bytes / 4 && dead > LOG_BYTES_WORTH_A_MERGE {
        return format!("Run `firn compact`: {} in tables are dead.", ByteSize(dead));
    }
    "Nothing needs to be done.".to_owned()
}

fn loads(count: usize) -> String {
    if count == 1 {
        "the load".to_owned()
    } else {
        format!("each of the {count} loads")
    }
}

/// `line`, with the start of its path cut off if it is wider than the screen.
fn cut_left(line: &str) -> String {
    let columns = line.chars().count();
    if columns <= COLUMNS {
        return line.to_owned();
    }
    let (kind, path) = line.split_once(" database ").unwrap_or(("", line));
    let room = COLUMNS.saturating_sub(kind.chars().count() + " database ..".len());
    let from = path.chars().count().saturating_sub(room);
    format!(
        "{kind} database ..{}",
        path.chars().skip(from).collect::<String>()
    )
}

/// `sentence` wrapped into lines that fit the screen.
fn wrapped(sentence: &str) -> String {
    let (mut text, mut columns) = (String::new(), 0);
    for word in sentence.split(' ') {
        let width = word.chars().count();
        let separator = if columns == 0 {
            ""
        } else if columns + 1 + width > COLUMNS {
            columns = 0;
            "\n"
        } else {
            columns += 1;
            " "
        };
        text.push_str(separator);
        text.push_str(word);
        columns += width;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb::Options;

    #[test]
    fn the_advice_is_for_the_worst() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(directory.path(), Options::default()).unwrap();
        let (mut stats, mut summary) = (db.stats(), Summary::default());
        assert_eq!(advice(&summary, &stats), "Nothing needs to be done.");
        summary.log_bytes = 1 << 30;
        assert!(advice(&summary, &stats).contains("in logs"));
        stats.background.debt_bytes = 1;
        assert!(advice(&summary, &stats).contains("merges are due"));
        stats.levels[0].tables = 40;
        assert!(advice(&summary, &stats).contains("40 tables of level 0"));
        summary.unfinished_loads = 2;
        assert!(advice(&summary, &stats).contains("each of the 2 loads"));
        stats.background.error = Some("a disk on fire".to_owned());
        assert!(advice(&summary, &stats).contains("a disk on fire"));
    }

    #[test]
    fn long_lines_are_cut_and_wrapped() {
        let path = format!("classic database /{}", "é".repeat(100));
        assert_eq!(cut_left(&path).chars().count(), COLUMNS);
        let text = wrapped(&"word ".repeat(40));
        assert!(
            text.lines().count() == 3 && text.lines().all(|line| line.len() <= COLUMNS),
            "{text}"
        );
    }
}

//! An open database on a simulated file system, with its reference: random operations, each
//! compared.

use crate::contents::{CheckedCursor, check_cursor, read_all};
use crate::machine::Machine;
use crate::model::{Change, History, Map};
use crate::setup::Setup;
use firn_base::checksum::crc32c;
use firn_base::clock::Clock;
use firn_base::coding::get_u32;
use firn_base::exec::Inline;
use firn_base::seed::Seed;
use firn_fs::SimFs;
use firn_pm::sim::act_as;
use firndb::{
    BladeStats, Db, Durability, Error, ErrorKind, ReadOptions, Result, Snapshot, WriteBatch,
    WriteOptions, proof,
};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An open database, its expected contents, and the snapshots and cursors taken of it.
pub struct Session {
    /// The setup.
    pub setup: Setup,
    /// The machine it runs on.
    pub machine: Machine,
    /// The reference.
    pub history: History,
    db: Option<Db>,
    /// Its executor.
    pub inline: Arc<Inline>,
    /// Its clock.
    pub clock: Clock,
    /// Checkpoints that were started: path, expected contents, and whether they were finished.
    pub checkpoints: Vec<(PathBuf, Map, bool)>,
    snapshots: Vec<(Snapshot, Map)>,
    cursors: Vec<CheckedCursor>,
}

impl Session {
    /// The directory of the sessions' databases.
    pub fn dir() -> &'static Path {
        Path::new("/db")
    }

    /// Opens the database, creating it if it does not exist.
    ///
    /// # Errors
    /// The error of the open.
    pub fn open(setup: &Setup, machine: &Machine, history: History) -> Result<Session> {
        let (options, inline, clock) = setup.options(&machine.fs, machine.memory.as_ref());
        let db = Some(Db::open(Self::dir(), options)?);
        let (setup, machine) = (setup.clone(), machine.clone());
        let (checkpoints, snapshots, cursors) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Session {
            setup,
            machine,
            history,
            db,
            inline,
            clock,
            checkpoints,
            snapshots,
            cursors,
        })
    }

    /// The files.
    pub fn fs(&self) -> &SimFs {
        &self.machine.fs
    }

    /// The database.
    ///
    /// # Panics
    /// After a reopen that failed.
    pub fn db(&self) -> &Db {
        self.db
            .as_ref()
            .expect("a session is open until a reopen fails")
    }

    /// Writes a batch and records its outcome.
    ///
    /// # Errors
    /// The error of the write.
    pub fn write(&mut self, changes: Vec<Change>, durability: Durability) -> Result<()> {
        let options = WriteOptions::new().durability(durability);
        let number = self.history.issue([changes.clone()]);
        let written = match &changes[..] {
            [(key, Some(value))] => self.db().put_with(key, value, &options),
            [(key, None)] => self.db().delete_with(key, &options),
            _ => self.db().write(&batch(&changes), &options),
        };
        self.alive(written)
            .inspect(|()| self.history.acknowledge(number, durability))
    }

    /// Turns a success into an error if the machine has died, because no caller would have seen it.
    fn alive(&self, told: Result<()>) -> Result<()> {
        match self.machine.fs.crashed() {
            true => told.and_then(|()| {
                Err(Error::new(
                    ErrorKind::Io,
                    "the machine died in the middle of this",
                ))
            }),
            false => told,
        }
    }

    /// Writes by several writers at once: all join a commit group before any is written. Reads
    /// happen in between.
    ///
    /// # Errors
    /// The error of the first write that failed.
    ///
    /// # Panics
    /// If a reader sees a write that is not yet acknowledged.
    pub fn write_together(
        &mut self,
        all: Vec<(Vec<Change>, Durability)>,
        random: &mut Seed,
    ) -> Result<()> {
        let mut number = self
            .history
            .issue(all.iter().map(|(changes, _)| changes.clone()));
        let (mut begun, mut outcome) = (VecDeque::new(), Ok(()));
        let mut all = all
            .into_iter()
            .map(|(changes, durability)| (batch(&changes), durability))
            .peekable();
        while all.peek().is_some() || !begun.is_empty() {
            let may_begin = all
                .peek()
                .is_some_and(|(batch, _)| begun.is_empty() || !proof::may_wait(self.db(), batch));
            if may_begin && let Some((batch, durability)) = all.next() {
                let write = proof::begin_write(self.db(), &batch, durability);
                begun.push_back(write.map(|write| (write, durability)));
                if outcome.is_ok() && random.one_in(4) {
                    self.check_get(&self.setup.key(random))?;
                }
                continue;
            }
            let Some(write) = begun.pop_front() else {
                continue;
            };
            let finish = |write: proof::Begun| act_as(5 + number as u32 % 4, || write.finish());
            let written = write.and_then(|(write, durability)| finish(write).map(|()| durability));
            match written.and_then(|durability| self.alive(Ok(())).map(|()| durability)) {
                Ok(durability) => self.history.acknowledge(number, durability),
                Err(error) => outcome = outcome.and(Err(error)),
            }
            number += 1;
        }
        outcome
    }

    /// Runs random operations until `count` were run or one failed.
    ///
    /// # Errors
    /// The error of that operation.
    pub fn run(&mut self, count: u64, random: &mut Seed) -> Result<()> {
        for _ in 0..count {
            self.step(random)?;
        }
        Ok(())
    }

    /// Runs one random operation.
    ///
    /// # Errors
    /// The error of the operation.
    ///
    /// # Panics
    /// If the database's contents differ from the reference.
    pub fn step(&mut self, random: &mut Seed) -> Result<()> {
        // A different writer each time, never the thread that opens.
        act_as(1 + random.below(4) as u32, || self.step_as(random))
    }

    fn step_as(&mut self, random: &mut Seed) -> Result<()> {
        let setup = self.setup.clone();
        let key = |random: &mut Seed| setup.key(random);
        match random.below(100) {
            0..10 if setup.writers > 1 => {
                let changes = |random: &mut Seed| -> Vec<Change> {
                    let change = |random: &mut Seed| {
                        (
                            key(random),
                            (!random.one_in(4)).then(|| setup.value(random)),
                        )
                    };
                    (0..1 + random.below(3)).map(|_| change(random)).collect()
                };
                let all = (0..setup.writers)
                    .map(|_| (changes(random), setup.durability(random)))
                    .collect();
                self.write_together(all, random)
            }
            0..42 => {
                let change = (key(random), Some(setup.value(random)));
                self.write(vec![change], setup.durability(random))
            }
            42..50 => self.write(vec![(key(random), None)], setup.durability(random)),
            50..58 => {
                let change = |random: &mut Seed| {
                    (
                        key(random),
                        (!random.one_in(3)).then(|| setup.value(random)),
                    )
                };
                let changes = (0..2 + random.below(12)).map(|_| change(random)).collect();
                self.write(changes, setup.durability(random))
            }
            58..68 => self.check_get(&key(random)),
            68..72 => self.check_scan(random),
            72..76 => self.use_cursor(random),
            76..79 => self.use_snapshot(random),
            79..81 => self.synced(|db| db.flush()),
            81..83 => self.synced(|db| db.sync()),
            83 => self.synced(|db| db.compact()),
            84 => {
                let (from, to) = (key(random), key(random));
                if from >= to {
                    // An empty range flushes nothing.
                    return self.alive(self.db().compact_range::<&Vec<u8>>(&from..&to));
                }
                self.synced(|db| db.compact_range::<&Vec<u8>>(&from..&to))
            }
            85 if random.one_in(3) => self.checkpoint(random.next_u64()),
            86 if random.one_in(2) => self.read_only(),
            87 if random.one_in(2) => self.reopen(random.one_in(2)),
            88 => {
                self.clock
                    .advance(Duration::from_millis(random.below(3000)));
                Ok(())
            }
            _ => {
                for _ in 0..=random.below(3) {
                    self.inline.step();
                }
                Ok(())
            }
        }
    }

    /// Runs an operation that makes everything acknowledged durable.
    fn synced(&mut self, body: impl FnOnce(&Db) -> Result<()>) -> Result<()> {
        let done = body(self.db());
        self.alive(done).inspect(|()| self.history.synced())
    }

    fn check_get(&self, key: &[u8]) -> Result<()> {
        let got = self.db().get(key)?;
        assert!(
            got.as_deref() == self.history.now().get(key).map(Vec::as_slice),
            "get of {}",
            key.escape_ascii()
        );
        Ok(())
    }

    fn cursor(&self, random: &mut Seed) -> Result<CheckedCursor> {
        let key = |random: &mut Seed| self.setup.key(random);
        let now = self.history.now();
        match random.below(4) {
            0 => Ok(CheckedCursor::new(self.db().cursor()?, now, None, None)),
            1 => {
                let prefix = key(random)[..3].to_vec();
                let mut end = prefix.clone();
                end[2] += 1;
                Ok(CheckedCursor::new(
                    self.db().cursor_with(ReadOptions::prefix(&prefix))?,
                    now,
                    Some(&prefix),
                    Some(&end),
                ))
            }
            2 if !self.snapshots.is_empty() => {
                let (snapshot, map) =
                    &self.snapshots[random.below(self.snapshots.len() as u64) as usize];
                Ok(CheckedCursor::new(snapshot.cursor()?, map, None, None))
            }
            _ => {
                let lower = (!random.one_in(4)).then(|| key(random));
                let upper = (!random.one_in(4)).then(|| key(random));
                let options = ReadOptions {
                    lower: lower.clone(),
                    upper: upper.clone(),
                    snapshot: None,
                };
                Ok(CheckedCursor::new(
                    self.db().cursor_with(options)?,
                    now,
                    lower.as_deref(),
                    upper.as_deref(),
                ))
            }
        }
    }

    fn check_scan(&self, random: &mut Seed) -> Result<()> {
        let mut cursor = self.cursor(random)?;
        check_cursor(&mut cursor, 1 + random.below(30), random, |random| {
            self.setup.key(random)
        })
    }

    fn use_cursor(&mut self, random: &mut Seed) -> Result<()> {
        if self.cursors.len() < 3 {
            let cursor = self.cursor(random)?;
            self.cursors.push(cursor);
        }
        let at = random.below(self.cursors.len() as u64) as usize;
        let setup = &self.setup;
        check_cursor(
            &mut self.cursors[at],
            1 + random.below(8),
            random,
            |random| setup.key(random),
        )?;
        if random.one_in(4) {
            self.cursors.swap_remove(at);
        }
        Ok(())
    }

    fn use_snapshot(&mut self, random: &mut Seed) -> Result<()> {
        if self.snapshots.len() < 3 || random.one_in(3) {
            self.snapshots
                .push((self.db().snapshot(), self.history.now().clone()));
            return Ok(());
        }
        let at = random.below(self.snapshots.len() as u64) as usize;
        let (snapshot, map) = self.snapshots.swap_remove(at);
        for _ in 0..5 {
            let key = self.setup.key(random);
            let got = snapshot.get(&key)?;
            assert!(
                got.as_deref() == map.get(&key).map(Vec::as_slice),
                "get of {} at a snapshot",
                key.escape_ascii()
            );
        }
        let mut got = Map::new();
        for entry in snapshot.iter() {
            let (key, value) = entry?;
            got.insert(key, value.to_vec());
        }
        assert!(
            got == map,
            "a scan at a snapshot gives {} entries, not {}",
            got.len(),
            map.len()
        );
        Ok(())
    }

    fn checkpoint(&mut self, number: u64) -> Result<()> {
        let dir = PathBuf::from(format!("/copy{number:x}"));
        self.checkpoints
            .push((dir.clone(), self.history.now().clone(), false));
        let made = self.db().checkpoint(&dir);
        self.alive(made)?;
        if let Some(last) = self.checkpoints.last_mut() {
            last.2 = true;
        }
        Ok(())
    }

    fn read_only(&self) -> Result<()> {
        let (options, _, _) = self
            .setup
            .options(&self.machine.fs, self.machine.memory.as_ref());
        let reader = Db::open_read_only(Self::dir(), options)?;
        let got = read_all(&reader)?;
        assert!(
            got == *self.history.now(),
            "a read-only open shows {} entries",
            got.len()
        );
        assert!(reader.put(b"k", b"v").is_err(), "a read-only handle writes");
        Ok(())
    }

    /// Closes the database, or just drops it, and opens it again.
    ///
    /// # Errors
    /// The error of either.
    pub fn reopen(&mut self, close: bool) -> Result<()> {
        self.release();
        let (options, inline, clock) = self
            .setup
            .options(&self.machine.fs, self.machine.memory.as_ref());
        // The handle must be dropped before the next open can take the lock.
        let db = self
            .db
            .take()
            .expect("a session is open until a reopen fails");
        if close {
            let closed = db.close();
            self.alive(closed)?;
            self.history.synced();
        } else {
            drop(db);
        }
        self.db = Some(Db::open(Self::dir(), options)?);
        (self.inline, self.clock) = (inline, clock);
        self.alive(Ok(()))?;
        self.history.synced();
        Ok(())
    }

    /// Releases snapshots and cursors.
    pub fn release(&mut self) {
        self.snapshots.clear();
        self.cursors.clear();
    }

    /// Compares everything, lets background work finish, verifies, and looks for orphans: I3, I5,
    /// I6, I7.
    ///
    /// # Errors
    /// The first error of any of these.
    ///
    /// # Panics
    /// If one of the invariants does not hold.
    pub fn settle(&mut self) -> Result<()> {
        self.come_to_rest()?;
        let orphans = orphans(self.db(), &self.machine.fs, Self::dir())?;
        assert!(orphans.is_empty(), "I5: {orphans:?}");
        let stats = self.db().stats();
        let of_lists = stats.design.tlsm.map_or(0, |tlsm| tlsm.buried_bytes);
        let unused = |blade: &BladeStats| blade.used_bytes - blade.table_bytes;
        let buried = of_lists + stats.design.blade.as_ref().map_or(0, unused);
        assert!(
            buried == 0,
            "I5: {buried} bytes of persistent memory that no table has"
        );
        Ok(())
    }

    /// [`Session::settle`] without the check for orphans, because after a fault there may be some
    /// until the next open.
    ///
    /// # Errors
    /// The first error of any of these.
    ///
    /// # Panics
    /// If one of the invariants does not hold.
    pub fn come_to_rest(&mut self) -> Result<()> {
        assert!(
            read_all(self.db())? == *self.history.now(),
            "contents differ from the reference"
        );
        self.release();
        self.db().wait_idle()?;
        self.inline.run();
        assert!(
            read_all(self.db())? == *self.history.now(),
            "contents differ from the reference after compaction"
        );
        self.db().verify()?;
        Ok(())
    }

    /// Opens the checkpoints on `fs` and compares them.
    ///
    /// # Errors
    /// The error of opening or reading one.
    ///
    /// # Panics
    /// If one has unexpected contents, or a finished one does not exist.
    pub fn check_checkpoints(&self, fs: &SimFs) -> Result<()> {
        for (dir, map, finished) in &self.checkpoints {
            let (mut options, _, _) = self.setup.options(fs, None);
            options.create_if_missing = false;
            match Db::open(dir, options) {
                Ok(copy) => {
                    assert!(
                        read_all(&copy)? == *map,
                        "checkpoint {} differs",
                        dir.display()
                    );
                    copy.verify()?;
                }
                // Nothing of it exists, or only tables without a CURRENT.
                Err(error)
                    if !finished
                        && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn batch(changes: &[Change]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
    }
    batch
}

/// Files in `dir` that nothing names, and missing files. A file that lost part of its header in a
/// power cut cannot be distinguished from a foreign file, so it may stay.
///
/// # Errors
/// The error of listing.
pub fn orphans(db: &Db, fs: &SimFs, dir: &Path) -> Result<Vec<String>> {
    const HEADER_BYTES: usize = 64;
    let is_whole = |name: &String| {
        let bytes = fs.read_file(&dir.join(name)).unwrap_or_default();
        // Both headers end with a checksum. A power cut may leave any part of one.
        let has_header = |magic: &[u8]| {
            let header = bytes.get(..HEADER_BYTES).unwrap_or_default();
            header.starts_with(magic)
                && get_u32(header, HEADER_BYTES - 4) == Some(crc32c(&header[..HEADER_BYTES - 4]))
        };
        let is_numbered =
            |suffix: &str| name.ends_with(suffix) && name.starts_with(|c: char| c.is_ascii_digit());
        match name.as_str() {
            // Receives the logs that follow a log lost in a power cut, for a person to inspect.
            "lost" => false,
            _ if is_numbered(".sst") => bytes.is_empty() || has_header(b"FIRNTBL"),
            _ if is_numbered(".log") => bytes.is_empty() || has_header(b"FIRNLOG"),
            // The start of a manifest is identified by its checksum alone. CURRENT names one that
            // is whole.
            name if name.starts_with("MANIFEST-") => fs
                .read_file(&dir.join("CURRENT"))
                .is_ok_and(|current| current.starts_with(name.as_bytes())),
            _ => true,
        }
    };
    let names: Vec<String> = fs.list(dir)?.into_iter().filter(is_whole).collect();
    let stats = db.stats();
    let count = |suffix: &str| names.iter().filter(|name| name.ends_with(suffix)).count();
    let all_logs = fs
        .list(dir)?
        .iter()
        .filter(|name| name.ends_with(".log"))
        .count();
    let lists: usize = stats.design.tlsm.iter().flat_map(|tlsm| &tlsm.lists).sum();
    let sorted = stats.design.blade.as_ref();
    let sorted = sorted.map_or(0, |blade| blade.unsorted_tables + blade.sorted_tables);
    let tables = stats.levels.iter().map(|level| level.tables).sum::<usize>() - lists - sorted;
    let mut wrong = Vec::new();
    if count(".sst") != tables {
        wrong.push(format!("{} table files for {tables} tables", count(".sst")));
    }
    // A log that lost its first bytes may be needed, as an empty one.
    if count(".log") > stats.logs || all_logs < stats.logs {
        wrong.push(format!(
            "{} log files for {} logs",
            count(".log"),
            stats.logs
        ));
    }
    let manifests = names
        .iter()
        .filter(|name| name.starts_with("MANIFEST-"))
        .count();
    if manifests != 1 {
        wrong.push(format!("{manifests} manifests"));
    }
    let known = |name: &str| {
        [".sst", ".log"].iter().any(|suffix| name.ends_with(suffix))
            || name.starts_with("MANIFEST-")
            || ["CURRENT", "LOCK", "OPTIONS"].contains(&name)
    };
    wrong.extend(names.iter().filter(|name| !known(name)).cloned());
    if !wrong.is_empty() {
        wrong.push(names.join(" "));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 736228315681 of `joint` left a table with the first part of its header. Only a log with
    /// a torn header was allowed for.
    #[test]
    fn a_torn_header_may_stay_and_a_whole_one_may_not() {
        let setup = Setup::small();
        let machine = Machine::new(&setup, 1);
        let mut session = Session::open(&setup, &machine, History::default()).unwrap();
        let mut random = Seed::new(1);
        session.run(300, &mut random).unwrap();
        session.settle().unwrap();
        let (fs, dir) = (&machine.fs, Session::dir());
        for suffix in [".sst", ".log"] {
            let names = fs.list(dir).unwrap();
            let name = names.iter().find(|name| name.ends_with(suffix)).unwrap();
            let whole = fs.read_file(&dir.join(name)).unwrap();
            let path = dir.join(format!("000900{suffix}"));
            for torn_at in 0..=64 {
                let mut torn = whole.clone();
                torn[torn_at..64].fill(0);
                fs.write_file(&path, &torn);
                let found = orphans(session.db(), fs, dir).unwrap();
                assert_eq!(found.is_empty(), torn != whole, "{suffix} {torn_at}");
                fs.remove(&path).unwrap();
            }
        }
    }
}

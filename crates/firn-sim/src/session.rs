//! An open database on a simulated file system, with the reference beside it: random operations, each compared.

use crate::contents::{Cursor, check_cursor, read_all};
use crate::model::{Change, History, Map};
use crate::setup::{Pool, Setup};
use firn_base::clock::Clock;
use firn_base::exec::Inline;
use firn_base::seed::Seed;
use firn_fs::{Fs, SimFs};
use firndb::{Db, Durability, ErrorKind, ReadOptions, Result, Snapshot, WriteBatch, WriteOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A database that is open, what it must hold, and what was taken of it.
pub struct Session {
    /// The setup.
    pub setup: Setup,
    /// The file system.
    pub fs: SimFs,
    /// The pool's file.
    pub pool: Option<PathBuf>,
    /// The reference.
    pub history: History,
    db: Option<Db>,
    /// Its executor.
    pub inline: Arc<Inline>,
    /// Its clock.
    pub clock: Clock,
    /// Checkpoints that were begun: where, what they must hold, and whether they were finished.
    pub checkpoints: Vec<(PathBuf, Map, bool)>,
    snapshots: Vec<(Snapshot, Map)>,
    cursors: Vec<Cursor>,
    kept: Option<Pool>,
}

impl Session {
    /// The directory that databases of sessions lie in.
    pub fn dir() -> &'static Path {
        Path::new("/db")
    }

    /// Opens the database, creating it if it is not there.
    ///
    /// # Errors
    /// What opening met.
    pub fn open(setup: &Setup, fs: &SimFs, pool: Option<PathBuf>, history: History) -> Result<Session> {
        let (options, inline, clock) = setup.options(fs, pool.as_deref());
        let db = Some(Db::open(Self::dir(), options)?);
        let (setup, fs) = (setup.clone(), fs.clone());
        let (checkpoints, snapshots, cursors) = (Vec::new(), Vec::new(), Vec::new());
        let kept = None;
        Ok(Session { setup, fs, pool, history, db, inline, clock, checkpoints, snapshots, cursors, kept })
    }

    /// The database.
    ///
    /// # Panics
    /// After a reopen that failed.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("a session is open until a reopen fails")
    }

    /// Keeps the pool's files as long as the session.
    pub fn keep(&mut self, pool: Option<Pool>) {
        self.kept = pool;
    }

    /// Writes a batch and notes what became of it.
    ///
    /// # Errors
    /// What writing met.
    pub fn write(&mut self, changes: Vec<Change>, durability: Durability) -> Result<()> {
        let options = WriteOptions { durability };
        self.history.issue(changes.clone());
        let written = match &changes[..] {
            [(key, Some(value))] => self.db().put_with(key, value, &options),
            [(key, None)] => self.db().delete_with(key, &options),
            _ => {
                let mut batch = WriteBatch::new();
                for (key, value) in &changes {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.delete(key),
                    };
                }
                self.db().write(batch, &options)
            }
        };
        written.inspect(|()| self.history.acknowledge(durability))
    }

    /// Runs random operations until `count` were made or one failed.
    ///
    /// # Errors
    /// What that one met.
    pub fn run(&mut self, count: u64, random: &mut Seed) -> Result<()> {
        for _ in 0..count {
            self.step(random)?;
        }
        Ok(())
    }

    /// One random operation.
    ///
    /// # Errors
    /// What it met.
    ///
    /// # Panics
    /// If the database shows other than it must.
    pub fn step(&mut self, random: &mut Seed) -> Result<()> {
        let setup = self.setup.clone();
        let key = |random: &mut Seed| setup.key(random);
        match random.below(100) {
            0..42 => {
                let change = (key(random), Some(setup.value(random)));
                self.write(vec![change], setup.durability(random))
            }
            42..50 => self.write(vec![(key(random), None)], setup.durability(random)),
            50..58 => {
                let change = |random: &mut Seed| (key(random), (!random.one_in(3)).then(|| setup.value(random)));
                let changes = (0..2 + random.below(12)).map(|_| change(random)).collect();
                self.write(changes, setup.durability(random))
            }
            58..68 => self.check_get(&key(random)),
            68..72 => self.check_scan(random),
            72..76 => self.use_cursor(random),
            76..79 => self.use_snapshot(random),
            79..81 => self.db().flush().inspect(|()| self.history.synced()),
            81..83 => self.db().sync().inspect(|()| self.history.synced()),
            83 => self.db().compact_range(None, None).inspect(|()| self.history.synced()),
            84 => {
                let (from, to) = (key(random), key(random));
                self.db().compact_range(Some(&from), Some(&to)).inspect(|()| self.history.synced())
            }
            85 if random.one_in(3) => self.checkpoint(random.next_u64()),
            86 if random.one_in(2) => self.read_only(),
            87 if random.one_in(2) => self.reopen(random.one_in(2)),
            88 => {
                self.clock.advance(Duration::from_millis(random.below(3000)));
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

    fn check_get(&self, key: &[u8]) -> Result<()> {
        let got = self.db().get(key)?;
        assert!(got.as_deref() == self.history.now().get(key).map(Vec::as_slice), "get of {}", key.escape_ascii());
        Ok(())
    }

    fn cursor(&self, random: &mut Seed) -> Result<Cursor> {
        let key = |random: &mut Seed| self.setup.key(random);
        let now = self.history.now();
        match random.below(4) {
            0 => Ok(Cursor::new(self.db().iter()?, now, None, None)),
            1 => {
                let prefix = key(random)[..3].to_vec();
                let mut end = prefix.clone();
                end[2] += 1;
                Ok(Cursor::new(self.db().prefix(&prefix)?, now, Some(&prefix), Some(&end)))
            }
            2 if !self.snapshots.is_empty() => {
                let (snapshot, map) = &self.snapshots[random.below(self.snapshots.len() as u64) as usize];
                Ok(Cursor::new(snapshot.iter()?, map, None, None))
            }
            _ => {
                let lower = (!random.one_in(4)).then(|| key(random));
                let upper = (!random.one_in(4)).then(|| key(random));
                let options = ReadOptions { lower: lower.clone(), upper: upper.clone(), snapshot: None };
                Ok(Cursor::new(self.db().iter_with(options)?, now, lower.as_deref(), upper.as_deref()))
            }
        }
    }

    fn check_scan(&self, random: &mut Seed) -> Result<()> {
        let mut cursor = self.cursor(random)?;
        check_cursor(&mut cursor, 1 + random.below(30), random, |random| self.setup.key(random))
    }

    fn use_cursor(&mut self, random: &mut Seed) -> Result<()> {
        if self.cursors.len() < 3 {
            let cursor = self.cursor(random)?;
            self.cursors.push(cursor);
        }
        let at = random.below(self.cursors.len() as u64) as usize;
        let setup = &self.setup;
        check_cursor(&mut self.cursors[at], 1 + random.below(8), random, |random| setup.key(random))?;
        if random.one_in(4) {
            self.cursors.swap_remove(at);
        }
        Ok(())
    }

    fn use_snapshot(&mut self, random: &mut Seed) -> Result<()> {
        if self.snapshots.len() < 3 || random.one_in(3) {
            self.snapshots.push((self.db().snapshot(), self.history.now().clone()));
            return Ok(());
        }
        let at = random.below(self.snapshots.len() as u64) as usize;
        let (snapshot, map) = self.snapshots.swap_remove(at);
        for _ in 0..5 {
            let key = self.setup.key(random);
            let got = snapshot.get(&key)?;
            assert!(got.as_deref() == map.get(&key).map(Vec::as_slice), "get of {} at a snapshot", key.escape_ascii());
        }
        let mut got = Map::new();
        for entry in snapshot.iter()?.entries() {
            let (key, value) = entry?;
            got.insert(key, value.to_vec());
        }
        assert!(got == map, "a scan at a snapshot gives {} entries, not {}", got.len(), map.len());
        Ok(())
    }

    fn checkpoint(&mut self, number: u64) -> Result<()> {
        let dir = PathBuf::from(format!("/copy{number:x}"));
        self.checkpoints.push((dir.clone(), self.history.now().clone(), false));
        self.db().checkpoint(&dir)?;
        if let Some(last) = self.checkpoints.last_mut() {
            last.2 = true;
        }
        Ok(())
    }

    fn read_only(&self) -> Result<()> {
        let (options, _, _) = self.setup.options(&self.fs, self.pool.as_deref());
        let reader = Db::open_read_only(Self::dir(), options)?;
        let got = read_all(&reader)?;
        assert!(got == *self.history.now(), "a read-only open shows {} entries", got.len());
        assert!(reader.put(b"k", b"v").is_err(), "a read-only handle writes");
        Ok(())
    }

    /// Closes the database, or just lets go of it, and opens it again.
    ///
    /// # Errors
    /// What either met.
    pub fn reopen(&mut self, close: bool) -> Result<()> {
        self.release();
        let (options, inline, clock) = self.setup.options(&self.fs, self.pool.as_deref());
        // The handle must be given up before the next can have the lock.
        let db = self.db.take().expect("a session is open until a reopen fails");
        if close {
            db.close()?;
            self.history.synced();
        } else {
            drop(db);
        }
        self.db = Some(Db::open(Self::dir(), options)?);
        (self.inline, self.clock) = (inline, clock);
        self.history.synced();
        Ok(())
    }

    /// Lets go of snapshots and cursors.
    pub fn release(&mut self) {
        self.snapshots.clear();
        self.cursors.clear();
    }

    /// Compares everything, lets background work come to its end, verifies, and looks for orphans: I3, I5, I6, I7.
    ///
    /// # Errors
    /// What any of it met.
    ///
    /// # Panics
    /// If something is not as it must be.
    pub fn settle(&mut self) -> Result<()> {
        self.come_to_rest()?;
        let orphans = orphans(self.db(), &self.fs, Self::dir())?;
        assert!(orphans.is_empty(), "I5: {orphans:?}");
        Ok(())
    }

    /// [`Session::settle`] without a look for orphans: after a fault there may be some until the next open.
    ///
    /// # Errors
    /// What any of it met.
    ///
    /// # Panics
    /// If something is not as it must be.
    pub fn come_to_rest(&mut self) -> Result<()> {
        assert!(read_all(self.db())? == *self.history.now(), "contents differ from the reference");
        self.release();
        self.db().wait_idle()?;
        self.inline.run();
        assert!(read_all(self.db())? == *self.history.now(), "contents differ from the reference after compaction");
        self.db().verify()?;
        Ok(())
    }

    /// Opens the checkpoints that lie on `fs` and compares them.
    ///
    /// # Errors
    /// What opening or reading one met.
    ///
    /// # Panics
    /// If one holds other than it must, or one that was finished is not there.
    pub fn check_checkpoints(&self, fs: &SimFs) -> Result<()> {
        for (dir, map, finished) in &self.checkpoints {
            let (mut options, _, _) = self.setup.options(fs, None);
            options.create_if_missing = false;
            match Db::open(dir, options) {
                Ok(copy) => {
                    assert!(read_all(&copy)? == *map, "checkpoint {} differs", dir.display());
                    copy.verify()?;
                }
                Err(error) if !finished && error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Files in `dir` that nothing names, or one that is missing.
///
/// # Errors
/// What listing met.
pub fn orphans(db: &Db, fs: &SimFs, dir: &Path) -> Result<Vec<String>> {
    let names = fs.list(dir)?;
    let stats = db.stats();
    let count = |suffix: &str| names.iter().filter(|name| name.ends_with(suffix)).count();
    let tables: usize = stats.levels.iter().map(|level| level.tables).sum();
    let mut wrong = Vec::new();
    if count(".sst") != tables {
        wrong.push(format!("{} table files for {tables} tables", count(".sst")));
    }
    if count(".log") != stats.logs {
        wrong.push(format!("{} log files for {} logs", count(".log"), stats.logs));
    }
    let manifests = names.iter().filter(|name| name.starts_with("MANIFEST-")).count();
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

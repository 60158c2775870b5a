//! A database whose pool a test moves away, exchanges or damages.

use super::Model;
use firndb::{Db, ErrorKind, Options, RepairReport, Stats, repair};
use std::path::{Path, PathBuf};

/// A database with a pool beside it, and its expected contents.
pub(crate) struct Case {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) model: Model,
    /// The options, with the pool at a path.
    options: fn(&Path) -> Options,
}

impl Case {
    /// An empty place for a database with `options`.
    pub(crate) fn empty(options: fn(&Path) -> Options) -> Case {
        Case {
            dir: tempfile::tempdir().unwrap(),
            model: Model::new(),
            options,
        }
    }

    /// A database with `options` and `keys` keys, some of which are written again: in a table of a
    /// lower level, and in one of level 0. With its statistics.
    pub(crate) fn in_two_tables(options: fn(&Path) -> Options, keys: u32) -> (Case, Stats) {
        let mut case = Case::empty(options);
        let db = case.open().unwrap();
        let mut put = |number: u32, round: u8| {
            let (key, value) = (format!("key{number:05}"), vec![round; 20]);
            db.put(&key, &value).unwrap();
            case.model.insert(key.into_bytes(), value);
        };
        (0..keys).for_each(|number| put(number, 1));
        db.flush().unwrap();
        db.compact().unwrap();
        (0..50).for_each(|number| put(number * 20, 2));
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let stats = db.stats();
        db.close().unwrap();
        (case, stats)
    }

    /// A copy of database and pool, because each open writes to both.
    pub(crate) fn copy(&self) -> Case {
        let copy = Case::empty(self.options);
        std::fs::create_dir(copy.db()).unwrap();
        for entry in std::fs::read_dir(self.db()).unwrap() {
            let from = entry.unwrap().path();
            if from.is_file() {
                std::fs::copy(&from, copy.db().join(from.file_name().unwrap())).unwrap();
            }
        }
        std::fs::copy(self.pool(), copy.pool()).unwrap();
        let model = self.model.clone();
        Case { model, ..copy }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    pub(crate) fn options(&self) -> Options {
        (self.options)(&self.pool())
    }

    pub(crate) fn open(&self) -> firndb::Result<Db> {
        Db::open(self.db(), self.options())
    }

    /// The kind of the error of an open, whose message must contain `says`.
    pub(crate) fn refused(&self, says: &str) -> ErrorKind {
        let error = self.open().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        error.kind()
    }

    /// The error of an open and a verification; `None` if nothing is wrong.
    pub(crate) fn damage(&self) -> Option<firndb::Error> {
        self.open().and_then(|db| db.verify().map(drop)).err()
    }

    pub(crate) fn repair(&self) -> RepairReport {
        repair(self.db(), &self.options()).unwrap()
    }

    /// The contents of the database, which must be sound.
    pub(crate) fn contents(&self) -> Model {
        let db = self.open().unwrap();
        db.verify().unwrap();
        let all = db.iter().map(|entry| entry.unwrap());
        all.map(|(key, value)| (key, value.to_vec())).collect()
    }

    /// The bytes of the pool.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.pool()).unwrap()
    }

    /// Writes `bytes` into the pool at `at`.
    pub(crate) fn patch(&self, at: usize, bytes: &[u8]) {
        let mut pool = self.bytes();
        pool[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(self.pool(), pool).unwrap();
    }

    /// Checks that a missing pool is an error, and that nothing is made in its place. The pool is
    /// gone after it.
    pub(crate) fn lose_pool(&self) {
        let aside = self.dir.path().join("aside");
        std::fs::rename(self.pool(), &aside).unwrap();
        assert_eq!(self.refused("pool"), ErrorKind::Corruption);
        assert!(!self.pool().exists(), "nothing was made in its place");
        let error = Db::open(self.db(), self.options().pm(None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        std::fs::rename(&aside, self.pool()).unwrap();
        assert!(self.contents() == self.model);
        std::fs::remove_file(self.pool()).unwrap();
    }

    /// Checks that the pool of `other` is refused and left as it is.
    pub(crate) fn refuse_pool_of(&self, other: &Case) {
        let (mine, others) = (self.bytes(), other.bytes());
        std::fs::write(self.pool(), &others).unwrap();
        let kind = self.refused("belongs to the database");
        assert_eq!(kind, ErrorKind::Incompatible);
        assert!(self.bytes() == others, "it was written to");
        std::fs::write(self.pool(), mine).unwrap();
        assert!(self.contents() == self.model);
    }

    /// Checks that the pool as it was before `work` is refused, and that the one after it has what
    /// was written.
    pub(crate) fn refuse_earlier_pool(&self, work: impl FnOnce(&Db)) {
        let earlier = self.bytes();
        let db = self.open().unwrap();
        db.put(b"later", b"value").unwrap();
        work(&db);
        db.close().unwrap();
        let now = self.bytes();
        std::fs::write(self.pool(), earlier).unwrap();
        assert_eq!(self.refused("pool"), ErrorKind::Corruption);
        std::fs::write(self.pool(), now).unwrap();
        let db = self.open().unwrap();
        assert_eq!(db.get(b"later").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

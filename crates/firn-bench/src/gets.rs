//! A file of the gets of a run, for `examples/cache_lab`: in each line the hash of a key in
//! hexadecimal digits, and the bytes of key and value, in the order in which the gets returned.

use crate::counters::Counters;
use crate::store::{Change, OpeningStep, Store};
use firn_base::sync::Mutex;
use firn_base::{Error, Result};
use firndb::Durability;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file, while gets are added.
#[derive(Clone)]
pub(crate) struct GetsFile {
    path: PathBuf,
    out: Arc<Mutex<BufWriter<File>>>,
}

impl GetsFile {
    /// A new file at `path`.
    ///
    /// # Errors
    /// If it cannot be created, or is there already.
    pub(crate) fn create(path: &Path) -> Result<GetsFile> {
        let file = File::create_new(path).map_err(|e| Error::from_io("create", path, e))?;
        Ok(GetsFile {
            path: path.to_owned(),
            out: Arc::new(Mutex::new(BufWriter::new(file))),
        })
    }

    /// `store`, with its gets added to the file.
    pub(crate) fn recording(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let gets = self.clone();
        Arc::new(Recording { store, gets })
    }

    fn add(&self, key: &[u8], value_len: usize) -> Result<()> {
        let mut hash = DefaultHasher::new();
        hash.write(key);
        let bytes = key.len() + value_len;
        let written = writeln!(self.out.lock(), "{:x} {bytes}", hash.finish());
        written.map_err(|e| Error::from_io("write", &self.path, e))
    }

    /// Writes what was added so far.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn flush(&self) -> Result<()> {
        let flushed = self.out.lock().flush();
        flushed.map_err(|e| Error::from_io("write", &self.path, e))
    }
}

struct Recording {
    store: Arc<dyn Store>,
    gets: GetsFile,
}

impl Store for Recording {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.store.put(key, value, durability)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut value_len = 0;
        let found = self.store.get(key, &mut |value| {
            value_len = value.len();
            see(value);
        })?;
        self.gets.add(key, value_len)?;
        Ok(found)
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.store.scan(from, count, see)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.store.delete(key, durability)
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        self.store.write(batch, durability)
    }

    fn settle(&self) -> Result<()> {
        self.store.settle()
    }

    fn compact(&self) -> Result<()> {
        self.store.compact()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    fn counters(&self) -> Counters {
        self.store.counters()
    }

    fn opening_steps(&self) -> Vec<OpeningStep> {
        self.store.opening_steps()
    }
}

//! A correct store.

use firn_base::Result;
use firn_bench::{Change, Counters, Store};
use firndb::Durability;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A map with a lock.
#[derive(Default)]
pub(crate) struct Map(Mutex<Entries>);

impl Map {
    pub(crate) fn new(entries: Entries) -> Self {
        Self(Mutex::new(entries))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("a lock")
    }
}

impl Store for Map {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.write(&[Change::Put { key, value }], durability)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.write(&[Change::Delete { key }], durability)
    }

    fn write(&self, batch: &[Change<'_>], _durability: Durability) -> Result<()> {
        let mut entries = self.lock();
        for change in batch {
            match *change {
                Change::Put { key, value } => drop(entries.insert(key.to_vec(), value.to_vec())),
                Change::Delete { key } => drop(entries.remove(key)),
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let entries = self.lock();
        let value = entries.get(key);
        value.into_iter().for_each(|value| see(value));
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let entries = self.lock();
        let found = entries.range(from.to_vec()..).take(count);
        found.for_each(|(key, value)| see(key, value));
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "a map".to_owned()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

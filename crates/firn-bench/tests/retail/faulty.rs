//! Stores with one fault each.

use crate::map::Entries;
use firn_base::Result;
use firn_bench::{Change, Counters, Store};
use firndb::Durability;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A get does not find a row.
    DropsRow,
    /// A get finds the version of a row before the last.
    OldRow,
    /// A get finds a row with a flipped bit.
    FlipsBit,
    /// A scan of an index finds an entry that was removed.
    StaleEntry,
    /// A scan of an index misses its first entry.
    DropsEntry,
    /// A scan of the lines of an order misses one.
    DropsLine,
    /// A scan of an index misses its second entry.
    SkipsEntry,
    /// Every scan of an index from the tenth on finds half of the entries.
    EndsScan,
    /// A put of a batch is acknowledged and forgotten.
    LosesPut(Part),
    /// A delete of a batch is acknowledged and forgotten.
    LosesDelete(Part),
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Load,
    Transactions,
}

/// A store with one fault, which strikes at the tenth call that could have it, and a record of the
/// operations by thread.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    fault: Fault,
    /// Calls that could have the fault.
    calls: AtomicU64,
    /// Times at which the store came to rest: once after the load.
    rests: AtomicU64,
    /// The version of each row before the last.
    old: Mutex<Entries>,
    /// Index entries that were removed.
    removed: Mutex<Entries>,
    /// A digest of each call, by thread.
    pub(crate) calls_of: Mutex<BTreeMap<String, Vec<u32>>>,
}

/// True if `key` is of an index: `table|index|value|pk`.
pub(crate) fn is_of_index(key: &[u8]) -> bool {
    key.iter().filter(|byte| **byte == b'|').count() == 3
}

/// The part of an index entry's key before the pk.
pub(crate) fn value_of(key: &[u8]) -> &[u8] {
    let end = key.iter().rposition(|byte| *byte == b'|');
    &key[..end.unwrap_or(0)]
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Store>, fault: Fault) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fault,
            calls: AtomicU64::new(0),
            rests: AtomicU64::new(0),
            old: Mutex::default(),
            removed: Mutex::default(),
            calls_of: Mutex::default(),
        })
    }

    /// True at the tenth call that could have `fault`.
    fn strikes(&self, fault: Fault) -> bool {
        self.fault == fault && self.calls.fetch_add(1, Ordering::Relaxed) == 9
    }

    /// True if this change is acknowledged and forgotten.
    fn loses(&self, change: &Change<'_>) -> bool {
        let part = match self.rests.load(Ordering::Relaxed) {
            0 => Part::Load,
            _ => Part::Transactions,
        };
        match change {
            // No later batch puts an event again, which would undo the fault.
            Change::Put { key, .. } => {
                key.starts_with(b"events|") && self.strikes(Fault::LosesPut(part))
            }
            Change::Delete { .. } => self.strikes(Fault::LosesDelete(part)),
        }
    }

    /// Applies the fault to `found`, the answer to a scan of an index from `from` on.
    fn damage(&self, from: &[u8], found: &mut Entries, count: usize) {
        let removed = self.removed.lock().expect("a lock");
        let stale = removed.range(from.to_vec()..);
        let stale = stale.map(|(key, value)| (key.clone(), value.clone()));
        let second = found.keys().nth(1).cloned();
        let is_same_value = |key: &Vec<u8>| value_of(key) == value_of(from);
        match self.fault {
            Fault::StaleEntry => {
                let mut stale = stale.filter(|(key, _)| !found.contains_key(key));
                if let Some((key, value)) = stale.next()
                    && is_same_value(&key)
                    && self.strikes(Fault::StaleEntry)
                {
                    found.insert(key, value);
                }
            }
            Fault::SkipsEntry => {
                if let Some(second) = second.filter(is_same_value)
                    && count > 1
                    && self.strikes(Fault::SkipsEntry)
                {
                    found.remove(&second);
                }
            }
            Fault::EndsScan if self.calls.fetch_add(1, Ordering::Relaxed) >= 9 => {
                while found.len() > count / 2 {
                    found.pop_last();
                }
            }
            _ => {}
        }
    }

    /// Records a call of a client; those of the sweep are others.
    fn record(&self, call: &str, parts: &[&[u8]]) {
        let thread = std::thread::current().name().unwrap_or("").to_owned();
        if !thread.starts_with("bench-") {
            return;
        }
        let digest = firn_base::checksum::crc32c_salted(0, call.len() as u64, parts);
        let mut calls_of = self.calls_of.lock().expect("a lock");
        calls_of.entry(thread).or_default().push(digest);
    }
}

impl Store for Faulty {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.inner.put(key, value, durability)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.inner.delete(key, durability)
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        for change in batch {
            match *change {
                Change::Put { key, value } => {
                    self.record("put", &[key, value]);
                    let mut old = self.old.lock().expect("a lock");
                    self.inner.get(key, &mut |before| {
                        old.insert(key.to_vec(), before.to_vec());
                    })?;
                }
                Change::Delete { key } => {
                    self.record("delete", &[key]);
                    let mut removed = self.removed.lock().expect("a lock");
                    self.inner.get(key, &mut |value| {
                        removed.insert(key.to_vec(), value.to_vec());
                    })?;
                }
            }
        }
        let mut kept = batch.to_vec();
        kept.retain(|change| !self.loses(change));
        self.inner.write(&kept, durability)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut value, old) = (
            Vec::new(),
            self.old.lock().expect("a lock").get(key).cloned(),
        );
        let found = self.inner.get(key, &mut |found| value = found.to_vec())?;
        match old {
            _ if !found || self.strikes(Fault::DropsRow) => return Ok(false),
            Some(old) if self.strikes(Fault::OldRow) => value = old,
            _ if self.strikes(Fault::FlipsBit) => *value.last_mut().expect("a row") ^= 1,
            _ => {}
        }
        see(&value);
        Ok(true)
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.record("scan", &[from, &count.to_le_bytes()]);
        let (mut found, more) = (Entries::new(), count.saturating_add(1));
        self.inner.scan(from, more, &mut |key, value| {
            found.insert(key.to_vec(), value.to_vec());
        })?;
        if is_of_index(from) {
            self.damage(from, &mut found, count);
        }
        let first = found.first_key_value().map(|(key, _)| key.clone());
        let fault = match is_of_index(from) {
            true => Fault::DropsEntry,
            false => Fault::DropsLine,
        };
        // The row that a scan of an index is about may be a later one, unless it begins there.
        if let Some(first) = first.filter(|key| key == from)
            && self.strikes(fault)
        {
            found.remove(&first);
        }
        found
            .iter()
            .take(count)
            .for_each(|(key, value)| see(key, value));
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.rests.fetch_add(1, Ordering::Relaxed);
        self.inner.settle()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

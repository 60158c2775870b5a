//! The bytes of one file, and the states in which a power cut may leave them. This is the fault
//! model for data:
//!
//! 1. Bytes that were synced, and not written since, survive unchanged.
//! 2. The length after a crash is any value between the synced and the written one.
//! 3. A sector (512 bytes) that held synced bytes and was written since is old or new, where new is
//!    any version it had since the sync; never garbage, never a mixture. This is the one guarantee
//!    required of the device.
//! 4. A sector that held no synced byte is zero, any version it had, or garbage.
//! 5. Unsynced pages (4 KiB) are kept or dropped, in any combination; a page may also be torn
//!    sector by sector.
//! 6. A truncation survives or not: synced bytes beyond the cut may reappear, under the bytes
//!    written there since.
//! 7. After a failed sync no page is dirty. Each page was written; or was not, and is still seen
//!    until the crash; or was not, and its old bytes are seen again. A later successful sync does
//!    not bring back what was lost.

use super::crash::Keep;
use firn_base::seed::Seed;
use std::collections::BTreeMap;
use std::ops::Range;

/// The unit that a device writes atomically, in bytes.
pub const SECTOR: usize = 512;
const SECTORS_PER_PAGE: usize = 8;
/// Versions kept per dirty sector, besides the synced and the newest.
const VERSIONS_MAX: usize = 6;

type Sector = [u8; SECTOR];

#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// The bytes that a read sees.
    bytes: Vec<u8>,
    /// The bytes, and by their number the length, that survive in any case.
    durable: Vec<u8>,
    /// Sectors written since the last sync, with their versions before the newest.
    dirty: BTreeMap<usize, Vec<Sector>>,
    /// The shortest length to which the file was truncated since the last sync, if it was.
    cut: Option<usize>,
    /// Open handles. An inode without a name lives as long as it has one.
    pub(super) handles: usize,
}

impl Inode {
    /// A file whose bytes are all durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            durable: bytes.clone(),
            bytes,
            ..Self::default()
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            let now = load(&self.bytes, sector);
            match self.dirty.get_mut(&sector) {
                None => drop(self.dirty.insert(sector, Vec::new())),
                Some(versions) if versions.len() < VERSIONS_MAX => versions.push(now),
                Some(versions) => versions[sector % VERSIONS_MAX] = now,
            }
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        if len >= self.bytes.len() {
            return;
        }
        self.bytes.truncate(len);
        self.dirty.split_off(&len.div_ceil(SECTOR));
        self.cut = Some(self.cut.map_or(len, |cut| cut.min(len)));
    }

    /// The durable bytes, truncated if the truncation `holds`.
    fn cut_durable(&self, holds: bool) -> Vec<u8> {
        let len = self.cut.filter(|_| holds).unwrap_or(usize::MAX);
        self.durable[..len.min(self.durable.len())].to_vec()
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.cut_durable(true);
        self.cut = None;
        self.durable.resize(self.bytes.len(), 0);
        for (sector, _) in std::mem::take(&mut self.dirty) {
            store(&mut self.durable, sector, &load(&self.bytes, sector));
        }
    }

    /// Applies rule 7.
    pub(super) fn fail_sync(&mut self, seed: &mut Seed) {
        if self.cut.is_some() && seed.one_in(2) {
            self.durable = self.cut_durable(true);
            self.cut = None;
        }
        let synced = self.durable.clone();
        if seed.one_in(2) && self.durable.len() < self.bytes.len() {
            self.durable.resize(self.bytes.len(), 0);
        }
        for (_, sectors) in pages(&std::mem::take(&mut self.dirty)) {
            let fate = seed.below(3);
            for (sector, _) in sectors {
                match fate {
                    0 => store(&mut self.durable, sector, &load(&self.bytes, sector)),
                    1 => {}
                    _ => store(&mut self.bytes, sector, &load(&synced, sector)),
                }
            }
        }
    }

    /// A state that a power cut may leave, by rules 1 to 6.
    pub(super) fn survivor(&self, keep: Keep, seed: &mut Seed) -> Inode {
        let keep = match (keep, seed.below(6)) {
            (Keep::Some, 0) => Keep::All,
            (Keep::Some, 1) => Keep::Nothing,
            (keep, _) => keep,
        };
        match keep {
            Keep::All => Inode::durable(self.bytes.clone()),
            Keep::Nothing => Inode::durable(self.durable.clone()),
            Keep::Some => Inode::durable(self.mixture(seed)),
        }
    }

    fn mixture(&self, seed: &mut Seed) -> Vec<u8> {
        let holds = self.cut.is_some() && seed.one_in(2);
        let mut bytes = self.cut_durable(holds);
        let synced = bytes.len();
        let (low, high) = (synced.min(self.bytes.len()), synced.max(self.bytes.len()));
        bytes.resize(length_between(low, high, seed), 0);
        for (_, sectors) in pages(&self.dirty) {
            let fate = seed.below(4);
            for (sector, versions) in sectors {
                let newest = load(&self.bytes, sector);
                let survived = match fate {
                    0 => newest,
                    1 => continue,
                    _ => match torn(sector * SECTOR < synced, &versions, newest, seed) {
                        Some(survived) => survived,
                        None => continue,
                    },
                };
                store(&mut bytes, sector, &survived);
            }
        }
        bytes
    }
}

/// The contents of one sector of a torn page. `held_synced`: it may hold synced bytes. `None` for
/// its contents at the last sync.
fn torn(held_synced: bool, versions: &[Sector], newest: Sector, seed: &mut Seed) -> Option<Sector> {
    match seed.below(if held_synced { 3 } else { 4 }) {
        0 => None,
        1 => Some(newest),
        2 if versions.is_empty() => None,
        2 => Some(versions[seed.below(versions.len() as u64) as usize]),
        _ => {
            let mut garbage = [0; SECTOR];
            seed.fill(&mut garbage);
            Some(garbage)
        }
    }
}

/// A length between `low` and `high`. Each end is drawn in one of four cases.
fn length_between(low: usize, high: usize, seed: &mut Seed) -> usize {
    match seed.below(4) {
        0 => low,
        1 => high,
        _ => low + seed.below((high - low) as u64 + 1) as usize,
    }
}

fn pages(dirty: &BTreeMap<usize, Vec<Sector>>) -> BTreeMap<usize, Vec<(usize, Vec<Sector>)>> {
    let mut pages: BTreeMap<usize, Vec<(usize, Vec<Sector>)>> = BTreeMap::new();
    for (&sector, versions) in dirty {
        pages
            .entry(sector / SECTORS_PER_PAGE)
            .or_default()
            .push((sector, versions.clone()));
    }
    pages
}

/// The part of a sector within `len` bytes.
fn within(sector: usize, len: usize) -> Range<usize> {
    (sector * SECTOR).min(len)..((sector + 1) * SECTOR).min(len)
}

fn load(bytes: &[u8], sector: usize) -> Sector {
    let mut out = [0; SECTOR];
    let range = within(sector, bytes.len());
    out[..range.len()].copy_from_slice(&bytes[range]);
    out
}

fn store(bytes: &mut [u8], sector: usize, from: &Sector) {
    let range = within(sector, bytes.len());
    let len = range.len();
    bytes[range].copy_from_slice(&from[..len]);
}

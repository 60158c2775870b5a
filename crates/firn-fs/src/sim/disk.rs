//! The state of a [`SimFs`](super::SimFs): inodes, names, locks, faults, and the gate that every
//! operation passes.
//!
//! 1. An operation passes the gate ([`Disk::admit`]) before it does anything, and is recorded
//!    afterwards. Both happen under one lock, so no operation is half done at a crash.
//! 2. A dead disk admits nothing.

use super::fault::{Fault, FaultKind, OpKind};
use super::handle::InFlight;
use super::inode::Inode;
use super::names::{InodeId, Names};
use firn_base::checksum::crc32c;
use firn_base::seed::{Seed, mix};
use firn_base::{Error, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// One logged operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The kind of operation.
    pub kind: OpKind,
    /// The path it acts on; the old name of a rename or link.
    pub path: Arc<Path>,
    /// The offset in the file, for a read or write.
    pub offset: u64,
    /// The number of bytes, for a read or write.
    pub len: u64,
    /// True if it succeeded.
    pub ok: bool,
}

/// The decision of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Perform the operation.
    Pass,
    /// Fail with this fault.
    Fail(FaultKind),
    /// The process ends in the middle of this operation.
    Die,
}

/// A callback for the moment of death.
pub(super) struct AtDeath(pub(super) Box<dyn FnOnce() + Send>);

impl fmt::Debug for AtDeath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtDeath")
    }
}

#[derive(Debug)]
pub(super) struct Disk {
    pub(super) seed: Seed,
    pub(super) direct: bool,
    /// True if operations in flight complete when the seed says so.
    pub(super) defers: bool,
    /// The operations that were deferred, some of which have happened since.
    pub(super) in_flight: Vec<Weak<Mutex<InFlight>>>,
    /// Operations that blocked although their caller could have suspended.
    pub(super) blocked: Vec<(OpKind, PathBuf)>,
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    pub(super) next_inode: InodeId,
    pub(super) names: Names,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) faults: Vec<Fault>,
    pub(super) cap_bytes: Option<u64>,
    pub(super) crash_at: Option<u64>,
    pub(super) at_death: Option<AtDeath>,
    pub(super) dead: bool,
    pub(super) mutations: u64,
    pub(super) trace: u64,
    pub(super) log: Vec<Operation>,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: Seed::new(seed),
            direct: false,
            defers: false,
            in_flight: Vec::new(),
            blocked: Vec::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            names: Names::default(),
            locks: BTreeSet::new(),
            faults: Vec::new(),
            cap_bytes: None,
            crash_at: None,
            at_death: None,
            dead: false,
            mutations: 0,
            trace: 0,
            log: Vec::new(),
        }
    }

    pub(super) fn admit(&mut self, kind: OpKind, path: &Path) -> Result<Verdict> {
        if self.dead {
            return Err(crashed(path));
        }
        if kind.mutates() {
            self.mutations += 1;
            if self.crash_at.is_some_and(|at| self.mutations >= at) {
                return Ok(Verdict::Die);
            }
        }
        let mut verdict = Verdict::Pass;
        for fault in &mut self.faults {
            if let Some(kind) = fault.strikes(kind, path)
                && verdict == Verdict::Pass
            {
                verdict = Verdict::Fail(kind);
            }
        }
        Ok(verdict)
    }

    /// Passes the gate, for operations that are atomic. Returns false if the operation is only to
    /// be reported as done.
    pub(super) fn admit_whole(&mut self, kind: OpKind, path: &Path, verb: &str) -> Result<bool> {
        let error = match self.admit(kind, path)? {
            Verdict::Pass => return Ok(true),
            Verdict::Fail(FaultKind::LostSync) if kind == OpKind::SyncDir => return Ok(false),
            Verdict::Fail(fault) => Error::from_io(verb, path, fault.error()),
            Verdict::Die => self.die(path),
        };
        self.record(kind, path, 0, &[], false);
        Err(error)
    }

    /// Ends the process: every later operation fails.
    pub(super) fn die(&mut self, path: &Path) -> Error {
        self.halt();
        crashed(path)
    }

    pub(super) fn halt(&mut self) {
        self.dead = true;
        self.locks.clear();
        if let Some(AtDeath(body)) = self.at_death.take() {
            body();
        }
    }

    pub(super) fn record(
        &mut self,
        kind: OpKind,
        path: &Path,
        offset: u64,
        bytes: &[u8],
        ok: bool,
    ) {
        let len = bytes.len() as u64;
        let place = u64::from(crc32c(path.to_string_lossy().as_bytes()));
        let words = [
            kind as u64,
            place,
            offset,
            len,
            u64::from(crc32c(bytes)),
            u64::from(ok),
        ];
        self.trace = words
            .iter()
            .fold(self.trace, |hash, word| mix(hash ^ mix(*word)));
        self.log.push(Operation {
            kind,
            path: path.into(),
            offset,
            len,
            ok,
        });
    }

    /// The inode of an open handle. REQUIRES: the handle counts in [`Inode::handles`], so the inode
    /// exists.
    pub(super) fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.entry(id).or_default()
    }

    pub(super) fn find(&self, path: &Path, verb: &str) -> Result<InodeId> {
        let missing = || Error::from_io(verb, path, io::Error::from(io::ErrorKind::NotFound));
        self.names.seen.get(path).copied().ok_or_else(missing)
    }

    pub(super) fn add_inode(&mut self, inode: Inode) -> InodeId {
        let id = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(id, inode);
        id
    }

    /// Total bytes of files that have a name or an open handle.
    pub(super) fn used(&self) -> u64 {
        let named: BTreeSet<InodeId> = self.names.seen.values().copied().collect();
        let live = self
            .inodes
            .iter()
            .filter(|(id, inode)| inode.handles > 0 || named.contains(id));
        live.map(|(_, inode)| inode.bytes().len() as u64).sum()
    }

    /// The number of bytes that the quota admits of a write of `len` bytes at `offset`.
    pub(super) fn room(&self, id: InodeId, offset: usize, len: usize) -> usize {
        let Some(cap) = self.cap_bytes else {
            return len;
        };
        let had = self.inodes.get(&id).map_or(0, |inode| inode.bytes().len());
        let growth = (offset + len).saturating_sub(had) as u64;
        let lacking = growth.saturating_sub(cap.saturating_sub(self.used()));
        len.saturating_sub(lacking as usize)
    }

    /// Drops the inodes that are no longer reachable.
    pub(super) fn sweep(&mut self) {
        let reachable = self.names.reachable();
        self.inodes
            .retain(|id, inode| inode.handles > 0 || reachable.contains(id));
    }
}

fn crashed(path: &Path) -> Error {
    Error::from_io("reach", path, io::Error::other("simulated crash"))
}

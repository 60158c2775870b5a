//! An open file and a held lock of the simulated file system.

use super::disk::{Disk, Verdict};
use super::fault::{FaultKind, OpKind};
use super::inode::SECTOR;
use super::names::InodeId;
use crate::buf::IoBuf;
use crate::file::{Completion, File, Lock, Pending};
use firn_base::count::CompactionIo;
use firn_base::exec::may_suspend;
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;

const PAGE: usize = 4096;

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) path: PathBuf,
    pub(super) inode: InodeId,
    pub(super) alignment: usize,
    pub(super) writable: bool,
}

impl SimFile {
    fn error(&self, verb: &str, fault: FaultKind) -> Error {
        Error::from_io(verb, &self.path, fault.error())
    }

    /// Notes an operation that blocks although its caller may suspend.
    fn note_blocking(&self, kind: OpKind) {
        if may_suspend() {
            let operation = (kind, self.path.clone());
            self.disk.lock().blocked.push(operation);
        }
    }

    /// An operation in flight, which completes at once unless the file system defers it.
    fn submit(&self, op: Deferred) -> Pending {
        let mut disk = self.disk.lock();
        if !disk.defers {
            drop(disk);
            return Pending::done(op.perform(self));
        }
        disk.inode(self.inode).handles += 1;
        let file = SimFile {
            disk: self.disk.clone(),
            path: self.path.clone(),
            inode: self.inode,
            alignment: self.alignment,
            writable: self.writable,
        };
        let in_flight = Arc::new(Mutex::new(InFlight {
            file,
            op: Some(op),
            result: None,
            tracked: None,
            waker: None,
        }));
        disk.in_flight.push(Arc::downgrade(&in_flight));
        drop(disk);
        Pending::new(Handle(in_flight))
    }

    fn sync_bytes(&self) -> Result<()> {
        let mut disk = self.disk.lock();
        let result = match disk.admit(OpKind::Sync, &self.path)? {
            Verdict::Pass => {
                disk.inode(self.inode).sync();
                Ok(())
            }
            Verdict::Fail(FaultKind::LostSync) => Ok(()),
            Verdict::Fail(fault) => {
                let mut seed = disk.seed.clone();
                disk.inode(self.inode).fail_sync(&mut seed);
                disk.seed = seed;
                Err(self.error("sync", fault))
            }
            Verdict::Die => Err(disk.die(&self.path)),
        };
        disk.record(OpKind::Sync, &self.path, 0, &[], result.is_ok());
        result
    }

    fn read_into(&self, offset: u64, len: usize, into: &mut IoBuf) -> Result<()> {
        let bytes = self.read_bytes(offset, len)?;
        into.clear();
        into.push(&bytes);
        Ok(())
    }

    fn read_bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut disk = self.disk.lock();
        let verdict = disk.admit(OpKind::Read, &self.path)?;
        let mut from = offset as usize;
        if verdict == Verdict::Fail(FaultKind::MisplacedBlock) {
            from += PAGE;
        }
        let all = disk.inode(self.inode).bytes();
        let start = from.min(all.len());
        let mut bytes = all[start..start.saturating_add(len).min(all.len())].to_vec();
        let result = match verdict {
            Verdict::Pass | Verdict::Die => Ok(()),
            Verdict::Fail(FaultKind::MisplacedBlock) => {
                bytes.resize(all.len().saturating_sub(offset as usize).min(len), 0);
                Ok(())
            }
            Verdict::Fail(FaultKind::ShortRead) => {
                bytes.truncate(disk.seed.below(bytes.len() as u64 + 1) as usize);
                Ok(())
            }
            Verdict::Fail(FaultKind::FlippedBit) => {
                if !bytes.is_empty() {
                    let at = disk.seed.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << disk.seed.below(8);
                }
                Ok(())
            }
            Verdict::Fail(fault) => Err(self.error("read", fault)),
        };
        disk.record(OpKind::Read, &self.path, offset, &bytes, result.is_ok());
        result.map(|()| bytes)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(
            self.writable,
            "write to {}, which was opened for reading",
            self.path.display()
        );
        let unit = self.alignment;
        assert!(
            offset.is_multiple_of(unit as u64) && bytes.len().is_multiple_of(unit),
            "direct write of {} bytes at {offset} of {} is not aligned to {unit}",
            bytes.len(),
            self.path.display()
        );
        let mut disk = self.disk.lock();
        let verdict = disk.admit(OpKind::Write, &self.path)?;
        let (held, result) = match verdict {
            Verdict::Pass => match disk.room(self.inode, offset as usize, bytes.len()) {
                room if room < bytes.len() => (room, Err(self.error("write", FaultKind::Enospc))),
                _ => (bytes.len(), Ok(())),
            },
            Verdict::Fail(FaultKind::ShortWrite) => {
                // At least one byte is missing, because a write of all bytes would not report an
                // error.
                (
                    disk.seed.below(bytes.len().max(1) as u64) as usize,
                    Err(self.error("write", FaultKind::Eio)),
                )
            }
            Verdict::Fail(fault) => (0, Err(self.error("write", fault))),
            // A process that is killed during a write leaves its first part.
            Verdict::Die => (
                disk.seed.below(bytes.len() as u64 + 1) as usize,
                Err(disk.die(&self.path)),
            ),
        };
        // A kernel copies whole words, so an aligned word is written completely or not at all.
        let whole_words = ((offset as usize + held) & !7).saturating_sub(offset as usize);
        let held = if held < bytes.len() {
            whole_words - whole_words % unit
        } else {
            held - held % unit
        };
        disk.inode(self.inode)
            .write(offset as usize, &bytes[..held]);
        disk.record(OpKind::Write, &self.path, offset, bytes, result.is_ok());
        result
    }
}

/// An operation that was submitted and has not happened yet.
#[derive(Debug)]
enum Deferred {
    Read(u64, usize, IoBuf),
    Write(u64, IoBuf),
    Sync,
}

impl Deferred {
    fn kind(&self) -> OpKind {
        match self {
            Deferred::Read(..) => OpKind::Read,
            Deferred::Write(..) => OpKind::Write,
            Deferred::Sync => OpKind::Sync,
        }
    }

    fn perform(self, file: &SimFile) -> Result<IoBuf> {
        match self {
            Deferred::Read(offset, len, mut into) => {
                file.read_into(offset, len, &mut into).map(|()| into)
            }
            Deferred::Write(offset, buf) => {
                file.write_bytes(offset, buf.bytes())?;
                Ok(buf)
            }
            Deferred::Sync => file.sync_bytes().map(|()| IoBuf::default()),
        }
    }
}

/// A deferred operation. It happens when the seed says so, or at the latest when it is waited for
/// or abandoned. A crash before that leaves nothing of it.
#[derive(Debug)]
pub(super) struct InFlight {
    file: SimFile,
    op: Option<Deferred>,
    result: Option<Result<IoBuf>>,
    tracked: Option<CompactionIo>,
    waker: Option<Waker>,
}

impl InFlight {
    /// Lets the operation happen, unless it has.
    pub(super) fn happen(&mut self) {
        if let Some(op) = self.op.take() {
            self.result = Some(op.perform(&self.file));
            self.tracked = None;
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn take(&mut self) -> Result<IoBuf> {
        self.happen();
        self.result.take().unwrap_or_else(|| Ok(IoBuf::default()))
    }
}

/// The side of whoever submitted it.
struct Handle(Arc<Mutex<InFlight>>);

impl Completion for Handle {
    fn wait(self: Box<Self>) -> Result<IoBuf> {
        let mut in_flight = self.0.lock();
        if let Some(op) = &in_flight.op {
            in_flight.file.note_blocking(op.kind());
        }
        in_flight.take()
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<IoBuf>> {
        let mut in_flight = self.0.lock();
        if in_flight.op.is_some() {
            in_flight.waker = Some(waker.clone());
            return None;
        }
        Some(in_flight.take())
    }

    fn track(&mut self, tracked: CompactionIo) {
        self.0.lock().tracked = Some(tracked);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().happen();
    }
}

impl File for SimFile {
    fn read(&self, offset: u64, len: usize, into: &mut IoBuf) -> Result<()> {
        self.note_blocking(OpKind::Read);
        self.read_into(offset, len, into)
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.note_blocking(OpKind::Write);
        assert!(
            self.alignment == 1 || parts.len() == 1,
            "a direct write takes one part"
        );
        self.write_bytes(offset, &parts.concat())
    }

    fn submit_read(&self, offset: u64, len: usize, into: IoBuf) -> Pending {
        self.submit(Deferred::Read(offset, len, into))
    }

    fn submit_write(&self, offset: u64, buf: IoBuf) -> Pending {
        self.submit(Deferred::Write(offset, buf))
    }

    fn submit_sync(&self, site: &'static Site) -> Pending {
        match site.is_on() {
            true => self.submit(Deferred::Sync),
            false => Pending::done(Ok(IoBuf::default())),
        }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        assert!(
            self.writable,
            "cut of {}, which was opened for reading",
            self.path.display()
        );
        let mut disk = self.disk.lock();
        if disk.admit_whole(OpKind::Truncate, &self.path, "truncate")? {
            disk.inode(self.inode).truncate(len as usize);
            disk.record(OpKind::Truncate, &self.path, len, &[], true);
        }
        Ok(())
    }

    fn sync(&self, site: &'static Site) -> Result<()> {
        self.note_blocking(OpKind::Sync);
        match site.is_on() {
            true => self.sync_bytes(),
            false => Ok(()),
        }
    }

    fn len(&self) -> Result<u64> {
        let mut disk = self.disk.lock();
        disk.admit_whole(OpKind::Len, &self.path, "stat")?;
        Ok(disk.inode(self.inode).bytes().len() as u64)
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        let inode = disk.inode(self.inode);
        inode.handles = inode.handles.saturating_sub(1);
    }
}

/// A lock, released on drop and by a crash.
#[derive(Debug)]
pub(super) struct SimLock {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) path: PathBuf,
    pub(super) inode: InodeId,
}

impl Lock for SimLock {
    fn check(&self) -> Result<()> {
        match self.disk.lock().names.seen.get(&self.path) == Some(&self.inode) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Poisoned,
                format!("{} was removed or replaced", self.path.display()),
            )),
        }
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().locks.remove(&self.path);
    }
}

/// The alignment of transfers of a direct file, in bytes.
pub(super) const DIRECT_ALIGNMENT: usize = SECTOR;

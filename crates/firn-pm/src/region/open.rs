//! How each backend gets its memory. `dax` and `emulated` differ by the flags of the `mmap` call alone.
//!
//! 1. A file gets all its space before it is mapped: a store into a hole of a full disk would be a signal, not an
//!    error.
//! 2. A file that is open for writing is locked; a second opener gets `Locked`.
//! 3. What cannot be given is refused; nothing weaker is put in its place.

use super::file_image::{Backing, FileImage};
use super::mapping::Mapping;
use super::view::View;
use super::{Kind, Region};
use crate::arch::{LineFlush, best_flush};
use crate::layout::{GRANULE_BYTES, MIN_POOL_BYTES};
use crate::sim::Tracker;
use crate::sites;
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A pool's lock, which the open file holds. Given back by name, not by closing its descriptors: a process that is
/// being started has copies of those until it runs its own program.
#[derive(Debug)]
pub(crate) struct FileLock(pub(crate) File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // Whatever it says, the descriptors close soon.
        let _closes_anyway = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the pool's lock.
pub(crate) fn lock_file(file: &File, path: &Path) -> Result<FileLock> {
    let lock = FileLock(file.try_clone().map_err(|source| Error::from_io("open", path, source))?);
    match retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        // Whoever held the lock before may have removed the file: then this handle is of a file without a name.
        Ok(()) if is_still_named(file, path) => Ok(lock),
        Ok(()) => {
            Err(Error::new(ErrorKind::Locked, format!("{} was removed while it was opened: try again", path.display())))
        }
        Err(Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::Locked,
            format!("{} is open already, here or in another process: close it there first", path.display()),
        )),
        Err(source) => Err(Error::from_io("lock", path, source.into())),
    }
}

/// True if `path` stands for `file`.
pub(crate) fn is_still_named(file: &File, path: &Path) -> bool {
    let same =
        |named: std::fs::Metadata, held: std::fs::Metadata| (named.dev(), named.ino()) == (held.dev(), held.ino());
    std::fs::metadata(path).is_ok_and(|named| file.metadata().is_ok_and(|held| same(named, held)))
}

/// Gives `file` space for `len` bytes. DURABLE AFTER: the length, and that what was not there before reads as zeros.
pub(crate) fn allocate(site: &'static Site, file: impl AsFd, len: u64) -> std::io::Result<()> {
    match retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len)) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => retry_on_intr(|| rustix::fs::ftruncate(&file, len))?,
        Err(source) => return Err(source.into()),
    }
    if site.is_on() {
        retry_on_intr(|| rustix::fs::fsync(&file))?;
    }
    Ok(())
}

/// Makes the name of a new file durable.
pub(crate) fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Makes mapped memory `len` bytes long. Anonymous memory stays sparse: a page costs when it is touched.
pub(crate) fn extend(memory: &OwnedFd, len: u64, kind: Kind, place: &str) -> Result<()> {
    let extended = match kind {
        Kind::Dax | Kind::Emulated => allocate(&sites::PM_SPACE_SYNC, memory, len),
        Kind::Volatile | Kind::File | Kind::Simulated => retry_on_intr(|| rustix::fs::ftruncate(memory, len)).map_err(Into::into),
    };
    extended.map_err(|source| Error::from_io("grow", Path::new(place), source))
}

/// Maps `len` bytes of `memory` for both views.
pub(crate) fn map_into(
    reads: &View,
    writes: Option<&View>,
    memory: &OwnedFd,
    len: u64,
    kind: Kind,
) -> rustix::io::Result<()> {
    let sync = kind == Kind::Dax;
    let for_reads = Mapping::new(memory, len as usize, false, sync)?;
    if let Some(writes) = writes {
        writes.replace(Mapping::new(memory, len as usize, true, sync)?);
    }
    reads.replace(for_reads);
    Ok(())
}

impl Region {
    fn map(kind: Kind, place: String, memory: OwnedFd, len: u64, writable: bool) -> Result<Self> {
        let refused = |source: Errno| refusal(kind, &place, source);
        let sync = kind == Kind::Dax;
        let reads = View::new(Mapping::new(&memory, len as usize, false, sync).map_err(refused)?);
        let writes = match writable {
            true => Some(View::new(Mapping::new(&memory, len as usize, true, sync).map_err(refused)?)),
            false => None,
        };
        let how = match kind {
            Kind::Dax | Kind::Emulated | Kind::Simulated => best_flush(),
            Kind::File | Kind::Volatile => LineFlush::None,
        };
        Ok(Self { kind, place, reads, writes, memory, image: None, how, tracker: None, growing: Mutex::new(()) })
    }

    /// Maps the locked `file`, `len` bytes of it, as `dax` or `emulated`.
    pub(crate) fn mapped_file(kind: Kind, file: File, path: &Path, len: u64, writable: bool) -> Result<Self> {
        let label = if kind == Kind::Emulated { " (EMULATED)" } else { "" };
        Self::map(kind, format!("{}{label}", path.display()), file.into(), len, writable)
    }

    /// The `file` backend: an empty DRAM image of `len` bytes over the locked `file`.
    pub(crate) fn file_image(file: Box<dyn Backing>, path: &Path, len: u64) -> Result<Self> {
        let memory = anonymous(len)?;
        let mut region = Self::map(Kind::File, path.display().to_string(), memory, len, true)?;
        region.image = Some(FileImage::new(file, path.to_owned()));
        Ok(region)
    }

    /// Plain memory.
    pub(crate) fn volatile(len: u64) -> Result<Self> {
        Self::map(Kind::Volatile, "the volatile pool".to_owned(), anonymous(len)?, len, true)
    }

    /// The same memory, to read only.
    pub(crate) fn reader(&self) -> Result<Self> {
        let failed = |source| Error::from_io("map", Path::new(&self.place), source);
        let memory = self.memory.try_clone().map_err(failed)?;
        Self::map(self.kind, self.place.clone(), memory, self.len(), false)
    }

    /// Memory that `tracker` watches, holding what it says.
    pub(crate) fn simulated(tracker: Arc<Tracker>) -> Result<Self> {
        let bytes = tracker.visible();
        let len = bytes.len() as u64;
        let memory = anonymous(len)?;
        // Zero pages stay untouched, the others are written by the kernel: page faults are what an image costs most.
        for (index, page) in bytes.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|&b| b != 0)) {
            let written = rustix::io::pwrite(&memory, page, index as u64 * 4096);
            debug_assert_eq!(written, Ok(page.len()), "memory takes what fits");
        }
        let mut region = Self::map(Kind::Simulated, "the simulated pool".to_owned(), memory, len, true)?;
        region.how = LineFlush::None;
        region.tracker = Some(tracker);
        Ok(region)
    }
}

fn anonymous(len: u64) -> Result<OwnedFd> {
    let describe = |source: Errno| Error::from_io("get memory for", Path::new("the pool"), source.into());
    let memory = rustix::fs::memfd_create("firn-pm", MemfdFlags::CLOEXEC).map_err(describe)?;
    retry_on_intr(|| rustix::fs::ftruncate(&memory, len)).map_err(describe)?;
    Ok(memory)
}

/// Why a mapping was refused, and what else there is.
fn refusal(kind: Kind, place: &str, source: Errno) -> Error {
    match (kind, source) {
        (Kind::Dax, Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV) => Error::new(
            ErrorKind::Incompatible,
            format!(
                "{place} is not on a DAX file system, so MAP_SYNC is refused ({source}): put it on fs-DAX, \
                 or say backend = \"file\" (durable at each sync) or backend = \"emulated\" (experiments, not durable)"
            ),
        ),
        _ => Error::from_io("map", Path::new(place), source.into()),
    }
}

/// A usable pool size: whole granules, and room for one.
pub(crate) fn whole_granules(bytes: u64) -> Result<u64> {
    let whole = bytes & !(GRANULE_BYTES - 1);
    if whole < MIN_POOL_BYTES {
        return Err(Error::invalid(format!(
            "a pool of {bytes} bytes is too small: the least is {MIN_POOL_BYTES}, raise `size_bytes`"
        )));
    }
    if usize::try_from(whole).is_err() || whole > 1 << 47 {
        return Err(Error::invalid(format!("a pool of {bytes} bytes is more than this machine can map")));
    }
    Ok(whole)
}

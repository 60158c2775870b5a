//! How each backend gets its memory. `dax` differs from `emulated` in the flags of the `mmap` call
//! and in the zeros written to a new file, in whole huge pages.
//!
//! 1. A file gets all its space before it is mapped, because a store into a hole of a full disk
//!    would be a signal, not an error.
//! 2. A file that is open for writing is locked; a second opener gets `Locked`.
//! 3. A request that cannot be met is refused; nothing weaker is substituted.
//! 4. Header and roots are read with a system call before anything is mapped. There a media error
//!    is an error; in a mapping it is a signal. (A `/dev/dax` device cannot be read this way.)

use super::dax::HUGE_PAGE_BYTES;
use super::file_image::{Backing, FileImage, unreadable};
use super::mapping::Mapping;
use super::view::View;
use super::{Kind, Region};
use crate::arch::{LineFlush, best_flush};
use crate::layout::{DATA_START, GRANULE_BYTES, MIN_POOL_BYTES, PAGE_BYTES};
use crate::sim::Tracker;
use crate::sites;
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// A pool's lock, held by the open file. It is unlocked explicitly rather than by closing its
/// descriptor, because a child process has a copy of the descriptor between fork and exec.
#[derive(Debug)]
pub(crate) struct FileLock(pub(crate) File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // An error does not matter, because the descriptors close soon.
        let _closes_anyway = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the pool's lock.
pub(crate) fn lock_file(file: &File, path: &Path) -> Result<FileLock> {
    let lock = FileLock(
        file.try_clone()
            .map_err(|source| Error::from_io("open", path, source))?,
    );
    match retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        // The previous holder of the lock may have removed the file; then this handle refers to a
        // file without a name.
        Ok(()) if is_still_named(file, path) => Ok(lock),
        Ok(()) => Err(Error::new(
            ErrorKind::Locked,
            format!(
                "{} was removed while it was opened: try again",
                path.display()
            ),
        )),
        Err(Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::Locked,
            format!(
                "{} is open already, here or in another process: close it there first",
                path.display()
            ),
        )),
        Err(source) => Err(Error::from_io("lock", path, source.into())),
    }
}

/// True if `path` refers to `file`.
pub(crate) fn is_still_named(file: &File, path: &Path) -> bool {
    let same = |named: std::fs::Metadata, held: std::fs::Metadata| {
        (named.dev(), named.ino()) == (held.dev(), held.ino())
    };
    std::fs::metadata(path).is_ok_and(|named| file.metadata().is_ok_and(|held| same(named, held)))
}

/// Gives `file` space for `len` bytes. DURABLE AFTER: the length, and that the new part reads as
/// zeros.
pub(crate) fn allocate(site: &'static Site, file: impl AsFd, len: u64) -> std::io::Result<()> {
    let given = retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len));
    allocate_as(given, site, &file, len)
}

/// Continues after `fallocate` returned `gave`. Where it is not supported, writes zeros, because
/// `ftruncate` reserves no space.
pub(super) fn allocate_as(
    gave: rustix::io::Result<()>,
    site: &'static Site,
    file: &impl AsFd,
    len: u64,
) -> std::io::Result<()> {
    match gave {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let old_len = rustix::fs::fstat(file)?.st_size as u64;
            write_zeros(file, old_len, len)?;
        }
        Err(source) => return Err(source.into()),
    }
    if site.is_on() {
        retry_on_intr(|| rustix::fs::fsync(file))?;
    }
    Ok(())
}

/// Writes zeros from `start` to `end`.
fn write_zeros(file: &impl AsFd, start: u64, end: u64) -> std::io::Result<()> {
    let zeros = vec![0u8; (end.saturating_sub(start)).min(1 << 20) as usize];
    let mut at = start;
    while at < end {
        let now = (end - at).min(zeros.len() as u64) as usize;
        match retry_on_intr(|| rustix::io::pwrite(file, &zeros[..now], at))? {
            0 => return Err(std::io::ErrorKind::WriteZero.into()),
            written => at += written as u64,
        }
    }
    Ok(())
}

/// Reads header and roots, so that a media error in them is found before they are mapped.
///
/// # Errors
/// `Corruption` if the medium cannot return one of their pages; `Io` otherwise.
pub(super) fn probe(file: &dyn Backing, path: &Path) -> Result<()> {
    let mut page = vec![0u8; PAGE_BYTES as usize];
    for at in (0..DATA_START).step_by(PAGE_BYTES as usize) {
        file.read_at(at, &mut page)
            .map_err(|source| unreadable(path, at, source))?;
    }
    Ok(())
}

/// Makes the name of a new file durable.
pub(crate) fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// The length of a new file for a pool of `bytes`. On DAX a multiple of a huge page, because a
/// smaller piece cannot be mapped as one.
pub(crate) fn file_bytes(kind: Kind, bytes: u64) -> u64 {
    if kind == Kind::Dax {
        bytes.next_multiple_of(HUGE_PAGE_BYTES)
    } else {
        bytes
    }
}

/// Extends mapped memory, or the file that will be mapped, to `len` bytes. Anonymous memory stays
/// sparse: a page is allocated when it is touched.
pub(crate) fn extend(memory: &impl AsFd, len: u64, kind: Kind, place: &str) -> Result<()> {
    let extended = match kind {
        Kind::Dax => extend_dax(memory, len),
        Kind::Emulated => allocate(&sites::PM_SPACE_SYNC, memory, len),
        Kind::Volatile | Kind::File | Kind::Simulated => {
            retry_on_intr(|| rustix::fs::ftruncate(memory, len)).map_err(Into::into)
        }
    };
    extended.map_err(|source| Error::from_io("grow", Path::new(place), source))
}

/// Allocates and writes zeros. `fallocate` leaves extents unwritten, and with `MAP_SYNC` the first
/// store to each such page would wait for a commit of the file system's journal.
fn extend_dax(memory: &impl AsFd, len: u64) -> std::io::Result<()> {
    let old_len = rustix::fs::fstat(memory)?.st_size as u64;
    allocate(&sites::PM_SPACE_SYNC, memory, len)?;
    write_zeros(memory, old_len, len)?;
    if sites::PM_SPACE_SYNC.is_on() {
        retry_on_intr(|| rustix::fs::fsync(memory))?;
    }
    Ok(())
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
            true => Some(View::new(
                Mapping::new(&memory, len as usize, true, sync).map_err(refused)?,
            )),
            false => None,
        };
        let how = match kind {
            Kind::Dax | Kind::Emulated | Kind::Simulated => best_flush(),
            Kind::File | Kind::Volatile => LineFlush::None,
        };
        let (is_fixed, growing) = (false, Mutex::new(()));
        Ok(Self {
            kind,
            place,
            reads,
            writes,
            memory,
            is_fixed,
            image: None,
            how,
            tracker: None,
            growing,
        })
    }

    /// Refuses a file that cannot be mapped with DAX, before anything is written to it.
    pub(crate) fn refuse_without_dax(file: &File, path: &Path) -> Result<()> {
        let mapped = Mapping::new(file, PAGE_BYTES as usize, false, true);
        mapped
            .map(drop)
            .map_err(|source| refusal(Kind::Dax, &path.display().to_string(), source))
    }

    /// Maps `len` bytes of the locked `file`, as `dax` or `emulated`.
    pub(crate) fn mapped_file(
        kind: Kind,
        file: File,
        path: &Path,
        len: u64,
        writable: bool,
    ) -> Result<Self> {
        let label = if kind == Kind::Emulated {
            " (EMULATED)"
        } else {
            ""
        };
        let is_device = file
            .metadata()
            .is_ok_and(|metadata| metadata.file_type().is_char_device());
        if !is_device {
            probe(&file, path)?;
        }
        let mut region = Self::map(
            kind,
            format!("{}{label}", path.display()),
            file.into(),
            len,
            writable,
        )?;
        region.is_fixed = is_device;
        Ok(region)
    }

    /// The `file` backend: an empty DRAM image of `len` bytes over the locked `file`.
    pub(crate) fn file_image(file: Box<dyn Backing>, path: &Path, len: u64) -> Result<Self> {
        let memory = anonymous(len)?;
        let mut region = Self::map(Kind::File, path.display().to_string(), memory, len, true)?;
        region.image = Some(FileImage::new(file, path.to_owned()));
        Ok(region)
    }

    /// Plain anonymous memory.
    pub(crate) fn volatile(len: u64) -> Result<Self> {
        Self::map(
            Kind::Volatile,
            "the volatile pool".to_owned(),
            anonymous(len)?,
            len,
            true,
        )
    }

    /// The same memory, mapped read-only.
    pub(crate) fn reader(&self) -> Result<Self> {
        let failed = |source| Error::from_io("map", Path::new(&self.place), source);
        let memory = self.memory.try_clone().map_err(failed)?;
        Self::map(self.kind, self.place.clone(), memory, self.len(), false)
    }

    /// Memory watched by `tracker`, with the tracker's contents.
    pub(crate) fn simulated(tracker: Arc<Tracker>) -> Result<Self> {
        let bytes = tracker.visible();
        let len = bytes.len() as u64;
        let memory = anonymous(len)?;
        // Zero pages stay untouched and the kernel writes the others, because page faults are most
        // of an image's cost.
        for (index, page) in bytes
            .chunks(4096)
            .enumerate()
            .filter(|(_, page)| page.iter().any(|&b| b != 0))
        {
            let written = rustix::io::pwrite(&memory, page, index as u64 * 4096);
            debug_assert_eq!(written, Ok(page.len()), "memory takes what fits");
        }
        let mut region = Self::map(
            Kind::Simulated,
            "the simulated pool".to_owned(),
            memory,
            len,
            true,
        )?;
        region.how = LineFlush::None;
        region.tracker = Some(tracker);
        Ok(region)
    }
}

fn anonymous(len: u64) -> Result<OwnedFd> {
    let describe =
        |source: Errno| Error::from_io("get memory for", Path::new("the pool"), source.into());
    let memory = rustix::fs::memfd_create("firn-pm", MemfdFlags::CLOEXEC).map_err(describe)?;
    retry_on_intr(|| rustix::fs::ftruncate(&memory, len)).map_err(describe)?;
    Ok(memory)
}

/// The error for a refused mapping, with the alternatives.
fn refusal(kind: Kind, place: &str, source: Errno) -> Error {
    match (kind, source) {
        (Kind::Dax, Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV) => Error::new(
            ErrorKind::Incompatible,
            format!(
                "{place} is not mapped by DAX: MAP_SYNC is refused ({source}). Put it on persistent memory with ext4 \
                 or XFS, mounted with dax=always (with dax=inode, a new pool turns DAX on for its own file; an older \
                 file needs `chattr +x` and a remount), or say backend = \"file\" (durable at each sync) or \
                 backend = \"emulated\" (experiments, not durable)"
            ),
        ),
        _ => Error::from_io("map", Path::new(place), source.into()),
    }
}

/// A usable pool size: whole granules, and room for at least one.
pub(crate) fn whole_granules(bytes: u64) -> Result<u64> {
    let whole = bytes & !(GRANULE_BYTES - 1);
    if whole < MIN_POOL_BYTES {
        return Err(Error::invalid(format!(
            "a pool of {bytes} bytes is too small: the least is {MIN_POOL_BYTES}, raise `size_bytes`"
        )));
    }
    if usize::try_from(whole).is_err() || whole > 1 << 47 {
        return Err(Error::invalid(format!(
            "a pool of {bytes} bytes is more than this machine can map"
        )));
    }
    Ok(whole)
}

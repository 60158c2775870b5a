//! One open file of the operating system: positioned reads and writes that continue after an
//! interruption or a short count.
//!
//! 1. Transfers of a direct file are aligned to `alignment` in offset, length and address;
//!    [`IoBuf`] aligns the address.
//! 2. A transfer that a device refuses as misaligned is never retried buffered, because the page
//!    cache could then disagree with the device.

use super::system::IoBackend;
use crate::buf::IoBuf;
use crate::file::{File, Pending};
use firn_base::site::Site;
use firn_base::{Error, Result};
use rustix::fs::Advice;
use rustix::io::{Errno, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Slices per gathering write; the kernel accepts at most 1,024.
const SLICES_MAX: usize = 64;
const SLICES_FEW: usize = 8;

/// The parts of an open file that an operation in flight must keep alive.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) fd: rustix::fd::OwnedFd,
    pub(super) path: PathBuf,
    pub(super) alignment: usize,
}

/// A file and the backend that puts its operations in flight.
#[derive(Debug)]
pub(super) struct OsFile {
    pub(super) handle: Arc<Handle>,
    pub(super) backend: IoBackend,
}

/// An aligned range that covers the requested bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) skip: usize,
    pub(super) wanted: usize,
}

impl Span {
    pub(super) fn covering(offset: u64, wanted: usize, alignment: usize) -> Span {
        let start = offset - offset % alignment as u64;
        let skip = (offset - start) as usize;
        Span {
            offset: start,
            len: (skip + wanted).next_multiple_of(alignment),
            skip,
            wanted,
        }
    }

    /// The number of wanted bytes available after `got` bytes of the span were read.
    pub(super) fn visible(&self, got: usize) -> usize {
        got.saturating_sub(self.skip).min(self.wanted)
    }
}

impl Handle {
    pub(super) fn error(&self, verb: &str, errno: Errno) -> Error {
        Error::from_io(verb, &self.path, errno.into())
    }

    /// Reads until `into` is full or the file ends; returns the number of bytes read.
    pub(super) fn read_full(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.fd, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    // A direct read that stops inside an alignment unit has reached the end of the
                    // file.
                    if done % self.alignment != 0 {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error("read", errno)),
            }
        }
        Ok(done)
    }

    pub(super) fn write_full(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(self.error("write", Errno::NOSPC)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error("write", errno)),
            }
        }
        Ok(())
    }

    pub(super) fn read_span(&self, span: Span, into: &mut IoBuf) -> Result<()> {
        let got = self.read_full(span.offset, into.room(span.len))?;
        into.set_view(span.skip, span.visible(got));
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        loop {
            match rustix::fs::fdatasync(&self.fd) {
                Err(Errno::INTR) => {}
                other => return other.map_err(|errno| self.error("sync", errno)),
            }
        }
    }

    fn write_gathered(&self, mut offset: u64, parts: &[&[u8]]) -> Result<()> {
        for group in parts.chunks(SLICES_MAX) {
            let total: usize = group.iter().map(|part| part.len()).sum();
            // Most writes have few parts, and log frames are written often.
            let written = match group.len() {
                0..=SLICES_FEW => self.gather::<SLICES_FEW>(offset, group),
                _ => self.gather::<SLICES_MAX>(offset, group),
            };
            let written = match written {
                Ok(n) => n,
                Err(Errno::INTR) => 0,
                Err(errno) => return Err(self.error("write", errno)),
            };
            if written < total {
                self.write_rest(offset, group, written)?;
            }
            offset += total as u64;
        }
        Ok(())
    }

    /// One system call for at most `N` parts.
    fn gather<const N: usize>(&self, offset: u64, parts: &[&[u8]]) -> rustix::io::Result<usize> {
        let slices: [IoSlice<'_>; N] =
            std::array::from_fn(|i| IoSlice::new(parts.get(i).copied().unwrap_or_default()));
        rustix::io::pwritev(&self.fd, &slices[..parts.len()], offset)
    }

    /// Completes a gathering write that stopped after `done` bytes.
    fn write_rest(&self, mut offset: u64, parts: &[&[u8]], mut done: usize) -> Result<()> {
        for part in parts {
            let skip = done.min(part.len());
            done -= skip;
            self.write_full(offset + skip as u64, &part[skip..])?;
            offset += part.len() as u64;
        }
        Ok(())
    }
}

impl File for OsFile {
    fn read(&self, offset: u64, len: usize, into: &mut IoBuf) -> Result<()> {
        self.handle
            .read_span(Span::covering(offset, len, self.handle.alignment), into)
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        match parts {
            [one] => self.handle.write_full(offset, one),
            _ => self.handle.write_gathered(offset, parts),
        }
    }

    fn submit_read(&self, offset: u64, len: usize, into: IoBuf) -> Pending {
        self.backend.read(
            &self.handle,
            Span::covering(offset, len, self.handle.alignment),
            into,
        )
    }

    fn submit_write(&self, offset: u64, buf: IoBuf) -> Pending {
        self.backend.write(&self.handle, offset, buf)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        while self.len()? > len {
            match rustix::fs::ftruncate(&self.handle.fd, len) {
                Err(Errno::INTR) => {}
                other => return other.map_err(|errno| self.handle.error("truncate", errno)),
            }
        }
        Ok(())
    }

    fn sync(&self, site: &'static Site) -> Result<()> {
        match site.is_on() {
            true => self.handle.sync(),
            false => Ok(()),
        }
    }

    fn submit_sync(&self, site: &'static Site) -> Pending {
        match site.is_on() {
            true => self.backend.sync(&self.handle),
            false => Pending::done(Ok(IoBuf::default())),
        }
    }

    fn leave_cache(&self) {
        // Errors are ignored because this is only a hint.
        let _kept = rustix::fs::fadvise(&self.handle.fd, 0, None, Advice::DontNeed);
    }

    fn len(&self) -> Result<u64> {
        let stat =
            rustix::fs::fstat(&self.handle.fd).map_err(|errno| self.handle.error("stat", errno))?;
        Ok(stat.st_size as u64)
    }

    fn alignment(&self) -> usize {
        self.handle.alignment
    }

    fn path(&self) -> &Path {
        &self.handle.path
    }
}

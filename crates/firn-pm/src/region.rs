//! The memory under a pool: one struct for every backend. Backends differ in how the memory is
//! mapped, in whether a line is flushed at all, and in what a sync of the file does. The simulator
//! adds a [`Tracker`] that sees each store.
//!
//! 1. Readers use the read-only mapping, writers the writable one. A read-only region has no
//!    writable mapping.
//! 2. Every access is checked against the mapped length. An access that does not fit is
//!    `Corruption`.
//! 3. Growing maps the memory again and keeps the old mappings until the region is dropped, so no
//!    borrow ever dangles.
//!
//! Thread safety: all methods take `&self`. Two threads must not store to the same bytes at once,
//! nor store to borrowed bytes. The pool's extents keep them apart.

mod dax;
mod file_image;
mod mapping;
mod open;
mod view;

use crate::arch::{self, LineFlush};
use crate::line::{LINE_BYTES, line_range};
use crate::sim::Tracker;
use crate::sites;
pub(crate) use dax::{ask_for_dax, device_bytes};
pub use file_image::Backing;
use file_image::FileImage;
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
pub(crate) use open::{
    FileLock, allocate, extend, file_bytes, is_still_named, lock_file, sync_parent, whole_granules,
};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use view::View;

/// The kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Dax,
    Emulated,
    Volatile,
    File,
    Simulated,
}

/// The memory under a pool.
#[derive(Debug)]
pub(crate) struct Region {
    kind: Kind,
    place: String,
    reads: View,
    writes: Option<View>,
    /// The mapped file: an anonymous one for the `file` backend, the volatile one and the
    /// simulator.
    memory: OwnedFd,
    /// True for a device, whose length is fixed.
    is_fixed: bool,
    image: Option<FileImage>,
    how: LineFlush,
    tracker: Option<Arc<Tracker>>,
    growing: Mutex<()>,
}

impl Region {
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The name used in errors.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn len(&self) -> u64 {
        self.reads.len()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.writes.is_none()
    }

    fn outside(&self, at: u64, len: u64) -> Error {
        Error::corruption(
            &self.place,
            at,
            format!("{len} bytes inside the pool of {} bytes", self.len()),
        )
    }

    fn writable(&self) -> Result<&View> {
        self.writes.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "{} is open read-only: open it for writing to change it",
                self.place
            ))
        })
    }

    /// Copies the bytes at `at` into `out`.
    #[inline]
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.reads
            .load(at, out)
            .ok_or_else(|| self.outside(at, out.len() as u64))
    }

    /// Loads the aligned word at `at` with one atomic load.
    #[inline]
    pub(crate) fn load_u64(&self, at: u64) -> Result<u64> {
        self.reads.load_u64(at).ok_or_else(|| self.outside(at, 8))
    }

    /// Borrows the bytes at `at`. REQUIRES: no thread stores to them while the borrow lives.
    pub(crate) fn borrow(&self, at: u64, len: u64) -> Result<&[u8]> {
        self.reads
            .borrow(at, len)
            .ok_or_else(|| self.outside(at, len))
    }

    /// Stores `bytes` at `at`, through the cache.
    #[inline]
    pub(crate) fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let view = self.writable()?;
        let mut done = false;
        match &self.tracker {
            None => done = view.store(at, bytes).is_some(),
            Some(tracker) => tracker.store(at, bytes, || done = view.store(at, bytes).is_some()),
        }
        done.then_some(())
            .ok_or_else(|| self.outside(at, bytes.len() as u64))
    }

    /// Stores the aligned word at `at` with one atomic store, after everything this thread stored
    /// before.
    #[inline]
    pub(crate) fn store_u64(&self, at: u64, word: u64) -> Result<()> {
        let view = self.writable()?;
        let mut done = false;
        match &self.tracker {
            None => done = view.store_u64(at, word).is_some(),
            Some(tracker) => tracker.store(at, &word.to_le_bytes(), || {
                done = view.store_u64(at, word).is_some()
            }),
        }
        done.then_some(()).ok_or_else(|| self.outside(at, 8))
    }

    /// Flushes the lines that contain the `len` bytes at `at`. Returns the number of lines.
    #[inline]
    pub(crate) fn flush(&self, site: &'static Site, at: u64, len: u64) -> Result<u64> {
        let view = self.writable()?;
        if !site.is_on() {
            return Ok(0);
        }
        let lines = line_range(at, len);
        let count = lines.count_lines();
        if let Some(tracker) = &self.tracker {
            tracker.flush(lines.clone());
        }
        if self.how != LineFlush::None {
            view.flush(at, len, lines, self.how)
                .ok_or_else(|| self.outside(at, len))?;
        }
        Ok(count)
    }

    /// Orders everything this thread flushed, and makes it durable on a persistent medium.
    #[inline]
    pub(crate) fn fence(&self, site: &'static Site) {
        if !site.is_on() {
            return;
        }
        if let Some(tracker) = &self.tracker {
            tracker.fence();
        }
        arch::fence();
    }

    /// Copies `parts`, one after the other, to `at`: whole lines past the cache, the first and last
    /// partial line through it with a flush. One pass, no allocation; every line is written once.
    /// Durable after a fence.
    pub(crate) fn stream(&self, at: u64, parts: &[&[u8]]) -> Result<()> {
        let mut line = [0u8; LINE_BYTES as usize];
        let mut line_at = at & !(LINE_BYTES - 1);
        // Bytes of the line before `start` belong to others; bytes from `start` to `fill` are
        // gathered.
        let mut start = (at - line_at) as usize;
        let mut fill = start;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if fill == 0 && rest.len() >= line.len() {
                    let (whole, tail) = rest.split_at(rest.len() & !(line.len() - 1));
                    self.stream_lines(line_at, whole)?;
                    line_at += whole.len() as u64;
                    rest = tail;
                    continue;
                }
                let (now, later) = rest.split_at(rest.len().min(line.len() - fill));
                line[fill..fill + now.len()].copy_from_slice(now);
                fill += now.len();
                rest = later;
                if fill == line.len() {
                    self.stream_partial(line_at, start, &line[start..])?;
                    line_at += LINE_BYTES;
                    (start, fill) = (0, 0);
                }
            }
        }
        if fill > start {
            self.stream_partial(line_at, start, &line[start..fill])
        } else {
            Ok(())
        }
    }

    fn stream_partial(&self, line_at: u64, start: usize, bytes: &[u8]) -> Result<()> {
        if bytes.len() == LINE_BYTES as usize {
            return self.stream_lines(line_at, bytes);
        }
        let at = line_at + start as u64;
        self.store(at, bytes)?;
        self.flush(&sites::PM_EDGE_FLUSH, at, bytes.len() as u64)
            .map(|_lines| ())
    }

    fn stream_lines(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let view = self.writable()?;
        let mut done = false;
        let mut copy = || {
            done = match self.how {
                LineFlush::None => view.store(at, bytes),
                _ => view.stream(at, bytes),
            }
            .is_some();
        };
        match &self.tracker {
            None => copy(),
            Some(tracker) => tracker.stream(at, bytes, copy),
        }
        done.then_some(())
            .ok_or_else(|| self.outside(at, bytes.len() as u64))
    }

    /// Makes a line hold `bytes` without the tracker seeing it. For the simulator, between two
    /// images.
    pub(crate) fn put_line(&self, at: u64, bytes: &[u8]) {
        let put = self.writes.as_ref().and_then(|view| view.store(at, bytes));
        debug_assert!(put.is_some(), "a line of the memory");
    }

    /// Shrinks the memory to its first size. For the simulator, between two images.
    pub(crate) fn back_to_first(&mut self) -> Result<()> {
        self.reads.back_to_first();
        if let Some(writes) = &mut self.writes {
            writes.back_to_first();
        }
        rustix::fs::ftruncate(&self.memory, self.len())
            .map_err(|source| Error::from_io("shrink", Path::new(&self.place), source.into()))
    }

    /// Makes ranges durable where that takes a sync of the file. Elsewhere the fence did it, or
    /// nothing can.
    pub(crate) fn sync(&self, site: &'static Site, ranges: &[(u64, u64)]) -> Result<()> {
        match &self.image {
            Some(image) => image.write_and_sync(site, &self.reads, ranges),
            None => Ok(()),
        }
    }

    /// Refuses every later sync, because it is unknown what the file holds of the last one.
    pub(crate) fn poison(&self) {
        if let Some(image) = &self.image {
            image.poison();
        }
    }

    /// Loads a range of the file into the DRAM image. On other backends the range is already there.
    pub(crate) fn load_from_file(&self, at: u64, len: u64) -> Result<()> {
        match (&self.image, &self.writes) {
            (Some(image), Some(view)) => image.load(view, at, len),
            _ => Ok(()),
        }
    }

    /// Extends the memory to `new_len` bytes. Existing mappings stay valid.
    pub(crate) fn grow(&self, new_len: u64) -> Result<()> {
        let _one_at_a_time = self.growing.lock();
        self.writable()?;
        if new_len <= self.len() {
            return Ok(());
        }
        if self.is_fixed {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{} is a device of {} bytes: no pool of {new_len} fits in it",
                    self.place,
                    self.len()
                ),
            ));
        }
        let new_len = open::file_bytes(self.kind, new_len);
        if let Some(image) = &self.image {
            image.extend(new_len)?;
        }
        open::extend(&self.memory, new_len, self.kind, &self.place)?;
        if let Some(tracker) = &self.tracker {
            tracker.grow(new_len);
        }
        open::map_into(
            &self.reads,
            self.writes.as_ref(),
            &self.memory,
            new_len,
            self.kind,
        )
        .map_err(|source| {
            Error::new(
                ErrorKind::Io,
                format!("cannot map {} again: {source}", self.place),
            )
        })
    }
}

#[cfg(test)]
mod tests;

//! A simulated file system almost all of whose operations are steps of the scheduler: I/O is where threads most often
//! meet.

use firn_base::Result;
use firn_base::site::Site;
use firn_base::sync::point;
use firn_fs::{File, Fs, IoBuf, Lock, OpenMode, Pending, SimFs};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Watched<T>(pub(super) T);

impl Fs for Watched<SimFs> {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        point();
        Ok(Arc::new(Watched(self.0.open(path, mode)?)))
    }

    fn rename(&self, site: &'static Site, from: &Path, to: &Path) -> Result<()> {
        point();
        self.0.rename(site, from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        point();
        self.0.remove(path)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        point();
        self.0.link(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.0.list(path)
    }

    fn sync_dir(&self, site: &'static Site, path: &Path) -> Result<()> {
        point();
        self.0.sync_dir(site, path)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        Fs::len(&self.0, path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.0.lock(path)
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

impl File for Watched<Arc<dyn File>> {
    /// No step: tables read into a scratch of their thread, and the scheduler's threads are all one.
    fn read(&self, offset: u64, len: usize, into: &mut IoBuf) -> Result<()> {
        self.0.read(offset, len, into)
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        point();
        self.0.write(offset, parts)
    }

    fn submit_read(&self, offset: u64, len: usize, into: IoBuf) -> Pending {
        point();
        self.0.submit_read(offset, len, into)
    }

    fn submit_write(&self, offset: u64, buf: IoBuf) -> Pending {
        point();
        self.0.submit_write(offset, buf)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        point();
        self.0.truncate(len)
    }

    fn sync(&self, site: &'static Site) -> Result<()> {
        point();
        self.0.sync(site)
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

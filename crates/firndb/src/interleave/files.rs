//! A simulated file system in which almost every operation is a step of the scheduler, because
//! threads most often interact in I/O.

use firn_base::Result;
use firn_base::site::Site;
use firn_base::sync::point;
use firn_fs::{Dir, File, Fs, IoBuf, Lock, OpenMode, Pending, SimFs};
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Watched<T>(pub(super) T);

impl Fs for Watched<SimFs> {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(Watched(self.0.open_dir(path)?)))
    }

    fn create_dir(&self, path: &Path, parents: bool) -> Result<()> {
        self.0.create_dir(path, parents)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.remove_dir(path)
    }

    fn complete(&self, at_most: Duration) {
        self.0.complete(at_most);
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

impl Dir for Watched<Arc<dyn Dir>> {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        point();
        Ok(Arc::new(Watched(self.0.open(name, mode)?)))
    }

    fn rename(&self, site: &'static Site, from: &str, to: &str) -> Result<()> {
        point();
        self.0.rename(site, from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        point();
        self.0.remove(name)
    }

    fn link(&self, name: &str, source: &dyn Dir, from: &str) -> Result<()> {
        point();
        self.0.link(name, source, from)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }

    fn sync(&self, site: &'static Site) -> Result<()> {
        point();
        self.0.sync(site)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.0.len(name)
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        self.0.lock(name)
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(Watched(self.0.subdirectory(name)?)))
    }

    /// The simulated directory below, so that another directory can link from it.
    fn as_any(&self) -> &dyn Any {
        self.0.as_any()
    }
}

impl File for Watched<Arc<dyn File>> {
    /// Not a step: table reads use a buffer of their thread, and the scheduler runs all threads on
    /// one.
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

    fn submit_sync(&self, site: &'static Site) -> Pending {
        point();
        self.0.submit_sync(site)
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

//! Media that do not preserve written data: methods that change a file durably, bypassing all
//! handles.

use super::inode::Inode;
use super::system::SimFs;
use crate::file::parent;
use firn_base::Result;
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;

impl SimFs {
    /// A file's bytes as a reader sees them. Does not count as an operation.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        let mut disk = self.disk.lock();
        let id = disk.find(path, "read")?;
        Ok(disk.inode(id).bytes().to_vec())
    }

    /// Makes a file hold these bytes. The bytes, the name and the directories above it are durable.
    /// Does not count as an operation.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        let mut disk = self.disk.lock();
        disk.names.make_directories(&parent(path));
        let inode = Inode::durable(bytes.to_vec());
        match disk.names.seen.get(path).copied() {
            Some(id) => {
                let handles = std::mem::replace(disk.inode(id), inode).handles;
                disk.inode(id).handles = handles;
                disk.names.settle(path, id);
            }
            None => {
                let id = disk.add_inode(inode);
                disk.names.settle(path, id);
            }
        }
    }

    /// All files, with their lengths in bytes.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let disk = self.disk.lock();
        let len = |id| {
            disk.inodes
                .get(id)
                .map_or(0, |inode| inode.bytes().len() as u64)
        };
        disk.names
            .seen
            .iter()
            .map(|(path, id)| (path.clone(), len(id)))
            .collect()
    }

    /// Flips one bit of a file. Does nothing past its end.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn flip(&self, path: &Path, byte: usize, bit: u32) -> Result<()> {
        self.change(path, |bytes| {
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= 1 << (bit % 8);
            }
        })
    }

    /// Truncates a file to `len` bytes.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn cut(&self, path: &Path, len: usize) -> Result<()> {
        self.change(path, |bytes| bytes.truncate(len))
    }

    /// Appends bytes to a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn extend(&self, path: &Path, more: &[u8]) -> Result<()> {
        self.change(path, |bytes| bytes.extend_from_slice(more))
    }

    /// Overwrites one 4 KiB block of a file with a block of `from`. With the file itself as `from`
    /// this simulates a misplaced write; with an older copy, a stale block from a lost write.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn misplace(
        &self,
        path: &Path,
        from: &[u8],
        source_block: usize,
        target_block: usize,
    ) -> Result<()> {
        self.change(path, |bytes| {
            let target = (target_block * PAGE).min(bytes.len())
                ..((target_block + 1) * PAGE).min(bytes.len());
            for (i, byte) in bytes[target].iter_mut().enumerate() {
                *byte = from.get(source_block * PAGE + i).copied().unwrap_or(0);
            }
        })
    }

    fn change(&self, path: &Path, body: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut bytes = self.read_file(path)?;
        body(&mut bytes);
        self.write_file(path, &bytes);
        Ok(())
    }
}

//! An open tree: its header, its files and its prefix are in memory, and nothing else.
//!
//! 1. Nothing of a tree changes once it is complete, so readers need neither lock nor version.
//! 2. A reader beside a writing process has no claim to the tree's space: the writer may free and
//!    reuse it. Every group that it reads has the tree's id in its checksum, so it notices.
//!
//! Thread safety: `Send + Sync`; readers share it without a lock.

use super::layout::{
    CRC_BYTES, FILE_BYTES, FilterPlace, HEADER_BYTES, Header, IfTreeFile, IfTreeTotals, Level,
    NodeFilter, NodeRest, unsealed,
};
use super::search::SearchCounts;
use super::space::IfTreeSpace;
use crate::context::{IfTreeGets, OpenBytes, TableContext};
use crate::sites;
use firn_base::Result;
use firn_base::checksum::matches;
use std::sync::Arc;

/// A tree that is open for reading.
#[derive(Debug)]
pub struct IfTree {
    space: Arc<IfTreeSpace>,
    header: Header,
    levels: Box<[Level]>,
    /// The place of the filters that are not in nodes.
    filters_at: usize,
    files: Box<[IfTreeFile]>,
    prefix: Box<[u8]>,
    /// Where its searches and its memory are counted, if it belongs to a database that is open.
    counted: Option<(Arc<IfTreeGets>, OpenBytes)>,
}

impl IfTree {
    /// Opens the tree in `space`.
    ///
    /// # Errors
    /// `Corruption` if its header or its files are damaged; `Changed` if another process reused the
    /// space.
    pub fn open(space: Arc<IfTreeSpace>) -> Result<IfTree> {
        let header = space.header()?;
        let FilesAndPrefix { files, prefix } = read_files(&space, &header)?;
        Ok(IfTree {
            levels: header.levels().into(),
            filters_at: header.filters_at(),
            files,
            prefix,
            header,
            space,
            counted: None,
        })
    }

    /// Counts its memory and its searches in `context`.
    #[must_use]
    pub fn counted_in(mut self, context: &TableContext) -> IfTree {
        let memory = context.count_open(self.memory_bytes());
        self.counted = Some((context.if_tree_gets.clone(), memory));
        self
    }

    /// The extent of the tree.
    pub fn space(&self) -> &Arc<IfTreeSpace> {
        &self.space
    }

    /// Gives up the open tree for its extent.
    pub fn into_space(self) -> Arc<IfTreeSpace> {
        self.space
    }

    /// The files whose blocks it has: the newest run first, and in key order in a run.
    pub fn files(&self) -> &[IfTreeFile] {
        &self.files
    }

    /// The number of blocks that it has.
    pub fn blocks(&self) -> usize {
        self.header.nodes
    }

    /// The sums that its writer was given.
    pub fn totals(&self) -> &IfTreeTotals {
        &self.header.totals
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        let files = size_of_val(&*self.files) + size_of_val(&*self.levels);
        size_of::<IfTree>() + files + self.prefix.len()
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    pub(super) fn head_bytes(&self) -> usize {
        self.header.head_bytes
    }

    /// The bytes of the tree.
    #[cfg(test)]
    pub(super) fn end(&self) -> usize {
        self.header.end()
    }

    /// The number of bytes of the filters that are not in nodes.
    #[cfg(test)]
    pub(super) fn filter_bytes(&self) -> usize {
        self.header.filter_bytes
    }

    /// Counts a search, or a part of one.
    pub(super) fn count(&self, searches: u64, counts: &SearchCounts) {
        if let Some((gets, _)) = &self.counted {
            gets.searched(searches, counts);
        }
    }

    /// Reads group `number` of a level into `out`, and checks it. Returns its bytes after the
    /// checksum. REQUIRES: `out` has room for a group, and the level has it.
    #[inline]
    pub(super) fn read_group<'a>(
        &self,
        level: usize,
        number: usize,
        out: &'a mut [u8],
        counts: &mut SearchCounts,
    ) -> Result<&'a [u8]> {
        let level = &self.levels[level];
        let (at, out) = (level.place(number), &mut out[..level.group_bytes]);
        self.space.read(at, out)?;
        counts.lines += line_count(at, out.len());
        unsealed(out, self.space.id(), at).ok_or_else(|| self.space.damaged(at, "a whole group"))
    }

    /// The filter of node `i` of `group`, which is group `number`.
    pub(super) fn filter(&self, group: &[u8], number: usize, i: usize) -> Result<NodeFilter> {
        let filter = NodeFilter::decode(group, i, self.head_bytes());
        filter.ok_or_else(|| {
            let at = self.levels[0].place(number);
            self.space.damaged(at, "a node with a known filter")
        })
    }

    /// The rest of node `i` of `group`, which is group `number`, checked against its file.
    pub(super) fn node(&self, group: &[u8], number: usize, i: usize) -> Result<NodeRest> {
        let at = self.levels[0].place(number);
        let node = NodeRest::decode(group, i, self.head_bytes()).ok_or_else(|| {
            self.space
                .damaged(at, "a node with a known codec and filter")
        })?;
        let Some(file) = self.files.get(node.file) else {
            return Err(self
                .space
                .damaged(at, "a node's file among the tree's files"));
        };
        match node.handle.is_bounded(file.valid_len) {
            true => Ok(node),
            false => Err(self.space.damaged(at, "a block within its file")),
        }
    }

    /// Calls `test` with the filter at a place, checked. A short one takes no allocation.
    pub(super) fn with_filter<T>(
        &self,
        place: FilterPlace,
        counts: &mut SearchCounts,
        test: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        const SHORT: usize = 192;
        let (start, len) = (place.at as usize, CRC_BYTES + place.len as usize);
        let at = self.filters_at + start;
        if start + len > self.header.filter_bytes {
            return Err(self.space.damaged(at, "a filter among the tree's filters"));
        }
        let (mut short, mut long) = ([0; SHORT], Vec::new());
        let out = match short.get_mut(..len) {
            Some(short) => short,
            None => {
                long.resize(len, 0);
                &mut long[..]
            }
        };
        self.space.read(at, out)?;
        counts.lines += line_count(at, len);
        match unsealed(out, self.space.id(), at) {
            Some(filter) => Ok(test(filter)),
            None => Err(self.space.damaged(at, "a whole filter")),
        }
    }
}

/// The bytes between the header and the nodes, decoded.
pub(super) struct FilesAndPrefix {
    files: Box<[IfTreeFile]>,
    prefix: Box<[u8]>,
}

/// Reads and checks the files and the prefix of the tree in `space`.
///
/// # Errors
/// `Corruption` or `Changed` if they are damaged.
pub(super) fn read_files(space: &IfTreeSpace, header: &Header) -> Result<FilesAndPrefix> {
    let damaged = |what| space.damaged(HEADER_BYTES, what);
    if header.end() as u64 > space.extent().len {
        return Err(damaged("files, nodes and filters within the extent"));
    }
    let mut bytes = vec![0; header.files_bytes()];
    space.read(HEADER_BYTES, &mut bytes)?;
    let whole = matches(&sites::IF_TREE_FILES_CHECK, header.files_crc, || {
        header.crc_of_files(&bytes)
    });
    if !whole {
        return Err(damaged("whole files and prefix"));
    }
    let (files, prefix) = bytes.split_at(header.files * FILE_BYTES);
    let files: Option<Box<[IfTreeFile]>> =
        files.chunks(FILE_BYTES).map(IfTreeFile::decode).collect();
    let files = files.filter(|files| files.is_sorted_by_key(|file| file.run));
    let files = files.ok_or_else(|| damaged("files, the newest run first"))?;
    let prefix = prefix.into();
    Ok(FilesAndPrefix { files, prefix })
}

/// The cache lines of `bytes` at `at` of a tree.
fn line_count(at: usize, bytes: usize) -> u64 {
    firn_pm::line_range(at as u64, bytes as u64).count_lines()
}

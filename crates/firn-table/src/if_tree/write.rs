//! Writes a tree, from the summaries of its tables' blocks, or from another tree:
//!
//! 1. The bounds, locations and filters of all blocks are gathered in memory.
//! 2. The prefix that all bounds share, and the least size of heads at which hardly any neighbours
//!    of a run tie, are chosen; nodes are sorted, and the levels above them made.
//! 3. All bytes after the header are copied, with one fence, then the header, with another. So a
//!    header that is found has a whole tree after it.
//!
//! Nothing leads to the tree until a record of the manifest names it. A write that fails frees what
//! it allocated.

use super::layout::{
    CRC_BYTES, FANOUT, FILES_MAX, FilterPlace, GROUP_NODES, HEAD_BYTES, HEAD_BYTES_MAX,
    HEADER_BYTES, Header, INLINE_BYTES, IfTreeFile, IfTreeTotals, Level, NodeFilter, NodeRest,
    OFFSET_END, PREFIX_BYTES_MAX, head_of, seal,
};
use super::nodes::{Head, read_nodes};
use super::read::IfTree;
use super::space::IfTreeSpace;
use crate::sites;
use crate::sst::{BlockHandle, BlockSummary};
use firn_base::key::shared_prefix_len;
use firn_base::sync::Mutex;
use firn_base::{Error, FileId, Result};
use firn_pm::{Extent, Frozen, Headroom, Owner, Pool};
use std::ops::Range;
use std::sync::Arc;

/// The share of neighbouring blocks that may tie before heads become larger.
const TIES_SHARE_MAX: f64 = 0.01;

/// The parameters of a tree to be written.
#[derive(Debug, Clone)]
pub struct IfTreeOptions {
    /// The tree's id.
    pub id: FileId,
    /// Sums over its tables.
    pub totals: IfTreeTotals,
}

/// Writes a tree, file by file.
pub struct IfTreeWriter {
    pool: Arc<Pool>,
    headroom: Option<Arc<Mutex<Headroom>>>,
    options: IfTreeOptions,
    files: Vec<IfTreeFile>,
    blocks: Vec<Gathered>,
    /// The keys and the filters of the blocks.
    bytes: Vec<u8>,
    /// The most bytes of the prefix and of a head, as far as bounds from other trees are known.
    prefix_max: usize,
    head_max: usize,
}

/// A block, as ranges of the gathered bytes.
struct Gathered {
    file: usize,
    smallest: Range<usize>,
    largest: Range<usize>,
    filter: Range<usize>,
    handle: BlockHandle,
    /// True if it comes from another tree. Its bounds then are prefix and head, zeros included.
    is_inherited: bool,
}

/// A block with the heads of its bounds. Bytes past the size of a head are zeros.
struct Placed<'a> {
    start: Head,
    end: Head,
    block: &'a Gathered,
}

/// The bounds below a group: its first start and its greatest end.
type Span = (Head, Head);

impl IfTreeWriter {
    /// A writer of an empty tree. It allocates from `headroom`, if that is given, else from the
    /// free space.
    pub fn new(
        pool: Arc<Pool>,
        options: IfTreeOptions,
        headroom: Option<Arc<Mutex<Headroom>>>,
    ) -> IfTreeWriter {
        IfTreeWriter {
            pool,
            headroom,
            options,
            files: Vec::new(),
            blocks: Vec::new(),
            bytes: Vec::new(),
            prefix_max: PREFIX_BYTES_MAX,
            head_max: HEAD_BYTES_MAX,
        }
    }

    /// Adds the blocks of a file, in their order. Files come newest run first, and in key order in
    /// a run.
    ///
    /// # Errors
    /// `Invalid` if a file or a block is not in order, or a block not within its file, or there
    /// are more than 65,535 files. The tree must then be abandoned.
    pub fn add_file<'a>(
        &mut self,
        file: IfTreeFile,
        blocks: impl IntoIterator<Item = BlockSummary<'a>>,
    ) -> Result<()> {
        let number = self.begin_file(file)?;
        for block in blocks {
            let is_run = |before: &&Gathered| {
                self.files[before.file].run == file.run && !before.is_inherited
            };
            let before = self.blocks.last().filter(is_run);
            let last = before.map_or(&[][..], |before| &self.bytes[before.largest.clone()]);
            let in_order = *last <= block.smallest[..] && block.smallest[..] <= *block.largest;
            let bounded = block.handle.is_bounded(file.valid_len.min(OFFSET_END));
            if !in_order || !bounded {
                let what = format!("the block at {} of file {}", block.handle.offset, file.id);
                let why = match in_order {
                    true => "is not within its file",
                    false => "is out of order",
                };
                return Err(Error::invalid(format!("{what} {why}")));
            }
            let smallest = self.keep(&block.smallest);
            let largest = self.keep(&block.largest);
            let filter = self.keep(block.filter);
            self.blocks.push(Gathered {
                file: number,
                smallest,
                largest,
                filter,
                handle: block.handle,
                is_inherited: false,
            });
        }
        Ok(())
    }

    /// Adds files of another tree with the blocks that it has of them, so that no table need be
    /// read again. `run` says the rank that a file's run has now, or `None` to leave the file out.
    /// Files of a run come either from one tree or from [`IfTreeWriter::add_file`].
    ///
    /// Of a bound only the prefix and the head are known, so the prefix and the heads of this tree
    /// become no longer than those of the other one.
    ///
    /// # Errors
    /// `Corruption` if the other tree is damaged; `Invalid` as `add_file`. This tree must then be
    /// abandoned.
    pub fn add_tree(
        &mut self,
        tree: &IfTree,
        mut run: impl FnMut(&IfTreeFile) -> Option<u32>,
    ) -> Result<()> {
        let mut numbers = Vec::with_capacity(tree.files().len());
        for file in tree.files() {
            let kept = run(file).map(|run| IfTreeFile { run, ..*file });
            numbers.push(kept.map(|kept| self.begin_file(kept)).transpose()?);
        }
        let mut nodes = read_nodes(tree)?;
        // Stable: blocks of a file stay in order.
        nodes.sort_by_key(|node| node.file);
        self.prefix_max = self.prefix_max.min(tree.prefix().len());
        self.head_max = self.head_max.min(tree.head_bytes());
        for node in nodes {
            let Some(file) = numbers.get(node.file).copied().flatten() else {
                continue;
            };
            let mut bound = |head: &Head| {
                let start = self.keep(tree.prefix()).start;
                start..self.keep(&head[..tree.head_bytes()]).end
            };
            let (smallest, largest) = (bound(&node.start), bound(&node.end));
            let filter = self.keep(&node.filter);
            self.blocks.push(Gathered {
                file,
                smallest,
                largest,
                filter,
                handle: node.handle,
                is_inherited: true,
            });
        }
        Ok(())
    }

    /// Adds a file. Returns its number.
    fn begin_file(&mut self, file: IfTreeFile) -> Result<usize> {
        let wrong = |what: &str| Err(Error::invalid(format!("tree {}: {what}", self.options.id)));
        if self.files.len() == FILES_MAX {
            return wrong("more than 65,535 files");
        }
        if self.files.last().is_some_and(|last| last.run > file.run) {
            return wrong("files are added newest run first");
        }
        self.files.push(file);
        Ok(self.files.len() - 1)
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// The number of blocks so far.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> usize {
        let blocks = self.blocks.len() * (size_of::<Gathered>() + size_of::<Placed<'_>>());
        self.bytes.len() + blocks + self.files.len() * size_of::<IfTreeFile>()
    }

    /// Completes the tree. DURABLE AFTER, where the pool is durable at the fence: all of it.
    ///
    /// # Errors
    /// `NoSpace` if the pool is full, which then is as it was; `Invalid` if there is no block.
    pub fn finish(self) -> Result<IfTreeSpace> {
        let (header, image) = self.image()?;
        let extent = self.alloc(header.end() as u64)?;
        let frozen = self.write(&header, &image, extent).inspect_err(|_| {
            // If it cannot be freed now it is free at the next open, because nothing names it.
            let _stays = self.pool.free(extent);
        })?;
        Ok(IfTreeSpace::new(self.pool, self.options.id, frozen))
    }

    fn write(&self, header: &Header, image: &[u8], extent: Extent) -> Result<Frozen> {
        let body = extent.at(HEADER_BYTES as u64);
        let body = body.ok_or_else(|| Error::invalid("an extent has room for a header"))?;
        let _durable = self
            .pool
            .write_durable(&sites::IF_TREE_FENCE, body, &[image])?;
        let encoded = header.encode(&self.pool.uuid(), extent.offset.get());
        let fenced = self
            .pool
            .write_durable(&sites::IF_TREE_FENCE, extent.offset, &[&encoded])?;
        self.pool.freeze(extent, &fenced)
    }

    fn alloc(&self, len: u64) -> Result<Extent> {
        match &self.headroom {
            Some(headroom) => headroom.lock().alloc_up_to(len, len, Owner::IfTree),
            None => self.pool.alloc(len, Owner::IfTree),
        }
    }

    /// The header, and all bytes after it.
    fn image(&self) -> Result<(Header, Vec<u8>)> {
        if self.blocks.is_empty() {
            return Err(Error::invalid("a tree without blocks is not written"));
        }
        let prefix = self.prefix();
        let head_bytes = self.head_bytes(prefix.len());
        let mut header = Header {
            id: self.options.id,
            head_bytes,
            totals: self.options.totals,
            nodes: self.blocks.len(),
            files: self.files.len(),
            prefix_bytes: prefix.len(),
            filter_bytes: 0,
            files_crc: 0,
        };
        let mut image = Image {
            writer: self,
            head_bytes,
            bytes: vec![0; HEADER_BYTES],
            filters: Vec::new(),
            filters_at: header.filters_at(),
        };
        for file in &self.files {
            file.encode(&mut image.bytes);
        }
        image.bytes.extend_from_slice(prefix);
        header.files_crc = header.crc_of_files(&image.bytes[HEADER_BYTES..]);
        let nodes = self.placed(prefix.len(), head_bytes);
        let mut spans = Vec::new();
        for (number, level) in header.levels().iter().enumerate() {
            spans = match number {
                0 => image.put_nodes(level, &nodes),
                _ => image.put_entries(level, &spans),
            };
        }
        header.filter_bytes = image.filters.len();
        if header.nodes.max(header.filter_bytes) > u32::MAX as usize {
            return Err(Error::invalid("a tree of more than 4 GiB is not written"));
        }
        image.bytes.append(&mut image.filters);
        Ok((header, image.bytes.split_off(HEADER_BYTES)))
    }

    /// The blocks in the order of their nodes.
    fn placed(&self, prefix: usize, head_bytes: usize) -> Vec<Placed<'_>> {
        let head = |key: &Range<usize>| {
            let mut head = head_of(&self.bytes[key.clone()], prefix);
            head[head_bytes..].fill(0);
            head
        };
        let placed = self.blocks.iter().map(|block| Placed {
            start: head(&block.smallest),
            end: head(&block.largest),
            block,
        });
        let mut nodes: Vec<Placed<'_>> = placed.collect();
        // The sort is stable: blocks of a file stay in order, and so do files of a run.
        nodes.sort_by_key(|node| (node.start, self.files[node.block.file].run));
        nodes
    }

    /// The prefix that all bounds share.
    fn prefix(&self) -> &[u8] {
        let keys = |key: fn(&Gathered) -> &Range<usize>| {
            let blocks = self.blocks.iter();
            blocks.map(move |block| &self.bytes[key(block).clone()])
        };
        let least = keys(|block| &block.smallest).min().unwrap_or_default();
        let most = keys(|block| &block.largest).max().unwrap_or_default();
        &least[..shared_prefix_len(least, most).min(self.prefix_max)]
    }

    /// The size of heads: the least at which hardly any block's largest key ties with a different
    /// key at the beginning of the next block of its run.
    fn head_bytes(&self, prefix: usize) -> usize {
        let mut ties = [0u32; HEAD_BYTES.len()];
        for pair in self.blocks.windows(2) {
            let largest = &self.bytes[pair[0].largest.clone()];
            let smallest = &self.bytes[pair[1].smallest.clone()];
            let is_run = self.files[pair[0].file].run == self.files[pair[1].file].run;
            if !is_run || largest == smallest {
                continue;
            }
            let (a, b) = (head_of(largest, prefix), head_of(smallest, prefix));
            for (ties, bytes) in ties.iter_mut().zip(HEAD_BYTES) {
                *ties += u32::from(a[..bytes] == b[..bytes]);
            }
        }
        let most = self.blocks.len() as f64 * TIES_SHARE_MAX;
        let mut fits = HEAD_BYTES.iter().zip(ties);
        let fits = fits.find(|(_, ties)| f64::from(*ties) <= most);
        let bytes = fits.map_or(HEAD_BYTES_MAX, |(bytes, _)| *bytes);
        bytes.min(self.head_max)
    }
}

/// The bytes of a tree under construction. Those of the header are zeros.
struct Image<'a> {
    writer: &'a IfTreeWriter,
    head_bytes: usize,
    bytes: Vec<u8>,
    /// The filters that are not in nodes, and their place.
    filters: Vec<u8>,
    filters_at: usize,
}

impl Image<'_> {
    /// Begins a group of a level, at its place.
    fn begin(&mut self, level: &Level, number: usize) {
        self.bytes.resize(level.place(number) + CRC_BYTES, 0);
    }

    /// Ends the group. Returns the bounds below it.
    fn end(&mut self, level: &Level, number: usize, below: impl Iterator<Item = Span>) -> Span {
        let at = level.place(number);
        self.bytes.resize(at + level.group_bytes, 0);
        seal(&mut self.bytes[at..], self.writer.options.id, at);
        let joined = below.reduce(|all, next| (all.0, all.1.max(next.1)));
        joined.unwrap_or_default()
    }

    fn put_nodes(&mut self, level: &Level, nodes: &[Placed<'_>]) -> Vec<Span> {
        let mut spans = Vec::with_capacity(level.groups);
        for (number, group) in nodes.chunks(GROUP_NODES).enumerate() {
            self.begin(level, number);
            for node in group {
                let rest = NodeRest {
                    handle: node.block.handle,
                    file: node.block.file,
                    filter: self.put_filter(&node.block.filter),
                };
                self.put_span(&(node.start, node.end));
                rest.encode(&mut self.bytes);
            }
            let below = group.iter().map(|node| (node.start, node.end));
            spans.push(self.end(level, number, below));
        }
        spans
    }

    fn put_entries(&mut self, level: &Level, below: &[Span]) -> Vec<Span> {
        let mut spans = Vec::with_capacity(level.groups);
        for (number, group) in below.chunks(FANOUT).enumerate() {
            self.begin(level, number);
            group.iter().for_each(|span| self.put_span(span));
            spans.push(self.end(level, number, group.iter().copied()));
        }
        spans
    }

    fn put_span(&mut self, (start, end): &Span) {
        self.bytes.extend_from_slice(&start[..self.head_bytes]);
        self.bytes.extend_from_slice(&end[..self.head_bytes]);
    }

    /// The filter as its node has it. One that is too long goes beside the nodes.
    fn put_filter(&mut self, filter: &Range<usize>) -> NodeFilter {
        let filter = &self.writer.bytes[filter.clone()];
        if filter.len() <= INLINE_BYTES {
            let mut inline = [0; INLINE_BYTES];
            inline[..filter.len()].copy_from_slice(filter);
            return NodeFilter::Inline(inline, filter.len() as u8);
        }
        let at = self.filters.len();
        self.filters.extend_from_slice(&[0; CRC_BYTES]);
        self.filters.extend_from_slice(filter);
        let (id, place) = (self.writer.options.id, self.filters_at + at);
        seal(&mut self.filters[at..], id, place);
        NodeFilter::Beside(FilterPlace {
            at: at as u32,
            len: filter.len() as u32,
        })
    }
}

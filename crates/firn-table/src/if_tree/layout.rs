//! The bytes of a tree in a pool.
//!
//! ```text
//! tree     header (128 bytes) | file ... | shared prefix | group of nodes ..., at a multiple of 64
//!          | level above: group of entries ... | ... | the last level: one group | filter ...,
//!          in one extent
//! header   magic: u64 | CRC-32C: u32 | version: u8 | bytes of a head: u8 | 0: u16 | id: u64
//!          | database: 16 bytes | entries of the tables: u64 | superseded ones among them: u64
//!          | nodes: u32 | files: u32 | bytes of the prefix: u32 | bytes of the filters: u32
//!          | CRC-32C of files and prefix: u32 | 0: 52 bytes
//! file     id: u64 | valid length: u64 | run, the newest is 0: u32 | 0: u32
//! nodes    CRC-32C: u32 | node (4 of them, the last group is filled up with zeros)
//! node     head of the block's smallest key | head of its largest key | offset: u48
//!          | stored length: u32 | raw length: u32 | CRC-32C of the stored bytes: u32 | file: u16
//!          | codec: u8 | kind of filter: u8 | 9 bytes of filter
//! entries  CRC-32C: u32 | entry (up to 7) | zeros up to 16 heads
//! entry    the first start below it: a head | the greatest end below it: a head
//! filter   CRC-32C: u32 | bytes
//! ```
//! A head has 8, 16 or 24 bytes: those of a key after the prefix that all bounds share, padded with
//! zeros. A kind of filter up to 9 is the number of its bytes, which are in the node; 255 says that
//! the 9 bytes are its place among the filters, u32, its length, u32, and 0.
//!
//! 1. Nodes are in the order of (start, run, file, block in the file). Files are newest run first,
//!    and in key order in a run, so nodes of a run are in the order of its blocks.
//! 2. Heads are compared inclusively. A smaller key never has a greater head, so a search finds too
//!    many blocks, never too few; keys may be of any length.
//! 3. A search goes down an entry by its augment, the greatest end below it, and by its start. No
//!    node decides about another.
//!
//! **Rot is never a silent miss.** A search leaves out a block because of one of four things, and
//! each is under a checksum that is verified, on a copy of the bytes, before the search depends on
//! it:
//! - the number of nodes, the files and the prefix: header and files, verified at the open and kept
//!   in memory;
//! - an entry of a level, and a node's bounds: the group's, verified each time a search reads it;
//! - a filter in a node: the group's too;
//! - a filter beside the nodes: its own.
//!
//! A group is what a search reads anyway, two to six lines, so its checksum costs no further line.
//! Checksums are salted with the tree's id and the place in the tree: neither another group nor
//! another tree, which may have reused the extent of a reader in another process, passes. The
//! header's is salted with the place in the pool. Bytes under no checksum, between the parts and
//! after the last, are never read.

use crate::sites;
use crate::sst::{BlockHandle, Codec};
use firn_base::FileId;
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::coding::Reader;

/// `firniftr` as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"firniftr");
const VERSION: u8 = 1;
pub(super) const HEADER_BYTES: usize = 128;
pub(super) const FILE_BYTES: usize = 24;
/// Bytes of a checksum, with which groups and filters begin.
pub(super) const CRC_BYTES: usize = 4;
/// The nodes of a group.
pub(super) const GROUP_NODES: usize = 4;
/// The entries of a group.
pub(super) const FANOUT: usize = 7;
/// The sizes of heads.
pub(super) const HEAD_BYTES: [usize; 3] = [8, 16, 24];
/// The largest size of a head.
pub(super) const HEAD_BYTES_MAX: usize = 24;
/// The most bytes of a filter in its node.
pub(super) const INLINE_BYTES: usize = 9;
const KIND_BESIDE: u8 = 255;
/// Bytes of a node without its two heads.
const NODE_REST_BYTES: usize = 6 + 4 + 4 + 4 + 2 + 1 + 1 + INLINE_BYTES;
/// The most bytes of a group of either kind.
pub(super) const GROUP_BYTES_MAX: usize = 16 * HEAD_BYTES_MAX;
/// The most bytes of the shared prefix.
pub(super) const PREFIX_BYTES_MAX: usize = 1 << 12;
/// The most files.
pub(super) const FILES_MAX: usize = u16::MAX as usize;
/// The end of the offsets that a node can have.
pub(super) const OFFSET_END: u64 = 1 << 48;
const LINE_BYTES: usize = 64;

const _: () = assert!(8 + 4 + 4 + 8 + 16 + 2 * 8 + 5 * 4 + 52 == HEADER_BYTES);
const _: () = assert!(8 + 8 + 4 + 4 == FILE_BYTES);
const _: () = assert!(node_bytes(8) == 47 && node_bytes(16) == 63 && node_bytes(24) == 79);
const _: () = assert!(nodes_bytes(8) == 192 && nodes_bytes(16) == 256 && nodes_bytes(24) == 320);
const _: () = assert!(CRC_BYTES + GROUP_NODES * node_bytes(8) == nodes_bytes(8));
const _: () = assert!(CRC_BYTES + GROUP_NODES * node_bytes(24) == nodes_bytes(24));
const _: () = assert!(CRC_BYTES + FANOUT * 2 * 8 <= entries_bytes(8));
const _: () = assert!(nodes_bytes(24) <= GROUP_BYTES_MAX && entries_bytes(24) <= GROUP_BYTES_MAX);

/// Bytes of a node with heads of `head` bytes.
pub(super) const fn node_bytes(head: usize) -> usize {
    2 * head + NODE_REST_BYTES
}

/// Bytes of a group of nodes, whole lines.
const fn nodes_bytes(head: usize) -> usize {
    8 * head + 128
}

/// Bytes of a group of entries, whole lines.
const fn entries_bytes(head: usize) -> usize {
    16 * head
}

/// A file whose blocks a tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IfTreeFile {
    /// The file's id.
    pub id: FileId,
    /// Bytes of the file that belong to its table.
    pub valid_len: u64,
    /// The rank of its run: 0 is the newest.
    pub run: u32,
}

impl IfTreeFile {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(&self.valid_len.to_le_bytes());
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<IfTreeFile> {
        let mut reader = Reader::new(bytes);
        Some(IfTreeFile {
            id: FileId(reader.u64()?),
            valid_len: reader.u64()?,
            run: reader.u32()?,
        })
    }
}

/// Sums over the tables of a tree when it was written, which a policy wants to find again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IfTreeTotals {
    /// Entries.
    pub entries: u64,
    /// The superseded ones among them.
    pub superseded: u64,
}

/// A tree's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: FileId,
    pub(super) head_bytes: usize,
    pub(super) totals: IfTreeTotals,
    pub(super) nodes: usize,
    pub(super) files: usize,
    pub(super) prefix_bytes: usize,
    pub(super) filter_bytes: usize,
    /// The checksum of files and prefix.
    pub(super) files_crc: u32,
}

impl Header {
    /// Bytes of the files and the prefix.
    pub(super) fn files_bytes(&self) -> usize {
        self.files * FILE_BYTES + self.prefix_bytes
    }

    /// The levels of the tree, from the groups of nodes up to a single group.
    pub(super) fn levels(&self) -> Vec<Level> {
        let at = (HEADER_BYTES + self.files_bytes()).next_multiple_of(LINE_BYTES);
        let mut level = Level {
            at,
            groups: self.nodes.div_ceil(GROUP_NODES),
            group_bytes: nodes_bytes(self.head_bytes),
        };
        let mut levels = vec![level];
        while level.groups > 1 {
            level = Level {
                at: level.end(),
                groups: level.groups.div_ceil(FANOUT),
                group_bytes: entries_bytes(self.head_bytes),
            };
            levels.push(level);
        }
        levels
    }

    /// The place of the filters that are not in nodes.
    pub(super) fn filters_at(&self) -> usize {
        self.levels().last().map_or(HEADER_BYTES, Level::end)
    }

    /// The bytes of the tree.
    pub(super) fn end(&self) -> usize {
        self.filters_at() + self.filter_bytes
    }

    /// The checksum of files and prefix.
    pub(super) fn crc_of_files(&self, bytes: &[u8]) -> u32 {
        crc32c_salted(self.id.0, HEADER_BYTES as u64, &[bytes])
    }

    /// The header's bytes, for a tree at `offset` in the pool of the database `uuid`.
    pub(super) fn encode(&self, uuid: &[u8; 16], offset: u64) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[VERSION, self.head_bytes as u8, 0, 0]);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(uuid);
        out.extend_from_slice(&self.totals.entries.to_le_bytes());
        out.extend_from_slice(&self.totals.superseded.to_le_bytes());
        let halves = [
            self.nodes as u32,
            self.files as u32,
            self.prefix_bytes as u32,
            self.filter_bytes as u32,
            self.files_crc,
        ];
        for half in halves {
            out.extend_from_slice(&half.to_le_bytes());
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[..out.len()].copy_from_slice(&out);
        let crc = header_crc(&bytes, self.id, offset);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header in `bytes`, which are at `offset` in the pool of the database `uuid`; `None` if
    /// there is none.
    pub(super) fn decode(
        bytes: &[u8; HEADER_BYTES],
        uuid: &[u8; 16],
        offset: u64,
    ) -> Option<Header> {
        let mut reader = Reader::new(bytes);
        if reader.u64()? != MAGIC {
            return None;
        }
        let crc = reader.u32()?;
        let (version, head_bytes) = (reader.u8()?, usize::from(reader.u8()?));
        let _zero = reader.u16()?;
        let id = FileId(reader.u64()?);
        let of_uuid = reader.take(16)?;
        let whole = matches(&sites::IF_TREE_HEADER_CHECK, crc, || {
            header_crc(bytes, id, offset)
        });
        if version != VERSION || of_uuid != uuid || !whole {
            return None;
        }
        let totals = IfTreeTotals {
            entries: reader.u64()?,
            superseded: reader.u64()?,
        };
        let mut half = || reader.u32().map(|half| half as usize);
        let header = Header {
            id,
            head_bytes,
            totals,
            nodes: half()?,
            files: half()?,
            prefix_bytes: half()?,
            filter_bytes: half()?,
            files_crc: half()? as u32,
        };
        header.is_sane().then_some(header)
    }

    fn is_sane(&self) -> bool {
        HEAD_BYTES.contains(&self.head_bytes)
            && self.nodes > 0
            && (1..=FILES_MAX).contains(&self.files)
            && self.prefix_bytes <= PREFIX_BYTES_MAX
    }
}

fn header_crc(bytes: &[u8; HEADER_BYTES], id: FileId, offset: u64) -> u32 {
    crc32c_salted(id.0, offset, &[&bytes[..8], &bytes[12..]])
}

/// The groups of nodes, or the groups of entries at some height above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) at: usize,
    pub(super) groups: usize,
    pub(super) group_bytes: usize,
}

impl Level {
    /// The place of a group.
    pub(super) fn place(&self, group: usize) -> usize {
        self.at + group * self.group_bytes
    }

    pub(super) fn end(&self) -> usize {
        self.place(self.groups)
    }
}

/// Puts the checksum of `bytes`, a group or a filter at `at` of tree `id`, at their beginning.
pub(super) fn seal(bytes: &mut [u8], id: FileId, at: usize) {
    let (crc, rest) = bytes.split_at_mut(CRC_BYTES);
    crc.copy_from_slice(&crc32c_salted(id.0, at as u64, &[rest]).to_le_bytes());
}

/// The bytes after the checksum of a group or a filter at `at` of tree `id`; `None` if they are
/// not whole.
#[inline]
pub(super) fn unsealed(bytes: &[u8], id: FileId, at: usize) -> Option<&[u8]> {
    let (crc, rest) = bytes.split_first_chunk::<CRC_BYTES>()?;
    let computed = || crc32c_salted(id.0, at as u64, &[rest]);
    matches(
        &sites::IF_TREE_GROUP_CHECK,
        u32::from_le_bytes(*crc),
        computed,
    )
    .then_some(rest)
}

/// The head of a key after `prefix` bytes: [`HEAD_BYTES_MAX`] bytes, of which a tree's heads have
/// the first.
#[inline]
pub(super) fn head_of(key: &[u8], prefix: usize) -> [u8; HEAD_BYTES_MAX] {
    let mut head = [0; HEAD_BYTES_MAX];
    let rest = key.get(prefix..).unwrap_or_default();
    let len = rest.len().min(HEAD_BYTES_MAX);
    head[..len].copy_from_slice(&rest[..len]);
    head
}

/// Two heads of `head` bytes in the bytes of a group: entry or node `i`, each of `size` bytes.
#[inline]
pub(super) fn bounds(group: &[u8], i: usize, size: usize, head: usize) -> Option<(&[u8], &[u8])> {
    let heads = group.get(i * size..i * size + 2 * head)?;
    Some(heads.split_at(head))
}

/// True if head `a` is above head `b`, of the same size.
#[inline]
pub(super) fn is_above(a: &[u8], b: &[u8]) -> bool {
    match (a.split_first_chunk::<8>(), b.split_first_chunk::<8>()) {
        (Some((a, a_rest)), Some((b, b_rest))) => {
            let (a, b) = (u64::from_be_bytes(*a), u64::from_be_bytes(*b));
            a > b || (a == b && a_rest > b_rest)
        }
        _ => a > b,
    }
}

/// The part of a node after its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRest {
    pub(super) handle: BlockHandle,
    pub(super) file: usize,
    pub(super) filter: NodeFilter,
}

/// The filter of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeFilter {
    /// In the node: its bytes, of which so many count.
    Inline([u8; INLINE_BYTES], u8),
    /// Beside the nodes, so many bytes at this place among the filters, after a checksum.
    Beside(FilterPlace),
}

/// The place of a filter among those that are not in nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FilterPlace {
    pub(super) at: u32,
    /// Bytes of the filter, without the checksum before it.
    pub(super) len: u32,
}

impl NodeFilter {
    /// The filter of node `i` of a group, which a search needs before the rest; `None` if it is
    /// damaged.
    #[inline]
    pub(super) fn decode(group: &[u8], i: usize, head: usize) -> Option<NodeFilter> {
        let end = (i + 1) * node_bytes(head);
        let (kind, bytes) = group.get(end - INLINE_BYTES - 1..end)?.split_first()?;
        let bytes = *bytes.first_chunk::<INLINE_BYTES>()?;
        match *kind {
            KIND_BESIDE => {
                let mut place = Reader::new(&bytes);
                Some(NodeFilter::Beside(FilterPlace {
                    at: place.u32()?,
                    len: place.u32()?,
                }))
            }
            len if usize::from(len) <= INLINE_BYTES => Some(NodeFilter::Inline(bytes, len)),
            _ => None,
        }
    }
}

impl NodeRest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.offset.to_le_bytes()[..6]);
        out.extend_from_slice(&self.handle.stored_len.to_le_bytes());
        out.extend_from_slice(&self.handle.raw_len.to_le_bytes());
        out.extend_from_slice(&self.handle.crc.to_le_bytes());
        out.extend_from_slice(&(self.file as u16).to_le_bytes());
        out.push(self.handle.codec as u8);
        match self.filter {
            NodeFilter::Inline(bytes, len) => {
                out.push(len);
                out.extend_from_slice(&bytes);
            }
            NodeFilter::Beside(place) => {
                out.push(KIND_BESIDE);
                out.extend_from_slice(&place.at.to_le_bytes());
                out.extend_from_slice(&place.len.to_le_bytes());
                out.push(0);
            }
        }
    }

    /// The rest of node `i` of a group; `None` if it is damaged.
    pub(super) fn decode(group: &[u8], i: usize, head: usize) -> Option<NodeRest> {
        let (size, rest_at) = (node_bytes(head), 2 * head);
        let mut reader = Reader::new(group.get(i * size + rest_at..(i + 1) * size)?);
        let (low, high) = (reader.u32()?, reader.u16()?);
        let (stored_len, raw_len, crc) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let file = usize::from(reader.u16()?);
        let codec = Codec::from_byte(reader.u8()?)?;
        Some(NodeRest {
            handle: BlockHandle {
                offset: u64::from(high) << 32 | u64::from(low),
                stored_len,
                raw_len,
                crc,
                codec,
            },
            file,
            filter: NodeFilter::decode(group, i, head)?,
        })
    }
}

//! Compares a tree with the tables that it is over: every node with its block, the order of the
//! nodes, and the augment above them.

use super::layout::{FANOUT, GROUP_BYTES_MAX, GROUP_NODES, IfTreeFile, bounds, head_of};
use super::nodes::{Head, Node, read_nodes};
use super::read::IfTree;
use super::search::SearchCounts;
use crate::sst::BlockSummary;
use firn_base::{Error, Result};
use std::collections::HashMap;

/// The counts of a tree that was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IfTreeReport {
    /// Files.
    pub files: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Checks that the tree has these tables' blocks and no others, each with its bounds, location and
/// filter, in order, below entries with the first start and the greatest end of each group. The
/// tables come newest run first, and in key order in a run.
///
/// # Errors
/// `Corruption` naming the first difference; `Changed` if another process reused the space.
pub fn verify<'a, B>(
    tree: &IfTree,
    tables: impl IntoIterator<Item = (IfTreeFile, B)>,
) -> Result<IfTreeReport>
where
    B: IntoIterator<Item = BlockSummary<'a>>,
{
    let nodes = read_nodes(tree)?;
    verify_order(tree, &nodes)?;
    verify_augment(tree, &nodes).map_err(|error| tree.space().told(error))?;
    let mut numbers: HashMap<(usize, u64), usize> = HashMap::new();
    for (number, node) in nodes.iter().enumerate() {
        let key = (node.file, node.handle.offset);
        if numbers.insert(key, number).is_some() {
            return Err(wrong(tree, node, "one node of a block"));
        }
    }
    let mut files = 0;
    let mut last: Option<(u32, usize)> = None;
    for (file, blocks) in tables {
        if tree.files().get(files) != Some(&file) {
            let expected = format!("file {} as number {files} of the tree's files", file.id);
            return Err(tree.space().damaged(0, &expected));
        }
        for block in blocks {
            let Some(number) = numbers.remove(&(files, block.handle.offset)) else {
                let at = block.handle.offset;
                let expected = format!("a node for the block at {at} of file {}", file.id);
                return Err(tree.space().damaged(0, &expected));
            };
            verify_node(tree, &nodes[number], &block)?;
            if last.is_some_and(|(run, last)| run == file.run && last >= number) {
                return Err(wrong(tree, &nodes[number], "a run's nodes in block order"));
            }
            last = Some((file.run, number));
        }
        files += 1;
    }
    if let Some(extra) = numbers.values().min() {
        return Err(wrong(tree, &nodes[*extra], "no node without a block"));
    }
    if files != tree.files().len() {
        return Err(tree.space().damaged(0, "no file that is not given"));
    }
    Ok(IfTreeReport {
        files: files as u64,
        blocks: nodes.len() as u64,
    })
}

/// The error for a node.
fn wrong(tree: &IfTree, node: &Node, expected: &str) -> Error {
    let file = tree.files()[node.file].id;
    let block = format!("block at {} of file {file}", node.handle.offset);
    tree.space().damaged(0, &format!("{expected}: {block}"))
}

fn head(bytes: &[u8]) -> Head {
    head_of(bytes, 0)
}

/// Checks that the nodes are sorted by (start, run, file).
fn verify_order(tree: &IfTree, nodes: &[Node]) -> Result<()> {
    let key = |node: &Node| (node.start, tree.files()[node.file].run, node.file);
    match nodes.windows(2).find(|pair| key(&pair[0]) > key(&pair[1])) {
        Some(pair) => Err(wrong(tree, &pair[1], "nodes in order")),
        None => Ok(()),
    }
}

/// Checks each entry above the nodes: the first start and the greatest end below it.
fn verify_augment(tree: &IfTree, nodes: &[Node]) -> Result<()> {
    let join = |group: &[(Head, Head)]| {
        let end = group.iter().map(|span| span.1).max();
        (group[0].0, end.unwrap_or_default())
    };
    let spans: Vec<(Head, Head)> = nodes.iter().map(|node| (node.start, node.end)).collect();
    let mut below: Vec<(Head, Head)> = spans.chunks(GROUP_NODES).map(join).collect();
    let (head_bytes, mut counts) = (tree.head_bytes(), SearchCounts::default());
    let mut bytes = [0; GROUP_BYTES_MAX];
    for (level, place) in tree.levels().iter().enumerate().skip(1) {
        for (number, children) in below.chunks(FANOUT).enumerate() {
            let group = tree.read_group(level, number, &mut bytes, &mut counts)?;
            for (i, span) in children.iter().enumerate() {
                let found = bounds(group, i, 2 * head_bytes, head_bytes);
                let (start, end) = found.unwrap_or_default();
                if (head(start), head(end)) != *span {
                    let expected = "the first start and the greatest end below an entry";
                    return Err(tree.space().damaged(place.place(number), expected));
                }
            }
        }
        below = below.chunks(FANOUT).map(join).collect();
    }
    Ok(())
}

/// Compares a node with its block.
fn verify_node(tree: &IfTree, node: &Node, block: &BlockSummary<'_>) -> Result<()> {
    let head = |key: &[u8]| {
        let mut head = head_of(key, tree.prefix().len());
        head[tree.head_bytes()..].fill(0);
        head
    };
    let prefixed = |key: &[u8]| key.starts_with(tree.prefix());
    if !prefixed(&block.smallest) || !prefixed(&block.largest) {
        return Err(wrong(tree, node, "the shared prefix in both bounds"));
    }
    if node.start != head(&block.smallest) {
        return Err(wrong(tree, node, "the head of the smallest key"));
    }
    if node.end != head(&block.largest) {
        return Err(wrong(tree, node, "the head of the largest key"));
    }
    if node.handle != block.handle {
        return Err(wrong(tree, node, "the location and checksum of the block"));
    }
    if node.filter != block.filter {
        return Err(wrong(tree, node, "the filter of the block"));
    }
    Ok(())
}

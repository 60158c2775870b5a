//! Reads all nodes of a tree, for whoever wants them in another order.

use super::layout::node_bytes;
use super::layout::{GROUP_BYTES_MAX, GROUP_NODES, HEAD_BYTES_MAX, NodeFilter, bounds, head_of};
use super::read::IfTree;
use super::search::SearchCounts;
use crate::sst::BlockHandle;
use firn_base::Result;

/// A head, with zeros after its size.
pub(super) type Head = [u8; HEAD_BYTES_MAX];

/// A node, decoded.
pub(super) struct Node {
    pub(super) start: Head,
    pub(super) end: Head,
    pub(super) handle: BlockHandle,
    pub(super) file: usize,
    pub(super) filter: Vec<u8>,
}

/// All nodes, in their order.
///
/// # Errors
/// `Corruption` if a group or a filter is damaged; `Changed` if another process reused the space.
pub(super) fn read_nodes(tree: &IfTree) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for number in 0..tree.levels()[0].groups {
        let read = read_group(tree, number, &mut nodes);
        read.map_err(|error| tree.space().told(error))?;
    }
    Ok(nodes)
}

fn read_group(tree: &IfTree, number: usize, nodes: &mut Vec<Node>) -> Result<()> {
    let (head_bytes, mut counts) = (tree.head_bytes(), SearchCounts::default());
    let mut bytes = [0; GROUP_BYTES_MAX];
    let group = tree.read_group(0, number, &mut bytes, &mut counts)?;
    for i in 0..GROUP_NODES.min(tree.blocks() - number * GROUP_NODES) {
        let node = tree.node(group, number, i)?;
        let filter = match node.filter {
            NodeFilter::Inline(bytes, len) => bytes[..usize::from(len)].to_vec(),
            NodeFilter::Beside(place) => tree.with_filter(place, &mut counts, <[u8]>::to_vec)?,
        };
        let found = bounds(group, i, node_bytes(head_bytes), head_bytes);
        let (start, end) = found.unwrap_or_default();
        nodes.push(Node {
            start: head_of(start, 0),
            end: head_of(end, 0),
            handle: node.handle,
            file: node.file,
            filter,
        });
    }
    Ok(())
}

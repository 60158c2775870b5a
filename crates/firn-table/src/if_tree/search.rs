//! Finds the blocks of a tree that may have a key: a stabbing query. It goes from the last level
//! down to each group of nodes that begins at or before the key and ends at or after it, tests the
//! filters of the nodes whose bounds match, and answers the newest run first.
//!
//! 1. No false no: each block whose keys include the key is among the candidates, because heads
//!    ascend with keys and filters have no false no.
//! 2. In a run candidates are in the order of its blocks. Nodes are in that order already, so the
//!    sort by run is stable.
//! 3. A filter in a node is tested at once, because its bytes are there. One beside the nodes is
//!    tested only when its turn comes, because a get that finds the key earlier saves its lines.
//! 4. Nothing is allocated for up to [`INLINE`] candidates whose filters are in nodes.

use super::layout::{
    FANOUT, FilterPlace, GROUP_BYTES_MAX, GROUP_NODES, HEAD_BYTES_MAX, NodeFilter, bounds, head_of,
    is_above, node_bytes,
};
use super::read::IfTree;
use crate::sst::{BlockHandle, may_contain};
use firn_base::{FileId, Result};

/// Candidates that take no allocation.
const INLINE: usize = 16;

/// The costs of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchCounts {
    /// Nodes whose bounds were compared, and entries above them.
    pub nodes: u64,
    /// Cache lines of persistent memory read.
    pub lines: u64,
    /// Filters tested.
    pub tests: u64,
    /// The tests that excluded the key.
    pub rejected: u64,
}

impl SearchCounts {
    fn since(&self, before: &SearchCounts) -> SearchCounts {
        SearchCounts {
            nodes: self.nodes - before.nodes,
            lines: self.lines - before.lines,
            tests: self.tests - before.tests,
            rejected: self.rejected - before.rejected,
        }
    }

    /// Counts the test of a filter, which answered `may`.
    #[inline]
    fn tested(&mut self, may: bool) {
        self.tests += 1;
        self.rejected += u64::from(!may);
    }
}

/// A block that may have the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The number of its file in [`IfTree::files`].
    pub file: usize,
    /// The file's id.
    pub id: FileId,
    /// The rank of its run: 0 is the newest.
    pub run: u32,
    /// Its location and encoding.
    pub handle: BlockHandle,
}

/// The wish of a visitor of candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// The next candidate.
    Next,
    /// The next one of an older run, because later blocks of this run do not have the key.
    NextRun,
    /// No more.
    Stop,
}

/// A node whose bounds match.
#[derive(Debug, Clone, Copy, Default)]
struct Match {
    run: u32,
    file: u16,
    /// A filter that is still to be tested.
    filter: Option<FilterPlace>,
    handle: BlockHandle,
}

/// The blocks that may have a key, the newest run first, and in a run in the order of its blocks.
#[derive(Debug)]
pub struct Candidates {
    inline: [Match; INLINE],
    /// All matches, once they are more than [`INLINE`].
    more: Vec<Match>,
    count: usize,
    next: usize,
    hash: u64,
    counts: SearchCounts,
}

impl Candidates {
    fn new(hash: u64) -> Candidates {
        Candidates {
            inline: [Match::default(); INLINE],
            more: Vec::new(),
            count: 0,
            next: 0,
            hash,
            counts: SearchCounts::default(),
        }
    }

    fn push(&mut self, found: Match) {
        match self.inline.get_mut(self.count) {
            Some(place) => *place = found,
            None => {
                if self.more.is_empty() {
                    self.more.extend_from_slice(&self.inline);
                }
                self.more.push(found);
            }
        }
        self.count += 1;
    }

    /// Sorts the matches by their runs. The sort is stable, and allocates nothing for a few.
    fn sort(&mut self) {
        let all = match self.count <= INLINE {
            true => &mut self.inline[..self.count],
            false => &mut self.more[..],
        };
        all.sort_by_key(|found| found.run);
    }

    /// The next candidate. REQUIRES: `tree` is the one that was searched.
    ///
    /// # Errors
    /// `Corruption` if a filter is damaged; `Changed` if another process reused the space.
    pub fn next(&mut self, tree: &IfTree) -> Result<Option<Candidate>> {
        let (before, mut passed) = (self.counts, None);
        while let Some(found) = self.at(self.next) {
            self.next += 1;
            let may = match found.filter {
                None => true,
                Some(place) => {
                    let test = |filter: &[u8]| may_contain(filter, self.hash);
                    let tested = tree.with_filter(place, &mut self.counts, test);
                    let may = tested.map_err(|error| tree.space().told(error))?;
                    self.counts.tested(may);
                    may
                }
            };
            if may {
                passed = Some(found);
                break;
            }
        }
        if self.counts != before {
            tree.count(0, &self.counts.since(&before));
        }
        Ok(passed.map(|found| Candidate {
            file: usize::from(found.file),
            id: tree.files()[usize::from(found.file)].id,
            run: found.run,
            handle: found.handle,
        }))
    }

    fn at(&self, at: usize) -> Option<Match> {
        let all = match self.count <= INLINE {
            true => &self.inline[..self.count],
            false => &self.more[..],
        };
        all.get(at).copied()
    }

    /// Passes over the other blocks of the last candidate's run.
    pub fn skip_run(&mut self) {
        let last = self.next.checked_sub(1).and_then(|last| self.at(last));
        while last.is_some() && last.map(|m| m.run) == self.at(self.next).map(|m| m.run) {
            self.next += 1;
        }
    }

    /// The costs so far.
    pub fn counts(&self) -> SearchCounts {
        self.counts
    }
}

impl IfTree {
    /// The blocks that may have the key with this [`crate::sst::hash`].
    ///
    /// # Errors
    /// `Corruption` if a group of nodes or entries is damaged, because it might have led to the
    /// key; `Changed` if another process reused the space.
    pub fn search(&self, key: &[u8], hash: u64) -> Result<Candidates> {
        let mut found = Candidates::new(hash);
        // All bounds share the prefix, and so does a key between two of them.
        let result = match key.strip_prefix(self.prefix()) {
            Some(rest) => {
                let top = self.levels().len() - 1;
                self.descend(top, 0, &head_of(rest, 0), &mut found)
            }
            None => Ok(()),
        };
        found.sort();
        self.count(1, &found.counts);
        result.map_err(|error| self.space().told(error))?;
        Ok(found)
    }

    /// Calls `visit` with the blocks that may have the key, the newest run first, and in a run in
    /// the order of its blocks, until it has enough.
    ///
    /// # Errors
    /// As [`IfTree::search`], and the error of `visit`.
    pub fn candidates(
        &self,
        key: &[u8],
        hash: u64,
        mut visit: impl FnMut(&Candidate) -> Result<Visit>,
    ) -> Result<SearchCounts> {
        let mut found = self.search(key, hash)?;
        while let Some(candidate) = found.next(self)? {
            match visit(&candidate)? {
                Visit::Next => {}
                Visit::NextRun => found.skip_run(),
                Visit::Stop => break,
            }
        }
        Ok(found.counts)
    }

    /// Adds the matches at or below group `number` of a level. The depth of the recursion is that
    /// of the tree.
    fn descend(
        &self,
        level: usize,
        number: usize,
        head: &[u8; HEAD_BYTES_MAX],
        found: &mut Candidates,
    ) -> Result<()> {
        let Some(below) = level.checked_sub(1) else {
            return self.visit_nodes(number, head, found);
        };
        let mut bytes = [0; GROUP_BYTES_MAX];
        let group = self.read_group(level, number, &mut bytes, &mut found.counts)?;
        let (head_bytes, first) = (self.head_bytes(), number * FANOUT);
        let wanted = &head[..head_bytes];
        for i in 0..FANOUT.min(self.levels()[below].groups - first) {
            found.counts.nodes += 1;
            let Some((start, end)) = bounds(group, i, 2 * head_bytes, head_bytes) else {
                break;
            };
            if is_above(start, wanted) {
                break;
            }
            if !is_above(wanted, end) {
                self.descend(below, first + i, head, found)?;
            }
        }
        Ok(())
    }

    /// Adds the matches of group `number` of the nodes.
    fn visit_nodes(
        &self,
        number: usize,
        head: &[u8; HEAD_BYTES_MAX],
        found: &mut Candidates,
    ) -> Result<()> {
        let mut bytes = [0; GROUP_BYTES_MAX];
        let group = self.read_group(0, number, &mut bytes, &mut found.counts)?;
        let (head_bytes, first) = (self.head_bytes(), number * GROUP_NODES);
        let (wanted, size) = (&head[..head_bytes], node_bytes(head_bytes));
        for i in 0..GROUP_NODES.min(self.blocks() - first) {
            found.counts.nodes += 1;
            let Some((start, end)) = bounds(group, i, size, head_bytes) else {
                break;
            };
            if is_above(start, wanted) {
                break;
            }
            if is_above(wanted, end) {
                continue;
            }
            let filter = match self.filter(group, number, i)? {
                NodeFilter::Beside(place) => Some(place),
                NodeFilter::Inline(_, 0) => None,
                NodeFilter::Inline(bytes, len) => {
                    let may = may_contain(&bytes[..usize::from(len)], found.hash);
                    found.counts.tested(may);
                    if !may {
                        continue;
                    }
                    None
                }
            };
            let node = self.node(group, number, i)?;
            found.push(Match {
                run: self.files()[node.file].run,
                file: node.file as u16,
                filter,
                handle: node.handle,
            });
        }
        Ok(())
    }
}

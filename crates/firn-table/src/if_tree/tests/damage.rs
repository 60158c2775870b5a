//! Damage and lies: a rotted bit is noticed or changes no answer, and what is not so is refused.

use super::*;
use crate::if_tree::layout::{CRC_BYTES, HEADER_BYTES, Header, PREFIX_BYTES_MAX, node_bytes, seal};
use firn_base::Result;

/// The answers to all keys, or the first error.
fn answers(tree: &IfTree, keys: &[Vec<u8>]) -> Result<Vec<Vec<(usize, u64)>>> {
    keys.iter().map(|key| found(tree, key)).collect()
}

fn claimed(pool: &Arc<Pool>, extent: Extent) -> Result<IfTree> {
    IfTree::open(Arc::new(claim(pool, FileId(1), extent)?))
}

/// A stack of some runs, of nodes with filters in them and beside them, and keys to ask for.
fn sample(seed: u64) -> (Stack, Vec<Vec<u8>>) {
    let mut seed = Seed::new(seed);
    let keys = keys(&mut seed, 2, 120);
    let mut stack = Stack::default();
    for run in 0..6 {
        let size = [1, 3, 5, 9, 20, 2][run as usize];
        let blocks = keys.chunks(size).map(<[Vec<u8>]>::to_vec).collect();
        stack.add_run(&mut seed, run, vec![blocks]);
    }
    (stack, keys)
}

#[test]
fn no_damage_goes_unnoticed() {
    let (stack, keys) = sample(12);
    let world = World::new(256 << 10);
    let tree = world.write(1, &stack);
    let (extent, end) = (tree.space().extent(), tree.end());
    let right = answers(&tree, &keys).unwrap();
    drop(tree);
    let whole = world.sim.durable();
    let (mut seen, mut seed) = (0, Seed::new(3));
    for at in 0..extent.len {
        let mut image = whole.clone();
        image[(extent.offset.get() + at) as usize] ^= 1 << seed.below(8);
        let pool = pool_of(image);
        match claimed(&pool, extent).and_then(|tree| answers(&tree, &keys)) {
            Ok(got) => assert!(got == right, "a wrong answer from byte {at}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                seen += 1;
            }
        }
    }
    // All but the bytes before the first group are read by some get.
    assert!(seen + 64 > end, "{seen} of {end}");
}

#[test]
fn what_rots_after_the_open_hides_no_block() {
    let (stack, keys) = sample(13);
    let world = World::new(256 << 10);
    let extent = world.write(1, &stack).space().extent();
    let (mut noticed, mut seed) = (0, Seed::new(2));
    for _ in 0..150 {
        let sim = SimRegion::from_image(world.sim.durable(), Mode::Adr);
        let pool = Arc::new(Pool::open_simulated(&sim, UUID).unwrap());
        let tree = claimed(&pool, extent).unwrap();
        let right = answers(&tree, &keys).unwrap();
        let other = Pool::open_simulated(&sim, UUID).unwrap();
        other.claim(extent, Owner::IfTree).unwrap();
        // Another process writes there, as if it were the medium: any byte, or a whole group in
        // the place of another one.
        let nodes = tree.levels()[0];
        let group = seed.below(nodes.groups as u64 - 1) as usize;
        let (at, from, len) = match seed.one_in(2) {
            true => (
                nodes.place(group),
                nodes.place(group + 1),
                nodes.group_bytes,
            ),
            false => {
                let at = nodes.at + seed.below((tree.end() - nodes.at) as u64) as usize;
                (at, HEADER_BYTES + at % 7, 1)
            }
        };
        let mut bytes = vec![0; len];
        pool.read(extent.at(from as u64).unwrap(), &mut bytes)
            .unwrap();
        let dirty = other.store(extent.at(at as u64).unwrap(), &bytes).unwrap();
        let _flushed = other.flush(&crate::sites::IF_TREE_FENCE, dirty);
        for (key, right) in keys.iter().zip(right) {
            match found(&tree, key) {
                Ok(found) => assert_eq!(found, right),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    noticed += 1;
                }
            }
        }
    }
    assert!(noticed > 1_000, "{noticed}");
}

#[test]
fn a_reader_beside_the_writer_notices_that_the_space_was_reused() {
    let world = World::new(1 << 20);
    let (stacks, keys) = ([sample(1).0, sample(2).0], sample(1).1);
    let tree = world.write(1, &stacks[0]);
    let (extent, right) = (tree.space().extent(), answers(&tree, &keys).unwrap());
    let reader = Arc::new(Pool::open_simulated_read_only(&world.sim, UUID).unwrap());
    let foreign = || Arc::new(IfTreeSpace::foreign(reader.clone(), FileId(1), extent));
    let beside = IfTree::open(foreign()).unwrap();
    assert_eq!(answers(&beside, &keys).unwrap(), right);
    Arc::into_inner(tree.into_space())
        .unwrap()
        .release()
        .unwrap();
    let reused = world.write(2, &stacks[1]);
    assert_eq!(reused.space().extent().offset, extent.offset);
    for key in &keys {
        let kind = found(&beside, key).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::Changed));
    }
    let opened = IfTree::open(foreign()).map_err(|error| error.kind());
    assert_eq!(opened.err(), Some(ErrorKind::Changed));
    let verified = verify(&beside, stacks[0].tables()).map_err(|error| error.kind());
    assert_eq!(verified.err(), Some(ErrorKind::Changed));
}

/// A tree of `stack` whose bytes were changed, and then sealed again.
struct Lie {
    image: Vec<u8>,
    extent: Extent,
    header: Header,
}

impl Lie {
    fn new() -> Lie {
        let world = World::new(256 << 10);
        let tree = world.write(1, &sample(12).0);
        Lie {
            image: world.sim.durable(),
            extent: tree.space().extent(),
            header: tree.space().header().unwrap(),
        }
    }

    fn bytes(&mut self, at: usize, len: usize) -> &mut [u8] {
        let at = self.extent.offset.get() as usize + at;
        &mut self.image[at..at + len]
    }

    /// Writes the header, changed.
    fn with_header(mut self, change: impl FnOnce(&mut Header)) -> Lie {
        let mut header = self.header;
        change(&mut header);
        let encoded = header.encode(&UUID, self.extent.offset.get());
        self.bytes(0, HEADER_BYTES).copy_from_slice(&encoded);
        self
    }

    /// Changes the files and the prefix.
    fn with_files(mut self, change: impl FnOnce(&mut [u8])) -> Lie {
        let len = self.header.files_bytes();
        change(self.bytes(HEADER_BYTES, len));
        let mut header = self.header;
        header.files_crc = header.crc_of_files(self.bytes(HEADER_BYTES, len));
        self.with_header(|of| *of = header)
    }

    /// Changes the part of each node after its bounds.
    fn with_nodes(mut self, change: impl Fn(&mut [u8])) -> Lie {
        let (level, head) = (self.header.levels()[0], self.header.head_bytes);
        for number in 0..level.groups {
            let at = level.place(number);
            let group = self.bytes(at, level.group_bytes);
            for node in group[CRC_BYTES..].chunks_mut(node_bytes(head)) {
                change(&mut node[2 * head..]);
            }
            seal(group, FileId(1), at);
        }
        self
    }

    /// The error of opening it, or of the searches.
    fn told(self) -> String {
        let pool = pool_of(self.image);
        let (_, keys) = sample(12);
        let result = claimed(&pool, self.extent).and_then(|tree| answers(&tree, &keys));
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        error.to_string()
    }
}

#[test]
fn lies_are_refused() {
    let header = |change: fn(&mut Header)| {
        let told = Lie::new().with_header(change).told();
        assert!(told.contains("a tree's header"), "{told}");
    };
    header(|header| header.nodes = u32::MAX as usize);
    header(|header| header.nodes = 0);
    header(|header| header.nodes += 1_000);
    header(|header| header.files = u32::MAX as usize);
    header(|header| header.files = 0);
    header(|header| header.prefix_bytes = PREFIX_BYTES_MAX);
    header(|header| header.prefix_bytes = u32::MAX as usize);
    header(|header| header.filter_bytes = u32::MAX as usize);
    header(|header| header.head_bytes = 9);
    header(|header| header.id = FileId(2));
    header(|header| header.files_crc ^= 1);
    // Fewer of them than there are, in bytes that are there.
    header(|header| header.files -= 1);
    let told = Lie::new().with_header(|header| header.nodes -= 40).told();
    assert!(told.contains("a whole"), "{told}");
    let told = Lie::new()
        .with_header(|header| header.filter_bytes -= 40)
        .told();
    assert!(told.contains("a filter among the tree's filters"), "{told}");
    let told = Lie::new().with_files(|files| files[16] = 9).told();
    assert!(told.contains("a tree's header and files"), "{told}");
    let short = |files: &mut [u8]| files[8..16].copy_from_slice(&70u64.to_le_bytes());
    let told = Lie::new().with_files(short).told();
    assert!(told.contains("a block within its file"), "{told}");
    let nodes = |change: fn(&mut [u8]), words: &str| {
        let told = Lie::new().with_nodes(change).told();
        assert!(told.contains(words), "{told}");
    };
    // The file, the offset, the lengths, the codec and the kind of filter.
    nodes(|node| node[18] = 6, "a node's file among the tree's files");
    nodes(|node| node[5] = 1, "a block within its file");
    nodes(|node| node[9] = 255, "a block within its file");
    nodes(|node| node[13] = 255, "a block within its file");
    nodes(|node| node[20] = 3, "a known codec and filter");
    nodes(|node| node[21] = 10, "a known filter");
    nodes(
        |node| node[21..30].fill(255),
        "a filter among the tree's filters",
    );
}

//! Gets over real tables, none of which is open, against a sorted map.

use super::*;
use crate::sst::{
    BlockGot, BlockReader, BlockStep, BlockSummaries, Query, Sst, SstOptions, SstWriter,
};
use crate::{BlockCache, TableContext};
use firn_base::count::{Cause, IoCounters};
use firn_base::key::Kind;
use firn_base::{Limits, SeqNo, Tag};
use firn_fs::{OpenMode, SimFs, open_file};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Entries in their order: key, then newest first.
type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Vec<u8>>;

/// A stack of tables, the newest first, and all their entries.
struct Tables {
    fs: SimFs,
    model: Model,
    files: Vec<(IfTreeFile, Arc<BlockSummaries>, Arc<Sst>)>,
    readers: Vec<BlockReader>,
    context: TableContext,
}

fn context() -> TableContext {
    let cache = Arc::new(BlockCache::new(64 << 10));
    TableContext::new(cache, Arc::new(IoCounters::default()))
}

fn key(number: u64) -> Vec<u8> {
    format!("user{number:05}").into_bytes()
}

impl Tables {
    /// Writes `runs` tables. Older ones have lower sequence numbers.
    fn new(seed: &mut Seed, runs: u64) -> Tables {
        let mut tables = Tables {
            fs: SimFs::new(1),
            model: Model::new(),
            files: Vec::new(),
            readers: Vec::new(),
            context: context(),
        };
        for run in 0..runs {
            let mut entries = Model::new();
            for i in 0..60 + seed.below(200) {
                let seqno = (runs - run) * 1_000 + i;
                let kind = if seed.one_in(9) {
                    Kind::Delete
                } else {
                    Kind::Put
                };
                let mut value = vec![0; seed.below(120) as usize];
                seed.fill(&mut value);
                // One key has so many versions that they span blocks.
                let key = if seed.one_in(6) {
                    key(7)
                } else {
                    key(seed.below(400))
                };
                entries.insert((key, Reverse(Tag::new(SeqNo(seqno), kind).0)), value);
            }
            tables.write(FileId(50 + run), run as u32, &entries);
            tables.model.append(&mut entries);
        }
        tables
    }

    fn write(&mut self, id: FileId, run: u32, entries: &Model) {
        let path = PathBuf::from(format!("/{id}"));
        let file = open_file(&self.fs, &path, OpenMode::Create).unwrap();
        let options = SstOptions {
            block_filter_bits: BITS,
            ..SstOptions::new(&Limits::tiny())
        };
        let counters = Arc::new(IoCounters::default());
        let mut writer = SstWriter::new(file, id, options, counters, Cause::Flush);
        for ((key, tag), value) in entries {
            writer.add(key, Tag(tag.0), value).unwrap();
        }
        let meta = writer.finish().unwrap();
        let file = open_file(&self.fs, &path, OpenMode::Read).unwrap();
        let table = Sst::open(file.clone(), id, meta.extent, context()).unwrap();
        self.readers
            .push(BlockReader::new(file, id, self.context.clone()));
        let file = IfTreeFile {
            id,
            valid_len: meta.extent.valid_len,
            run,
        };
        self.files
            .push((file, meta.blocks.unwrap(), Arc::new(table)));
    }

    fn tree(&self, world: &World) -> IfTree {
        let mut writer = IfTreeWriter::new(world.pool.clone(), options(1), None);
        for (file, blocks, _) in &self.files {
            writer.add_file(*file, blocks.iter()).unwrap();
        }
        IfTree::open(Arc::new(writer.finish().unwrap())).unwrap()
    }

    /// The newest entry at or below the read point, and the number of blocks asked.
    fn get(&self, tree: &IfTree, query: &Query<'_>, waits: bool) -> (Option<(u64, Vec<u8>)>, u32) {
        let mut candidates = tree.search(query.key, query.hash).unwrap();
        let mut asked = 0;
        while let Some(candidate) = candidates.next(tree).unwrap() {
            asked += 1;
            let reader = &self.readers[candidate.file];
            assert_eq!(reader.id(), candidate.id);
            let got = match waits {
                true => reader.get(&candidate.handle, query).unwrap(),
                false => match reader.begin_get(&candidate.handle, query).unwrap() {
                    BlockStep::Done(got) => got,
                    BlockStep::Pending(pending) => reader.finish_get(pending, query).unwrap(),
                },
            };
            match got {
                BlockGot::Found { tag, value, .. } => {
                    return (Some((tag.0, value.to_vec())), asked);
                }
                BlockGot::Absent { .. } => candidates.skip_run(),
                BlockGot::PastEnd { .. } => {}
            }
        }
        (None, asked)
    }
}

#[test]
fn gets_over_a_stack_of_tables_need_none_open() {
    let mut seed = Seed::new(17);
    for runs in [1, 3, 12] {
        let tables = Tables::new(&mut seed, runs);
        let world = World::new(1 << 20);
        let tree = tables.tree(&world).counted_in(&tables.context);
        let held = tables.context.open_bytes();
        assert_eq!(held, tree.memory_bytes() as u64);
        let (mut gets, mut asked) = (0, 0);
        for round in 0..3_000 {
            let key = key(seed.below(410));
            let seqno = SeqNo(seed.below((runs + 1) * 1_000));
            let query = Query::new(&key, seqno);
            let from = (key.clone(), Reverse(Tag::seek(seqno).0));
            let wanted = tables.model.range(from..).next();
            let wanted = wanted.filter(|((at, _), _)| *at == key);
            let wanted = wanted.map(|((_, tag), value)| (tag.0, value.clone()));
            let (got, blocks) = tables.get(&tree, &query, round % 2 == 0);
            assert_eq!(got, wanted, "{key:?} at {seqno:?}");
            if seqno.0 >= runs * 1_000 + 300 {
                (gets, asked) = (gets + 1, asked + blocks);
            }
        }
        assert!(asked <= gets * 11 / 10, "{asked} blocks of {gets} gets");
        let counted = &tables.context.if_tree_gets;
        assert_eq!(counted.searches.get(), 3_000);
        assert!(counted.lines.get() > 3_000 && counted.tests.get() > counted.rejected.get());
    }
}

#[test]
fn a_tree_is_made_again_from_open_tables() {
    let mut seed = Seed::new(18);
    let tables = Tables::new(&mut seed, 5);
    let world = World::new(1 << 20);
    let tree = tables.tree(&world);
    let open = || {
        let files = tables.files.iter();
        files.map(|(file, _, table)| (*file, table.block_summaries()))
    };
    let report = verify(&tree, open()).unwrap();
    assert_eq!(report.files, 5);
    let mut writer = IfTreeWriter::new(world.pool.clone(), options(2), None);
    for (file, blocks) in open() {
        writer.add_file(file, blocks).unwrap();
    }
    let again = IfTree::open(Arc::new(writer.finish().unwrap())).unwrap();
    let written = tables.files.iter();
    let written = written.map(|(file, blocks, _)| (*file, blocks.iter()));
    assert_eq!(verify(&again, written).unwrap(), report);
    // One table less: its blocks have nodes that nothing asks for.
    let less = verify(&tree, open().take(4)).unwrap_err();
    assert_eq!(less.kind(), ErrorKind::Corruption);
}

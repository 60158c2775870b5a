//! Extents that grow at their end: bounds, refusals, borrows beside appends, and power cuts.

use super::*;
use crate::sim::{CrashImage, Explorer, Mode, SimRegion};
use crate::{Appender, Fenced, Growing};
use firn_base::Result;

fn growing(pool: &Pool, granules: u64) -> (Growing, Appender) {
    let extent = pool.alloc(granules * G, Owner::WriteBuffer).unwrap();
    pool.begin_growing(extent, 0).unwrap()
}

/// Appends `bytes` with a fence and reveals them.
fn add(pool: &Pool, handles: &mut (Growing, Appender), bytes: &[u8]) {
    let flushed = pool.append(&mut handles.1, &[bytes]).unwrap();
    let fenced = pool.fence(&TEST, flushed);
    pool.reveal(&handles.0, &handles.1, &fenced);
}

fn refused<T>(result: Result<T>) -> ErrorKind {
    result.err().unwrap().kind()
}

#[test]
fn appended_bytes_are_borrowed_once_they_are_revealed() {
    fn shared<T: Send + Sync>() {}
    shared::<Growing>();
    shared::<Appender>();
    let pool = volatile(4);
    let (readers, mut appender) = growing(&pool, 2);
    let flushed = pool.append(&mut appender, &[b"snow", b"", b"ice"]).unwrap();
    assert_eq!((readers.end(), appender.end()), (0, 7));
    let error = pool.borrow_grown(&readers, 0..7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let fenced = pool.fence(&TEST, flushed);
    pool.reveal(&readers, &appender, &fenced);
    let before = pool.borrow_grown(&readers, 0..7).unwrap();
    let flushed = pool.append(&mut appender, &[&[9; 300]]).unwrap();
    assert_eq!(before, b"snowice");
    assert_eq!(
        refused(pool.borrow_grown(&readers, 4..8)),
        ErrorKind::Corruption
    );
    #[expect(
        clippy::reversed_empty_ranges,
        reason = "a damaged length may give one"
    )]
    let reversed = 4..2;
    assert_eq!(
        refused(pool.borrow_grown(&readers, reversed)),
        ErrorKind::Corruption
    );
    let fenced = pool.fence(&TEST, flushed);
    pool.reveal(&readers, &appender, &fenced);
    assert_eq!(pool.borrow_grown(&readers, 7..307).unwrap(), [9; 300]);
    let counts = pool.counts(Owner::WriteBuffer);
    assert_eq!((counts.bytes_written, counts.bytes_read), (307, 307));
    assert_eq!(counts.fences, 2);
}

#[test]
fn an_append_stays_inside_its_extent() {
    let pool = volatile(4);
    let mut handles = growing(&pool, 1);
    let after = pool.alloc(G, Owner::Test).unwrap();
    add(&pool, &mut handles, &[1; 4000]);
    let error = pool
        .append(&mut handles.1, &[&[2; 90], &[2; 7]])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("the last 96"), "{error}");
    assert_eq!(handles.1.end(), 4000);
    add(&pool, &mut handles, &[3; 96]);
    assert_eq!(pool.borrow_grown(&handles.0, 4000..4096).unwrap(), [3; 96]);
    assert!(pool.append(&mut handles.1, &[&[4]]).is_err());
    let mut bytes = [7];
    pool.read(after.offset, &mut bytes).unwrap();
    assert_eq!(bytes, [0], "the neighbour was not written to");
}

#[test]
fn no_other_verb_stores_to_a_growing_extent() {
    let pool = volatile(4);
    let (readers, appender) = growing(&pool, 2);
    let extent = readers.extent();
    let last = extent.at(2 * G - 8).unwrap();
    let nothing = Fenced::nothing();
    assert_eq!(refused(pool.store(last, b"x")), ErrorKind::Invalid);
    assert_eq!(refused(pool.copy_nt(last, b"x")), ErrorKind::Invalid);
    assert_eq!(refused(pool.publish(last, 1, &nothing)), ErrorKind::Invalid);
    assert_eq!(refused(pool.freeze(extent, &nothing)), ErrorKind::Invalid);
    assert_eq!(refused(pool.adopt(extent)), ErrorKind::Invalid);
    assert_eq!(refused(pool.trim(extent, G)), ErrorKind::Invalid);
    assert_eq!(refused(pool.free(extent)), ErrorKind::Invalid);
    assert_eq!(refused(pool.begin_growing(extent, 0)), ErrorKind::Invalid);
    pool.free_grown(readers, appender).unwrap();
    pool.check().unwrap();
    let again = pool.alloc(extent.len, Owner::WriteBuffer).unwrap();
    assert_eq!(again.offset, extent.offset);
    let _dirty = pool.store(again.offset, b"x").unwrap();
}

#[test]
fn a_growing_extent_begins_live_unfrozen_and_inside() {
    let pool = volatile(4);
    let extent = pool.alloc(G, Owner::WriteBuffer).unwrap();
    assert_eq!(
        refused(pool.begin_growing(extent, G + 1)),
        ErrorKind::Invalid
    );
    let half = Extent::new(extent.offset.get(), G / 2);
    assert_eq!(refused(pool.begin_growing(half, 0)), ErrorKind::Invalid);
    let frozen = pool.freeze(extent, &Fenced::nothing()).unwrap();
    assert_eq!(refused(pool.begin_growing(extent, 0)), ErrorKind::Invalid);
    pool.free_frozen(frozen).unwrap();
    assert_eq!(refused(pool.begin_growing(extent, 0)), ErrorKind::Invalid);
}

#[test]
fn a_rooted_extent_is_not_freed() {
    let pool = volatile(2);
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let (readers, appender) = pool.begin_growing(extent, 0).unwrap();
    pool.commit_with(Fenced::nothing(), naming(1, extent))
        .unwrap();
    let (readers, appender, error) = pool.free_grown(readers, appender).unwrap_err();
    assert!(error.to_string().contains("generation 2"), "{error}");
    let unnamed = |root: &mut Root| {
        root.entries.clear();
        Ok(())
    };
    pool.commit_with(Fenced::nothing(), unnamed).unwrap();
    pool.free_grown(readers, appender).unwrap();
    assert_eq!(pool.usage().live_total(), 0);
}

#[test]
#[should_panic(expected = "a token of another pool")]
fn a_token_of_another_pool_reveals_nothing() {
    let (pool, other) = (volatile(2), volatile(2));
    let (readers, appender) = growing(&pool, 1);
    let (_, mut foreign) = growing(&other, 1);
    let flushed = other.append(&mut foreign, &[b"x"]).unwrap();
    pool.reveal(&readers, &appender, &other.fence(&TEST, flushed));
}

#[test]
#[should_panic(expected = "an Appender of another pool")]
fn an_appender_of_another_pool_appends_nothing() {
    let (pool, other) = (volatile(2), volatile(2));
    let (_, mut foreign) = growing(&other, 1);
    let _flushed = pool.append(&mut foreign, &[b"x"]);
}

#[test]
#[should_panic(expected = "the Appender of another extent")]
fn an_appender_of_another_extent_reveals_nothing() {
    let pool = volatile(2);
    let (readers, _) = growing(&pool, 1);
    let (_, other) = growing(&pool, 1);
    pool.reveal(&readers, &other, &Fenced::nothing());
}

#[test]
fn readers_borrow_while_one_appends() {
    let pool = volatile(8);
    let (readers, mut appender) = growing(&pool, 8);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..600u64 {
                let bytes = pattern(round);
                let flushed = pool.append(&mut appender, &[&bytes]).unwrap();
                let fenced = pool.fence(&TEST, flushed);
                pool.reveal(&readers, &appender, &fenced);
            }
        });
        let (mut at, mut round) = (0, 0);
        while round < 600 {
            let wanted = pattern(round);
            let end = at + wanted.len() as u64;
            if readers.end() >= end {
                assert_eq!(pool.borrow_grown(&readers, at..end).unwrap(), wanted);
                (at, round) = (end, round + 1);
            }
        }
    });
}

fn pattern(round: u64) -> Vec<u8> {
    let byte = |at| firn_base::seed::mix(round << 8 | at) as u8;
    (0..40 + round % 30).map(byte).collect()
}

const ROUNDS: u64 = 7;

/// The bytes of `rounds` rounds of [`script`], two appends in each.
fn contents(rounds: u64) -> Vec<u8> {
    (0..2 * rounds).flat_map(pattern).collect()
}

/// Names an extent, then appends to it with a fence for every two appends. Each round is one
/// operation.
fn script(sim: &SimRegion) -> Result<()> {
    let pool = Pool::open_simulated(sim, UUID)?;
    pool.finish_recovery()?;
    let extent = pool.alloc(G, Owner::Test)?;
    pool.commit_with(Fenced::nothing(), naming(1, extent))?;
    let (readers, mut appender) = pool.begin_growing(extent, 0)?;
    sim.end_operation();
    for round in 0..ROUNDS {
        let first = pool.append(&mut appender, &[&pattern(2 * round)])?;
        let second = pattern(2 * round + 1);
        let second = pool.append(&mut appender, &[&second[..10], &second[10..]])?;
        let fenced = pool.fence(&TEST, [first, second]);
        pool.reveal(&readers, &appender, &fenced);
        sim.end_operation();
    }
    Ok(())
}

/// Checks that everything revealed is there, and that the extent can grow on from there.
fn check(image: &CrashImage<'_>) -> Result<(), String> {
    let recovered = || -> Result<Vec<u8>> {
        let pool = Pool::open_simulated(image.sim, UUID)?;
        pool.finish_recovery()?;
        let Some(extent) = pool.root().find(Owner::Test, 1).and_then(|one| one.extent) else {
            return Ok(Vec::new());
        };
        let end = contents(image.operations.saturating_sub(1)).len() as u64;
        let (readers, mut appender) = pool.begin_growing(extent, end)?;
        let flushed = pool.append(&mut appender, &[b"more"])?;
        pool.reveal(&readers, &appender, &pool.fence(&TEST, flushed));
        Ok(pool.borrow_grown(&readers, 0..end + 4)?.to_vec())
    };
    let found = recovered().map_err(|error| error.to_string())?;
    let mut wanted = contents(image.operations.saturating_sub(1));
    wanted.extend_from_slice(b"more");
    if image.operations > 0 && found != wanted {
        return Err(format!("{found:?} after {}", image.operations));
    }
    Ok(())
}

#[test]
fn revealed_bytes_survive_every_cut() {
    for (mode, seed) in [(Mode::Adr, 1), (Mode::TornAdr, 2), (Mode::Eadr, 3)] {
        let explorer = Explorer {
            mode,
            seed,
            at_every_store: true,
            ..Explorer::new(32 << 10)
        };
        let report = explorer
            .run(script, check)
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.images > 30, "{report:?}");
    }
}

#[test]
fn an_extent_grows_on_after_a_restart() {
    let sim = SimRegion::new(32 << 10, Mode::Adr);
    script(&sim).unwrap();
    let pool = Pool::open_simulated(&sim.cut().killed(), UUID).unwrap();
    let unnamed = Extent::new(DATA_START + G, G);
    pool.claim(unnamed, Owner::WriteBuffer).unwrap();
    let named = pool.root().find(Owner::Test, 1).unwrap().extent.unwrap();
    let end = contents(ROUNDS).len() as u64;
    let mut handles = pool.begin_growing(named, end).unwrap();
    let mut others = pool.begin_growing(unnamed, 100).unwrap();
    pool.finish_recovery().unwrap();
    assert_eq!(
        pool.borrow_grown(&handles.0, 0..end).unwrap(),
        contents(ROUNDS)
    );
    add(&pool, &mut handles, b"firn");
    add(&pool, &mut others, b"corn");
    assert_eq!(
        pool.borrow_grown(&handles.0, end..end + 4).unwrap(),
        b"firn"
    );
    assert_eq!(pool.borrow_grown(&others.0, 100..104).unwrap(), b"corn");
    assert_eq!(
        refused(pool.borrow_grown(&others.0, 100..105)),
        ErrorKind::Corruption
    );
    pool.check().unwrap();
}

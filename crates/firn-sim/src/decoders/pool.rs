//! A whole pool, opened on simulated memory, claimed, read, committed to and opened again.
//!
//! Most of a pool is zero, so an input consists of the other parts: the head of the header page,
//! the heads of the two root slots, and the contents of the extents.

use super::patch::{put, put_u32, put_u64};
use super::{Target, check_refusal, real};
use crate::setup::Setup;
use firn_base::FileId;
use firn_base::checksum::crc32c_salted;
use firn_base::coding::{get_u32, get_u64};
use firn_base::site::TEST;
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{DATA_START, Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use firndb::{Db, ErrorKind, Result, proof};

const HEADER: usize = 128;
const SLOT: usize = 512;
const HEADS: usize = HEADER + 2 * SLOT;
const IMAGE: usize = 64 << 10;
const POOL_MAGIC: u64 = u64::from_le_bytes(*b"FIRNPOOL");
const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"FIRNROOT");
const SESSION_AT: usize = 64;
const POOL_BYTES_AT: usize = 32;
const ROOT_HEAD: usize = 128;
const ROOT_ENTRY: usize = 32;

/// A pool.
pub(super) const POOL: Target = Target {
    name: "pool",
    bytes_max: 8 << 10,
    run,
    seeds,
    mend,
};

/// The pool that an input represents.
fn image(bytes: &[u8]) -> Vec<u8> {
    let mut image = vec![0; IMAGE];
    let part = |from: usize, to: usize| bytes.get(from..to.min(bytes.len())).unwrap_or(&[]);
    put(&mut image, 0, part(0, HEADER));
    put(
        &mut image,
        GRANULE_BYTES as usize,
        part(HEADER, HEADER + SLOT),
    );
    put(
        &mut image,
        2 * GRANULE_BYTES as usize,
        part(HEADER + SLOT, HEADS),
    );
    put(
        &mut image,
        DATA_START as usize,
        part(HEADS, HEADS + IMAGE - DATA_START as usize),
    );
    image
}

/// The input that represents a pool. Only the first `data_max` bytes of the extents are included.
fn input(image: &[u8], data_max: usize) -> Vec<u8> {
    let part = |at: usize, len: usize| &image[at..at + len];
    let slots = [GRANULE_BYTES, 2 * GRANULE_BYTES].map(|at| part(at as usize, SLOT));
    [
        part(0, HEADER),
        slots[0],
        slots[1],
        part(DATA_START as usize, data_max),
    ]
    .concat()
}

fn uuid_of(bytes: &[u8]) -> [u8; 16] {
    bytes
        .get(16..32)
        .and_then(|uuid| uuid.try_into().ok())
        .unwrap_or_default()
}

fn run(bytes: &[u8]) {
    let uuid = uuid_of(bytes);
    let sim = SimRegion::from_image(image(bytes), Mode::Adr);
    match Pool::open_simulated(&sim, uuid) {
        Err(error) if error.kind() == ErrorKind::Invalid => {}
        Err(error) => check_refusal(&error, "a pool"),
        Ok(pool) => use_pool(&sim, pool, uuid),
    }
}

/// Checks that an opened pool adds up, can be used, and opens again.
fn use_pool(sim: &SimRegion, pool: Pool, uuid: [u8; 16]) {
    pool.check().expect("what was opened adds up");
    pool.finish_recovery().expect("all was claimed");
    pool.check().expect("what was recovered adds up");
    let mut logs = vec![0];
    for entry in &pool.root().entries {
        let Some(extent) = entry.extent else { continue };
        let frozen = pool
            .adopt(extent)
            .expect("a root's extent is live and named once");
        let bytes = pool
            .borrow(&frozen, 0..extent.len)
            .expect("a root's extent lies in the pool");
        assert_eq!(bytes.len() as u64, extent.len);
        logs.extend(get_u64(bytes, 8));
    }
    for log_id in logs {
        if let Err(error) = proof::replay_log(&[0; 64], Some(&pool), FileId(log_id), &uuid, true) {
            check_refusal(&error, "a log in a pool");
        }
    }
    let before = pool.root();
    for _ in 0..2 {
        pool.commit_with(Fenced::nothing(), |_| Ok(()))
            .expect("a root that was read can be written");
    }
    assert_eq!(pool.root().entries, before.entries);
    pool.close().expect("memory does not fail");
    drop(pool);
    let again = Pool::open_simulated(&SimRegion::from_image(sim.durable(), Mode::Adr), uuid);
    let again = again.expect("what was closed opens");
    assert!(again.was_clean() && again.root().generation == before.generation + 2);
}

fn seeds() -> Vec<Vec<u8>> {
    [made(true), made(false), of_database()]
        .into_iter()
        .map(|seed| seed.expect("a pool without a fault"))
        .collect()
}

/// A pool with a few extents.
fn made(closed: bool) -> Result<Vec<u8>> {
    let sim = SimRegion::new(IMAGE as u64, Mode::Adr);
    let pool = Pool::open_simulated(&sim, [5; 16])?;
    pool.finish_recovery()?;
    for (kind, owner) in [
        (0, Owner::LogBuffer),
        (1, Owner::LogBuffer),
        (2, Owner::Test),
    ] {
        let extent = pool.alloc(GRANULE_BYTES, owner)?;
        let fenced = pool.write_durable(&TEST, extent.offset, &[b"contents"])?;
        pool.commit_with(fenced, |root| {
            root.set(RootEntry {
                owner,
                kind,
                word: 9,
                extent: Some(extent),
            });
            Ok(())
        })?;
    }
    if closed {
        pool.close()?;
    }
    Ok(input(&sim.durable(), 64))
}

/// The pool of a log of a database whose process died, cut to the size of an input.
fn of_database() -> Result<Vec<u8>> {
    let (setup, memory) = (Setup::small(), SimRegion::new(40 << 10, Mode::Adr));
    let fs = setup.file_system(1);
    let (options, _inline, _clock) = setup.options(&fs, Some(&memory));
    let db = Db::open(real::DIR, options)?;
    for n in 0..9u8 {
        db.put([b'k', n], [n; 20])?;
    }
    let mut seed = input(&memory.durable(), 2 << 10);
    for slot in [HEADER, HEADER + SLOT] {
        put_u64(&mut seed, slot + POOL_BYTES_AT, IMAGE as u64);
    }
    mend(&mut seed);
    Ok(seed)
}

fn mend(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADS {
        return;
    }
    let uuid = uuid_of(bytes);
    let crc = crc32c_salted(POOL_MAGIC, 0, &[&bytes[..56]]);
    put_u32(bytes, 56, crc);
    let crc = crc32c_salted(
        POOL_MAGIC,
        SESSION_AT as u64,
        &[&uuid, &bytes[SESSION_AT..SESSION_AT + 4]],
    );
    put_u32(bytes, SESSION_AT + 4, crc);
    for (slot, page) in [(HEADER, GRANULE_BYTES), (HEADER + SLOT, 2 * GRANULE_BYTES)] {
        let entries = get_u32(bytes, slot + 12).unwrap_or(0) as usize;
        let len = ROOT_HEAD + entries.min((SLOT - ROOT_HEAD) / ROOT_ENTRY) * ROOT_ENTRY;
        put(bytes, slot + 40, &uuid);
        let record = &bytes[slot..slot + len];
        let crc = crc32c_salted(ROOT_MAGIC, page, &[&uuid, &record[..8], &record[12..]]);
        put_u32(bytes, slot + 8, crc);
    }
}

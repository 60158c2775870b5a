//! Lists in a pool: looked for, claimed, read in both directions, verified and salvaged.
//!
//! An input is the first data of a pool: the chunk of a list's entries, then its only segment.

use super::in_pool::{self, UUID, walk};
use super::patch::put_u32;
use super::{Target, check_refusal};
use firn_base::checksum::crc32c_salted;
use firn_base::coding::{get_u32, get_u64};
use firn_base::key::Kind;
use firn_base::{FileId, Result, SeqNo, Tag};
use firn_pm::{DATA_START, GRANULE_BYTES};
use firn_table::pm_skiplist::{
    Chunks, FoundList, List, ListIter, ListJob, ListOptions, ListWriter, Persist, claim,
    find_lists, salvage, verify,
};
use std::sync::Arc;

const POOL_BYTES: u64 = 32 << 10;
const UNIT: usize = GRANULE_BYTES as usize;
const HEAD: usize = 64;
const MAGIC: &[u8] = b"firnlist";

/// The lists of a pool.
pub(super) const LISTS: Target = Target {
    name: "skiplist",
    bytes_max: 2 * UNIT,
    run,
    seeds,
    mend,
};

fn run(bytes: &[u8]) {
    let pool = in_pool::pool_of(bytes, POOL_BYTES, 2 * UNIT).expect("a pool without a fault");
    let lists = find_lists(&pool).expect("the pool can be read");
    let mut chunks = Chunks::default();
    for (id, place) in lists {
        match claim(&pool, id, place, &mut chunks) {
            Err(error) => check_refusal(&error, "a list"),
            Ok(FoundList { space, totals, .. }) => match List::open(Arc::new(space), totals) {
                Err(error) => check_refusal(&error, "an open list"),
                Ok(list) => read(&Arc::new(list)),
            },
        }
    }
}

/// Checks that whatever a list says of itself holds, if it verifies.
fn read(list: &Arc<List>) {
    let mut salvaged = 0;
    let lost = salvage(list, |_, _, _| {
        salvaged += 1;
        Ok(())
    });
    match verify(list) {
        Err(error) => check_refusal(&error, "a list that is verified"),
        Ok(report) => {
            assert_eq!((lost.expect("no fault"), salvaged), (0, report.entries));
            let walk = |backward| {
                walk(
                    &mut ListIter::new(list.clone()),
                    |query| list.get(query),
                    backward,
                )
            };
            assert_eq!(walk(false), walk(true));
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let counts = [1, 5, 40, 120];
    counts
        .into_iter()
        .map(|count| seed(count).expect("no fault"))
        .collect()
}

/// A list of `count` entries, some of which are deletes or versions of one key.
fn seed(count: u32) -> Result<Vec<u8>> {
    let (sim, pool) = in_pool::empty(POOL_BYTES)?;
    let options = ListOptions {
        id: FileId(3),
        unit_bytes: UNIT as u64,
        filter_bits: 0,
        persist: Persist::Together,
        job: ListJob::flush(FileId(2)),
    };
    let mut writer = ListWriter::new(pool.clone(), options, None);
    for n in 0..count {
        let kind = if n % 7 == 3 { Kind::Delete } else { Kind::Put };
        let key = format!("key{:04}", n / 2 * 13);
        let tag = Tag::new(SeqNo(1000 - u64::from(n)), kind);
        let value = if kind == Kind::Put {
            &b"value"[..]
        } else {
            &[]
        };
        writer.push(key.as_bytes(), tag, value)?;
    }
    let (space, _) = writer.finish()?;
    drop(space);
    let image = sim.durable();
    let mut input = image[DATA_START as usize..DATA_START as usize + 2 * UNIT].to_vec();
    while input.last() == Some(&0) {
        input.pop();
    }
    Ok(input)
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    get_u32(bytes, at).unwrap_or(0) as usize
}

/// Corrects the checksums of the entries that nodes point to, and of the segment.
fn mend(bytes: &mut Vec<u8>) {
    let at = UNIT;
    if bytes.get(at..at + MAGIC.len()) != Some(MAGIC) {
        return;
    }
    let (nodes, refs, job) = (
        u32_at(bytes, at + 24),
        u32_at(bytes, at + 28),
        u32_at(bytes, at + 32),
    );
    let is_last = bytes.get(at + 38).is_some_and(|&last| last == 1);
    let nodes_at = HEAD.saturating_add(job);
    let refs_at = nodes_at.saturating_add(nodes.saturating_mul(16));
    let end = refs_at.saturating_add(refs.saturating_mul(24));
    let used = end.saturating_add(if is_last { 56 } else { 0 });
    if used > UNIT {
        return;
    }
    for node in 0..nodes {
        let node = at + nodes_at + node * 16;
        let (chunk, place) = (u32_at(bytes, node), u32_at(bytes, node + 4));
        if chunk < refs {
            let of = at + refs_at + chunk * 24;
            let offset = get_u64(bytes, of).unwrap_or(0);
            let list = get_u64(bytes, of + 16).unwrap_or(0);
            mend_entry(bytes, offset.saturating_add(place as u64), list);
        }
    }
    let list = get_u64(bytes, at + 16).unwrap_or(0);
    // Zeros at the end are left out of an input.
    let mut segment = bytes[at..].to_vec();
    segment.resize(used, 0);
    let parts: [&[u8]; 3] = [&UUID, &segment[12..40], &segment[HEAD..]];
    let crc = crc32c_salted(list, DATA_START + UNIT as u64, &parts);
    put_u32(bytes, at + 8, crc);
}

fn mend_entry(bytes: &mut [u8], place: u64, list: u64) {
    let Some(at) = place.checked_sub(DATA_START).map(|at| at as usize) else {
        return;
    };
    let value = u32_at(bytes, at.saturating_add(4));
    let key = bytes
        .get(at.saturating_add(16)..at.saturating_add(18))
        .map_or(0, |len| usize::from(len[0]) | usize::from(len[1]) << 8);
    let end = at
        .saturating_add(20)
        .saturating_add(key)
        .saturating_add(value);
    let Some(entry) = bytes.get(at + 4..end) else {
        return;
    };
    let crc = crc32c_salted(list, place, &[entry]);
    put_u32(bytes, at, crc);
}

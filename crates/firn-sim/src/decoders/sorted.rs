//! A sorted table in a pool: looked for, claimed, read in both directions, verified and salvaged.
//!
//! An input is the first data of a pool: the bytes of a table's extent.

use super::in_pool::{self, walk};
use super::patch::put_u32;
use super::{Target, check_refusal};
use firn_base::checksum::crc32c_salted;
use firn_base::coding::{get_u32, get_u64};
use firn_base::key::Kind;
use firn_base::{FileId, Result, SeqNo, Tag};
use firn_pm::{DATA_START, GRANULE_BYTES};
use firn_table::pm_table::{
    Arrangement, PmTable, PmTableIter, PmTableOptions, PmTableWriter, claim, find_tables, salvage,
    verify,
};
use std::sync::Arc;

const POOL_BYTES: u64 = 64 << 10;
const BYTES_MAX: usize = 4 * GRANULE_BYTES as usize;
const HEADER: usize = 128;
const MAGIC: &[u8] = b"firntabl";

/// The sorted tables of a pool.
pub(super) const SORTED: Target = Target {
    name: "pm_table",
    bytes_max: BYTES_MAX,
    run,
    seeds,
    mend,
};

fn run(bytes: &[u8]) {
    let pool = in_pool::pool_of(bytes, POOL_BYTES, BYTES_MAX).expect("a pool without a fault");
    for (id, extent) in find_tables(&pool).expect("the pool can be read") {
        let opened = claim(&pool, id, extent).and_then(|(space, _)| PmTable::open(Arc::new(space)));
        match opened {
            Err(error) => check_refusal(&error, "a table"),
            Ok(table) => read(&Arc::new(table)),
        }
    }
}

/// Checks that whatever a table says of itself holds, if it verifies.
fn read(table: &Arc<PmTable>) {
    let mut salvaged = 0;
    let lost = salvage(table, |_, _, _| {
        salvaged += 1;
        Ok(())
    });
    match verify(table) {
        Err(error) => check_refusal(&error, "a table that is verified"),
        Ok(report) => {
            assert_eq!((lost.expect("no fault"), salvaged), (0, report.entries));
            let walk = |backward| {
                let mut iter = PmTableIter::new(table.clone());
                walk(&mut iter, |query| table.get(query), backward)
            };
            assert_eq!(walk(false), walk(true));
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let counts = [(1, Arrangement::Array), (5, Arrangement::Grouped)];
    let counts = counts.into_iter().chain([
        (40, Arrangement::Array),
        (40, Arrangement::Grouped),
        (120, Arrangement::Grouped),
    ]);
    counts
        .map(|(count, arrangement)| seed(count, arrangement).expect("no fault"))
        .collect()
}

/// A table of `count` entries, some of which are deletes or versions of one key.
fn seed(count: u32, arrangement: Arrangement) -> Result<Vec<u8>> {
    let (sim, pool) = in_pool::empty(POOL_BYTES)?;
    let options = PmTableOptions {
        id: FileId(3),
        group_entries: 4,
        arrangement,
        filter_bits: 0,
        table_bytes: BYTES_MAX as u64,
    };
    let mut writer = PmTableWriter::new(pool, options, None);
    for n in 0..count {
        let kind = if n % 7 == 3 { Kind::Delete } else { Kind::Put };
        let key = format!("key{:04}", n / 2 * 13);
        let tag = Tag::new(SeqNo(1000 - u64::from(n)), kind);
        let value = if kind == Kind::Put {
            &b"value"[..]
        } else {
            &[]
        };
        writer.add(key.as_bytes(), tag, value)?;
    }
    let (space, _) = writer.finish()?;
    let len = space.extent().len as usize;
    let image = sim.durable();
    let mut input = image[DATA_START as usize..DATA_START as usize + len].to_vec();
    while input.last() == Some(&0) {
        input.pop();
    }
    Ok(input)
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    get_u32(bytes, at).unwrap_or(0) as usize
}

/// Corrects the checksums of the groups that offsets lead to, of what is searched, and of the
/// header. Values have theirs in the heads of entries.
fn mend(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER || bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return;
    }
    let len = bytes.len();
    // Zeros at the end are left out of an input.
    bytes.resize(BYTES_MAX, 0);
    let id = get_u64(bytes, 16).unwrap_or(0);
    let slot_bytes = usize::from(bytes[14]);
    let [end, groups, _segments, segment_bytes, filter_bytes, hashes] =
        [92, 96, 100, 104, 108, 112].map(|at| u32_at(bytes, at));
    let slots_at = end.saturating_add(63) / 64 * 64;
    let offsets_at = slots_at.saturating_add(groups.saturating_mul(slot_bytes));
    let search_end = offsets_at
        .saturating_add(groups.saturating_mul(4))
        .saturating_add(segment_bytes)
        .saturating_add(filter_bytes)
        .saturating_add(hashes.saturating_mul(8));
    if search_end <= BYTES_MAX && slots_at <= search_end {
        for group in 0..groups {
            let at = u32_at(bytes, offsets_at + group * 4).saturating_mul(8);
            let heads = u32_at(bytes, at.saturating_add(4));
            let whole = at.saturating_add(24).saturating_add(heads);
            if at >= HEADER && whole <= slots_at {
                let salt = (group as u64) << 32 | at as u64;
                let crc = crc32c_salted(id, salt, &[&bytes[at + 4..whole]]);
                put_u32(bytes, at, crc);
            }
        }
        let crc = crc32c_salted(id, slots_at as u64, &[&bytes[slots_at..search_end]]);
        put_u32(bytes, 116, crc);
    }
    let crc = crc32c_salted(id, DATA_START, &[&bytes[..8], &bytes[12..HEADER]]);
    put_u32(bytes, 8, crc);
    bytes.truncate(len);
}

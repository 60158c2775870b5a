//! Finds and claims tables in a pool that was opened.

use super::layout::{HEADER_BYTES, Header, PmTotals};
use super::space::PmTableSpace;
use firn_base::{FileId, Result};
use firn_pm::{Extent, GRANULE_BYTES, Owner, PmOffset, Pool};
use std::sync::Arc;

/// Claims the table `id` in `extent`, which the manifest names.
///
/// # Errors
/// `Corruption` if another table or none begins there, or the extent is not free.
pub fn claim(pool: &Arc<Pool>, id: FileId, extent: Extent) -> Result<(PmTableSpace, PmTotals)> {
    pool.claim(extent, Owner::Table)?;
    let space = PmTableSpace::new(pool.clone(), id, pool.adopt(extent)?);
    let totals = space.totals()?;
    Ok((space, totals))
}

/// The id, the least extent and the sums of the table that begins at `offset`, if one does.
///
/// # Errors
/// The error of reading the pool.
pub fn peek(pool: &Pool, offset: PmOffset) -> Result<Option<(FileId, Extent, PmTotals)>> {
    let mut bytes = [0; HEADER_BYTES];
    pool.read(offset, &mut bytes)?;
    let header = Header::decode(&bytes, &pool.uuid(), offset.get());
    Ok(header.map(|header| {
        let len = (header.end() as u64).next_multiple_of(GRANULE_BYTES);
        (header.id, Extent::new(offset.get(), len), header.totals)
    }))
}

/// The tables whose headers are in the pool, the newest first, whether anything names them or not.
///
/// # Errors
/// The error of reading the pool.
pub fn find_tables(pool: &Pool) -> Result<Vec<(FileId, Extent)>> {
    let mut found = Vec::new();
    let mut at = GRANULE_BYTES;
    while at < pool.size_bytes() {
        let offset = Extent::new(at, GRANULE_BYTES).offset;
        found.extend(peek(pool, offset)?.map(|(id, extent, _)| (id, extent)));
        at += GRANULE_BYTES;
    }
    found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    Ok(found)
}

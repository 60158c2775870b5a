//! Finds and claims trees in a pool that was opened.
//!
//! A tree can be made again from the tables that it is over. So a claim of a damaged one fails
//! before it takes the extent, which is then free.

use super::layout::{HEADER_BYTES, Header};
use super::read::read_files;
use super::space::IfTreeSpace;
use firn_base::{Error, FileId, Result};
use firn_pm::{Extent, GRANULE_BYTES, Owner, PmOffset, Pool};
use std::sync::Arc;

/// Claims the tree `id` in `extent`, which the manifest names. Its header and files are checked;
/// its nodes are when they are read.
///
/// # Errors
/// `Corruption` if another tree or none begins there, or the extent is not free.
pub fn claim(pool: &Arc<Pool>, id: FileId, extent: Extent) -> Result<IfTreeSpace> {
    let found = peek(pool, extent.offset)?;
    let is_there = |(found, least): &(FileId, Extent)| *found == id && least.len <= extent.len;
    if !found.as_ref().is_some_and(is_there) {
        let place = format!("tree {id} in the pool");
        return Err(Error::corruption(
            place,
            extent.offset.get(),
            "a tree's header and files",
        ));
    }
    pool.claim(extent, Owner::IfTree)?;
    Ok(IfTreeSpace::new(pool.clone(), id, pool.adopt(extent)?))
}

/// The id and the least extent of the tree that begins at `offset`, if one does and its files are
/// whole.
///
/// # Errors
/// The error of reading the pool.
pub fn peek(pool: &Arc<Pool>, offset: PmOffset) -> Result<Option<(FileId, Extent)>> {
    let mut bytes = [0; HEADER_BYTES];
    pool.read(offset, &mut bytes)?;
    let Some(header) = Header::decode(&bytes, &pool.uuid(), offset.get()) else {
        return Ok(None);
    };
    let len = (header.end() as u64).next_multiple_of(GRANULE_BYTES);
    let extent = Extent::new(offset.get(), len);
    if extent.end().is_none_or(|end| end > pool.size_bytes()) {
        return Ok(None);
    }
    let space = IfTreeSpace::foreign(pool.clone(), header.id, extent);
    Ok(read_files(&space, &header)
        .ok()
        .map(|_| (header.id, extent)))
}

/// The trees whose headers are in the pool, the newest first, whether anything names them or not.
///
/// # Errors
/// The error of reading the pool.
pub fn find_trees(pool: &Arc<Pool>) -> Result<Vec<(FileId, Extent)>> {
    let mut found = Vec::new();
    let mut at = GRANULE_BYTES;
    while at < pool.size_bytes() {
        let offset = Extent::new(at, GRANULE_BYTES).offset;
        found.extend(peek(pool, offset)?);
        at += GRANULE_BYTES;
    }
    found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    Ok(found)
}

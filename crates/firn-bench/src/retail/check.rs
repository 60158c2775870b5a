//! The check of every answer, and its errors.
//!
//! 1. A row must equal, byte for byte, a version between the last step that ended before the read
//!    and the last step that began before the read ended.
//! 2. An index entry must name a row that has the entry's value. If it does not, the entry is
//!    excused only if the order has changed since the scan began, and if the row had that value at
//!    an earlier stage. Then both are read again ([`super::hits`]).
//! 3. The entry that a scan looks for must be found, if its row has the value throughout, and must
//!    not be if the row has left it. Likewise every entry of the client's own orders in the range
//!    of the scan.
//! 4. Rows that one scan found and one batch wrote must be of the same version.

use super::key::RowId;
use super::market::{Market, Order};
use super::row;
use super::stages::{Stage, Stages};
use crate::record::wrong_answer;
use firn_base::{Error, Result};
use std::fmt::Display;

/// The error for an answer that is not what was written.
pub(super) fn wrong(key: &[u8], expected: impl Display, found: impl Display) -> Error {
    let key = key.escape_ascii();
    wrong_answer(format_args!("`{key}`: expected {expected}, found {found}"))
}

/// The expected contents.
pub(super) struct Checker {
    pub(super) market: Market,
    pub(super) stages: Stages,
}

impl Checker {
    /// Checks that `found`, the answer to a read of `row` at `key`, is permitted, and returns its
    /// version. `before` and `after` are the stages of `order` before and after the read.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] stating what was expected.
    pub(super) fn row(
        &self,
        order: &Order,
        (row, key): (RowId, &[u8]),
        found: Option<&[u8]>,
        (before, after): (Stage, Stage),
    ) -> Result<Option<u8>> {
        let least = order.version_of(row, before.ended);
        let most = order.version_of(row, after.begun);
        let expected = || match (least, most) {
            (None, None) => "no row".to_owned(),
            (None, Some(most)) => format!("no row or version {most}"),
            (Some(least), _) if least == most.unwrap_or(least) => format!("version {least}"),
            (Some(least), most) => format!("version {least} to {}", most.unwrap_or(least)),
        };
        let Some(value) = found else {
            return match least {
                None => Ok(None),
                Some(_) => Err(wrong(key, expected(), "nothing")),
            };
        };
        let Some(version) = row::claimed_version(row, value) else {
            return Err(wrong(key, expected(), "a value of another row"));
        };
        let permitted = |stage: u8| order.version_of(row, stage) == Some(version);
        if !(before.ended..=after.begun).any(permitted) {
            return Err(wrong(key, expected(), format!("version {version}")));
        }
        let mut written = Vec::new();
        row::write(order, row, version, &mut written);
        if written != value {
            let expected = format!("the bytes of version {version}");
            return Err(wrong(key, expected, "different bytes"));
        }
        Ok(Some(version))
    }

    /// Checks that `versions`, of the rows of an order that each step writes together, are the
    /// same, as one scan saw them.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if the scan saw a part of a batch.
    pub(super) fn same_batch(&self, key: &[u8], versions: &[Option<u8>]) -> Result<()> {
        let all_equal = versions.windows(2).all(|pair| pair[0] == pair[1]);
        if all_equal {
            return Ok(());
        }
        let shown = |version: &Option<u8>| version.map_or("none".to_owned(), |v| v.to_string());
        let versions: Vec<String> = versions.iter().map(shown).collect();
        let found = format!("a part of a batch: versions {}", versions.join(", "));
        Err(wrong(key, "rows of one version", found))
    }
}

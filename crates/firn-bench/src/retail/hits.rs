//! The index query: a scan of the index for row ids, a read of each row, and their checks (rules 2
//! and 3 of [`super::check`]).

use super::check::wrong;
use super::key::{Index, RowId};
use super::query::IndexQuery;
use super::row;
use super::transaction::{Found, Worker};
use firn_base::Result;

/// Attempts to read an entry and its row while their order stands still.
const ATTEMPTS: usize = 3;

/// An entry that a scan found.
struct Hit<'a> {
    key: &'a [u8],
    /// The key up to the pk.
    prefix: &'a [u8],
    index: Index,
    row: RowId,
}

impl Worker<'_> {
    /// Finds the rows of `query`.
    pub(super) fn index_query(&mut self, query: &IndexQuery) -> Result<()> {
        let checker = &self.shared.checker;
        let IndexQuery { index, target, .. } = *query;
        let order = checker.market.order(target.order);
        let mut prefix = Vec::new();
        index.write_prefix(&order, target.line, query.version, &mut prefix);
        let mut from = prefix.clone();
        query.from.write_pk(&mut from);
        let moment = checker.stages.now();
        let before = checker.stages.stage(target.order);
        let found = self.scan(&from, query.rows)?;
        let hits = parsed(&found, index, &prefix, &from)?;
        let mut expected = prefix.clone();
        target.write_pk(&mut expected);
        let goes_on = found.len() == query.rows && hits.len() == found.len();
        let is_passed = !goes_on || hits.last().is_some_and(|hit| hit.key >= &*expected);
        let is_due = order.version_of(target, before.ended).is_some() && is_passed;
        if is_due && hits.iter().all(|hit| hit.row != target) {
            return Err(wrong(
                &expected,
                "an entry, because its row has this value",
                "none in a scan of the index",
            ));
        }
        hits.iter().try_for_each(|hit| self.check_hit(hit, moment))
    }

    /// Reads the row of `hit`, which a scan found that began at `moment`.
    fn check_hit(&mut self, hit: &Hit<'_>, moment: u64) -> Result<()> {
        let checker = &self.shared.checker;
        let order = checker.market.order(hit.row.order);
        let Some(version) = self.read(&order, hit.row)? else {
            return Err(wrong(hit.key, "an entry of an existing row", "one of none"));
        };
        let value = hit.value_at(&order, version);
        if value == hit.prefix {
            return Ok(());
        }
        let stage = checker.stages.stage(order.number);
        let was_right = order.has_had(hit.prefix, hit.index, hit.row, version);
        if stage.is_still_since(moment) || !was_right {
            return Err(hit.differs(&value, version));
        }
        self.confirm(hit)
    }

    /// Reads the entry and the row of `hit` again, until the order stood still meanwhile. If it
    /// never does, there is nothing to say.
    fn confirm(&mut self, hit: &Hit<'_>) -> Result<()> {
        let checker = &self.shared.checker;
        let order = checker.market.order(hit.row.order);
        for _ in 0..ATTEMPTS {
            let before = checker.stages.stage(order.number);
            let is_there = self.get(hit.key)?;
            let version = self.read(&order, hit.row)?;
            let after = checker.stages.stage(order.number);
            if before != after || !before.is_still() {
                continue;
            }
            let version = version.unwrap_or(0);
            let value = hit.value_at(&order, version.max(1));
            return match (is_there, value == hit.prefix) {
                (true, false) => Err(hit.differs(&value, version)),
                (false, true) => Err(wrong(
                    hit.key,
                    "an entry, because its row has this value",
                    "none",
                )),
                _ => Ok(()),
            };
        }
        Ok(())
    }
}

impl Hit<'_> {
    /// The beginning of the key that an entry of the row has at `version`.
    fn value_at(&self, order: &super::market::Order, version: u8) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.prefix.len());
        self.index
            .write_prefix(order, self.row.line, version, &mut value);
        value
    }

    fn differs(&self, value: &[u8], version: u8) -> firn_base::Error {
        let (expected, found) = (self.prefix.escape_ascii(), value.escape_ascii());
        wrong(
            self.key,
            format!("a row with the entry's value `{expected}`"),
            format!("a stale entry: version {version} of the row has `{found}`"),
        )
    }
}

/// The hits among `found`, which end where the value `prefix` ends.
fn parsed<'a>(
    found: &'a Found,
    index: Index,
    prefix: &'a [u8],
    from: &[u8],
) -> Result<Vec<Hit<'a>>> {
    let mut hits: Vec<Hit<'a>> = Vec::new();
    let mut last: Option<&[u8]> = None;
    for (key, value) in found.iter() {
        if key < from || last.is_some_and(|last| key <= last) {
            return Err(wrong(key, "keys in order, from the start on", "one before"));
        }
        last = Some(key);
        let Some(pk) = key.strip_prefix(prefix) else {
            break;
        };
        let Some(row) = RowId::parse(index.table, pk) else {
            return Err(wrong(key, "a primary key at its end", "none"));
        };
        if value != row::entry(key) {
            return Err(wrong(key, "the checksum of the key", "another value"));
        }
        hits.push(Hit {
            key,
            prefix,
            index,
            row,
        });
    }
    Ok(hits)
}

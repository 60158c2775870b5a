//! The index query: a scan of the index for row ids, a read of each row, and their checks (rules 2
//! and 3 of [`super::check`]).

use super::check::wrong;
use super::key::{Index, RowId};
use super::query::IndexQuery;
use super::row;
use super::scan_result::ScanResult;
use super::transaction::Worker;
use crate::tally::Sort;
use firn_base::Result;

/// Attempts to read an entry and its row while their order stands still.
const ATTEMPTS: usize = 3;
/// The client's own orders whose entries a scan is checked for.
const OWN_ORDERS_MAX: usize = 1000;

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
        let order = checker.market.order(query.target.order);
        let mut prefix = Vec::new();
        let line = query.target.line;
        query
            .index
            .write_prefix(&order, line, query.version, &mut prefix);
        let mut from = prefix.clone();
        query.from.write_pk(&mut from);
        let mut scanned = std::mem::take(&mut self.scanned);
        let moment = checker.stages.now();
        let before = checker.stages.stage(order.number);
        self.scan(Sort::IndexScan, (&from, query.rows), &mut scanned)?;
        let hits = parsed(&scanned, query, &prefix, &from)?;
        let is_due = order.version_of(query.target, before.ended).is_some();
        check_target(query, is_due, &prefix, &hits)?;
        self.check_own(query, &prefix, &hits)?;
        hits.iter()
            .try_for_each(|hit| self.check_hit(hit, moment))?;
        drop(hits);
        self.scanned = scanned;
        Ok(())
    }

    /// Checks that each row of the client's own orders that has the value is among `hits`, from
    /// the start of the scan to its last hit, or to the newest order if the scan ended with the
    /// value. These orders stand still during the query.
    fn check_own(&self, query: &IndexQuery, prefix: &[u8], hits: &[Hit<'_>]) -> Result<()> {
        let checker = &self.shared.checker;
        let IndexQuery { index, from, .. } = *query;
        let last = hits
            .last()
            .filter(|_| query.is_cut(hits))
            .map(|hit| hit.row);
        let newest = last.map_or(self.client.newest(), |row| row.order);
        let is_of_order = index.field().is_of_order();
        let (mut passed, mut value) = (hits.iter().peekable(), Vec::new());
        let numbers = self.client.own_from(from.order).take(OWN_ORDERS_MAX);
        for number in numbers.take_while(|number| *number <= newest) {
            let order = checker.market.order(number);
            let stage = checker.stages.stage(number).ended;
            let rows = order.rows_at(index.table, stage);
            for row in rows.filter(|row| *row >= from && last.is_none_or(|last| *row <= last)) {
                let version = order.version_of(row, stage).unwrap_or(stage);
                value.clear();
                index.write_prefix(&order, row.line, version, &mut value);
                if value != prefix {
                    match is_of_order {
                        true => break,
                        false => continue,
                    }
                }
                while passed.next_if(|hit| hit.row < row).is_some() {}
                if passed.next_if(|hit| hit.row == row).is_none() {
                    return Err(missing(prefix, row));
                }
            }
        }
        Ok(())
    }

    /// Reads the row of `hit`, which a scan found that began at `moment`.
    fn check_hit(&mut self, hit: &Hit<'_>, moment: u64) -> Result<()> {
        let checker = &self.shared.checker;
        let order = checker.market.order(hit.row.order);
        let Some(version) = self.read(&order, hit.row)? else {
            return Err(wrong(hit.key, "a row for this entry", "none"));
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

    /// Reads the entry and the row of `hit` again, until the order stood still meanwhile. Returns
    /// `Ok` if the order changes in every attempt, because no answer can then be called wrong.
    fn confirm(&mut self, hit: &Hit<'_>) -> Result<()> {
        let checker = &self.shared.checker;
        let order = checker.market.order(hit.row.order);
        for _ in 0..ATTEMPTS {
            let before = checker.stages.stage(order.number);
            let is_there = self.get_untimed(hit.key)?;
            let version = self.read_untimed(&order, hit.row)?;
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

impl IndexQuery {
    /// True if a scan with these `hits` ended because it had enough, and not with the value.
    fn is_cut(&self, hits: &[Hit<'_>]) -> bool {
        hits.len() >= self.rows
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

/// Checks that the target of `query` is among `hits` if it must be, and is not if its row has left
/// the value. `is_due`: its row existed before the scan.
fn check_target(query: &IndexQuery, is_due: bool, prefix: &[u8], hits: &[Hit<'_>]) -> Result<()> {
    let is_hit = hits.iter().any(|hit| hit.row == query.target);
    if !query.is_present {
        // The order is the client's own, so that it cannot have changed meanwhile.
        return match is_hit {
            true => Err(wrong(
                &entry_key(prefix, query.target),
                "no entry, because its row has left this value",
                "a stale entry in a scan of the index",
            )),
            false => Ok(()),
        };
    }
    let is_passed = !query.is_cut(hits) || hits.last().is_some_and(|hit| hit.row >= query.target);
    match is_due && is_passed && !is_hit {
        true => Err(missing(prefix, query.target)),
        false => Ok(()),
    }
}

/// The error for the entry of `row` with the value `prefix`, which a scan has not found.
fn missing(prefix: &[u8], row: RowId) -> firn_base::Error {
    wrong(
        &entry_key(prefix, row),
        "an entry, because its row has this value",
        "none in a scan of the index",
    )
}

fn entry_key(prefix: &[u8], row: RowId) -> Vec<u8> {
    let mut key = prefix.to_vec();
    row.write_pk(&mut key);
    key
}

/// The hits of `query` among `found`, which end where the value `prefix` ends.
fn parsed<'a>(
    found: &'a ScanResult,
    query: &IndexQuery,
    prefix: &'a [u8],
    from: &[u8],
) -> Result<Vec<Hit<'a>>> {
    let index = query.index;
    if found.len() > query.rows {
        return Err(wrong(
            from,
            format!("{} entries at most", query.rows),
            found.len(),
        ));
    }
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

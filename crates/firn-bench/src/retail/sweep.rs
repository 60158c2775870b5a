//! The sweep: after the run, the whole database is compared with the stages of all orders.
//!
//! 1. Every key is a row or an index entry that its order has at its stage, with the value that
//!    was written.
//! 2. Keys ascend strictly, and each table and index has as many of them as the stages give. So
//!    none is missing.
//!
//! REQUIRES: no step is under way. Takes the memory of one chunk.

use super::check::{Checker, wrong};
use super::key::{Index, RowId};
use super::market::Order;
use super::row;
use super::scan_result::ScanResult;
use super::tables::TABLES;
use crate::phase::Watch;
use crate::store::Store;
use firn_base::Result;

/// Entries of one scan.
const CHUNK_ENTRIES: usize = 1000;

/// The number of rows of each table, and of entries of each of its indexes.
type Counts = Vec<(u64, Vec<u64>)>;

/// A sweep under way.
struct Sweep<'a> {
    checker: &'a Checker,
    found: Counts,
}

/// Compares all of `store` with the stages of the orders below `orders`. `name` is shown with the
/// progress.
///
/// # Errors
/// The first error of the store, or [`firn_base::ErrorKind::Corruption`] for the first difference.
pub(super) fn sweep(
    store: &dyn Store,
    (checker, orders): (&Checker, u64),
    name: &str,
    watch: &dyn Watch,
) -> Result<()> {
    let expected = expected(checker, orders);
    let indexed = expected.iter().flat_map(|(_, indexes)| indexes);
    let rows: u64 = expected.iter().map(|(rows, _)| rows).sum();
    watch.begin(name, rows + indexed.sum::<u64>());
    let found = expected
        .iter()
        .map(|(_, indexes)| (0, vec![0; indexes.len()]));
    let mut sweep = Sweep {
        checker,
        found: found.collect(),
    };
    let result = sweep.entries(store, watch);
    watch.end();
    result?;
    sweep.require(&expected)
}

/// The counts that the stages of the orders below `orders` give.
fn expected(checker: &Checker, orders: u64) -> Counts {
    let mut rows = [0; TABLES.len()];
    for number in 0..orders {
        let order = checker.market.order(number);
        let stage = checker.stages.stage(number).ended;
        for (table, sum) in rows.iter_mut().enumerate() {
            *sum += order.rows_at(table, stage).count() as u64;
        }
    }
    let of = |(rows, table): (u64, &super::tables::Table)| (rows, vec![rows; table.indexes.len()]);
    rows.into_iter().zip(&TABLES).map(of).collect()
}

impl Sweep<'_> {
    /// Scans and checks all entries.
    fn entries(&mut self, store: &dyn Store, watch: &dyn Watch) -> Result<()> {
        let (mut chunk, mut from, mut done) = (ScanResult::default(), Vec::new(), 0);
        loop {
            chunk.clear();
            store.scan(&from, CHUNK_ENTRIES, &mut |key, value| {
                chunk.push(key, value);
            })?;
            if chunk.len() > CHUNK_ENTRIES {
                let expected = format!("{CHUNK_ENTRIES} entries at most");
                return Err(wrong(&from, expected, chunk.len()));
            }
            for (key, value) in chunk.iter() {
                if key < &*from {
                    return Err(wrong(key, "keys in order, from the start on", "one before"));
                }
                self.entry(key, value)?;
                from.clear();
                from.extend_from_slice(key);
                from.push(0);
            }
            done += chunk.len() as u64;
            watch.advance(done);
            if chunk.len() < CHUNK_ENTRIES {
                return Ok(());
            }
        }
    }

    /// Checks an entry and counts it.
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        for (table, of) in TABLES.iter().enumerate() {
            let Some(rest) = after(key, of.name) else {
                continue;
            };
            if let Some(row) = RowId::parse(table, rest) {
                return self.row(row, key, value);
            }
            for (column, field) in of.indexes.iter().enumerate() {
                let pk = after(rest, field.name()).and_then(|rest| rest.rsplit(is_bar).next());
                if let Some(row) = pk.and_then(|pk| RowId::parse(table, pk)) {
                    return self.index_entry(Index { table, column }, row, key, value);
                }
            }
        }
        Err(wrong(key, "a row or an index entry", "neither"))
    }

    fn row(&mut self, row: RowId, key: &[u8], value: &[u8]) -> Result<()> {
        let order = self.checker.market.order(row.order);
        let stage = self.checker.stages.stage(row.order);
        self.checker
            .row(&order, (row, key), Some(value), (stage, stage))?;
        self.found[row.table].0 += 1;
        Ok(())
    }

    fn index_entry(&mut self, index: Index, row: RowId, key: &[u8], value: &[u8]) -> Result<()> {
        let order: Order = self.checker.market.order(row.order);
        let stage = self.checker.stages.stage(row.order).ended;
        let Some(version) = order.version_of(row, stage) else {
            return Err(wrong(key, "an entry of an existing row", "one of none"));
        };
        let mut expected = Vec::with_capacity(key.len());
        index.write(&order, row, version, &mut expected);
        if expected != key {
            let expected = format!("only the entry `{}` of its row", expected.escape_ascii());
            return Err(wrong(key, expected, "a stale entry"));
        }
        if value != row::entry(key) {
            return Err(wrong(key, "the checksum of the key", "another value"));
        }
        self.found[index.table].1[index.column] += 1;
        Ok(())
    }

    /// Checks that the counts are the `expected` ones.
    fn require(&self, expected: &Counts) -> Result<()> {
        let require = |name: &str, expected: u64, found: u64, what: &str| match expected == found {
            true => Ok(()),
            false => {
                let expected = format!("{expected} {what}");
                Err(wrong(name.as_bytes(), expected, found))
            }
        };
        for ((table, expected), found) in TABLES.iter().zip(expected).zip(&self.found) {
            require(table.name, expected.0, found.0, "rows")?;
            let counts = expected.1.iter().zip(&found.1);
            for (field, (expected, found)) in table.indexes.iter().zip(counts) {
                let name = format!("{}|{}", table.name, field.name());
                require(&name, *expected, *found, "index entries")?;
            }
        }
        Ok(())
    }
}

/// The part of `key` after `name` and a bar; `None` if it does not begin with them.
fn after<'a>(key: &'a [u8], name: &str) -> Option<&'a [u8]> {
    key.strip_prefix(name.as_bytes())?.strip_prefix(b"|")
}

fn is_bar(byte: &u8) -> bool {
    *byte == b'|'
}

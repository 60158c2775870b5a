//! The queries: their choice depends on the seed and on the client's own orders alone.

use super::client::Client;
use super::key::{Index, RowId};
use super::market::{Market, Order};
use super::stages::Stages;
use super::tables::{Field, LINES, Rows, TABLES};
use firn_base::seed::Seed;

/// Rows of a query by an index whose values have many rows.
const ROWS_MAX: u64 = 10;
/// Rows of a query by customer in a table with one row an order.
const CUSTOMER_ROWS_MAX: usize = 20;
/// One in this many queries by primary key is for all lines of an order.
const LINES_ONE_IN: u64 = 3;
/// One in this many index queries for a value that changes is for one that the row has left.
const LEFT_ONE_IN: u64 = 4;

/// A query by primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyQuery {
    Row(RowId),
    /// All lines of this order.
    Lines(u64),
}

/// A query for the rows of a table with the same value as `target`, from `from` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexQuery {
    pub(super) index: Index,
    pub(super) target: RowId,
    /// The version of `target` whose value is looked for.
    pub(super) version: u8,
    /// False if `target` has left that value, so that no entry may have it.
    pub(super) is_present: bool,
    /// The row with the smallest primary key wanted.
    pub(super) from: RowId,
    pub(super) rows: usize,
}

/// A random line number of `order` in `table`; the row may not exist at `stage`.
fn line(order: &Order, table: usize, stage: u8, seed: &mut Seed) -> u8 {
    (match TABLES[table].rows {
        Rows::One => 0,
        Rows::Lines => seed.below(u64::from(order.lines)),
        Rows::PerStep => 1 + seed.below(u64::from(stage)),
    }) as u8
}

/// Any row of order `number` that exists at `stage`, and its version.
fn row(order: &Order, stage: u8, seed: &mut Seed) -> (RowId, u8) {
    loop {
        let table = seed.below(TABLES.len() as u64) as usize;
        let row = RowId {
            table,
            order: order.number,
            line: line(order, table, stage, seed),
        };
        if let Some(version) = order.version_of(row, stage) {
            return (row, version);
        }
    }
}

impl KeyQuery {
    /// A query for a row that an order has at the end of its life, if not now.
    pub(super) fn choose(client: &Client, market: &Market, seed: &mut Seed) -> Self {
        let order = market.order(client.target(market, seed));
        match seed.one_in(LINES_ONE_IN) {
            true => KeyQuery::Lines(order.number),
            false => KeyQuery::Row(row(&order, order.life.len(), seed).0),
        }
    }
}

impl IndexQuery {
    /// A query for a value that a row of the client's own orders has or has left, or for one that
    /// never changes and is there from the first step on.
    pub(super) fn choose(
        client: &Client,
        market: &Market,
        stages: &Stages,
        seed: &mut Seed,
    ) -> Self {
        let order = market.order(client.target(market, seed));
        let is_own = client.owns(order.number);
        let stage = if is_own {
            stages.stage(order.number).ended
        } else {
            1
        };
        let (target, version, index) = loop {
            let (target, version) = row(&order, stage, seed);
            let table = target.table;
            let column = seed.below(TABLES[table].indexes.len() as u64) as usize;
            let index = Index { table, column };
            if is_own || index.field().is_fixed() {
                break (target, version, index);
            }
        };
        let of_customer =
            index.field() == Field::Customer && TABLES[target.table].rows == Rows::One;
        let (from, rows) = match of_customer {
            true => {
                let order = target.order.saturating_sub(client.warm());
                (RowId { order, ..target }, CUSTOMER_ROWS_MAX)
            }
            false => (target, 1 + seed.below(ROWS_MAX) as usize),
        };
        let may_have_left = is_own && !index.field().is_fixed() && seed.one_in(LEFT_ONE_IN);
        let left = may_have_left.then(|| left_version(&order, (target, version), index, seed));
        let left = left.flatten();
        Self {
            index,
            target,
            version: left.unwrap_or(version),
            is_present: left.is_none(),
            from,
            rows,
        }
    }
}

/// A random version of `row` before `version` whose entry in `index` was a different one; `None` if
/// there is none.
fn left_version(
    order: &Order,
    (row, version): (RowId, u8),
    index: Index,
    seed: &mut Seed,
) -> Option<u8> {
    let value_at = |version: u8| {
        let mut value = Vec::new();
        index.write_prefix(order, row.line, version, &mut value);
        value
    };
    let value = value_at(version);
    let written = (1..version).filter(|earlier| order.version_of(row, *earlier) == Some(*earlier));
    let left: Vec<u8> = written
        .filter(|earlier| value_at(*earlier) != value)
        .collect();
    let at = seed.below(left.len().max(1) as u64) as usize;
    left.get(at).copied()
}

/// The lines of order `number`.
pub(super) fn line_of(number: u64, line: u8) -> RowId {
    RowId {
        table: LINES,
        order: number,
        line,
    }
}

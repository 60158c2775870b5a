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
    /// The row with the smallest primary key wanted.
    pub(super) from: RowId,
    pub(super) rows: usize,
}

/// Any line number of `order` in `table`, of those that exist at `stage` or may be empty.
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
    /// A query for a value of a row of the client's own orders, or for one that never changes and
    /// is there from the first step on.
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
        Self {
            index,
            target,
            version,
            from,
            rows,
        }
    }
}

/// The lines of order `number`.
pub(super) fn line_of(number: u64, line: u8) -> RowId {
    RowId {
        table: LINES,
        order: number,
        line,
    }
}

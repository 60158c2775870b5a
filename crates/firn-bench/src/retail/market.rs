//! The contents of the database as a function of (seed, order, version): the values of columns, and
//! which version of a row exists at which stage of its order.

use super::Retail;
use super::key::{Index, RowId};
use super::life::Life;
use super::row;
use super::tables::{Field, Rows, TABLES};
use firn_base::seed::mix;
use std::io::Write;

/// Orders placed in an hour.
const ORDERS_AN_HOUR: u64 = 64;
/// Fewest lines of an order.
const LINES_MIN: u64 = 7;
/// Most lines of an order.
const LINES_MAX: u64 = 12;

/// The numbers of customers, shops, products and couriers, in proportion to the orders loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Market {
    seed: u64,
    /// Orders that are open at a time.
    pub(super) open: u64,
    customers: u64,
    shops: u64,
    products: u64,
    couriers: u64,
}

/// An order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) number: u64,
    pub(super) life: Life,
    /// The number of its lines.
    pub(super) lines: u8,
    pub(super) chance: u64,
    market: Market,
}

/// Numbers of rows and of entries, and the bytes of their keys and values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) rows: u64,
    /// Rows and index entries.
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl std::ops::Add for Contents {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl Market {
    pub(super) fn new(retail: Retail) -> Self {
        let one_in = |orders: u64| (retail.orders / orders).max(1);
        Self {
            seed: retail.seed,
            open: one_in(20),
            customers: one_in(8),
            shops: one_in(200),
            products: one_in(10),
            couriers: one_in(100),
        }
    }

    /// The order numbered `number`.
    pub(super) fn order(&self, number: u64) -> Order {
        let chance = mix(self.seed ^ mix(number));
        Order {
            number,
            life: Life::new(chance),
            lines: (LINES_MIN + (chance >> 8) % (LINES_MAX - LINES_MIN + 1)) as u8,
            chance,
            market: *self,
        }
    }
}

impl Order {
    /// The version that `row`, one of this order, has once the order has reached `stage`; `None` if
    /// it does not exist then.
    pub(super) fn version_of(&self, row: RowId, stage: u8) -> Option<u8> {
        let table = &TABLES[row.table];
        let writes = |version: u8| table.written_by.contains(&self.life.step(version));
        let stage = stage.min(self.life.len());
        match table.rows {
            Rows::One if row.line > 0 => None,
            Rows::Lines if row.line >= self.lines => None,
            Rows::One | Rows::Lines => (1..=stage).rev().find(|version| writes(*version)),
            Rows::PerStep => Some(row.line).filter(|v| (1..=stage).contains(v) && writes(*v)),
        }
    }

    /// The rows of `table` that exist at `stage`, in the order of their primary keys.
    pub(super) fn rows_at(&self, table: usize, stage: u8) -> impl Iterator<Item = RowId> {
        let lines = match TABLES[table].rows {
            Rows::One => 0..1,
            Rows::Lines => 0..self.lines,
            Rows::PerStep => 1..stage + 1,
        };
        let order = self.number;
        let rows = lines.map(move |line| RowId { table, order, line });
        rows.filter(move |row| self.version_of(*row, stage).is_some())
    }

    /// The rows that the step of `version` writes, all in that version.
    pub(super) fn rows_of_step(&self, version: u8) -> impl Iterator<Item = RowId> {
        let (order, step) = (self.number, self.life.step(version));
        let written = TABLES.iter().enumerate();
        let written = written.filter(move |(_, table)| table.written_by.contains(&step));
        let lines = self.lines;
        written.flat_map(move |(table, of)| {
            let range = match of.rows {
                Rows::One => 0..1,
                Rows::Lines => 0..lines,
                Rows::PerStep => version..version + 1,
            };
            range.map(move |line| RowId { table, order, line })
        })
    }

    /// Appends the value of `field` in the rows with line `line` at `version`.
    pub(super) fn write_field(&self, field: Field, line: u8, version: u8, out: &mut Vec<u8>) {
        let market = &self.market;
        let pick = |salt: u64, count: u64| mix(self.chance ^ salt) % count;
        let state = self.life.step(version) as u8;
        // Writing to a `Vec` never fails.
        let _never_fails = match field {
            Field::Customer => write!(out, "c{:08}", pick(1, market.customers)),
            Field::Shop => write!(out, "h{:06}", pick(2, market.shops)),
            Field::Courier => write!(out, "r{:06}", pick(3, market.couriers)),
            Field::Packer => write!(out, "k{:06}", pick(4, market.shops * 2)),
            Field::Hour => write!(out, "t{:08}", self.number / ORDERS_AN_HOUR),
            Field::Kind => write!(out, "n{state:02}"),
            Field::Rating => write!(out, "g{}", pick(5, 5)),
            Field::ShopState => write!(out, "h{:06}-s{state:02}", pick(2, market.shops)),
            Field::AreaState => write!(out, "a{:04}-s{state:02}", pick(6, 50)),
            Field::ProductState => {
                let product = pick(7 + (u64::from(line) << 8), market.products);
                write!(out, "p{product:08}-s{state:02}")
            }
            Field::MethodState => write!(out, "m{}-s{state:02}", pick(8, 4)),
            Field::CampaignState => write!(out, "d{:02}-s{state:02}", pick(9, 20)),
            Field::CourierState => write!(out, "r{:06}-s{state:02}", pick(3, market.couriers)),
            Field::Updated => {
                // While an order takes one step, a tenth of the open ones are placed.
                let placed_meanwhile = u64::from(version - 1) * market.open / 10;
                let hour = (self.number + placed_meanwhile) / ORDERS_AN_HOUR;
                write!(out, "t{hour:08}")
            }
        };
    }

    /// True if some version up to `stage` of `row` had the index key that begins with `prefix`.
    pub(super) fn has_had(&self, prefix: &[u8], index: Index, row: RowId, stage: u8) -> bool {
        let mut other = Vec::with_capacity(prefix.len());
        (1..=stage).any(|version| {
            other.clear();
            index.write_prefix(self, row.line, version, &mut other);
            self.version_of(row, version) == Some(version) && other == prefix
        })
    }
}

impl Market {
    /// The rows and index entries of `order` at `stage`.
    pub(super) fn contents(&self, order: &Order, stage: u8) -> Contents {
        let (mut sum, mut key) = (Contents::default(), Vec::new());
        let rows = (1..=stage)
            .flat_map(|version| order.rows_of_step(version).zip(std::iter::repeat(version)));
        for (row, version) in rows.filter(|(row, v)| order.version_of(*row, stage) == Some(*v)) {
            key.clear();
            row.write(&mut key);
            let mut bytes = key.len() + row::bytes_of(order, row, version);
            let indexes = TABLES[row.table].indexes.len();
            for column in 0..indexes {
                key.clear();
                let index = Index {
                    table: row.table,
                    column,
                };
                index.write(order, row, version, &mut key);
                bytes += key.len() + row::ENTRY_BYTES;
            }
            sum = sum
                + Contents {
                    rows: 1,
                    entries: 1 + indexes as u64,
                    bytes: bytes as u64,
                };
        }
        sum
    }
}

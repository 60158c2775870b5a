//! Tests of the generator: the shapes of orders, their batches, and the choice of queries.

mod concurrent_steps;

use super::batch::Batch;
use super::client::Client;
use super::key::{Index, RowId};
use super::market::{Market, Order};
use super::query::{IndexQuery, KeyQuery};
use super::row;
use super::stages::Stages;
use super::tables::{Rows, TABLES};
use super::{Retail, key};
use crate::store::Change;
use crate::workload::Workload;
use firn_base::seed::Seed;
use firndb::Durability;
use std::collections::{BTreeMap, BTreeSet};

const RETAIL: Retail = Retail {
    orders: 4000,
    seed: 7,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every row and entry of `order` at `stage`, from the rules alone.
fn expected(order: &Order, stage: u8) -> Map {
    let mut map = Map::new();
    for (table, of) in TABLES.iter().enumerate() {
        for line in 0..16 {
            let row = RowId {
                table,
                order: order.number,
                line,
            };
            let Some(version) = order.version_of(row, stage) else {
                continue;
            };
            let (mut key, mut value) = (Vec::new(), Vec::new());
            row.write(&mut key);
            row::write(order, row, version, &mut value);
            map.insert(key, value);
            for column in 0..of.indexes.len() {
                let mut key = Vec::new();
                Index { table, column }.write(order, row, version, &mut key);
                let entry = row::entry(&key).to_vec();
                map.insert(key, entry);
            }
        }
    }
    map
}

fn apply(map: &mut Map, changes: &[Change<'_>]) {
    for change in changes {
        match *change {
            Change::Put { key, value } => drop(map.insert(key.to_vec(), value.to_vec())),
            Change::Delete { key } => {
                let was_there = map.remove(key).is_some();
                assert!(was_there, "{} was not there", key.escape_ascii());
            }
        }
    }
}

#[test]
fn the_schema_is_that_of_the_paper() {
    let indexes: usize = TABLES.iter().map(|table| table.indexes.len()).sum();
    assert_eq!((TABLES.len(), indexes), (10, 30));
    let names: BTreeSet<&str> = TABLES.iter().map(|table| table.name).collect();
    assert_eq!(names.len(), TABLES.len());
}

#[test]
fn an_order_has_8_to_12_batches_of_100_kb_in_all() {
    let (market, mut batch) = (Market::new(RETAIL), Batch::default());
    let (mut bytes, mut steps, mut lengths) = (0, 0, BTreeSet::new());
    for number in 0..1000 {
        let order = market.order(number);
        lengths.insert(order.life.len());
        steps += u64::from(order.life.len());
        for version in 1..=order.life.len() {
            batch.fill(&order, version);
            bytes += batch.byte_size();
        }
    }
    assert_eq!(lengths, (8..=12).collect());
    assert!((9_800..10_200).contains(&steps), "{steps} steps of 1000");
    let mean = bytes / 1000;
    assert!((95_000..105_000).contains(&mean), "{mean} bytes an order");
}

/// After each batch the order's rows and entries are exactly those of its stage, so a batch has the
/// removal of every entry that no longer holds and the insertion of each that now does.
#[test]
fn a_batch_has_the_changes_of_its_rows_and_of_their_indexes() {
    let (market, mut batch) = (Market::new(RETAIL), Batch::default());
    let mut moved = 0;
    for number in 0..40 {
        let (order, mut map) = (market.order(number), Map::new());
        for version in 1..=order.life.len() {
            batch.fill(&order, version);
            let changes = batch.changes();
            moved += changes
                .iter()
                .filter(|c| matches!(c, Change::Delete { .. }))
                .count();
            apply(&mut map, &changes);
            assert_eq!(
                map,
                expected(&order, version),
                "order {number} at {version}"
            );
            assert!(names_its_row_first(&changes));
            let keys: BTreeSet<&[u8]> = changes.iter().map(key_of).collect();
            assert_eq!(keys.len(), changes.len(), "a key occurs twice");
        }
        let contents = market.contents(&order, order.life.len());
        let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(contents.entries, map.len() as u64);
        assert_eq!(contents.bytes, bytes as u64);
        let sizes = key::sizes();
        assert!(
            map.keys()
                .all(|key| (sizes.min()..=sizes.max()).contains(&key.len()))
        );
    }
    assert!(moved > 40 * 20, "{moved} index entries moved");
}

fn key_of<'a>(change: &Change<'a>) -> &'a [u8] {
    match *change {
        Change::Put { key, .. } | Change::Delete { key } => key,
    }
}

/// True if every entry that a batch inserts comes after a row of its table.
fn names_its_row_first(changes: &[Change<'_>]) -> bool {
    let mut rows = BTreeSet::new();
    changes.iter().all(|change| {
        let Change::Put { key, .. } = change else {
            return true;
        };
        let parts: Vec<&[u8]> = key.split(|byte| *byte == b'|').collect();
        match parts[..] {
            [table, pk] => rows.insert((table, pk)),
            [table, _, _, pk] => rows.contains(&(table, pk)),
            _ => false,
        }
    })
}

#[test]
fn keys_are_read_back() {
    for (table, of) in TABLES.iter().enumerate() {
        let line = if of.rows == Rows::One { 0 } else { 7 };
        let row = RowId {
            table,
            order: 1234,
            line,
        };
        let mut pk = Vec::new();
        row.write_pk(&mut pk);
        assert_eq!(RowId::parse(table, &pk), Some(row));
        for wrong in [&b"x"[..], b"1234", b"0000001234-7", b"+000001234", b""] {
            assert_eq!(RowId::parse(table, wrong), None);
        }
    }
}

/// Queries of a client of 4 that has placed 500 orders, whose stages are all 3.
fn queries(seed: u64) -> (Client, Vec<KeyQuery>, Vec<IndexQuery>) {
    let (market, stages) = (Market::new(RETAIL), Stages::new());
    let mut client = Client::new(&market, 2, 4);
    client.placed = 500;
    for number in (0..2000).filter(|number| client.owns(*number)) {
        for _ in 0..3 {
            stages.begin(number).unwrap();
            stages.end(number).unwrap();
        }
    }
    let mut seed = Seed::new(seed);
    let by_key = (0..1000).map(|_| KeyQuery::choose(&client, &market, &mut seed));
    let by_key = by_key.collect();
    let by_index = (0..1000).map(|_| IndexQuery::choose(&client, &market, &stages, &mut seed));
    let by_index = by_index.collect();
    (client, by_key, by_index)
}

#[test]
fn a_seed_gives_its_queries() {
    let ((_, a, b), (_, again_a, again_b)) = (queries(1), queries(1));
    assert!(a == again_a && b == again_b);
    let (_, other, _) = queries(2);
    assert_ne!(a, other);
}

/// Rows of the same id and version have other sizes and other data with another seed.
#[test]
fn a_seed_gives_its_rows() {
    let rows = |seed: u64| {
        let order = Market::new(Retail { seed, ..RETAIL }).order(0);
        let row = |row: RowId| {
            let mut value = Vec::new();
            row::write(&order, row, 1, &mut value);
            value
        };
        order.rows_of_step(1).take(7).map(row).collect::<Vec<_>>()
    };
    let (of_one, of_other) = (rows(1), rows(2));
    assert_eq!(of_one, rows(1));
    let pairs = || of_one.iter().zip(&of_other);
    assert!(pairs().any(|(one, other)| one.len() != other.len()));
    assert!(pairs().all(|(one, other)| one[one.len() - 64..] != other[other.len() - 64..]));
}

#[test]
fn recent_orders_are_read_most() {
    let (client, by_key, by_index) = queries(3);
    let of_key = by_key.iter().map(|query| match query {
        KeyQuery::Row(row) => row.order,
        KeyQuery::Lines(number) => *number,
    });
    let numbers: Vec<u64> = of_key
        .chain(by_index.iter().map(|q| q.target.order))
        .collect();
    // 60 % of the newest 200 of 2,000, 30 % of the newest 400, 10 % of all.
    let newer = |than: u64| numbers.iter().filter(|number| **number >= than).count();
    assert!((1450..1600).contains(&newer(1800)), "{}", newer(1800));
    assert!((1760..1900).contains(&newer(1600)), "{}", newer(1600));
    let own = numbers
        .iter()
        .filter(|number| client.owns(**number))
        .count();
    // A half, and a quarter of the rest.
    assert!((1180..1320).contains(&own), "{own}");
    // The state of another client's order is not known.
    let mut others = by_index.iter().filter(|q| !client.owns(q.target.order));
    assert!(others.all(|query| query.index.field().is_fixed() && query.version == 1));
    assert!(by_index.iter().any(|query| !query.index.field().is_fixed()));
}

/// A quarter of the queries for a value that changes are for one that the row has left, if there
/// was one.
#[test]
fn some_queries_are_for_a_value_that_a_row_has_left() {
    let (client, _, by_index) = queries(4);
    let market = Market::new(RETAIL);
    let value_at = |query: &IndexQuery, version: u8| {
        let (order, mut value) = (market.order(query.target.order), Vec::new());
        query
            .index
            .write_prefix(&order, query.target.line, version, &mut value);
        value
    };
    let (mut changing, mut left) = (0, 0);
    for query in &by_index {
        let order = market.order(query.target.order);
        let stage = if client.owns(order.number) { 3 } else { 1 };
        let now = order.version_of(query.target, stage).unwrap();
        assert_eq!(
            query.is_present,
            value_at(query, query.version) == value_at(query, now)
        );
        changing += u64::from(!query.index.field().is_fixed());
        left += u64::from(!query.is_present);
        assert!(query.is_present || client.owns(order.number));
    }
    // Not every row has had another value after three steps.
    assert!(
        left * 8 > changing && left * 3 < changing,
        "{left} of {changing}"
    );
}

#[test]
fn most_transactions_are_as_the_table_says() {
    let config = RETAIL.config(1000, 4, 0, Durability::Process);
    config.check().unwrap();
    assert!(config.fills() && config.workloads.len() == 2);
    let kept = config.loaded_bytes() / RETAIL.orders;
    assert!(
        (35_000..42_000).contains(&kept),
        "{kept} bytes of an order stay"
    );
    // 1,000 transactions add 50 orders.
    assert_eq!(RETAIL.bytes_after(1000), config.loaded_bytes() + 50 * kept);
    for name in ["retail-load", "retail"] {
        let workload: Workload = name.parse().unwrap();
        assert!(workload.is_of_retail() && Workload::names().all(|(other, _)| other != name));
    }
    let too_few = Retail {
        orders: 3,
        ..RETAIL
    };
    assert!(
        too_few
            .config(1, 4, 0, Durability::Process)
            .check()
            .is_err()
    );
    let mut alone = config.clone();
    alone.retail = None;
    let error = alone.check().unwrap_err();
    assert!(error.to_string().contains("firn bench retail"), "{error}");
}

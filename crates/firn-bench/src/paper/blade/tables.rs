//! The experiments on one table: their entries and the structures that are compared.

use crate::paper::table::TableVariant;
use crate::structure::{Entries, Structure, index_keys, short_keys};

/// Entries of `tab1`, and gets of all experiments.
const MILLION: u64 = 1_000_000;
const LEAST: u64 = 1000;
/// Gets from the SSD: one in so many, because each takes a hundred times as long.
const GETS_PER_READ: u64 = 50;
/// Keys of an index and their values, in bytes.
const INDEX: (usize, usize) = (120, 16);
/// Value of `tab1`, in bytes.
const VALUE: usize = 100;
/// Bytes of a write buffer.
const BUFFER_BYTES: u64 = 64 << 20;
const FILTER_BITS: u32 = 10;

/// The structures in persistent memory against files in the cache and on the SSD.
pub(super) fn overlapping(scale: u64) -> Vec<TableVariant> {
    let pairs = [
        (Structure::CachedFile, Structure::Array),
        (Structure::CachedFile, Structure::Groups),
        (Structure::File, Structure::Groups),
    ];
    let of = |tables: usize| {
        pairs.map(|(baseline, ours)| {
            let part = match baseline {
                Structure::File => GETS_PER_READ,
                _ => 1,
            };
            let entries = move || Entries {
                keys: short_keys((MILLION / scale).max(LEAST)),
                value: vec![7; VALUE],
                // The paper's latencies grow with the tables, so its gets search all of them.
                filter_bits: 0,
                tables,
                gets: (MILLION / scale / part).max(LEAST / part),
            };
            TableVariant {
                name: format!("{tables} tables"),
                entries: Box::new(entries),
                baseline,
                ours,
            }
        })
    };
    [1, 2, 4, 8].into_iter().flat_map(of).collect()
}

/// A write buffer of values of several sizes.
pub(super) fn value_sizes(scale: u64) -> Vec<TableVariant> {
    let of = |value: usize| {
        let entries = move || {
            let keys = short_keys((BUFFER_BYTES / scale / (16 + value as u64)).max(LEAST));
            Entries {
                keys,
                value: vec![7; value],
                filter_bits: FILTER_BITS,
                tables: 1,
                gets: 1,
            }
        };
        TableVariant {
            name: format!("values of {value} B"),
            entries: Box::new(entries),
            baseline: Structure::Array,
            ours: Structure::Groups,
        }
    };
    [24, 40, 64, 128, 256, 512, 1024].map(of).into()
}

/// The entries of an index, in tables of several sizes.
pub(super) fn data_sizes(scale: u64) -> Vec<TableVariant> {
    let baselines = [
        Structure::Array,
        Structure::CachedFile,
        Structure::CompressedFile,
    ];
    let of = |mebibytes: u64| {
        baselines.map(|baseline| {
            let (key, value) = INDEX;
            let count = (mebibytes << 20) / scale / (key + value) as u64;
            let entries = move || Entries {
                keys: index_keys(count.max(LEAST), key),
                value: vec![7; value],
                filter_bits: FILTER_BITS,
                tables: 1,
                gets: (MILLION / scale).max(LEAST),
            };
            TableVariant {
                name: format!("{mebibytes} MiB"),
                entries: Box::new(entries),
                baseline,
                ours: Structure::Groups,
            }
        })
    };
    [8, 16, 32, 64, 128].into_iter().flat_map(of).collect()
}

//! RocksDB with the table format that its 11.x releases added for faster reads, and with all other
//! settings of `rocksdb`.
//!
//! | setting | value | why |
//! |---|---|---|
//! | `separate_key_value_in_data_block` | true | since 11.0: a search touches keys alone |
//! | `index_block_search_type` | `kAuto` | since 11.1: interpolates where keys are uniform |
//! | `uniform_cv_threshold` | 0.2 | the release notes' value; at none `kAuto` is binary search |
//! | index | one block per table, not partitioned | the default, and right for tables of 64 MiB |
//! | `optimize_filters_for_memory` | true | the default by now |
//! | filter | Bloom, not Ribbon | Ribbon saves memory, and costs CPU that counts here |
//! | `data_block_index_type` | binary search | its hash index is for point reads alone |
//! | compression | as requested | LZ4 is the default since 11.5, but a run treats all alike |
//!
//! The HyperClockCache is in `rocksdb` too. The first three are off by default, the first because
//! older releases cannot read such tables. The binding has no functions for them, so they are set
//! in RocksDB's text form of options.

use super::rocksdb::{Choice, NAME, RocksDbStore, failed};
use firn_base::Result;
use firn_bench::{Engine, Setup, Store};
use rocksdb::Options;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The settings that differ from `rocksdb`'s, as RocksDB names them.
const TABLE: [(&str, &str); 3] = [
    ("separate_key_value_in_data_block", "true"),
    ("index_block_search_type", "kAuto"),
    ("uniform_cv_threshold", "0.2"),
];

/// RocksDB with the newest format of tables.
#[derive(Debug)]
pub(crate) struct RocksDbTuned;

impl Engine for RocksDbTuned {
    fn name(&self) -> String {
        "rocksdb-tuned".to_owned()
    }

    fn about(&self) -> String {
        format!("{NAME}, all on SSD, tables in the format that 11.x added for faster reads")
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        let Ok(choice) = Choice::of(setup, u64::MAX) else {
            return BTreeMap::new();
        };
        let mut settings = choice.describe();
        settings.extend(TABLE.map(|(name, value)| (name.to_owned(), value.to_owned())));
        settings
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        let choice = Choice::of(setup, u64::MAX)?;
        let options = with_table(choice.options())?;
        Ok(Arc::new(RocksDbStore::open(setup, options, None)?))
    }
}

/// `options` with those of [`TABLE`]; the other options of tables remain.
fn with_table(mut options: Options) -> Result<Options> {
    let table: String = TABLE
        .map(|(name, value)| format!("{name}={value};"))
        .concat();
    options
        .get_options_from_string(format!("block_based_table_factory={{{table}}}"))
        .map_err(|error| failed("set its table format", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::rocksdb::RocksDb;
    use firn_bench::Compression;
    use firndb::Durability;
    use std::path::Path;

    /// The options that RocksDB wrote down when it opened `directory`.
    fn written(directory: &Path) -> BTreeMap<String, String> {
        let is_options = |path: &std::path::PathBuf| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("OPTIONS-")
        };
        let mut files: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(is_options)
            .collect();
        files.sort();
        let text = std::fs::read_to_string(files.last().unwrap()).unwrap();
        text.lines()
            .filter_map(|line| line.trim().split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn options_of(engine: &dyn Engine, compression: Compression) -> BTreeMap<String, String> {
        let place = tempfile::tempdir().unwrap();
        let setup = Setup {
            directory: place.path().to_owned(),
            memory_bytes: 64 << 20,
            compression,
            direct_io: false,
            background_threads: 3,
            durability: Durability::Process,
            records_max: 0,
            key_bytes_max: 0,
            value_bytes_max: 0,
            pm: None,
            extra: BTreeMap::new(),
        };
        let store = engine.open(&setup).unwrap();
        store.put(b"key", b"value", Durability::Process).unwrap();
        drop(store);
        written(place.path())
    }

    /// Paths, and numbers that RocksDB draws.
    fn differs_by_itself(name: &str) -> bool {
        ["wal_dir", "db_id", "db_session_id"].contains(&name)
    }

    #[test]
    fn what_is_told_is_what_rocksdb_does() {
        for compression in [Compression::None, Compression::Lz4] {
            let tuned = options_of(&RocksDbTuned, compression);
            let mut plain = options_of(&RocksDb, compression);
            for (name, value) in TABLE {
                let told: f64 = value.parse().unwrap_or(f64::NAN);
                let is_same = tuned[name] == value || tuned[name].parse() == Ok(told);
                assert!(is_same, "{name} is {}", tuned[name]);
                assert_ne!(plain[name], tuned[name], "{name}");
                plain.insert(name.to_owned(), tuned[name].clone());
            }
            for options in [&tuned, &plain] {
                assert_eq!(options["index_type"], "kBinarySearch");
                assert_eq!(options["optimize_filters_for_memory"], "true");
                assert_eq!(options["data_block_index_type"], "kDataBlockBinarySearch");
                assert_eq!(options["cache_index_and_filter_blocks"], "true");
                assert_eq!(options["block_size"], "4096");
                assert_eq!(options["max_background_jobs"], "3");
                let name = match compression {
                    Compression::None => "kNoCompression",
                    Compression::Lz4 => "kLZ4Compression",
                };
                assert_eq!(options["compression"], name);
                assert!(options["filter_policy"].contains("bloom"), "{options:?}");
            }
            // And nothing else differs.
            for (name, value) in &tuned {
                assert!(
                    differs_by_itself(name) || plain.get(name) == Some(value),
                    "{name}"
                );
            }
        }
    }
}

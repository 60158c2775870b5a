//! The engines, one per file, and the list of them.

mod fjall;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "leveldb")]
mod leveldb_ffi;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_library;
#[cfg(feature = "rocksdb")]
mod rocksdb_pm;
#[cfg(feature = "rocksdb")]
mod rocksdb_tuned;
mod share;
#[cfg(feature = "tidesdb")]
mod tidesdb;
#[cfg(not(all(feature = "leveldb", feature = "rocksdb", feature = "tidesdb")))]
mod unavailable;

use firn_bench::{Engine, Firn};
#[cfg(not(all(feature = "leveldb", feature = "rocksdb", feature = "tidesdb")))]
use unavailable::Unavailable;

/// Every engine: FirnDB's profiles first, then the others. An engine that this build lacks is
/// listed by name; opening it reports how to get it.
pub fn all() -> Vec<Box<dyn Engine>> {
    let mut engines = Firn::all();
    #[cfg(feature = "rocksdb")]
    engines.extend([
        Box::new(rocksdb::RocksDb) as Box<dyn Engine>,
        Box::new(rocksdb_tuned::RocksDbTuned),
        Box::new(rocksdb_pm::RocksDbPm),
    ]);
    #[cfg(not(feature = "rocksdb"))]
    engines.extend(
        ["rocksdb", "rocksdb-tuned", "rocksdb-pm"].map(|name| Unavailable::boxed(name, "rocksdb")),
    );
    #[cfg(feature = "leveldb")]
    engines.push(Box::new(leveldb::LevelDb));
    #[cfg(not(feature = "leveldb"))]
    engines.push(Unavailable::boxed("leveldb", "leveldb"));
    #[cfg(feature = "tidesdb")]
    engines.push(Box::new(tidesdb::Tides));
    #[cfg(not(feature = "tidesdb"))]
    engines.push(Unavailable::boxed("tidesdb", "tidesdb"));
    engines.extend([
        Box::new(fjall::Fjall) as Box<dyn Engine>,
        Box::new(redb::Redb),
        Box::new(lmdb::Lmdb),
    ]);
    engines
}

//! The engines, one per file, and the list of them.

#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_pm;
mod share;
mod unavailable;

use firn_bench::{Engine, Firn};
use unavailable::Unavailable;

/// Every engine: FirnDB's profiles first, then the others. One that this build lacks is there by name, and says at its
/// opening how to get it.
pub fn all() -> Vec<Box<dyn Engine>> {
    let mut engines = Firn::all();
    #[cfg(feature = "rocksdb")]
    engines.extend([Box::new(rocksdb::RocksDb) as Box<dyn Engine>, Box::new(rocksdb_pm::RocksDbPm)]);
    #[cfg(not(feature = "rocksdb"))]
    engines.extend(["rocksdb", "rocksdb-pm"].map(|name| Box::new(Unavailable::new(name, "rocksdb")) as Box<dyn Engine>));
    engines
}

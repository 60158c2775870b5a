//! Structures of one table, built and searched without an engine: tables in persistent memory by
//! their arrangement, and files. Persistent memory is DRAM, with delays if some are given.

use firn_base::clock::Clock;
use firn_base::count::{Cause, IoCounters};
use firn_base::key::Kind;
use firn_base::seed::mix;
use firn_base::site::Site;
use firn_base::{Error, FileId, Limits, Result, SeqNo, Tag};
use firn_fs::{OpenMode, OsFs, open_file};
use firn_pm::{Latency, Owner, PmConfig, PmOffset, Pool};
use firn_table::pm_table::{Arrangement, PmTable, PmTableOptions, PmTableWriter};
use firn_table::sst::{Codec, Got, Query, Sst, SstOptions, SstWriter};
use firn_table::{BlockCache, TableContext};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a table beside its entries, for the size of the pool.
const TABLE_BYTES: u64 = 4 << 20;
/// Bytes beside key and value that an entry may take in any structure.
const ENTRY_BYTES: usize = 80;
/// Bytes that are copied to persistent memory at once, as a table's writer does.
const COPY_BYTES: usize = 64 << 10;
/// Bytes of a cache that keeps next to nothing.
const SMALL_CACHE_BYTES: u64 = 64 << 10;
const CACHE_BYTES: u64 = 4 << 30;
const KEYS_PER_GROUP: usize = 8;

static WRITTEN: Site = Site::new("bench.table.written");

/// A structure of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Entries one after the other in persistent memory, and an array of their places.
    Array,
    /// Groups of entries in persistent memory whose prefix is stored once.
    Groups,
    /// A file of which every block is in the block cache.
    CachedFile,
    /// The same with compressed blocks, which are cached as they are read: decompressed.
    CompressedFile,
    /// A file that is read for every get.
    File,
}

impl Structure {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Structure::Array => "array",
            Structure::Groups => "groups",
            Structure::CachedFile => "file, cached",
            Structure::CompressedFile => "file with lz4, cached",
            Structure::File => "file, not cached",
        }
    }
}

/// The entries of tables and the gets on them.
#[derive(Debug, Clone)]
pub struct Entries {
    /// The keys, in order.
    pub keys: Vec<Vec<u8>>,
    /// The value of all of them.
    pub value: Vec<u8>,
    /// Bits of filter per key; 0 for no filter.
    pub filter_bits: u32,
    /// The number of tables over which they are dealt out, so that the tables overlap. A get looks
    /// into one after the other.
    pub tables: usize,
    /// The number of gets, of existing keys in random order.
    pub gets: u64,
}

/// The measurements of a structure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Built {
    /// Seconds to write the tables.
    pub build_seconds: f64,
    /// Seconds to copy as many bytes to persistent memory, without anything else; 0 for files.
    pub copy_seconds: f64,
    /// Bytes of the tables.
    pub bytes: u64,
    /// Mean microseconds of a get.
    pub get_micros: f64,
    /// Mean cache lines of persistent memory that a get read; 0 for files.
    pub lines: f64,
}

/// Keys of an index on columns of rows: a long prefix, a column's value, the row. Their length is
/// `bytes`, at least 8.
pub fn index_keys(count: u64, bytes: usize) -> Vec<Vec<u8>> {
    let key = |number: u64| {
        let (table, value) = (number >> 16, mix(number >> 4) % 100_000);
        let text = format!("table{table:05}/index02/{value:012}/row{number:016}");
        let padding = std::iter::repeat_n(b'p', bytes.saturating_sub(text.len()));
        let mut key: Vec<u8> = padding.chain(text.bytes()).collect();
        key.truncate(bytes.max(8));
        key
    };
    let mut keys: Vec<Vec<u8>> = (0..count).map(key).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Keys of 16 bytes, in order.
pub fn short_keys(count: u64) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|number| format!("{:016x}", mix(number)).into_bytes())
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

impl Entries {
    /// Builds tables of `structure` and searches them. Files are in `directory` and removed
    /// afterwards.
    ///
    /// # Errors
    /// The errors of the tables; [`firn_base::ErrorKind::Invalid`] without entries or tables.
    pub fn measure(
        &self,
        structure: Structure,
        directory: &Path,
        latency: Option<Latency>,
    ) -> Result<Built> {
        if self.tables == 0 || self.keys.len() < self.tables || self.gets == 0 {
            return Err(Error::invalid(
                "a table needs at least one entry, and a measurement one get",
            ));
        }
        match structure {
            Structure::Array => self.in_memory(Arrangement::Array, latency),
            Structure::Groups => self.in_memory(Arrangement::Grouped, latency),
            Structure::CachedFile | Structure::CompressedFile | Structure::File => {
                self.in_files(structure, directory)
            }
        }
    }

    /// The keys of table `number`.
    fn keys_of(&self, number: usize) -> impl Iterator<Item = &Vec<u8>> {
        self.keys.iter().skip(number).step_by(self.tables)
    }

    fn in_memory(&self, arrangement: Arrangement, latency: Option<Latency>) -> Result<Built> {
        let entry = |key: &Vec<u8>| (key.len() + self.value.len() + ENTRY_BYTES) as u64;
        let bytes: u64 = self.keys.iter().map(entry).sum();
        let table_bytes = bytes + TABLE_BYTES;
        let config = PmConfig {
            latency,
            ..PmConfig::volatile(2 * bytes + (self.tables as u64 + 1) * TABLE_BYTES)
        };
        let pool = Arc::new(Pool::open_or_create(&config, [1; 16])?);
        pool.finish_recovery()?;
        let build = || {
            let table = |number: usize| {
                let options = PmTableOptions {
                    id: FileId(number as u64 + 1),
                    group_entries: KEYS_PER_GROUP,
                    arrangement,
                    filter_bits: self.filter_bits,
                    table_bytes,
                };
                let mut writer = PmTableWriter::new(pool.clone(), options, None);
                for key in self.keys_of(number) {
                    writer.add(key, Tag::new(SeqNo(1), Kind::Put), &self.value)?;
                }
                Ok(writer.finish()?.0)
            };
            (0..self.tables).map(table).collect::<Result<Vec<_>>>()
        };
        // Once to touch the pool's pages.
        for space in build()? {
            space.release()?;
        }
        let (spaces, build_seconds) = timed(build)?;
        let bytes = spaces.iter().map(|space| space.extent().len).sum();
        let copy_seconds = copy_seconds(&pool, bytes)?;
        let context = context(CACHE_BYTES);
        let open = |space| Ok(PmTable::open(Arc::new(space))?.counted_in(&context));
        let tables = spaces.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let get_micros = self.search(|query| first(tables.iter().map(|t| t.get(query))))?;
        Ok(Built {
            build_seconds,
            copy_seconds,
            bytes,
            get_micros,
            lines: context.pm_gets.lines.get() as f64 / self.gets as f64,
        })
    }

    fn in_files(&self, structure: Structure, directory: &Path) -> Result<Built> {
        let files = Files {
            paths: (0..self.tables)
                .map(|number| directory.join(format!("structure-{number}.sst")))
                .collect(),
        };
        let fs = OsFs::new();
        let codec = match structure {
            Structure::CompressedFile => Codec::Lz4,
            _ => Codec::None,
        };
        let build = || {
            let table = |(number, path): (usize, &PathBuf)| {
                let options = SstOptions {
                    codec,
                    filter_bits: self.filter_bits,
                    ..SstOptions::new(&Limits::default())
                };
                let id = FileId(number as u64 + 1);
                let file = open_file(&fs, path, OpenMode::CreateDirect)?;
                let counters = Arc::<IoCounters>::default();
                let mut writer = SstWriter::new(file, id, options, counters, Cause::Flush);
                for key in self.keys_of(number) {
                    writer.add(key, Tag::new(SeqNo(1), Kind::Put), &self.value)?;
                }
                writer.finish()
            };
            let numbered = files.paths.iter().enumerate();
            numbered.map(table).collect::<Result<Vec<_>>>()
        };
        let (metas, build_seconds) = timed(build)?;
        let is_cached = structure != Structure::File;
        let context = context(match is_cached {
            true => CACHE_BYTES,
            false => SMALL_CACHE_BYTES,
        });
        let mut tables = Vec::new();
        for (number, (path, meta)) in files.paths.iter().zip(&metas).enumerate() {
            let file = open_file(&fs, path, OpenMode::ReadDirect)?;
            let id = FileId(number as u64 + 1);
            tables.push(Arc::new(Sst::open(file, id, meta.extent, context.clone())?));
        }
        let get = |query: &Query<'_>| first(tables.iter().map(|table| table.get(query)));
        if is_cached {
            // Once to fill the cache.
            for key in &self.keys {
                get(&Query::new(key, SeqNo::MAX))?;
            }
        }
        Ok(Built {
            build_seconds,
            copy_seconds: 0.0,
            bytes: metas.iter().map(|meta| meta.extent.valid_len).sum(),
            get_micros: self.search(get)?,
            lines: 0.0,
        })
    }

    /// Mean microseconds of `get`, over keys in random order, the same for each structure.
    fn search(&self, get: impl Fn(&Query<'_>) -> Result<bool>) -> Result<f64> {
        let asked = (0..self.gets).map(|n| &self.keys[mix(n) as usize % self.keys.len()]);
        let all = || {
            for key in asked {
                if !black_box(get(&Query::new(key, SeqNo::MAX))?) {
                    return Err(Error::invalid("a key that was written is not there"));
                }
            }
            Ok(())
        };
        let ((), seconds) = timed(all)?;
        Ok(seconds * 1e6 / self.gets as f64)
    }
}

/// True if one of `answers`, in order, is the entry.
fn first(answers: impl Iterator<Item = Result<Got>>) -> Result<bool> {
    for got in answers {
        if let Got::Found { .. } = got? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Files that are removed when this is dropped.
struct Files {
    paths: Vec<PathBuf>,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.paths {
            let _may_be_missing = std::fs::remove_file(path);
        }
    }
}

/// Seconds to copy `bytes` to free space of `pool` and to fence once, without anything else.
fn copy_seconds(pool: &Pool, bytes: u64) -> Result<f64> {
    let extent = pool.alloc(bytes, Owner::Table)?;
    let source = vec![7; COPY_BYTES];
    let copy = || {
        let mut copied = Vec::new();
        let mut at = 0;
        while at < bytes {
            let len = (bytes - at).min(COPY_BYTES as u64);
            let place = PmOffset::new(extent.offset.get() + at);
            copied.push(pool.copy_nt(place, &source[..len as usize])?);
            at += len;
        }
        let _nothing_leads_there = pool.fence(&WRITTEN, copied);
        Ok(())
    };
    // Once to touch the pages.
    copy()?;
    let ((), seconds) = timed(copy)?;
    pool.free(extent)?;
    Ok(seconds)
}

fn context(cache_bytes: u64) -> TableContext {
    TableContext::new(Arc::new(BlockCache::new(cache_bytes)), Arc::default())
}

/// The result of `act` and the seconds that it took.
fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let clock = Clock::system();
    let begun_ns = clock.now_ns();
    let result = act()?;
    Ok((result, (clock.now_ns() - begun_ns) as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_structure_is_built_and_searched() {
        let directory = tempfile::tempdir().unwrap();
        let entries = Entries {
            keys: index_keys(3000, 120),
            value: vec![7; 16],
            filter_bits: 0,
            tables: 3,
            gets: 500,
        };
        let measure = |structure| entries.measure(structure, directory.path(), None).unwrap();
        let [array, groups] = [Structure::Array, Structure::Groups].map(measure);
        assert!(array.bytes > groups.bytes, "{array:?} {groups:?}");
        assert!(array.copy_seconds > 0.0 && array.lines > groups.lines);
        for structure in [
            Structure::CachedFile,
            Structure::CompressedFile,
            Structure::File,
        ] {
            let built = measure(structure);
            assert!(built.build_seconds > 0.0 && built.get_micros > 0.0);
            assert!(built.bytes > 0 && built.lines == 0.0);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let none = Entries {
            tables: 0,
            ..entries
        };
        assert!(
            none.measure(Structure::Array, directory.path(), None)
                .is_err()
        );
        assert!(short_keys(100).iter().all(|key| key.len() == 16));
    }
}

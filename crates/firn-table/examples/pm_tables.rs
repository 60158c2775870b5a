//! Measures building and searching one table (PM-Blade, Fig. 6): groups and an array in persistent
//! memory, and a file with all of its blocks cached. Prints a table in Markdown, or with `--json`
//! one object per line.
//!
//! `pm_tables [MEBIBYTES] [KEY BYTES] [VALUE BYTES]`: 32, 120 and 16 by default, which are the
//! entries of an index. Persistent memory is DRAM without delays.

use firn_base::count::{Cause, IoCounters};
use firn_base::key::Kind;
use firn_base::seed::mix;
use firn_base::{FileId, Limits, Result, SeqNo, Tag};
use firn_fs::{OpenMode, OsFs, open_file};
use firn_pm::{PmConfig, Pool};
use firn_table::pm_table::{Arrangement, PmTable, PmTableOptions, PmTableWriter};
use firn_table::sst::{Got, Query, Sst, SstOptions, SstWriter};
use firn_table::{BlockCache, TableContext};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const GETS: u64 = 1_000_000;

/// The keys of an index on columns of rows: a long prefix, a column's value, the row.
fn key(number: u64, bytes: usize) -> Vec<u8> {
    let (table, value) = (number >> 16, mix(number >> 4) % 100_000);
    let mut key = format!("table{table:05}/index02/{value:012}/row{number:016}").into_bytes();
    key.splice(
        ..0,
        std::iter::repeat_n(b'p', bytes.saturating_sub(key.len())),
    );
    key.truncate(bytes.max(8));
    key
}

struct Measured {
    structure: &'static str,
    build_seconds: f64,
    bytes: u64,
    get_micros: f64,
    lines: f64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let as_json = arguments.iter().any(|argument| argument == "--json");
    let number = |at: usize, default: usize| {
        let numbers = arguments.iter().filter(|argument| *argument != "--json");
        let found = numbers.skip(at).find_map(|text| text.parse().ok());
        found.unwrap_or(default)
    };
    let (mebibytes, key_bytes, value_bytes) = (number(0, 32), number(1, 120), number(2, 16));
    let count = (mebibytes << 20) / (key_bytes + value_bytes);
    let mut keys: Vec<Vec<u8>> = (0..count as u64).map(|n| key(n, key_bytes)).collect();
    keys.sort();
    keys.dedup();
    let value = vec![7; value_bytes];
    let measured = [
        in_memory("array", Arrangement::Array, &keys, &value)?,
        in_memory("groups", Arrangement::Grouped, &keys, &value)?,
        in_file(&keys, &value)?,
    ];
    if !as_json {
        println!(
            "{} entries of {key_bytes} + {value_bytes} bytes, {GETS} gets\n",
            keys.len()
        );
        println!("| structure | build, s | bytes an entry | get, us | lines of PM a get |");
        println!("|---|---|---|---|---|");
    }
    for one in measured {
        let entry = one.bytes as f64 / keys.len() as f64;
        let Measured {
            structure,
            build_seconds,
            get_micros,
            lines,
            ..
        } = one;
        if as_json {
            println!(
                "{{\"structure\":\"{structure}\",\"build_seconds\":{build_seconds:.4},\"entry_bytes\":{entry:.1},\
                 \"get_micros\":{get_micros:.3},\"lines\":{lines:.1}}}"
            );
        } else {
            println!(
                "| {structure} | {build_seconds:.3} | {entry:.1} | {get_micros:.3} | {lines:.1} |"
            );
        }
    }
    Ok(())
}

/// Keys in random order, the same for each structure.
fn asked(keys: &[Vec<u8>]) -> impl Iterator<Item = &Vec<u8>> {
    (0..GETS).map(|n| &keys[mix(n) as usize % keys.len()])
}

fn context() -> TableContext {
    let cache = Arc::new(BlockCache::new(4 << 30, 4096));
    TableContext::new(cache, Arc::default())
}

fn in_memory(
    structure: &'static str,
    arrangement: Arrangement,
    keys: &[Vec<u8>],
    value: &[u8],
) -> Result<Measured> {
    let bytes: usize = keys.iter().map(|key| key.len() + value.len() + 80).sum();
    let pool = Arc::new(Pool::open_or_create(
        &PmConfig::volatile(2 * bytes as u64 + (8 << 20)),
        [1; 16],
    )?);
    pool.finish_recovery()?;
    let options = PmTableOptions {
        id: FileId(1),
        group_entries: 8,
        arrangement,
        filter_bits: 10,
        table_bytes: bytes as u64 + (4 << 20),
    };
    let build = || {
        let begun = Instant::now();
        let mut writer = PmTableWriter::new(pool.clone(), options.clone(), None);
        for key in keys {
            writer.add(key, Tag::new(SeqNo(1), Kind::Put), value)?;
        }
        let (space, _) = writer.finish()?;
        Ok::<_, firn_base::Error>((space, begun.elapsed().as_secs_f64()))
    };
    // Once to touch the pool's pages.
    build()?.0.release()?;
    let (space, build_seconds) = build()?;
    let bytes = space.extent().len;
    let context = context();
    let table = PmTable::open(Arc::new(space))?.counted_in(&context);
    let begun = Instant::now();
    for key in asked(keys) {
        let got = table.get(&Query::new(key, SeqNo::MAX))?;
        assert!(matches!(black_box(got), Got::Found { .. }));
    }
    Ok(Measured {
        structure,
        build_seconds,
        bytes,
        get_micros: begun.elapsed().as_secs_f64() * 1e6 / GETS as f64,
        lines: context.pm_gets.lines.get() as f64 / GETS as f64,
    })
}

fn in_file(keys: &[Vec<u8>], value: &[u8]) -> Result<Measured> {
    let path = std::env::temp_dir().join(format!("pm_tables-{}.sst", std::process::id()));
    let fs = OsFs::new();
    let begun = Instant::now();
    let options = SstOptions::new(&Limits::default());
    let file = open_file(&fs, &path, OpenMode::CreateDirect)?;
    let counters = Arc::<IoCounters>::default();
    let mut writer = SstWriter::new(file, FileId(1), options, counters, Cause::Flush);
    for key in keys {
        writer.add(key, Tag::new(SeqNo(1), Kind::Put), value)?;
    }
    let meta = writer.finish()?;
    let build_seconds = begun.elapsed().as_secs_f64();
    let file = open_file(&fs, &path, OpenMode::ReadDirect)?;
    let table = Arc::new(Sst::open(file, FileId(1), meta.extent, context())?);
    for key in keys {
        table.get(&Query::new(key, SeqNo::MAX))?;
    }
    let begun = Instant::now();
    for key in asked(keys) {
        let got = table.get(&Query::new(key, SeqNo::MAX))?;
        assert!(matches!(black_box(got), Got::Found { .. }));
    }
    let get_micros = begun.elapsed().as_secs_f64() * 1e6 / GETS as f64;
    let _removed = std::fs::remove_file(&path);
    Ok(Measured {
        structure: "file, cached",
        build_seconds,
        bytes: meta.extent.valid_len,
        get_micros,
        lines: 0.0,
    })
}

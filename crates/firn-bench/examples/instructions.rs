//! The program whose instructions `cargo xtask perf` counts. `instructions VERB N` runs N
//! operations with the same setup for every N, so two runs with different N differ only by the
//! operations.
//!
//! - `put`: of 16 + 100 bytes, into a memtable that holds them all, with process durability;
//! - `get`: of such records, each read often enough to be cached as a row;
//! - `get-block`: of such records, read for the second time, from cached blocks: each becomes a
//!   row;
//! - `get-absent`: of keys between them, which the filter excludes;
//! - `scan`: of 50 entries each, likewise;
//! - `get-list`, `scan-list`: `get` and `scan` where the records are lists in persistent memory;
//! - `get-sorted`, `scan-sorted`: the same where they are sorted tables there.

use firndb::{
    Backend, Codec, Db, Durability, Options, PmConfig, Profile, ReadOptions, WriteOptions,
};
use std::error::Error;
use std::hint::black_box;

const RECORDS: u64 = 20_000;

fn key(number: u64) -> [u8; 16] {
    // Spread evenly over the key space. Odd numbers are absent.
    let mixed = firn_base::seed::mix(number) & !1;
    (u128::from(mixed) << 64 | u128::from(number)).to_be_bytes()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, verb, count] = &arguments[..] else {
        return Err("usage: instructions put|get|get-block|get-absent|scan|get-list|scan-list|get-sorted|scan-sorted N"
            .into());
    };
    let count: u64 = count.parse()?;
    // What is done, and where the records are.
    let (verb, profile) = match verb.split_once('-') {
        Some((verb, "list")) => (verb, Profile::Tlsm),
        Some((verb, "sorted")) => (verb, Profile::Blade),
        _ => (verb.as_str(), Profile::Classic),
    };
    let directory = tempfile::tempdir()?;
    let options = Options::default()
        .compression(Codec::None)
        .background_workers(1);
    let options = match profile {
        Profile::Classic => options,
        in_memory => {
            let pool = directory.path().join("pool");
            let pm = PmConfig::at(pool, Backend::Emulated, 256 << 20);
            options.profile(in_memory).pm(Some(pm))
        }
    };
    let db = Db::open(directory.path().join("db"), options)?;
    let process = WriteOptions::new().durability(Durability::Process);
    let value = [7u8; 100];
    for number in 0..RECORDS {
        db.put_with(key(number), value, &process)?;
    }
    if verb != "put" {
        db.compact()?;
        for number in (0..if verb == "get" { 2 } else { 1 }).flat_map(|_| 0..RECORDS) {
            black_box(db.get(key(number))?);
        }
    }
    for operation in 0..count {
        let number = operation % RECORDS;
        match verb {
            "put" => db.put_with(key(RECORDS + operation), value, &process)?,
            "get" | "get-block" => drop(black_box(
                db.get(key(number))?.ok_or("a record is missing")?,
            )),
            "get-absent" => {
                let mut absent = key(number);
                absent[7] |= 1;
                black_box(db.get(absent)?);
            }
            "scan" => {
                let lower = Some(key(number).to_vec());
                let mut iter = db.cursor_with(ReadOptions {
                    lower,
                    ..ReadOptions::default()
                })?;
                iter.first()?;
                for _ in 0..50 {
                    if !iter.valid() {
                        break;
                    }
                    black_box((iter.key(), iter.value()));
                    iter.next()?;
                }
            }
            other => return Err(format!("`{other}` is not known").into()),
        }
    }
    Ok(())
}

//! The process that runs when `scripts/dax.sh` cuts the power, and the one that checks afterwards.
//!
//! `write` writes one row after another to a database of each profile, all with
//! `Durability::Power`, and prints a line per acknowledged row: `BACKEND PROFILE NUMBER`. `check`
//! reads such lines and expects every row.
//!
//! Exit code: 0 if every acknowledged row exists; 1 if not; 2 for wrong usage or a full disk.
#![forbid(unsafe_code)]

use firn_base::seed::Seed;
use firndb::{Backend, Db, Durability, Error, Options, PmConfig, Profile, Result, WriteOptions};
use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: power_cut write|check BACKENDS DISK MEMORY ACKNOWLEDGED

BACKENDS      dax, emulated, or both with a comma
DISK          a directory for the databases, and for the pools of emulated
MEMORY        a directory for the pools of dax, or a /dev/dax device (then profile lab only)
ACKNOWLEDGED  a file of the lines that were printed so far; write goes on after them";
const POOL_BYTES: u64 = 1 << 20;

/// One of the databases.
#[derive(Debug, Clone)]
struct Place {
    backend: Backend,
    profile: Profile,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.backend, self.profile)
    }
}

/// The parsed arguments.
struct Asked {
    is_write: bool,
    places: Vec<Place>,
    disk: PathBuf,
    memory: PathBuf,
    /// The last number of each place, by its name.
    acknowledged: HashMap<String, u64>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = match parse(&arguments) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!("power_cut: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match asked.is_write {
        true => write(&asked).map_or_else(
            |error| {
                eprintln!("power_cut: {error}");
                ExitCode::from(2)
            },
            |()| ExitCode::SUCCESS,
        ),
        false => ExitCode::from(u8::from(!check(&asked))),
    }
}

fn parse(arguments: &[String]) -> Result<Asked, String> {
    let [verb, backends, disk, memory, lines] = arguments else {
        return Err("five arguments are needed".to_owned());
    };
    let (disk, memory) = (PathBuf::from(disk), PathBuf::from(memory));
    let profiles: &[Profile] = if memory.is_dir() {
        &Profile::ALL
    } else {
        &[Profile::Lab]
    };
    let mut places = Vec::new();
    for name in backends.split(',') {
        let backend = name.parse::<Backend>().map_err(|error| error.to_string())?;
        places.extend(profiles.iter().map(|&profile| Place { backend, profile }));
    }
    let text = std::fs::read_to_string(lines).map_err(|error| format!("{lines}: {error}"))?;
    let is_write = match verb.as_str() {
        "write" => true,
        "check" => false,
        _ => return Err(format!("`{verb}` is neither write nor check")),
    };
    Ok(Asked {
        is_write,
        places,
        disk,
        memory,
        acknowledged: text.lines().filter_map(acknowledgement).collect(),
    })
}

/// The place and the number in a line. Later lines have larger numbers.
fn acknowledgement(line: &str) -> Option<(String, u64)> {
    let (place, number) = line.rsplit_once(' ')?;
    Some((place.to_owned(), number.parse().ok()?))
}

fn open(asked: &Asked, place: &Place) -> Result<Db> {
    let name = format!("{}-{}", place.backend, place.profile);
    let pool = match place.backend {
        Backend::Dax if asked.memory.is_dir() => asked.memory.join(&name),
        Backend::Dax => asked.memory.clone(),
        _ => asked.disk.join(format!("{name}-pool")),
    };
    let pm = Some(PmConfig::at(pool, place.backend, POOL_BYTES));
    Db::open(
        asked.disk.join(&name),
        Options::tiny().profile(place.profile).pm(pm),
    )
}

/// Writes until the power is cut.
fn write(asked: &Asked) -> Result<()> {
    let mut databases = Vec::new();
    for place in &asked.places {
        databases.push((
            place,
            open(asked, place)?,
            asked
                .acknowledged
                .get(&place.to_string())
                .map_or(0, |last| last + 1),
        ));
    }
    let durability = Durability::Power;
    let mut out = std::io::stdout().lock();
    loop {
        for (place, db, number) in &mut databases {
            db.put_with(
                key(*number),
                value(*number),
                &WriteOptions::new().durability(durability),
            )?;
            let told = writeln!(out, "{place} {number}").and_then(|()| out.flush());
            told.map_err(|source| {
                Error::from_io("write to", Path::new("standard output"), source)
            })?;
            *number += 1;
        }
    }
}

/// True if every acknowledged row exists.
fn check(asked: &Asked) -> bool {
    let mut is_whole = true;
    for place in &asked.places {
        let Some(&last) = asked.acknowledged.get(&place.to_string()) else {
            eprintln!("power_cut: {place}: no row was acknowledged");
            is_whole = false;
            continue;
        };
        let (count, lost) = (last + 1, open(asked, place).and_then(|db| lost(&db, last)));
        let verdict = match &lost {
            Ok(0) => "all there".to_owned(),
            Ok(lost) => format!("{lost} LOST"),
            Err(error) => format!("LOST: {error}"),
        };
        eprintln!("power_cut: {place}: {count} rows acknowledged, {verdict}");
        is_whole &= matches!(lost, Ok(0));
    }
    is_whole
}

/// The number of rows up to `last` that are missing or differ from the written ones.
fn lost(db: &Db, last: u64) -> Result<u64> {
    let mut lost = 0;
    for number in 0..=last {
        let found = db.get(key(number))?;
        lost += u64::from(found.is_none_or(|found| found[..] != value(number)[..]));
    }
    db.verify().map(|_report| lost)
}

fn key(number: u64) -> Vec<u8> {
    // Key order differs from the order of writes.
    format!("{:03}/{number:08}", number * 7919 % 1000).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0; 20 + (number * 37 % 500) as usize];
    Seed::new(number).fill(&mut value);
    value
}

//! A whole database, one file of which is the input: opened for writing and read-only, used,
//! verified, and repaired.
//!
//! The first byte of an input selects the file and its database.

use super::manifest::{mend_current, mend_records};
use super::real::{DIR, Real};
use super::{Target, check_refusal, log, table};
use firn_fs::SimFs;
use firndb::{Db, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory target.
pub(super) const DIRECTORY: Target = Target {
    name: "directory",
    bytes_max: 8 << 10,
    run,
    seeds,
    mend,
};

/// No database of an input's size holds this many entries, unless a cursor loops.
const STEPS_MAX: u64 = 1 << 16;

/// The files that can be replaced, with their databases.
fn places() -> &'static [(&'static Real, PathBuf)] {
    static PLACES: OnceLock<Vec<(&'static Real, PathBuf)>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let read = |path: &Path| !path.ends_with("LOCK") && !path.ends_with("OPTIONS");
        let of = |real: &'static Real| real.paths("").into_iter().map(move |path| (real, path));
        Real::both()
            .iter()
            .flat_map(of)
            .filter(|(_, path)| read(path))
            .collect()
    })
}

/// The file that an input replaces, and its new contents.
fn split(bytes: &[u8]) -> Option<(&'static Real, &'static Path, &[u8])> {
    let (&which, contents) = bytes.split_first()?;
    let (real, path) = &places()[usize::from(which) % places().len()];
    Some((real, path, contents))
}

fn run(bytes: &[u8]) {
    let Some((real, path, contents)) = split(bytes) else {
        return;
    };
    let fs = real.fs.duplicate();
    fs.write_file(path, contents);
    let damaged = fs.duplicate();
    match open(real, &fs, Db::open_read_only).and_then(|db| read(&db)) {
        Ok(()) => {}
        Err(error) => check_refusal(&error, "a database that is only read"),
    }
    match open(real, &fs, Db::open) {
        Ok(db) => work(db),
        Err(error) => check_refusal(&error, "a database"),
    }
    repair(real, &damaged);
}

fn open(
    real: &Real,
    fs: &SimFs,
    open: fn(&'static str, firndb::Options) -> Result<Db>,
) -> Result<Db> {
    let (options, _inline, _clock) = real.setup.options(fs, None);
    open(DIR, options)
}

/// Reads everything in both directions.
fn read(db: &Db) -> Result<()> {
    let mut iter = db.cursor()?;
    let mut steps = 0;
    let mut step = || {
        steps += 1;
        assert!(steps < STEPS_MAX, "a cursor that comes to no end");
    };
    let mut forward = iter.first();
    while forward.is_ok() && iter.valid() {
        step();
        forward = iter.next();
    }
    let mut backward = iter.last();
    while backward.is_ok() && iter.valid() {
        step();
        backward = iter.prev();
    }
    let sought = iter
        .seek(b"key07")
        .and_then(|()| iter.seek_for_prev(b"key07"));
    let got = ["key00", "key05", "key99"]
        .iter()
        .try_for_each(|key| db.get(key).map(drop));
    forward.and(backward).and(sought).and(got)
}

/// Runs every operation that a user may run.
fn work(db: Db) {
    let done = [
        read(&db),
        db.verify().map(drop),
        db.put(b"key05", b"new"),
        db.flush(),
        db.compact(),
        db.wait_idle(),
        read(&db),
        db.close(),
    ];
    for error in done.into_iter().filter_map(Result::err) {
        check_refusal(&error, "a database that was opened");
    }
}

/// Repairs the database and checks that the result is sound. A repair may refuse only files of
/// another version.
fn repair(real: &Real, damaged: &SimFs) {
    let (options, _inline, _clock) = real.setup.options(damaged, None);
    match firndb::repair(DIR, &options) {
        Err(error) if error.kind() == ErrorKind::Incompatible => return,
        repaired => drop(repaired.expect("a repair without a fault")),
    }
    let db = open(real, damaged, Db::open).expect("what was repaired opens");
    read(&db).expect("what was repaired is read");
    db.verify().expect("what was repaired is sound");
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |(which, (real, path)): (usize, &(&'static Real, PathBuf))| {
        let contents = real.fs.read_file(path).ok()?;
        Some([&[which as u8], &contents[..]].concat())
    };
    places().iter().enumerate().filter_map(seed).collect()
}

fn mend(bytes: &mut Vec<u8>) {
    let Some((_, path, contents)) = split(bytes) else {
        return;
    };
    let mut contents = contents.to_vec();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("log") => log::mend_log(&mut contents),
        Some("sst") => table::mend_table(&mut contents),
        _ if path.ends_with("CURRENT") => mend_current(&mut contents),
        _ => mend_records(&mut contents, number(path)),
    }
    bytes.truncate(1);
    bytes.extend_from_slice(&contents);
}

/// The number in a manifest's name.
fn number(path: &Path) -> u64 {
    let name = path.to_string_lossy();
    name.rsplit('-')
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

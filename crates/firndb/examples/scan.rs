//! Cursors: ranges, prefixes, both directions. Run: `cargo run --release -p firndb --example scan`

use firndb::{Db, Options};

fn main() -> firndb::Result<()> {
    let dir = tempfile::tempdir().map_err(|error| firndb::Error::invalid(error.to_string()))?;
    let db = Db::open(dir.path().join("db"), Options::default())?;
    for day in 1..=9 {
        db.put(format!("snow/2026-01-0{day}"), format!("{} cm", day * 3))?;
        db.put(format!("wind/2026-01-0{day}"), format!("{} m/s", day))?;
    }
    let mut snow = db.prefix(b"snow/")?;
    snow.last()?;
    while snow.valid() {
        println!("{}: {}", String::from_utf8_lossy(snow.key()), String::from_utf8_lossy(snow.value()));
        snow.prev()?;
    }
    let count = db.range("snow/2026-01-03".."snow/2026-01-06")?.entries().count();
    println!("{count} days in the range");
    assert_eq!(count, 3);
    let mut iter = db.iter()?;
    iter.seek_for_prev(b"snow/2026-01-05x")?;
    assert_eq!(iter.key(), b"snow/2026-01-05");
    drop((snow, iter));
    db.close()
}

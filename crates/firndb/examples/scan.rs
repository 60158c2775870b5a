//! Ranges: a loop over a prefix, a bounded range, a cursor.
//!
//! Run: `cargo run --release -p firndb --example scan`

use firndb::{Db, Options};

fn main() -> firndb::Result<()> {
    let dir = tempfile::tempdir().map_err(|error| firndb::Error::invalid(error.to_string()))?;
    let db = Db::open(dir.path().join("db"), Options::default())?;
    for day in 1..=9 {
        db.put(format!("snow/2026-01-0{day}"), format!("{} cm", day * 3))?;
        db.put(format!("wind/2026-01-0{day}"), format!("{day} m/s"))?;
    }
    for entry in db.prefix("snow/").rev() {
        let (day, depth) = entry?;
        println!(
            "{}: {}",
            String::from_utf8_lossy(&day),
            String::from_utf8_lossy(&depth)
        );
    }
    let count = db.range("snow/2026-01-03".."snow/2026-01-06").count();
    println!("{count} days in the range");
    assert_eq!(count, 3);
    let mut cursor = db.cursor()?;
    cursor.seek_for_prev("snow/2026-01-05x")?;
    assert_eq!(cursor.key(), b"snow/2026-01-05");
    drop(cursor);
    db.close()
}

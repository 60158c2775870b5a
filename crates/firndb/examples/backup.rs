//! A backup by checkpoint: a separate database, made while writes go on.
//!
//! Run: `cargo run --release -p firndb --example backup`

use firndb::{Db, Options};

fn main() -> firndb::Result<()> {
    let dir = tempfile::tempdir().map_err(|error| firndb::Error::invalid(error.to_string()))?;
    let db = Db::open(dir.path().join("db"), Options::default())?;
    for i in 0..10_000u32 {
        db.put(i.to_be_bytes(), b"before")?;
    }
    let copy = dir.path().join("backup");
    db.checkpoint(&copy)?;
    db.put(0u32.to_be_bytes(), b"after")?;
    let backup = Db::open(&copy, Options::default())?;
    backup.verify()?;
    println!(
        "now: {:?}, in the backup: {:?}",
        db.get(0u32.to_be_bytes())?,
        backup.get(0u32.to_be_bytes())?
    );
    assert_eq!(
        backup.get(0u32.to_be_bytes())?.expect("it was there"),
        b"before"
    );
    backup.close()?;
    db.close()
}

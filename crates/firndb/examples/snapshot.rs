//! Reading the past while the present moves on. Run: `cargo run --release -p firndb --example snapshot`

use firndb::{Db, Options};

fn main() -> firndb::Result<()> {
    let dir = tempfile::tempdir().map_err(|error| firndb::Error::invalid(error.to_string()))?;
    let db = Db::open(dir.path().join("db"), Options::default())?;
    db.put(b"depth", b"1 m")?;
    let yesterday = db.snapshot();
    db.put(b"depth", b"2 m")?;
    db.flush()?;
    db.compact()?;
    println!("now: {:?}, then: {:?}", db.get(b"depth")?, yesterday.get(b"depth")?);
    assert_eq!(yesterday.get(b"depth")?.expect("it was there"), b"1 m");
    // Dropping the snapshot lets compaction take its versions.
    drop(yesterday);
    db.close()
}

//! Reads a past state while writes go on.
//!
//! Run: `cargo run --release -p firndb --example snapshot`

use firndb::{Db, Options};

fn main() -> firndb::Result<()> {
    let dir = tempfile::tempdir().map_err(|error| firndb::Error::invalid(error.to_string()))?;
    let db = Db::open(dir.path().join("db"), Options::default())?;
    db.put(b"depth", b"1 m")?;
    let yesterday = db.snapshot();
    db.put(b"depth", b"2 m")?;
    db.flush()?;
    db.compact()?;
    println!(
        "now: {:?}, then: {:?}",
        db.get(b"depth")?,
        yesterday.get(b"depth")?
    );
    assert_eq!(yesterday.get(b"depth")?.expect("it was there"), b"1 m");
    // After the snapshot is dropped, compaction may drop its versions.
    drop(yesterday);
    db.close()
}

//! Several changes applied atomically, and the two durabilities.
//!
//! Run: `cargo run --release -p firndb --example batch`

use firndb::{Db, Durability, Options, WriteBatch, WriteOptions};

fn main() -> firndb::Result<()> {
    let dir = tempfile::tempdir().map_err(|error| firndb::Error::invalid(error.to_string()))?;
    let db = Db::open(dir.path().join("db"), Options::default())?;
    db.put(b"account/ada", b"100")?;
    db.put(b"account/bob", b"0")?;
    let mut transfer = WriteBatch::new();
    transfer
        .put(b"account/ada", b"70")
        .put(b"account/bob", b"30")
        .delete(b"pending/17");
    // Survives power loss once this returns.
    db.write(
        &transfer,
        &WriteOptions::new().durability(Durability::Power),
    )?;
    // Survives the death of the process only, until the sync.
    db.put_with(
        b"seen/ada",
        b"now",
        &WriteOptions::new().durability(Durability::Process),
    )?;
    db.sync()?;
    let balances = db.multi_get(&[b"account/ada", b"account/bob"])?;
    for (name, balance) in ["ada", "bob"].iter().zip(balances) {
        println!(
            "{name}: {}",
            String::from_utf8_lossy(&balance.expect("both exist"))
        );
    }
    db.close()
}

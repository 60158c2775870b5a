//! Open, put, get, delete, close. Run: `cargo run --release -p firndb --example basic`

use firndb::{Db, Options};

fn main() -> firndb::Result<()> {
    let dir = tempfile::tempdir().map_err(|error| firndb::Error::invalid(error.to_string()))?;
    let db = Db::open(dir.path().join("db"), Options::default())?;
    db.put(b"alps/mont-blanc", b"4806")?;
    db.put(b"andes/aconcagua", b"6961")?;
    let height = db.get(b"alps/mont-blanc")?.expect("just put");
    println!("Mont Blanc: {} m", String::from_utf8_lossy(&height));
    db.delete(b"andes/aconcagua")?;
    assert!(db.get(b"andes/aconcagua")?.is_none());
    db.close()
}

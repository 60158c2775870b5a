//! Writes the seeds of every decoder to DIR/TARGET/, for `fuzz/run`.

use firn_sim::decoders::TARGETS;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let usage = || std::io::Error::other("usage: seeds DIR");
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or_else(usage)?);
    for target in &TARGETS {
        let folder = dir.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
    }
    Ok(())
}

//! `cargo xtask soak`: builds the soak program in release mode and runs it.

use std::path::Path;
use std::process::Command;

/// Runs it with `arguments`. Returns its exit code: 1 if it found a failure, 2 if it could not run.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> u8 {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let built = Command::new(&cargo)
        .current_dir(root)
        .args("build --release -p firn-sim --bins".split(' '))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return 2;
    }
    let run = "run --release -q -p firn-sim --bin soak --".split(' ');
    match Command::new(&cargo)
        .current_dir(root)
        .args(run)
        .args(arguments)
        .status()
    {
        Ok(status) => status.code().map_or(2, |code| code as u8),
        Err(error) => {
            eprintln!("soak: {error}");
            2
        }
    }
}

//! `cargo xtask peers`: fetches the dependencies of other engines by name, and builds
//! `crates/firn-peers` with all of them.
//!
//! 1. Missing Debian packages are installed if this user may do so; otherwise the necessary command
//!    is printed.
//! 2. RocksDB is the library inside its own Java package, which exports the whole C interface. It
//!    is fetched once, its hash is compared with the one here, and it is kept next to the build.
//!    With `--native` it is built from source instead, see [`native`].
//! 3. The build is `--release`, for measurements. The program contains the path to the library, so
//!    running it needs no settings.

mod native;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

/// The first two fetch and unpack; libclang reads RocksDB's header for its binding; the last two
/// build TidesDB.
const PACKAGES: [&str; 6] = [
    "curl",
    "unzip",
    "libclang-dev",
    "libleveldb-dev",
    "cmake",
    "liblz4-dev",
];
/// The RocksDB version of the binding in crates/firn-peers/Cargo.lock.
const ROCKSDB: &str = "11.8.1";
const JAR_SHA256: &str = "628ed387887f4a431df480857954df2a28b4389bfe24858ccdec611cabf65dbf";

/// The origin of RocksDB's library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// Its Java package, built for every x86-64.
    Fetched,
    /// Its source, built for this processor.
    Native,
}

/// Runs all steps. Returns 2 if a dependency could not be obtained, or the build's exit code if the
/// build failed.
pub(crate) fn run(root: &Path, library: Library) -> u8 {
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target/peers"), |folder| root.join(folder));
    let prepared = packages(library).and_then(|()| match library {
        Library::Fetched => rocksdb(&target),
        Library::Native => native::rocksdb(root),
    });
    match prepared {
        Ok(library) => build(root, &target, &library),
        Err(error) => {
            eprintln!("peers: {error}");
            2
        }
    }
}

fn packages(library: Library) -> io::Result<()> {
    let is_there =
        |name: &&str| quiet("dpkg-query", &["-W", "-f", "${db:Status-Abbrev}", *name]) == "ii ";
    let more: &[&str] = match library {
        Library::Fetched => &[],
        Library::Native => &native::PACKAGES,
    };
    let missing: Vec<&str> = PACKAGES
        .into_iter()
        .chain(more.iter().copied())
        .filter(|name| !is_there(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install -y {}", missing.join(" "));
    if quiet("id", &["-u"]).trim() != "0" {
        return Err(io::Error::other(format!(
            "{} missing; run `sudo {install}`",
            missing.join(", ")
        )));
    }
    println!("peers: {install}");
    done(Command::new("apt-get").arg("update").stdout(Stdio::null()))?;
    done(
        Command::new("apt-get")
            .args(["install", "-y"])
            .args(&missing)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// The folder that contains `librocksdb.so`.
fn rocksdb(target: &Path) -> io::Result<PathBuf> {
    let folder = target.join(format!("rocksdb-{ROCKSDB}"));
    let library = folder.join("librocksdb.so");
    if library.is_file() {
        return Ok(folder);
    }
    let name = match env::consts::ARCH {
        "x86_64" => "librocksdbjni-linux64.so",
        "aarch64" => "librocksdbjni-linux-aarch64.so",
        other => {
            return Err(io::Error::other(format!(
                "no RocksDB to fetch for {other}; build one from source"
            )));
        }
    };
    fs::create_dir_all(&folder)?;
    let (jar, part) = (
        folder.join("rocksdbjni.jar"),
        folder.join("librocksdb.so.part"),
    );
    let maven = "https://repo1.maven.org/maven2/org/rocksdb/rocksdbjni";
    let url = format!("{maven}/{ROCKSDB}/rocksdbjni-{ROCKSDB}.jar");
    println!("peers: {url}");
    done(
        Command::new("curl")
            .args(["-fsSL", "--retry", "3", "-o"])
            .arg(&jar)
            .arg(&url),
    )?;
    let hash = quiet("sha256sum", &[&jar.to_string_lossy()]);
    if hash.split(' ').next() != Some(JAR_SHA256) {
        fs::remove_file(&jar)?;
        return Err(io::Error::other(format!(
            "{url} is not what it was: SHA-256 `{hash}`, not {JAR_SHA256}"
        )));
    }
    done(
        Command::new("unzip")
            .arg("-p")
            .arg(&jar)
            .arg(name)
            .stdout(fs::File::create(&part)?),
    )?;
    // The final name is given only to a complete library, because the next run looks for that name.
    fs::rename(&part, &library)?;
    fs::remove_file(&jar)?;
    Ok(folder)
}

fn build(root: &Path, target: &Path, library: &Path) -> u8 {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let line =
        "build --release --locked --all-features --manifest-path crates/firn-peers/Cargo.toml";
    let mut command = Command::new(cargo);
    command.current_dir(root).args(line.split(' '));
    command
        .env("CARGO_TARGET_DIR", target)
        .env("ROCKSDB_LIB_DIR", library);
    match command.status() {
        Ok(status) if status.success() => {
            println!("peers: {}", target.join("release/firn-peers").display());
            println!(
                "peers: to build or test by hand, ROCKSDB_LIB_DIR={}",
                library.display()
            );
            0
        }
        Ok(status) => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
        Err(error) => {
            eprintln!("peers: cannot start cargo: {error}");
            2
        }
    }
}

/// The standard output of a command; empty if it cannot be run.
fn quiet(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::null())
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn done(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{command:?} failed: {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_one_that_the_binding_is_for() {
        let root = crate::tree::workspace_root().unwrap();
        let lock = fs::read_to_string(root.join("crates/firn-peers/Cargo.lock")).unwrap();
        let binding = lock
            .split("name = \"librocksdb-sys\"")
            .nth(1)
            .unwrap()
            .lines()
            .nth(1)
            .unwrap();
        assert!(
            binding.ends_with(&format!("+{ROCKSDB}\"")),
            "{binding} is not for RocksDB {ROCKSDB}"
        );
    }

    #[test]
    fn a_command_that_fails_says_so() {
        assert!(done(&mut Command::new("false")).is_err());
        assert_eq!(quiet("no-such-program", &[]), "");
    }
}

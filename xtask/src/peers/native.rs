//! RocksDB from source, for this processor, kept in the user's cache.
//!
//! 1. The source is inside the crate `librocksdb-sys`, which cargo fetches and whose hash stands in
//!    crates/firn-peers/Cargo.lock.
//! 2. The folder's name has the version, the processor and a hash of everything else that decides
//!    the result: the instructions that the compiler finds here, its version, the settings.
//! 3. The build happens in a folder beside it, with the suffix `.build`. `librocksdb.so` gets its
//!    place by a rename, so it is complete wherever it exists. An interrupted build is continued:
//!    ninja counts a file as done only after its compiler has ended.

use super::{ROCKSDB, done, quiet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io};

/// The Debian packages of the build, beside those of every build.
pub(super) const PACKAGES: [&str; 2] = ["g++", "ninja-build"];
/// The settings of CMake. `PORTABLE=0` is `-march=native`. io_uring is off because the library of
/// the Java package has none either, so that the two differ in their instructions alone.
const SETTINGS: [&str; 13] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_CXX_FLAGS=-w",
    // One file, without the links by version.
    "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
    "-DPORTABLE=0",
    "-DROCKSDB_BUILD_SHARED=ON",
    "-DWITH_LZ4=ON",
    "-DWITH_LIBURING=OFF",
    "-DWITH_GFLAGS=OFF",
    "-DWITH_TESTS=OFF",
    "-DWITH_TOOLS=OFF",
    "-DWITH_CORE_TOOLS=OFF",
    "-DWITH_BENCHMARK_TOOLS=OFF",
    "-DWITH_TRACE_TOOLS=OFF",
];
const LIBRARY: &str = "librocksdb.so";
const TELL_EVERY: Duration = Duration::from_secs(20);

/// The folder that contains `librocksdb.so`, built now if it was not before.
pub(super) fn rocksdb(root: &Path) -> io::Result<PathBuf> {
    let name = folder_name(
        &quiet("c++", &["-march=native", "-Q", "--help=target"]),
        &quiet("c++", &["--version"]),
    )
    .ok_or_else(|| io::Error::other("`c++ -march=native` is not known: c++ must be GCC"))?;
    let cache = cache()?;
    let (folder, built) = (cache.join(&name), cache.join(format!("{name}.build")));
    if folder.join(LIBRARY).is_file() {
        println!("peers: {} is there", folder.join(LIBRARY).display());
        return Ok(folder);
    }
    let source = source(root)?;
    println!(
        "peers: building RocksDB {ROCKSDB} for this processor, once: 20 to 30 minutes on two cores"
    );
    println!("peers: into {}", folder.display());
    done(
        Command::new("cmake")
            .args(["-G", "Ninja", "-S"])
            .arg(source)
            .arg("-B")
            .arg(&built)
            .args(SETTINGS)
            // The name of the folder tells of this compiler.
            .env("CC", "cc")
            .env("CXX", "c++")
            .stdout(Stdio::null()),
    )?;
    compile(&built)?;
    fs::create_dir_all(&folder)?;
    fs::rename(built.join(LIBRARY), folder.join(LIBRARY))?;
    fs::remove_dir_all(&built)?;
    Ok(folder)
}

fn cache() -> io::Result<PathBuf> {
    let own = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = own.or_else(home).ok_or_else(|| {
        io::Error::other("no folder to keep RocksDB in: set HOME or XDG_CACHE_HOME")
    })?;
    Ok(cache.join("firndb"))
}

/// The name of the folder, from GCC's list of options for this processor and its version. `None` if
/// the list is not GCC's: another compiler's name would not tell two processors apart.
fn folder_name(target: &str, compiler: &str) -> Option<String> {
    let processor = target
        .lines()
        .filter_map(|line| line.trim().strip_prefix("-march="))
        .map(str::trim)
        .find(|name| !name.is_empty())?;
    let hash = fnv1a([target, compiler].into_iter().chain(SETTINGS));
    Some(format!("rocksdb-{ROCKSDB}-native-{processor}-{hash:016x}"))
}

fn fnv1a<'a>(texts: impl Iterator<Item = &'a str>) -> u64 {
    texts
        .flat_map(|text| text.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The folder of RocksDB's source, which cargo fetches if need be.
fn source(root: &Path) -> io::Result<PathBuf> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let line = "metadata --format-version 1 --locked --all-features --manifest-path";
    let output = Command::new(cargo)
        .args(line.split(' '))
        .arg(root.join("crates/firn-peers/Cargo.toml"))
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let manifest = manifest_of_source(&text)
        .ok_or_else(|| io::Error::other(format!("cargo knows no librocksdb-sys with {ROCKSDB}")))?;
    Ok(Path::new(manifest).with_file_name("rocksdb"))
}

/// The manifest of `librocksdb-sys` in the output of `cargo metadata`. Only there does a string end
/// like this.
fn manifest_of_source(metadata: &str) -> Option<&str> {
    let end = format!("+{ROCKSDB}/Cargo.toml");
    metadata
        .split('"')
        .find(|text| text.contains("/librocksdb-sys-") && text.ends_with(&end))
}

/// Compiles and links, and tells how far it is. Everything else that ninja prints is an error of
/// the compiler, and is passed on.
fn compile(built: &Path) -> io::Result<()> {
    let mut command = Command::new("cmake");
    command
        .arg("--build")
        .arg(built)
        .args(["--target", "rocksdb-shared"])
        .env("NINJA_STATUS", "[%f/%t] ")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if env::var_os("CMAKE_BUILD_PARALLEL_LEVEL").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
        command.args(["--parallel", &cores.to_string()]);
    }
    let mut child = command.spawn()?;
    let (started, mut told) = (Instant::now(), None::<Instant>);
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines())
    {
        let line = line?;
        let Some((finished, total)) = progress(&line) else {
            eprintln!("{line}");
            continue;
        };
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) || finished == total {
            let minutes = started.elapsed().as_secs() / 60;
            println!("peers: RocksDB: {finished} of {total} files, {minutes} min");
            told = Some(Instant::now());
        }
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "the build of RocksDB failed: {status}"
        )))
    }
}

/// The numbers of `[12/345] Building ..`.
fn progress(line: &str) -> Option<(u32, u32)> {
    let (finished, total) = line.strip_prefix('[')?.split_once(']')?.0.split_once('/')?;
    Some((finished.parse().ok()?, total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_processor_or_compiler_has_another_folder() {
        let target = "The following options:\n  -march=      \t\tznver3\n  -msse4.2    [enabled]\n";
        let name = folder_name(target, "g++ 12").unwrap();
        assert!(
            name.starts_with(&format!("rocksdb-{ROCKSDB}-native-znver3-")),
            "{name}"
        );
        let other = target.replace("enabled", "disabled");
        assert_ne!(folder_name(&other, "g++ 12").unwrap(), name);
        assert_ne!(folder_name(target, "g++ 13").unwrap(), name);
        assert_eq!(folder_name(target, "g++ 12").unwrap(), name);
        assert_eq!(folder_name("", "clang 21"), None);
    }

    #[test]
    fn source_and_progress_are_found() {
        let metadata = format!(
            "{{\"name\":\"librocksdb-sys\",\"manifest_path\":\"/r/librocksdb-sys-0.1.0+{ROCKSDB}/Cargo.toml\"}}"
        );
        let manifest = manifest_of_source(&metadata).unwrap();
        assert_eq!(
            manifest,
            format!("/r/librocksdb-sys-0.1.0+{ROCKSDB}/Cargo.toml")
        );
        assert_eq!(manifest_of_source("{}"), None);
        assert_eq!(
            progress("[12/345] Building CXX object a.o"),
            Some((12, 345))
        );
        assert_eq!(progress("FAILED: a.o"), None);
    }
}

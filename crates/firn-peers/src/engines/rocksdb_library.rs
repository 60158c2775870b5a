//! The RocksDB library that this process runs: its origin, and its checksum.
//!
//! Both are found out and not remembered from the build, because the library is loaded at run time
//! and its CRC-32C decides a part of every write. The origin is read from the file that is mapped
//! here; the checksum from the `LOG` that RocksDB writes when it opens an empty database.

use rocksdb::{DB, Options};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

/// Only the library of the Java package exports a name like this.
const JAVA_NAME: &[u8] = b"Java_org_rocksdb_RocksDB_open";
/// `cargo xtask peers --native` gives its folder a name with this part, before the processor's.
const NATIVE: &str = "-native-";
const CRC_LINE: &str = "Fast CRC32 supported: ";
const PART_BYTES: usize = 1 << 20;

/// The origin of the library, and the path of a library that `cargo xtask peers` did not fetch or
/// build.
pub(super) fn origin() -> String {
    static ORIGIN: OnceLock<String> = OnceLock::new();
    let find = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        match mapped(&maps) {
            Some(path) => origin_of(path).unwrap_or_else(|error| format!("unknown: {error}")),
            None => "compiled into this program".to_owned(),
        }
    };
    ORIGIN.get_or_init(find).clone()
}

/// `hardware` or `software`: the way this library computes CRC-32C on this processor.
pub(super) fn crc() -> String {
    static CRC: OnceLock<String> = OnceLock::new();
    CRC.get_or_init(|| probe().unwrap_or_else(|error| format!("unknown: {error}")))
        .clone()
}

/// The path of the mapped library, if it is not a part of the program.
fn mapped(maps: &str) -> Option<&Path> {
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is_rocksdb = |path: &&Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("librocksdb") && name.contains(".so")
    };
    paths.into_iter().find(is_rocksdb)
}

fn origin_of(path: &Path) -> io::Result<String> {
    if contains(&mut File::open(path)?, JAVA_NAME)? {
        return Ok("from the Java package".to_owned());
    }
    let folder = path
        .parent()
        .and_then(Path::file_name)
        .unwrap_or_default()
        .to_string_lossy();
    Ok(match folder.split_once(NATIVE) {
        Some((_, processor)) => format!("built from source for this processor, {processor}"),
        None => path.display().to_string(),
    })
}

/// True if `wanted` is in the file. Read in parts, so that a large library does not count in the
/// peak memory of a measurement.
fn contains(file: &mut impl Read, wanted: &[u8]) -> io::Result<bool> {
    let mut part = Vec::new();
    loop {
        let kept = part.len().min(wanted.len() - 1);
        part.drain(..part.len() - kept);
        if file
            .by_ref()
            .take(PART_BYTES as u64)
            .read_to_end(&mut part)?
            == 0
        {
            return Ok(false);
        }
        if part.windows(wanted.len()).any(|window| window == wanted) {
            return Ok(true);
        }
    }
}

fn probe() -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("firn-peers-rocksdb-{}", std::process::id()));
    let said = said(&folder);
    // Whatever remains is small, in a folder for such things.
    let _ = fs::remove_dir_all(&folder);
    said
}

/// The answer in the `LOG` of a new database in `folder`.
fn said(folder: &PathBuf) -> Result<String, String> {
    let mut options = Options::default();
    options.create_if_missing(true);
    drop(DB::open(&options, folder).map_err(|error| error.to_string())?);
    let log = fs::read_to_string(folder.join("LOG")).map_err(|error| error.to_string())?;
    crc_of(&log).map_or_else(
        || Err(format!("no line `{CRC_LINE}` in LOG")),
        |crc| Ok(crc.to_owned()),
    )
}

fn crc_of(log: &str) -> Option<&'static str> {
    let said = log
        .lines()
        .find_map(|line| Some(line.split_once(CRC_LINE)?.1))?;
    Some(if said.starts_with("Supported") {
        "hardware"
    } else {
        "software"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_library_is_known() {
        let (origin, crc) = (origin(), crc());
        println!("{origin}; {crc}");
        assert!(!origin.starts_with("unknown"), "{origin}");
        assert!(["hardware", "software"].contains(&crc.as_str()), "{crc}");
        assert!(
            crc == "hardware" || !origin.starts_with("built from source"),
            "{origin}: {crc}"
        );
    }

    #[test]
    fn lines_are_read() {
        let line = |said| format!("2026/11/28-07:12:06.1 42 {CRC_LINE}{said}\n");
        assert_eq!(crc_of(&line("Supported on x86")), Some("hardware"));
        assert_eq!(crc_of(&line("Not supported on x86")), Some("software"));
        assert_eq!(crc_of("nothing"), None);
        let maps = "7f00-7f01 r-xp 00000000 fe:00 1   /usr/lib/libc.so.6\n\
                    7f02-7f03 r-xp 00000000 fe:00 2   /a b/librocksdb.so\n7f04-7f05 rw-p 0 0 0\n";
        assert_eq!(mapped(maps), Some(Path::new("/a b/librocksdb.so")));
        assert_eq!(mapped(""), None);
    }

    #[test]
    fn a_name_across_two_parts_is_found() {
        for before in [0, 1, PART_BYTES - 5, PART_BYTES, 2 * PART_BYTES - 1] {
            let mut bytes = vec![b'J'; before];
            bytes.extend(JAVA_NAME);
            assert!(contains(&mut &bytes[..], JAVA_NAME).unwrap(), "{before}");
            assert!(
                !contains(&mut &bytes[..bytes.len() - 1], JAVA_NAME).unwrap(),
                "{before}"
            );
        }
    }

    #[test]
    fn folders_tell_the_origin() {
        let place = tempfile::tempdir().unwrap();
        let library = |folder: &str, bytes: &[u8]| {
            let path = place.path().join(folder).join("librocksdb.so");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            origin_of(&path).unwrap()
        };
        let native = library("rocksdb-1.2.3-native-znver3-0123", b"");
        assert_eq!(native, "built from source for this processor, znver3-0123");
        assert_eq!(library("rocksdb-1.2.3", JAVA_NAME), "from the Java package");
        assert!(library("usr-lib", b"").ends_with("usr-lib/librocksdb.so"));
    }
}

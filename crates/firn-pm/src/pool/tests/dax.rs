//! Real DAX, where it is available: `scripts/dax.sh` runs these tests in a virtual machine with an
//! NVDIMM. Elsewhere they print that they were skipped.

use super::backends::{dax_directory, keep, open, refused};
use super::*;
use crate::config::Backend;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The value of the environment variable `name`. Prints that a test was skipped if it is not set.
fn place(name: &str) -> Option<PathBuf> {
    let place = std::env::var_os(name).map(PathBuf::from);
    if place.is_none() {
        println!("skipped: {name} names no DAX");
    }
    place
}

fn read(pool: &Pool, extent: Extent, len: u64) -> Vec<u8> {
    let frozen = pool.adopt(extent).unwrap();
    pool.borrow(&frozen, 0..len).unwrap().to_vec()
}

#[test]
fn a_file_has_its_space_in_whole_huge_pages() {
    let Some(_) = place("FIRN_DAX") else { return };
    let dir = tempfile::tempdir_in(dax_directory().unwrap()).unwrap();
    let path = dir.path().join("pool");
    let config = PmConfig::at(&path, Backend::Dax, (2 << 20) + (3 << 12));
    let pool = open(&config);
    assert_eq!(
        (pool.backend_name(), pool.durable_at()),
        ("dax", DurableAt::Fence)
    );
    assert_eq!(pool.size_bytes(), (2 << 20) + (3 << 12));
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.len() == 4 << 20 && metadata.blocks() * 512 >= metadata.len());
    let first = keep(&pool, 1, &[7; 100_000]);
    pool.grow(5 << 20).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 6 << 20);
    let second = keep(&pool, 2, &[8; 2 << 20]);
    pool.close().unwrap();
    drop(pool);
    let pool = open(&PmConfig {
        size_bytes: 0,
        ..config
    });
    assert_eq!(pool.size_bytes(), 5 << 20);
    assert_eq!(read(&pool, first, 100_000), [7; 100_000]);
    assert_eq!(read(&pool, second, 2 << 20), vec![8; 2 << 20]);
}

#[test]
fn a_device_is_used_at_its_own_size() {
    let Some(path) = place("FIRN_DAX_DEVICE") else {
        return;
    };
    let rdev = std::fs::metadata(&path).unwrap().rdev();
    let bytes = crate::region::device_bytes(std::path::Path::new("/sys"), rdev, &path).unwrap();
    let sized = |size_bytes| PmConfig::at(&path, Backend::Dax, size_bytes);
    let larger = refused(&sized(bytes + (2 << 20)));
    assert!(
        larger.kind() == ErrorKind::Invalid && larger.to_string().contains("is a device of"),
        "{larger}"
    );
    assert_eq!(
        refused(&PmConfig {
            backend: Backend::File,
            ..sized(1 << 20)
        })
        .kind(),
        ErrorKind::Invalid
    );

    // A size that is not a multiple of the device's alignment.
    let small = (3 << 20) + (5 << 12);
    let pool = open(&sized(small));
    assert_eq!((pool.backend_name(), pool.size_bytes()), ("dax", small));
    assert_eq!(refused(&sized(small)).kind(), ErrorKind::Locked);
    let first = keep(&pool, 1, &[5; 70_000]);
    drop(pool);

    for size in [0, 4096, 1 << 20, bytes, bytes * 2] {
        let pool = open(&sized(size));
        assert_eq!(pool.size_bytes(), small);
        assert_eq!(read(&pool, first, 70_000), [5; 70_000]);
    }
    let pool = open(&sized(0));
    assert_eq!(
        pool.grow(bytes + (1 << 20)).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    pool.grow(bytes).unwrap();
    let second = keep(&pool, 2, &vec![6; (bytes - (5 << 20)) as usize]);
    pool.close().unwrap();
    drop(pool);
    let pool = Pool::open_read_only(&sized(0), UUID).unwrap();
    pool.finish_recovery().unwrap();
    assert_eq!(pool.size_bytes(), bytes);
    assert!(
        read(&pool, second, bytes - (5 << 20))
            .iter()
            .all(|&byte| byte == 6)
    );
}

/// The sectors of a file's first three pages on its device, as reported by `filefrag`.
fn sectors(path: &std::path::Path) -> [u64; 3] {
    let told = std::process::Command::new("filefrag")
        .args(["-v", "-b4096"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let first = text
        .lines()
        .find(|line| line.trim_start().starts_with("0:"))
        .unwrap();
    let block: u64 = first
        .split(':')
        .nth(2)
        .unwrap()
        .split('.')
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    [0, 1, 2].map(|page| (block + page) * 8)
}

#[test]
fn a_media_error_is_an_error_and_no_signal() {
    let Some(bad_blocks) = place("FIRN_DAX_BADBLOCKS") else {
        return;
    };
    // Not removed, so that nothing else gets these blocks.
    let dir = tempfile::tempdir_in(dax_directory().unwrap())
        .unwrap()
        .keep();
    for page in 0..3 {
        let path = dir.join(format!("pool{page}"));
        let config = PmConfig::at(&path, Backend::Dax, 1 << 20);
        let pool = open(&config);
        keep(&pool, 1, b"kept");
        pool.close().unwrap();
        drop(pool);
        std::fs::write(&bad_blocks, format!("{} 8\n", sectors(&path)[page])).unwrap();
        let place = format!(
            "{} is damaged at byte {}: the medium",
            path.display(),
            page * 4096
        );
        for error in [
            refused(&config),
            Pool::open_read_only(&config, UUID).unwrap_err(),
        ] {
            assert!(
                error.kind() == ErrorKind::Corruption && error.to_string().contains(&place),
                "{error}"
            );
        }
    }
}

//! Backends over real files: the contents after a reopen, and the text of each refusal.

use super::*;
use crate::config::Backend;
use crate::frozen::Frozen;
use firn_base::site::TEST;
use std::path::{Path, PathBuf};

/// The directory with real DAX, if any. `scripts/dax.sh` sets it in a virtual machine.
pub(super) fn dax_directory() -> Option<PathBuf> {
    std::env::var_os("FIRN_DAX").map(PathBuf::from)
}

/// The backends over a file, including `dax` if it is available.
fn kinds() -> Vec<Backend> {
    let dax = dax_directory().map(|_there| Backend::Dax);
    [Backend::Emulated, Backend::File]
        .into_iter()
        .chain(dax)
        .collect()
}

/// A directory for a pool of `backend`.
fn directory(backend: Backend) -> tempfile::TempDir {
    match dax_directory().filter(|_there| backend == Backend::Dax) {
        Some(dax) => tempfile::tempdir_in(dax).unwrap(),
        None => tempfile::tempdir().unwrap(),
    }
}

pub(super) fn open(config: &PmConfig) -> Pool {
    let pool = Pool::open_or_create(config, UUID).unwrap();
    pool.finish_recovery().unwrap();
    pool
}

pub(super) fn refused(config: &PmConfig) -> firn_base::Error {
    Pool::open_or_create(config, UUID).unwrap_err()
}

/// Writes `bytes` to a new immutable extent and commits it as entry `kind`.
pub(super) fn keep(pool: &Pool, kind: u16, bytes: &[u8]) -> Extent {
    let extent = pool.alloc(bytes.len() as u64, Owner::Test).unwrap();
    let fenced = pool.write_durable(&TEST, extent.offset, &[bytes]).unwrap();
    let frozen = pool.freeze(extent, &fenced).unwrap();
    pool.persist(&[&frozen]).unwrap();
    let edit = |root: &mut Root| {
        root.set(entry(kind, extent));
        root.applied_edit += 1;
        Ok(())
    };
    pool.commit_with(fenced, edit).unwrap();
    extent
}

fn config(dir: &tempfile::TempDir, backend: Backend) -> PmConfig {
    PmConfig::at(dir.path().join("pool"), backend, 1 << 16)
}

#[test]
fn a_pool_survives_reopen_growth_and_another_address() {
    for backend in kinds() {
        let dir = directory(backend);
        let config = config(&dir, backend);
        let pool = open(&config);
        let first = keep(&pool, 1, b"first");
        let garbage = pool.alloc(G, Owner::Test).unwrap();
        pool.grow(1 << 18).unwrap();
        let second = keep(&pool, 2, &[5; 100_000]);
        pool.close().unwrap();
        assert!(
            pool.commit_with(crate::Fenced::nothing(), |_| Ok(()))
                .is_err(),
            "closed"
        );
        let address = pool
            .borrow(
                &Frozen {
                    extent: first,
                    pool: pool.id,
                },
                0..1,
            )
            .unwrap()
            .as_ptr();
        let (pool, old) = open_again_elsewhere(pool, &config);
        assert!(pool.was_clean());
        assert_eq!((pool.unsafe_shutdowns(), pool.size_bytes()), (0, 1 << 18));
        assert_eq!(pool.root().applied_edit, 2);
        let frozen = pool.adopt(first).unwrap();
        assert_eq!(pool.borrow(&frozen, 0..5).unwrap(), b"first");
        assert_ne!(pool.borrow(&frozen, 0..1).unwrap().as_ptr(), address);
        let frozen = pool.adopt(second).unwrap();
        assert!(
            pool.borrow(&frozen, 0..100_000)
                .unwrap()
                .iter()
                .all(|&byte| byte == 5)
        );
        assert!(pool.adopt(garbage).is_err(), "what no root reaches is free");
        assert_eq!(pool.usage().live_total(), first.len + second.len);
        pool.check().unwrap();
        drop(old);
    }
}

/// Opens the pool of `config` again while the mapping of `old` is still there.
fn open_again_elsewhere(old: Pool, config: &PmConfig) -> (Pool, Pool) {
    let path = config.path.as_deref().unwrap();
    let moved = path.with_extension("moved");
    // A copy is another file with another lock. Both are mapped at once, so the addresses differ.
    std::fs::copy(path, &moved).unwrap();
    let elsewhere = PmConfig {
        path: Some(moved),
        ..config.clone()
    };
    (open(&elsewhere), old)
}

#[test]
fn a_session_without_close_is_counted() {
    for backend in kinds() {
        let dir = directory(backend);
        let config = config(&dir, backend);
        let extent = keep(&open(&config), 1, b"kept");
        for shutdowns in 1..4 {
            let pool = open(&config);
            assert_eq!(
                (pool.was_clean(), pool.unsafe_shutdowns()),
                (false, shutdowns)
            );
            let frozen = pool.adopt(extent).unwrap();
            assert_eq!(pool.borrow(&frozen, 0..4).unwrap(), b"kept");
        }
    }
}

#[test]
fn a_second_opener_is_locked_out_and_a_reader_is_not() {
    for backend in kinds() {
        let dir = directory(backend);
        let config = config(&dir, backend);
        let pool = open(&config);
        let extent = keep(&pool, 1, b"seen");
        assert_eq!(refused(&config).kind(), ErrorKind::Locked);
        let before = std::fs::read(config.path.as_deref().unwrap()).unwrap();
        let reader = Pool::open_read_only(&config, UUID).unwrap();
        reader.finish_recovery().unwrap();
        let mut bytes = [0; 4];
        reader.read(extent.offset, &mut bytes).unwrap();
        assert_eq!(&bytes, b"seen");
        let scratch = reader.alloc(G, Owner::Test).unwrap();
        assert_eq!(
            reader.store(scratch.offset, b"x").unwrap_err().kind(),
            ErrorKind::Invalid
        );
        assert!(
            reader
                .commit_with(crate::Fenced::nothing(), |_| Ok(()))
                .is_err()
        );
        reader.close().unwrap();
        drop(reader);
        assert_eq!(
            std::fs::read(config.path.as_deref().unwrap()).unwrap(),
            before
        );
        drop(pool);
        open(&config);
    }
}

/// A process that is just being started holds such a copy.
#[test]
fn a_lock_is_given_back_whoever_has_a_copy_of_its_descriptor() {
    for backend in kinds() {
        let dir = directory(backend);
        let config = config(&dir, backend);
        let pool = open(&config);
        let copy = pool.lock.lock().as_ref().unwrap().0.try_clone().unwrap();
        assert_eq!(refused(&config).kind(), ErrorKind::Locked);
        drop(pool);
        open(&config);
        drop(copy);
    }
}

fn dax_is_refused_in(dir: &Path) {
    let dir = tempfile::tempdir_in(dir).unwrap();
    let config = config(&dir, Backend::Dax);
    let error = refused(&config);
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let message = error.to_string();
    assert!(
        message.contains("backend = \"file\"") && message.contains("\"emulated\""),
        "{message}"
    );
    assert!(
        !config.path.unwrap().exists(),
        "a refused creation leaves no file"
    );
}

#[test]
fn map_sync_is_refused_where_there_is_no_dax() {
    dax_is_refused_in(&std::env::temp_dir());
    let tmpfs = PathBuf::from("/dev/shm");
    if tmpfs.is_dir() {
        dax_is_refused_in(&tmpfs);
    }
}

#[test]
fn an_emulated_pool_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&config(&dir, Backend::Emulated));
    assert_eq!(
        (pool.backend_name(), pool.durable_at()),
        ("EMULATED", DurableAt::Fence)
    );
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&config(&dir, Backend::File));
    assert_eq!(
        (pool.backend_name(), pool.durable_at()),
        ("file", DurableAt::Sync)
    );
    assert_eq!(volatile(1).durable_at(), DurableAt::Never);
}

#[test]
fn the_file_backend_names_only_what_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&config(&dir, Backend::File));
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let fenced = pool
        .write_durable(&TEST, extent.offset, &[b"not yet"])
        .unwrap();
    let error = pool.commit_with(fenced, naming(1, extent)).unwrap_err();
    assert!(error.to_string().contains("freeze and persist"), "{error}");
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_until_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, Backend::File);
    let pool = open(&config);
    let extent = keep(&pool, 1, b"before");
    pool.region.poison();
    let lost = pool.alloc(G, Owner::Test).unwrap();
    let frozen = pool
        .freeze(
            lost,
            &pool.write_durable(&TEST, lost.offset, &[b"after"]).unwrap(),
        )
        .unwrap();
    assert_eq!(
        pool.persist(&[&frozen]).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    assert_eq!(
        pool.commit_with(crate::Fenced::nothing(), |_| Ok(()))
            .unwrap_err()
            .kind(),
        ErrorKind::Poisoned
    );
    let mut bytes = [0; 6];
    pool.read(extent.offset, &mut bytes).unwrap();
    assert_eq!(&bytes, b"before");
    drop(pool);
    let pool = open(&config);
    assert_eq!(pool.root().applied_edit, 1);
    keep(&pool, 2, b"again");
}

#[test]
fn a_cut_file_image_creation_is_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, Backend::File);
    open(&config);
    let path = config.path.clone().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..8].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(open(&config).root().generation, 1);
    // A pool that was ever committed to is not recreated.
    keep(&open(&config), 1, b"kept");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..8].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(refused(&config).kind(), ErrorKind::Corruption);
}

#[test]
fn each_refusal_is_its_own() {
    for backend in kinds() {
        let dir = directory(backend);
        let config = config(&dir, backend);
        let path = config.path.clone().unwrap();
        assert_eq!(
            Pool::open_read_only(&config, UUID).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let small = refused(&PmConfig {
            size_bytes: 8192,
            ..config.clone()
        });
        assert!(
            small.kind() == ErrorKind::Invalid && small.to_string().contains("too small"),
            "{small}"
        );
        assert!(!path.exists());

        keep(&open(&config), 1, b"kept");
        let whole = std::fs::read(&path).unwrap();
        let error = Pool::open_or_create(&config, [9; 16]).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Incompatible
                && error.to_string().contains("its own pool path"),
            "{error}"
        );

        // On DAX the file is longer than the pool.
        std::fs::write(&path, &whole[..config.size_bytes as usize - 4096]).unwrap();
        let error = refused(&config);
        assert!(
            error.kind() == ErrorKind::Corruption && error.to_string().contains("was cut to"),
            "{error}"
        );
        std::fs::write(&path, &whole[..100]).unwrap();
        let error = refused(&config);
        assert!(
            error.kind() == ErrorKind::Corruption && error.to_string().contains("cut short"),
            "{error}"
        );

        let text = vec![b'#'; 1 << 16];
        std::fs::write(&path, &text).unwrap();
        let error = refused(&config);
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains("not a FirnDB pool"),
            "{error}"
        );
        assert_eq!(
            std::fs::read(&path).unwrap(),
            text,
            "what is no pool is left alone"
        );

        let mut other = whole.clone();
        other[8] = 9;
        std::fs::write(&path, &other).unwrap();
        assert!(refused(&config).to_string().contains("pool format 9"));
    }
    let pathless = refused(&PmConfig {
        path: None,
        ..PmConfig::at("x", Backend::Dax, 1 << 20)
    });
    assert!(pathless.to_string().contains("needs a pm.path"));
    assert!(
        refused(&PmConfig::at("x", Backend::Volatile, 1 << 20))
            .to_string()
            .contains("no path")
    );
}

#[test]
fn a_torn_root_page_in_the_file_falls_back_to_the_other() {
    for backend in kinds() {
        let dir = directory(backend);
        let config = config(&dir, backend);
        let pool = open(&config);
        keep(&pool, 1, b"one");
        keep(&pool, 2, b"two");
        let newest = pool.root().generation;
        drop(pool);
        let path = config.path.clone().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[crate::root::slot_offset(newest) as usize + 130] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(open(&config).root().generation, newest - 1);
    }
}

#[test]
fn a_clean_pool_that_lost_its_root_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, Backend::Emulated);
    let pool = open(&config);
    keep(&pool, 1, b"one");
    pool.close().unwrap();
    let newest = pool.root().generation;
    drop(pool);
    let path = config.path.clone().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[crate::root::slot_offset(newest) as usize + 20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = refused(&config);
    assert!(
        error.kind() == ErrorKind::Corruption && error.to_string().contains("was closed"),
        "{error}"
    );
}

#[test]
fn a_device_that_is_not_dax_is_refused() {
    for backend in [Backend::Dax, Backend::Emulated, Backend::File] {
        let error = refused(&PmConfig::at("/dev/zero", backend, 1 << 20));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let error = refused(&PmConfig::at("/dev/zero", Backend::Emulated, 1 << 20));
    assert!(error.to_string().contains("no /dev/dax device"), "{error}");
}

#[test]
fn another_size_than_the_one_it_was_made_with_opens_the_pool_as_it_is() {
    for backend in kinds() {
        let dir = directory(backend);
        let config = config(&dir, backend);
        let extent = keep(&open(&config), 1, b"kept");
        for size_bytes in [0, 4096, 1 << 14, 1 << 30] {
            let pool = open(&PmConfig {
                size_bytes,
                ..config.clone()
            });
            assert_eq!(pool.size_bytes(), 1 << 16);
            let frozen = pool.adopt(extent).unwrap();
            assert_eq!(pool.borrow(&frozen, 0..4).unwrap(), b"kept");
        }
    }
}

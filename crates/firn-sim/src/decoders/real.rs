//! The source of the seeds: the files of a small database, closed or killed.

use crate::setup::Setup;
use firn_fs::SimFs;
use firndb::{Codec, Db, Result, WriteBatch, WriteOptions};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory of the databases.
pub(super) const DIR: &str = "/db";

/// The files that a database left.
pub(super) struct Real {
    pub(super) setup: Setup,
    pub(super) fs: SimFs,
}

impl Real {
    /// One that was closed, with compressed blocks, and one that was killed, without compression or
    /// filters.
    pub(super) fn both() -> &'static [Real; 2] {
        static BOTH: OnceLock<[Real; 2]> = OnceLock::new();
        BOTH.get_or_init(|| {
            [true, false].map(|closed| Real::new(closed).expect("a database without a fault"))
        })
    }

    fn new(closed: bool) -> Result<Real> {
        let (compression, filter_bits) = if closed {
            (Codec::Lz4, 10)
        } else {
            (Codec::None, 0)
        };
        let setup = Setup {
            compression,
            filter_bits,
            direct: false,
            ..Setup::small()
        };
        let fs = setup.file_system(1);
        let (options, _inline, _clock) = setup.options(&fs, None);
        let db = Db::open(DIR, options)?;
        for round in 0..3u8 {
            for n in 0..30u8 {
                let value = vec![b'a' + n % 3; usize::from(n) * 3];
                db.put(format!("key{:02}", n * 2 + round % 2), value)?;
            }
            db.delete(format!("key{:02}", round * 6))?;
            let mut batch = WriteBatch::new();
            batch
                .put(b"key07", b"")
                .put(b"long key".repeat(12), b"value")
                .delete(b"key09");
            db.write(&batch, &WriteOptions::default())?;
            if round < 2 {
                db.flush()?;
            }
            if round == 0 {
                db.compact()?;
            }
        }
        db.wait_idle()?;
        // The files after a close, or after the death of the process.
        let left = if closed {
            db.close().map(|()| fs.kill())?
        } else {
            fs.kill()
        };
        Ok(Real { setup, fs: left })
    }

    /// Its files whose names contain `part`, sorted.
    pub(super) fn paths(&self, part: &str) -> Vec<PathBuf> {
        let named = |path: &Path| path.to_string_lossy().contains(part);
        self.fs
            .files()
            .into_iter()
            .map(|(path, _)| path)
            .filter(|path| named(path))
            .collect()
    }
}

/// The files of both databases whose names contain `part`.
pub(super) fn files(part: &str) -> Vec<Vec<u8>> {
    let read = |real: &'static Real| {
        real.paths(part)
            .into_iter()
            .filter_map(|path| real.fs.read_file(&path).ok())
    };
    Real::both().iter().flat_map(read).collect()
}

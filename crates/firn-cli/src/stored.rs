//! The profile and the pool named by a database's file `OPTIONS`.
//!
//! A copy of the directory has that file too, but not the pool. So the pool is used only for the
//! directory in which the file was written, or for a directory moved from there.

use crate::exit::{Exit, Failure, Outcome};
use firndb::{Backend, PmConfig, Profile};
use serde::Deserialize;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

const BYTES_MAX: u64 = 64 << 10;

/// The lines of `OPTIONS` that are read. All are optional, because versions differ.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Stored {
    profile: Option<String>,
    directory: Option<PathBuf>,
    pm_backend: Option<String>,
    pm_path: Option<PathBuf>,
    pm_size: Option<u64>,
}

impl Stored {
    /// Reads the file of the database at `db`. A missing file counts as empty.
    pub(crate) fn read(db: &Path) -> Outcome<Self> {
        let path = db.join("OPTIONS");
        let failure = |exit, error: &dyn std::fmt::Display| {
            let advice =
                "give --pm-backend and --pm-path, or --pm-backend none if the database has no pool";
            Failure::new(
                exit,
                format!("{} cannot be read: {error}; {advice}", path.display()),
            )
        };
        let mut text = String::new();
        match File::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text)) {
            Ok(_) => {
                toml::from_str(&text).map_err(|error| failure(Exit::Corruption, &error.message()))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(Self::default())
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(failure(Exit::Corruption, &error))
            }
            Err(error) => Err(failure(Exit::Io, &error)),
        }
    }

    pub(crate) fn profile(&self) -> Option<Profile> {
        self.profile.as_ref().and_then(|name| name.parse().ok())
    }

    /// The pool of the database at `db`.
    pub(crate) fn pool(&self, db: &Path) -> Outcome<Option<PmConfig>> {
        let Some(backend) = self
            .pm_backend
            .as_ref()
            .and_then(|name| name.parse::<Backend>().ok())
        else {
            return Ok(None);
        };
        if let Some(directory) = self
            .directory
            .as_deref()
            .filter(|directory| is_other(directory, db))
        {
            let (pool, directory) = (
                self.pm_path.as_deref().unwrap_or(Path::new("memory")),
                directory.display(),
            );
            return Err(Failure::invalid(format!(
                "{} names the pool {}, but was written for the database {directory}, which is still there: if this \
                 is a copy that needs no pool, give --pm-backend none; else give --pm-backend and --pm-path",
                db.join("OPTIONS").display(),
                pool.display()
            )));
        }
        if let Some(pool) = self.pm_path.as_deref().filter(|pool| !pool.exists()) {
            let message = format!(
                "{} names the pool {}, which is not there: put it back, or give --pm-backend and --pm-path if it \
                 was moved, or --pm-backend none to go on without it",
                db.join("OPTIONS").display(),
                pool.display()
            );
            return Err(Failure::new(Exit::NoDatabase, message));
        }
        let size_bytes = self.pm_size.unwrap_or_default();
        Ok(Some(PmConfig {
            path: self.pm_path.clone(),
            backend,
            size_bytes,
            latency: None,
        }))
    }
}

/// True if `directory` exists and is not `db`.
fn is_other(directory: &Path, db: &Path) -> bool {
    directory
        .canonicalize()
        .is_ok_and(|there| db.canonicalize().is_ok_and(|here| here != there))
}

//! The directory and its manifest: found or created.
//!
//! A database is created in this order: the directory, its lock, the owner's uuid in the lock file,
//! and then what [`super::finish`] records. A crash in between leaves a directory that the next
//! open recognizes as its own and continues with. An open that fails removes everything that it
//! created ([`Creation::undo`]).

use crate::files::Owner;
use crate::files::{FileName, Files};
use crate::lifecycle::owner;
use crate::manifest::{self, Version};
use crate::options::{Options, Profile};
use crate::sites;
use firn_base::clock::Clock;
use firn_base::count::IoCounters;
use firn_base::seed::Seed;
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_fs::{Dir, Fs, Lock, OpenMode};
use firn_pm::{PmConfig, Pool};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The directory of a database, held open, and locked for writing.
pub(super) struct Directory {
    pub(super) dir: Arc<dyn Dir>,
    pub(super) lock: Option<Arc<dyn Lock>>,
    pub(super) creation: Creation,
}

/// The files and directories that an open created, to be removed if it fails.
#[derive(Clone)]
pub(super) struct Creation {
    fs: Arc<dyn Fs>,
    dir: Arc<dyn Dir>,
    made_directory: bool,
    /// Held until everything is removed, so that no other process begins in between.
    _lock: Option<Arc<dyn Lock>>,
    /// The names that existed before.
    before: Arc<[String]>,
    /// True if this open creates the database itself.
    pub(super) is_fresh: bool,
    /// The pool, of which only the part created by this open is removed.
    pub(super) pool: Arc<OnceLock<Arc<Pool>>>,
}

impl Creation {
    /// Removes everything that was created, as far as possible, if the database is new. Earlier
    /// files stay.
    pub(super) fn undo(&self) {
        if !self.is_fresh {
            return;
        }
        if let Err(error) = self.take_back() {
            tracing::warn!(%error, "a database that could not be opened is still there; the next open goes on with it");
        }
    }

    /// Removes in an order in which a failure or a crash leaves a directory that the next open
    /// continues with: a database as long as CURRENT exists, and the uuid in `LOCK` as long as a
    /// pool may carry it.
    fn take_back(&self) -> Result<()> {
        let mut made = self.dir.list()?;
        made.retain(|name| {
            !self.before.contains(name) && FileName::parse(name) != FileName::Unknown
        });
        let rank = |name: &String| match FileName::parse(name) {
            FileName::Current => 0,
            FileName::Lock => 2,
            _ => 1,
        };
        made.sort_by_key(rank);
        let locks = made
            .iter()
            .position(|name| rank(name) == 2)
            .unwrap_or(made.len());
        made[..locks]
            .iter()
            .try_for_each(|name| self.dir.remove(name))?;
        if let Some(pool) = self.pool.get() {
            self.dir.sync(&sites::CURRENT_NAME_SYNC)?;
            pool.undo_creation()?;
            pool.release();
        }
        made[locks..]
            .iter()
            .try_for_each(|name| self.dir.remove(name))?;
        if self.made_directory {
            self.fs.remove_dir(self.dir.path())
        } else {
            Ok(())
        }
    }
}

/// Opens the directory at `path` for writing, creating it if permitted, and locks it.
pub(super) fn prepare(fs: &Arc<dyn Fs>, path: &Path, options: &Options) -> Result<Directory> {
    let mut made_directory = false;
    let dir = match fs.open_dir(path) {
        Ok(dir) => dir,
        Err(error) if error.kind() == ErrorKind::NotFound && options.create_if_missing => {
            create(&**fs, path, options)?;
            made_directory = true;
            fs.open_dir(path)?
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing(path)),
        Err(error) if is_in_the_way(&error) => return Err(no_directory(path, &error)),
        Err(error) => return Err(error),
    };
    let names = dir.list()?;
    if owner::find(&*dir, &names)?.is_none() {
        let is_lock = |name: &String| FileName::parse(name) == FileName::Lock;
        if !names.iter().all(is_lock) || !owner::may_be_lock(&*dir)? {
            return Err(owner::not_ours(&*dir, &names));
        }
        if !options.create_if_missing {
            return Err(missing(path));
        }
    }
    let lock: Arc<dyn Lock> = match dir.lock(&FileName::Lock.to_string()) {
        Ok(lock) => lock.into(),
        Err(error) => {
            if made_directory {
                // Fails if another process is creating its database there.
                let _stays = fs.remove_dir(path);
            }
            return Err(error);
        }
    };
    // Listed with the lock held, because another process may have created the database meanwhile.
    // Only the lock file itself may be new.
    let had_lock = names
        .iter()
        .any(|name| FileName::parse(name) == FileName::Lock);
    let mut before = dir.list()?;
    before.retain(|name| had_lock || FileName::parse(name) != FileName::Lock);
    let is_fresh = !before
        .iter()
        .any(|name| FileName::parse(name) == FileName::Current);
    let creation = Creation {
        fs: fs.clone(),
        dir: dir.clone(),
        made_directory,
        _lock: Some(lock.clone()),
        before: before.into(),
        is_fresh,
        pool: Arc::default(),
    };
    Ok(Directory {
        creation,
        dir,
        lock: Some(lock),
    })
}

/// Opens the directory at `path` for reading.
pub(super) fn open_read_only(fs: &Arc<dyn Fs>, path: &Path) -> Result<Directory> {
    let dir = fs.open_dir(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => missing(path),
        _ if is_in_the_way(&error) => no_directory(path, &error),
        _ => error,
    })?;
    let names = dir.list()?;
    if owner::find(&*dir, &names)?.is_none() {
        return Err(if names.is_empty() {
            missing(path)
        } else {
            owner::not_ours(&*dir, &names)
        });
    }
    let creation = Creation {
        fs: fs.clone(),
        dir: dir.clone(),
        made_directory: false,
        _lock: None,
        before: Arc::default(),
        is_fresh: false,
        pool: Arc::default(),
    };
    Ok(Directory {
        dir,
        lock: None,
        creation,
    })
}

fn create(fs: &dyn Fs, path: &Path, options: &Options) -> Result<()> {
    fs.create_dir(path, options.create_parents).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::new(
            ErrorKind::NotFound,
            format!(
                "the directory above {} is not there; create it, or set `create_parents` (`--create-parents`)",
                path.display()
            ),
        ),
        _ if is_in_the_way(&error) => no_directory(path, &error),
        _ => error,
    })
}

fn no_directory(path: &Path, error: &Error) -> Error {
    Error::invalid(format!(
        "{} cannot be a database's directory: {error}",
        path.display()
    ))
}

/// True if the error is that a file exists in the place of a directory.
fn is_in_the_way(error: &Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    let source =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| matches!(source.kind(), AlreadyExists | NotADirectory))
}

fn missing(path: &Path) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no database at {}", path.display()),
    )
}

/// The state that the manifest describes, or that of a new database. From then on the directory
/// carries its owner's uuid.
pub(super) fn read_or_create(
    directory: &Directory,
    counters: &IoCounters,
    options: &Options,
    clock: &Clock,
) -> Result<Version> {
    let Directory { dir, lock, .. } = directory;
    let path = dir.path();
    if let Some((id, version)) = manifest::read(&**dir, counters)? {
        if lock.is_some() {
            // Tables are made from the logs that these records name, and a pool records that it
            // knows them. After that, a power cut must not lose the last of the records, nor
            // CURRENT's naming of this manifest, nor the name of a log that a table was made from
            // (`unnamed.rs`).
            let file = dir.open(&FileName::Manifest(id).to_string(), OpenMode::Append)?;
            file.sync(&sites::MANIFEST_REOPEN_SYNC)?;
            dir.sync(&sites::CURRENT_REOPEN_SYNC)?;
        }
        let profile = Profile::from_number(version.profile);
        if profile != Some(options.profile) {
            let has = profile.map_or_else(
                || format!("number {}", version.profile),
                |profile| profile.to_string(),
            );
            let message = format!(
                "the database at {} has profile {has}, not {}; open it with its own, or copy it by `firn export` and \
                 `firn load`",
                path.display(),
                options.profile
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        if lock.is_some() {
            owner::sign_again(&**dir, &version.uuid, &version.origins)?;
        }
        return Ok(version);
    }
    if lock.is_none() {
        return Err(missing(path));
    }
    refuse_data(&**dir, options)?;
    if !options.create_if_missing {
        return Err(missing(path));
    }
    let version = Version {
        profile: options.profile.number(),
        next_file_id: FileId(1),
        ..Version::default()
    };
    let uuid = match owner::owner_of(&**dir, FileName::Lock)? {
        // A pool may carry it already.
        Owner::Database(uuid) => uuid,
        Owner::Nobody | Owner::Unknown | Owner::OtherVersion => fresh_uuid(clock),
    };
    owner::sign(&**dir, &uuid)?;
    Ok(Version { uuid, ..version })
}

fn fresh_uuid(clock: &Clock) -> [u8; 16] {
    let mut seed = if clock.is_manual() {
        Seed::new(1)
    } else {
        Seed::from_entropy()
    };
    let mut uuid = [0; 16];
    seed.fill(&mut uuid);
    uuid
}

/// Rejects a directory without CURRENT that holds data. Crashes during the creation of a database
/// leave only logs without frames, and no table.
fn refuse_data(dir: &dyn Dir, options: &Options) -> Result<()> {
    for name in dir.list()? {
        let is_data = match FileName::parse(&name) {
            // A file that was never written is not data; one whose first bytes are lost may be.
            name @ FileName::Table(_) => owner::owner_of(dir, name)? != Owner::Nobody,
            // The log's contents may be in an existing pool; in that case CURRENT existed before
            // it.
            FileName::Log(_) if options.profile == Profile::Lab && has_pool(options) => true,
            name @ FileName::Log(_) => {
                dir.len(&name.to_string())? > crate::log::FILE_HEADER_BYTES as u64
            }
            _ => false,
        };
        if is_data {
            let message = format!(
                "{} holds tables or logs ({name} is one) but no CURRENT; run `firn repair` on it",
                dir.path().display()
            );
            return Err(Error::new(ErrorKind::Corruption, message));
        }
    }
    Ok(())
}

fn has_pool(options: &Options) -> bool {
    let is_there = |pm: &PmConfig| pm.path.as_ref().is_some_and(|path| path.exists());
    options.environment.memory.is_some() || options.pm.as_ref().is_some_and(is_there)
}

/// Removes the database's own files that nothing names. `is_needed` returns true for the ones that
/// must stay.
pub(super) fn sweep(
    files: &Files,
    origins: &[[u8; 16]],
    is_needed: impl Fn(FileName) -> bool,
) -> Result<()> {
    for text in files.list()? {
        let name = FileName::parse(&text);
        if name.number().is_none() && name != FileName::OptionsNew || is_needed(name) {
            continue;
        }
        let is_ours = name == FileName::OptionsNew
            || match owner::owner_of(files.dir(), name) {
                Ok(Owner::Nobody) => true,
                Ok(Owner::Database(uuid)) => uuid == files.uuid || origins.contains(&uuid),
                Ok(Owner::Unknown | Owner::OtherVersion) => false,
                Err(error) => {
                    tracing::warn!(%error, "a file that nothing names cannot be read, and stays");
                    continue;
                }
            };
        if !is_ours {
            tracing::warn!(
                file = text,
                "this file has a name of ours but is not of this database: it stays"
            );
        } else if let Err(error) = files.remove(name) {
            tracing::warn!(%error, "a file that nothing names stays");
        }
    }
    Ok(())
}

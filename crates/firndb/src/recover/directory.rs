//! The directory and its manifest: found, or made.

use crate::files::{self, FileName};
use crate::log::FILE_HEADER_BYTES;
use crate::manifest::{self, Version};
use crate::options::{Options, Profile};
use crate::sites;
use firn_base::clock::Clock;
use firn_base::count::IoCounters;
use firn_base::seed::Seed;
use firn_base::{Error, ErrorKind, Result};
use firn_fs::{Fs, Lock, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Creates the directory if it may, and locks it.
pub(super) fn prepare(fs: &dyn Fs, dir: &Path, options: &Options) -> Result<Box<dyn Lock>> {
    if fs.len(&files::current(dir)).is_err() {
        if !options.create_if_missing {
            return Err(missing(dir));
        }
        fs.create_dir_all(dir).map_err(|error| match is_in_the_way(&error) {
            true => Error::invalid(format!("{} cannot be a database's directory: {error}", dir.display())),
            false => error,
        })?;
    }
    fs.lock(&files::lock(dir))
}

/// Whether a file stands where a directory should.
fn is_in_the_way(error: &Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| matches!(source.kind(), AlreadyExists | NotADirectory))
}

fn missing(dir: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no database at {}", dir.display()))
}

/// The state that the manifest describes, or that of a new database.
pub(super) fn read_or_create(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    counters: &IoCounters,
    options: &Options,
    clock: &Clock,
    read_only: bool,
) -> Result<(Version, bool)> {
    if let Some((id, version)) = manifest::read(&**fs, dir, counters)? {
        if options.pm.is_some() && !read_only {
            // The pool will say that it knows these records: a power cut must not take the last of them after that, nor
            // that CURRENT names this manifest.
            fs.open(&dir.join(files::manifest_name(id)), OpenMode::Append)?.sync(&sites::MANIFEST_REOPEN_SYNC)?;
            fs.sync_dir(&sites::CURRENT_REOPEN_SYNC, dir)?;
        }
        let profile = Profile::from_number(version.profile);
        if profile != Some(options.profile) {
            let has = profile.map_or_else(|| format!("number {}", version.profile), |profile| profile.to_string());
            let message = format!(
                "the database at {} has profile {has}, not {}; open it with its own, or copy it by `firn export` and \
                 `firn load`",
                dir.display(),
                options.profile
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        return Ok((version, false));
    }
    if read_only || !options.create_if_missing {
        return Err(missing(dir));
    }
    // Crashes while a database is created leave logs, empty but for their headers, and no table.
    let is_data = |name: &String| match files::parse(name) {
        FileName::Table(_) => true,
        // What a log has may be in a pool; then CURRENT was there before it.
        FileName::Log(_) if options.pm.is_some() && options.profile == Profile::Lab => true,
        FileName::Log(_) => fs.len(&dir.join(name)).map_or(true, |len| len > FILE_HEADER_BYTES as u64),
        _ => false,
    };
    if fs.list(dir)?.iter().any(is_data) {
        let message = format!("{} holds tables or logs but no CURRENT; run `firn repair` on it", dir.display());
        return Err(Error::new(ErrorKind::Corruption, message));
    }
    let mut seed = if clock.is_manual() { Seed::new(1) } else { Seed::from_entropy() };
    let mut version = Version { profile: options.profile.number(), next_file_id: 1, ..Version::default() };
    seed.fill(&mut version.uuid);
    Ok((version, true))
}

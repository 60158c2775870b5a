//! Loads a directory tree: key = path below the root, value = the file's bytes.
//!
//! Files are loaded in the order of their keys, and the position is the last processed key. On
//! resuming, the files up to that key are skipped if the names, sizes and modification times of all
//! of them are the same as in the earlier run.

use super::batcher::{Batcher, value_bytes_max};
use super::position::Slot;
use super::summary::Summary;
use super::walk::{Found, Sort, Walk};
use super::{Load, open, settle};
use crate::byte_size::ByteSize;
use crate::bytes_text::escape;
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt;
use crate::place::resolved;
use crate::progress::{Progress, Unit};
use data_encoding::HEXLOWER;
use firn_base::key::KEY_BYTES_MAX;
use firndb::{Error, Options};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3Default;

/// The maximum number of names printed for each kind of skipped entry.
const NAMED_MAX: u64 = 20;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Position {
    last_key: String,
    /// Files in the database.
    stored: u64,
    refused: u64,
    /// The hash of names, sizes and times up to the last key.
    hash: u64,
}

pub(super) fn load(arguments: &Load, options: Options) -> Outcome<Summary> {
    let tree = arguments
        .source
        .tree
        .as_deref()
        .ok_or_else(|| Failure::usage("give --tree DIR"))?;
    let root = tree
        .canonicalize()
        .map_err(|e| Error::from_io("find", tree, e))?;
    let walk = Walk::new(&root).map_err(|e| Error::from_io("list", tree, e))?;
    refuse_overlap(&arguments.db, &root)?;
    let db = open(&arguments.db, options.clone())?;
    let slot = Slot::new(&root, "tree");
    let earlier: Option<Position> = if arguments.restart {
        None
    } else {
        slot.read(&db)?
    };
    let mut loading = Loading {
        batcher: Batcher::new(&db, slot, &options, earlier.is_some() || arguments.restart),
        progress: Progress::new("loading", count_files(&root), Unit::Entries),
        value_bytes_max: value_bytes_max(&options),
        passed: passed(earlier.as_ref())?,
        last_key: Vec::new(),
        hash: Xxh3Default::new(),
        stored: earlier.as_ref().map_or(0, |position| position.stored),
        committed: earlier.as_ref().map_or(0, |position| position.stored),
        summary: Summary {
            resumed: earlier.is_some(),
            refused: earlier.as_ref().map_or(0, |position| position.refused),
            ..Summary::default()
        },
    };
    if loading.summary.refused > 0 {
        loading.progress.say(format_args!(
            "the earlier run could not store {} files",
            loading.summary.refused
        ));
    }
    loading
        .take_all(walk, &root)
        .map_err(|failure| loading.explain(failure))?;
    (loading.summary.loaded, loading.summary.loaded_bytes) = loading.batcher.written;
    let summary = loading.summary;
    drop((loading.batcher, loading.progress));
    settle(db, summary.loaded, arguments.no_wait)?;
    Ok(summary)
}

fn passed(earlier: Option<&Position>) -> Outcome<Option<Passed>> {
    let Some(position) = earlier else {
        return Ok(None);
    };
    let last_key = HEXLOWER.decode(position.last_key.as_bytes()).map_err(|e| {
        Failure::invalid(format!(
            "the position of the earlier load is not hexadecimal: {e}"
        ))
    })?;
    Ok(Some(Passed {
        last_key,
        hash: position.hash,
    }))
}

/// Refuses a tree that contains the database, which would be loaded into itself.
fn refuse_overlap(db: &Path, root: &Path) -> Outcome<()> {
    if resolved(db).starts_with(root) {
        return Err(Failure::invalid(format!(
            "the database {} lies in the tree to be loaded",
            db.display()
        )));
    }
    Ok(())
}

/// The number of files, to estimate the time left; not counted if stderr is not a terminal.
fn count_files(root: &Path) -> Option<u64> {
    if !io::stderr().is_terminal() {
        return None;
    }
    Some(
        Walk::new(root)
            .ok()?
            .filter(|found| matches!(found.sort, Sort::File))
            .count() as u64,
    )
}

/// The files that an earlier run has processed.
struct Passed {
    last_key: Vec<u8>,
    hash: u64,
}

struct Loading<'a> {
    batcher: Batcher<'a>,
    progress: Progress,
    value_bytes_max: usize,
    /// The files of the earlier run, until all of them have been seen.
    passed: Option<Passed>,
    /// The last processed key.
    last_key: Vec<u8>,
    hash: Xxh3Default,
    /// Files added, including those of the earlier run.
    stored: u64,
    /// Files in the database.
    committed: u64,
    summary: Summary,
}

impl Loading<'_> {
    fn take_all(&mut self, walk: Walk, root: &Path) -> Outcome<()> {
        for found in walk {
            let is_passed = self
                .passed
                .as_ref()
                .is_some_and(|passed| found.name <= passed.last_key);
            if !is_passed {
                self.compare_passed(root)?;
            }
            if interrupt::is_requested() {
                if !is_passed {
                    self.commit()?;
                }
                return Err(Failure::new(Exit::Interrupted, "interrupted"));
            }
            let path = root.join(OsStr::from_bytes(&found.name));
            let metadata = path.symlink_metadata();
            self.take(&found, &path, is_passed)?;
            self.hash_entry(&found.name, metadata.ok().as_ref());
            self.last_key.clone_from(&found.name);
        }
        self.compare_passed(root)?;
        self.batcher.finish()
    }

    /// Hashes an entry, so that a later run can tell if it has changed.
    fn hash_entry(&mut self, name: &[u8], metadata: Option<&std::fs::Metadata>) {
        let (bytes, seconds, nanoseconds) = metadata
            .filter(|data| !data.is_dir())
            .map_or((0, 0, 0), |data| {
                (data.len(), data.mtime(), data.mtime_nsec())
            });
        self.hash.update(&(name.len() as u64).to_le_bytes());
        self.hash.update(name);
        self.hash.update(&bytes.to_le_bytes());
        self.hash.update(&seconds.to_le_bytes());
        self.hash.update(&nanoseconds.to_le_bytes());
    }

    /// Compares the skipped files with those of the earlier run.
    fn compare_passed(&mut self, root: &Path) -> Outcome<()> {
        match self.passed.take() {
            Some(passed) if passed.hash != self.hash.digest() => Err(Failure::invalid(format!(
                "files in {} have come, gone or changed up to {}, where an earlier load of it stopped: use --restart \
                 to load all of it (files that it has no longer stay in the database)",
                root.display(),
                escape(&passed.last_key)
            ))),
            _ => Ok(()),
        }
    }

    fn take(&mut self, found: &Found, path: &Path, is_passed: bool) -> Outcome<()> {
        match &found.sort {
            Sort::File if is_passed => {
                self.summary.skipped += 1;
                self.progress.add(1);
            }
            Sort::File => {
                self.file(&found.name, path)?;
                self.progress.add(1);
            }
            Sort::SymbolicLink => {
                self.summary.symbolic_links += 1;
                self.leave_out(&found.name, "a symbolic link", self.summary.symbolic_links);
            }
            Sort::Special => {
                self.summary.special_files += 1;
                self.leave_out(&found.name, "a special file", self.summary.special_files);
            }
            Sort::EmptyDirectory => {
                self.summary.empty_directories += 1;
                self.leave_out(
                    &found.name,
                    "an empty directory",
                    self.summary.empty_directories,
                );
            }
            // Already counted by the earlier run.
            Sort::Unreadable(_) if is_passed => {}
            Sort::Unreadable(e) => self.refuse(&found.name, &format!("cannot be read: {e}")),
        }
        Ok(())
    }

    /// Stores one file. A file that cannot be stored is listed and counted; only a failure of the
    /// database stops the load.
    fn file(&mut self, name: &[u8], path: &Path) -> Outcome<()> {
        if name.len() > KEY_BYTES_MAX {
            self.refuse(name, "has a path longer than the longest key");
            return Ok(());
        }
        let value = match read_file(path, self.value_bytes_max) {
            Ok(Some(value)) => value,
            Ok(None) => {
                let max = ByteSize(self.value_bytes_max as u64);
                let is_by_memory = self.value_bytes_max < firn_base::key::VALUE_BYTES_MAX;
                let reason = if is_by_memory {
                    "a quarter of the memory limit"
                } else {
                    "the largest value"
                };
                self.refuse(name, &format!("is larger than {max}, {reason}"));
                return Ok(());
            }
            Err(e) => {
                self.refuse(name, &format!("cannot be read: {e}"));
                return Ok(());
            }
        };
        let bytes = name.len() + value.len();
        if self.batcher.is_large(bytes) {
            self.commit()?;
            if let Err(reason) = self.batcher.write_alone(name, &value)? {
                self.refuse(name, &format!("is refused: {reason}"));
                return Ok(());
            }
        } else {
            if !self.batcher.has_room(bytes) {
                self.commit()?;
            }
            self.batcher.put(name, &value);
        }
        self.stored += 1;
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        let position = Position {
            last_key: HEXLOWER.encode(&self.last_key),
            stored: self.stored,
            refused: self.summary.refused,
            hash: self.hash.digest(),
        };
        self.batcher.commit(&position)?;
        self.committed = self.stored;
        Ok(())
    }

    /// Adds to `failure` how many files are loaded and how to continue.
    fn explain(&self, failure: Failure) -> Failure {
        let advice = match failure.exit() {
            Exit::Invalid => return failure,
            Exit::NoSpace => "free some space, and start the same load again",
            _ => "start the same load again",
        };
        failure.and(format_args!(
            "{} files are in: {advice}, it goes on from there",
            self.committed
        ))
    }

    fn refuse(&mut self, name: &[u8], reason: &str) {
        self.summary.refused += 1;
        self.progress
            .say(format_args!("not stored: {} {reason}", escape(name)));
    }

    fn leave_out(&self, name: &[u8], what: &str, count: u64) {
        if count <= NAMED_MAX {
            self.progress
                .say(format_args!("left out: {} is {what}", escape(name)));
        } else if count == NAMED_MAX + 1 {
            self.progress.say(format_args!(
                "left out: more that is {what}; the total is at the end"
            ));
        }
    }
}

/// The bytes of the file; `None` if it is longer than `bytes_max`.
fn read_file(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > bytes_max as u64 {
        return Ok(None);
    }
    let mut value = Vec::with_capacity(bytes as usize);
    // It may grow while it is read.
    file.take(bytes_max as u64 + 1).read_to_end(&mut value)?;
    Ok((value.len() <= bytes_max).then_some(value))
}

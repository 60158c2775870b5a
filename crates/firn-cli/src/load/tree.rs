//! Loads a directory tree: key = path below the root, value = the file's bytes.
//!
//! Files come in the order of their keys, and the position is the last key that was dealt with: on resuming, whatever
//! is not above it is passed by its name alone.

use super::batcher::Batcher;
use super::position::{Slot, absolute};
use super::summary::Summary;
use super::walk::{Found, Sort, Walk};
use super::{Load, open};
use crate::bytes_text::escape;
use crate::exit::{Failure, Outcome};
use crate::place::resolved;
use crate::progress::{Progress, Unit};
use data_encoding::HEXLOWER;
use firn_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use firndb::{Error, Options};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names printed of each sort of thing that is left out.
const NAMED_MAX: u64 = 20;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Position {
    last_key: String,
    refused: u64,
}

pub(super) fn load(arguments: &Load, options: Options) -> Outcome<Summary> {
    let tree = arguments.source.tree.as_deref().ok_or_else(|| Failure::usage("give --tree DIR"))?;
    let root = absolute(tree)?;
    let walk = Walk::new(&root).map_err(|e| Error::from_io("list", tree, e))?;
    refuse_overlap(&arguments.db, &root)?;
    let (durability, batch_max) = (options.durability, options.memory_limit / 4);
    let db = open(&arguments.db, options)?;
    let slot = Slot::new(&root, "tree");
    let earlier: Option<Position> = if arguments.restart { None } else { slot.read(&db)? };
    let mut loading = Loading {
        batcher: Batcher::new(&db, slot, durability, earlier.is_some() || arguments.restart),
        progress: Progress::new("loading", count_files(&root), Unit::Entries),
        batch_max,
        passed: passed(earlier.as_ref())?,
        last_key: Vec::new(),
        summary: Summary {
            resumed: earlier.is_some(),
            refused: earlier.as_ref().map_or(0, |position| position.refused),
            ..Summary::default()
        },
    };
    if loading.summary.refused > 0 {
        loading.progress.say(format_args!("the earlier run could not store {} files", loading.summary.refused));
    }
    for found in walk {
        let path = root.join(OsStr::from_bytes(&found.name));
        loading.take(found, &path)?;
    }
    loading.batcher.finish()?;
    (loading.summary.loaded, loading.summary.loaded_bytes) = loading.batcher.written;
    let summary = loading.summary;
    db.close()?;
    Ok(summary)
}

fn passed(earlier: Option<&Position>) -> Outcome<Option<Vec<u8>>> {
    let Some(position) = earlier else { return Ok(None) };
    let key = HEXLOWER.decode(position.last_key.as_bytes());
    key.map(Some).map_err(|e| Failure::invalid(format!("the position of the earlier load is not hexadecimal: {e}")))
}

/// A tree that holds the database would load the database into itself.
fn refuse_overlap(db: &Path, root: &Path) -> Outcome<()> {
    if resolved(db).starts_with(root) {
        return Err(Failure::invalid(format!("the database {} lies in the tree to be loaded", db.display())));
    }
    Ok(())
}

/// How many files there are, for the time left; not looked for when nobody looks on.
fn count_files(root: &Path) -> Option<u64> {
    if !io::stderr().is_terminal() {
        return None;
    }
    Some(Walk::new(root).ok()?.filter(|found| matches!(found.sort, Sort::File)).count() as u64)
}

struct Loading<'a> {
    batcher: Batcher<'a>,
    progress: Progress,
    batch_max: u64,
    /// The last key of the earlier run.
    passed: Option<Vec<u8>>,
    /// The last key that was dealt with.
    last_key: Vec<u8>,
    summary: Summary,
}

impl Loading<'_> {
    fn take(&mut self, found: Found, path: &Path) -> Outcome<()> {
        let passed = self.passed.as_ref().is_some_and(|passed| found.name <= *passed);
        match found.sort {
            Sort::File if passed => {
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
                self.leave_out(&found.name, "an empty directory", self.summary.empty_directories);
            }
            // Counted with the earlier run's.
            Sort::Unreadable(_) if passed => {}
            Sort::Unreadable(e) => self.refuse(&found.name, &format!("cannot be read: {e}")),
        }
        Ok(())
    }

    /// Stores one file. What cannot be stored is named and counted; only the database can stop a load.
    fn file(&mut self, name: &[u8], path: &Path) -> Outcome<()> {
        match read_file(path) {
            Err(e) => self.refuse(name, &format!("cannot be read: {e}")),
            Ok(None) => self.refuse(name, "is larger than 256 MiB, the largest value"),
            Ok(Some(value)) if value.len() as u64 + 4096 > self.batch_max => {
                let reason = format!("is larger than a quarter of the memory limit ({} bytes)", value.len());
                self.refuse(name, &format!("{reason}: raise --memory-limit"));
            }
            Ok(Some(_)) if name.len() > KEY_BYTES_MAX => self.refuse(name, "has a path longer than the longest key"),
            Ok(Some(value)) => {
                if !self.batcher.has_room(name.len() + value.len()) {
                    self.commit()?;
                }
                self.batcher.put(name, &value);
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(name);
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        let position = Position { last_key: HEXLOWER.encode(&self.last_key), refused: self.summary.refused };
        self.batcher.commit(&position)
    }

    fn refuse(&mut self, name: &[u8], reason: &str) {
        self.summary.refused += 1;
        self.progress.say(format_args!("not stored: {} {reason}", escape(name)));
    }

    fn leave_out(&self, name: &[u8], what: &str, count: u64) {
        if count <= NAMED_MAX {
            self.progress.say(format_args!("left out: {} is {what}", escape(name)));
        } else if count == NAMED_MAX + 1 {
            self.progress.say(format_args!("left out: more that is {what}; the total is at the end"));
        }
    }
}

/// The bytes of the file, or nothing if they are more than a value may have.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > VALUE_BYTES_MAX as u64 {
        return Ok(None);
    }
    let mut value = Vec::with_capacity(bytes as usize);
    // It may grow while it is read.
    file.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok((value.len() <= VALUE_BYTES_MAX).then_some(value))
}

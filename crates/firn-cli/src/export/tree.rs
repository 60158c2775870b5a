//! Writes a directory tree: each value to the file that its key names.

use super::Export;
use super::directory::{Directory, Refusal};
use super::name::components;
use crate::byte_size::ByteSize;
use crate::bytes_text::escape;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{print, print_json};
use crate::place::resolved;
use crate::progress::{Progress, Unit};
use crate::scan::ShownEntries;
use firndb::{Cursor, Options};
use serde_json::json;
use std::path::Path;

pub(super) fn export(arguments: &Export, target: &Path, options: Options) -> Outcome {
    let db = arguments.open(options)?;
    refuse_overlap(&arguments.db, target)?;
    let mut directory = Directory::open(target, arguments.force)?;
    let snapshot = db.snapshot();
    let mut cursor = ShownEntries::new(snapshot.cursor()?, false, arguments.all)?;
    let mut ahead = snapshot.cursor()?;
    let progress = Progress::new("exporting", Some(super::about_entries(&db)), Unit::Entries);
    let (mut files, mut bytes, mut refused) = (0u64, 0u64, 0u64);
    while cursor.valid() {
        let (key, value) = (cursor.iter.key(), cursor.iter.value());
        match write(&mut directory, &mut ahead, key, value)? {
            Ok(()) => {
                files += 1;
                bytes += value.len() as u64;
                progress.add(1);
            }
            Err(reason) => {
                refused += 1;
                progress.say(format_args!("not exported: {}: {reason}", escape(key)));
            }
        }
        cursor.advance()?;
    }
    drop(progress);
    if arguments.json {
        print_json(&json!({ "files": files, "bytes": bytes, "refused": refused }))?;
    } else {
        let tail = if refused > 0 {
            format!(", refused {refused}")
        } else {
            String::new()
        };
        print(format_args!(
            "exported {files} files ({}){tail}",
            ByteSize(bytes)
        ))?;
    }
    Ok(if refused == 0 {
        Exit::Done
    } else {
        Exit::Invalid
    })
}

/// Writes one entry. The inner error is the reason why this entry was refused.
fn write(
    directory: &mut Directory,
    ahead: &mut Cursor,
    key: &[u8],
    value: &[u8],
) -> Outcome<Result<(), String>> {
    let path = match components(key) {
        Ok(path) => path,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    let inside = [key, b"/"].concat();
    ahead.seek(&inside)?;
    if ahead.valid() && ahead.key().starts_with(&inside) {
        return Ok(Err(format!(
            "there are keys below it, such as {}",
            escape(ahead.key())
        )));
    }
    match directory.write(&path, value) {
        Ok(()) => Ok(Ok(())),
        Err(Refusal::Because(reason)) => Ok(Err(reason)),
        Err(Refusal::Failed(error)) => Err(Failure::from(error.context(escape(key)))),
    }
}

fn refuse_overlap(db: &Path, target: &Path) -> Outcome<()> {
    let inside = resolved(target).starts_with(resolved(db));
    if inside {
        Err(Failure::invalid(
            "the target lies in the database's own directory",
        ))
    } else {
        Ok(())
    }
}

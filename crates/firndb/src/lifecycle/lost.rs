//! The directory `lost/`, which keeps files that were not replaced in full, for a person to
//! inspect.

use crate::files::{FileName, Files};
use crate::lifecycle::checkpoint::copy;
use crate::sites;
use firn_base::{ErrorKind, Result};
use firn_fs::{Dir, IoBuf, OpenMode, cannot_link};

/// Links the files `names` into `lost/`, or copies them, durably. Files already there stay: a file
/// with the same name and other bytes gets a number appended to its name.
///
/// # Errors
/// The error of linking or copying.
pub(crate) fn keep(files: &Files, names: &[FileName]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let lost = files.dir().subdirectory("lost")?;
    for name in names {
        keep_one(files, &*lost, *name)?;
    }
    lost.sync(&sites::REPAIR_LOST_SYNC)
}

fn keep_one(files: &Files, lost: &dyn Dir, name: FileName) -> Result<()> {
    let text = name.to_string();
    for number in 0_u32.. {
        let to = if number == 0 {
            text.clone()
        } else {
            format!("{text}.{number}")
        };
        match lost.len(&to) {
            Ok(_) if is_same(files, lost, name, &to)? => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match lost.link(&to, files.dir(), &text) {
                    Err(error) if cannot_link(&error) => copy_one(files, lost, name, &to),
                    linked => linked,
                };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies the file `name` into `lost` under `to`, durably. It gets that name once the copy is
/// whole, so that whatever a crash leaves there is called `.part` and not taken for the file.
fn copy_one(files: &Files, lost: &dyn Dir, name: FileName, to: &str) -> Result<()> {
    let part = format!("{name}.part");
    match lost.remove(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let source = files.open(name, OpenMode::Read)?;
    copy(
        &sites::REPAIR_COPY_SYNC,
        &*source,
        source.len()?,
        &*lost.open(&part, OpenMode::Create)?,
    )?;
    lost.rename(&sites::REPAIR_LOST_SYNC, &part, to)
}

/// True if `lost` holds the same bytes under `to` as the database under `name`, because an
/// interrupted repair put them there.
fn is_same(files: &Files, lost: &dyn Dir, name: FileName, to: &str) -> Result<bool> {
    const BYTES: usize = 1 << 20;
    let (a, b) = (
        files.open(name, OpenMode::Read)?,
        lost.open(to, OpenMode::Read)?,
    );
    let len = a.len()?;
    if b.len()? != len {
        return Ok(false);
    }
    let (mut left, mut right) = (IoBuf::default(), IoBuf::default());
    for at in (0..len).step_by(BYTES) {
        a.read(at, BYTES, &mut left)?;
        b.read(at, BYTES, &mut right)?;
        if left.bytes() != right.bytes() {
            return Ok(false);
        }
    }
    Ok(true)
}

//! The names of a database's files, in one place.

use firn_base::Result;
use firn_base::site::Site;
use firn_fs::Fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest number of a file, an edit or anything else that a manifest counts. No database counts so far, and what
/// comes behind it can still be counted.
pub(crate) const NUMBER_MAX: u64 = 1 << 56;

/// A database directory.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    /// The database's uuid, in every log and pool that belongs to it.
    pub(crate) uuid: [u8; 16],
}

/// What a name in the directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    Log(u64),
    Table(u64),
    Manifest(u64),
    Current,
    CurrentNew,
    Lock,
    Options,
    Unknown,
}

impl Files {
    pub(crate) fn log(&self, id: u64) -> PathBuf {
        log(&self.dir, id)
    }

    pub(crate) fn table(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:06}.sst"))
    }

    pub(crate) fn manifest(&self, id: u64) -> PathBuf {
        self.dir.join(manifest_name(id))
    }

    pub(crate) fn sync_dir(&self, site: &'static Site) -> Result<()> {
        self.fs.sync_dir(site, &self.dir)
    }
}

pub(crate) fn log(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:06}.log"))
}

pub(crate) fn manifest_name(id: u64) -> String {
    format!("MANIFEST-{id:06}")
}

pub(crate) fn current(dir: &Path) -> PathBuf {
    dir.join("CURRENT")
}

pub(crate) fn current_new(dir: &Path) -> PathBuf {
    dir.join("CURRENT.new")
}

pub(crate) fn lock(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}

pub(crate) fn options(dir: &Path) -> PathBuf {
    dir.join("OPTIONS")
}

/// What `name` stands for.
pub(crate) fn parse(name: &str) -> FileName {
    let number = |digits: &str| {
        let is_number = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|&id| is_number && id <= NUMBER_MAX)
    };
    match name {
        "CURRENT" => return FileName::Current,
        "CURRENT.new" => return FileName::CurrentNew,
        "LOCK" => return FileName::Lock,
        "OPTIONS" => return FileName::Options,
        _ => {}
    }
    let parsed = if let Some(digits) = name.strip_prefix("MANIFEST-") {
        number(digits).map(FileName::Manifest)
    } else if let Some(digits) = name.strip_suffix(".log") {
        number(digits).map(FileName::Log)
    } else if let Some(digits) = name.strip_suffix(".sst") {
        number(digits).map(FileName::Table)
    } else {
        None
    };
    parsed.unwrap_or(FileName::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(parse("000012.log"), FileName::Log(12));
        assert_eq!(parse("1234567.sst"), FileName::Table(1_234_567));
        assert_eq!(parse(&manifest_name(3)), FileName::Manifest(3));
        assert_eq!(parse("CURRENT"), FileName::Current);
        assert_eq!(parse("+5.log"), FileName::Unknown);
        assert_eq!(parse("notes.txt"), FileName::Unknown);
        assert_eq!(parse(&format!("{}.log", NUMBER_MAX)), FileName::Log(NUMBER_MAX));
        assert_eq!(parse("18446744073709551615.sst"), FileName::Unknown, "no id could follow");
    }
}

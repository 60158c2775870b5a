//! What a load says at its end.

use crate::byte_size::ByteSize;
use serde::Serialize;
use std::fmt;

/// The result of a load.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    /// Records loaded by this run.
    pub(super) loaded: u64,
    /// Bytes of their keys and values.
    pub(super) loaded_bytes: u64,
    /// Whether an earlier run was gone on with.
    pub(super) resumed: bool,
    /// Records that the earlier run had loaded.
    pub(super) skipped: u64,
    /// Bad lines passed over, those of the earlier run included.
    pub(super) bad_lines: u64,
    /// Files that could not be stored, those of the earlier run included.
    pub(super) refused: u64,
    /// Symbolic links, which are not stored.
    pub(super) symbolic_links: u64,
    /// Devices, sockets and pipes, which are not stored.
    pub(super) special_files: u64,
    /// Directories without an entry, which are not stored.
    pub(super) empty_directories: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loaded {} records ({})", self.loaded, ByteSize(self.loaded_bytes))?;
        if self.resumed {
            write!(f, ", skipped {} that an earlier run had loaded", self.skipped)?;
        }
        let left_out = [
            (self.bad_lines, "bad lines"),
            (self.symbolic_links, "symbolic links"),
            (self.special_files, "special files"),
            (self.empty_directories, "empty directories"),
            (self.refused, "files that could not be stored"),
        ];
        let mut lead = "\nleft out: ";
        for (count, what) in left_out.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{lead}{count} {what}")?;
            lead = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_there_is_to_say() {
        let mut summary = Summary { loaded: 3, loaded_bytes: 10, ..Summary::default() };
        assert_eq!(summary.to_string(), "loaded 3 records (10 B)");
        (summary.resumed, summary.skipped, summary.bad_lines, summary.refused) = (true, 7, 1, 2);
        let text = summary.to_string();
        assert!(text.contains("skipped 7 ") && text.contains("left out: 1 bad lines, 2 files that"), "{text}");
    }
}

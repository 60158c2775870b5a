//! The result of a load.

use crate::byte_size::ByteSize;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Line counts of a text. A record with line breaks inside quotes counts as one line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lines {
    /// Records in the database.
    pub(super) records: u64,
    /// Header lines.
    pub(super) header: u64,
    /// Lines without a record.
    pub(super) empty: u64,
    /// Lines that are not records.
    pub(super) bad: u64,
    /// Line breaks inside quotes.
    pub(super) inner: u64,
}

impl Lines {
    /// The number of lines skipped.
    pub(super) fn passed_over(&self) -> u64 {
        self.header + self.empty + self.bad
    }

    /// The number of all lines: records and skipped lines.
    pub(super) fn read(&self) -> u64 {
        self.records + self.passed_over()
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lines read = {} records + {} passed over",
            self.read(),
            self.records,
            self.passed_over()
        )?;
        let counts = [
            (self.header, "header"),
            (self.empty, "empty"),
            (self.bad, "bad lines"),
        ];
        let kinds: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        if !kinds.is_empty() {
            write!(f, " ({})", kinds.join(", "))?;
        }
        if self.inner > 0 {
            write!(f, "; {} line breaks between quotes", self.inner)?;
        }
        Ok(())
    }
}

/// The result of a load.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Records loaded by this run.
    pub(super) loaded: u64,
    /// Bytes of their keys and values.
    pub(super) loaded_bytes: u64,
    /// True if this run continued an earlier one.
    pub(super) resumed: bool,
    /// Records loaded by the earlier run.
    pub(super) skipped: u64,
    /// The lines of a text, including those of the earlier run.
    pub(super) lines: Option<Lines>,
    /// Files that could not be stored, including those of the earlier run.
    pub(super) refused: u64,
    /// Symbolic links, which are not stored.
    pub(super) symbolic_links: u64,
    /// Devices, sockets and pipes, which are not stored.
    pub(super) special_files: u64,
    /// Empty directories, which are not stored.
    pub(super) empty_directories: u64,
}

/// The summary for programs.
#[derive(Serialize)]
struct Report {
    loaded: u64,
    loaded_bytes: u64,
    resumed: bool,
    skipped: u64,
    bad_lines: u64,
    #[serde(flatten)]
    lines: Option<LineReport>,
    refused: u64,
    symbolic_links: u64,
    special_files: u64,
    empty_directories: u64,
}

/// `lines_read` is the sum of `records` and `passed_over`.
#[derive(Serialize)]
struct LineReport {
    lines_read: u64,
    records: u64,
    passed_over: u64,
    header_lines: u64,
    empty_lines: u64,
    quoted_line_breaks: u64,
}

impl Summary {
    /// The summary for programs.
    pub(super) fn report(&self) -> impl Serialize + use<> {
        let line_report = |lines: Lines| LineReport {
            lines_read: lines.read(),
            records: lines.records,
            passed_over: lines.passed_over(),
            header_lines: lines.header,
            empty_lines: lines.empty,
            quoted_line_breaks: lines.inner,
        };
        Report {
            loaded: self.loaded,
            loaded_bytes: self.loaded_bytes,
            resumed: self.resumed,
            skipped: self.skipped,
            bad_lines: self.lines.map_or(0, |lines| lines.bad),
            lines: self.lines.map(line_report),
            refused: self.refused,
            symbolic_links: self.symbolic_links,
            special_files: self.special_files,
            empty_directories: self.empty_directories,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loaded {} records ({})",
            self.loaded,
            ByteSize(self.loaded_bytes)
        )?;
        if self.resumed {
            write!(
                f,
                ", skipped {} that an earlier run had loaded",
                self.skipped
            )?;
        }
        if let Some(lines) = &self.lines {
            write!(f, "\n{lines}")?;
        }
        let left_out = [
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
        let mut summary = Summary {
            loaded: 3,
            loaded_bytes: 10,
            ..Summary::default()
        };
        assert_eq!(summary.to_string(), "loaded 3 records (10 B)");
        (summary.resumed, summary.skipped, summary.refused) = (true, 7, 2);
        summary.lines = Some(Lines {
            records: 10,
            header: 1,
            bad: 2,
            inner: 4,
            ..Lines::default()
        });
        let text = summary.to_string();
        assert!(
            text.contains("skipped 7 ") && text.contains("left out: 2 files that"),
            "{text}"
        );
        let lines = "13 lines read = 10 records + 3 passed over (1 header, 2 bad lines); 4 line breaks between quotes";
        assert!(text.contains(lines), "{text}");
    }
}

//! Printing: tables for people, JSON for programs, and no panic if a pipe is closed.

use crate::exit::{Failure, Outcome};
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde::Serialize;
use std::io::{BufWriter, StdoutLock, Write};

/// Standard output, buffered. Call [`Output::finish`] at the end.
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(64 << 10, std::io::stdout().lock()))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.0.write_all(bytes).map_err(Failure::from_output)
    }

    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> Outcome<()> {
        writeln!(self.0, "{line}").map_err(Failure::from_output)
    }

    /// Writes a JSON value on one line.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string(value)
            .map_err(|e| Failure::invalid(format!("cannot print as JSON: {e}")))?;
        self.line(text)
    }

    pub(crate) fn finish(mut self) -> Outcome<()> {
        self.0.flush().map_err(Failure::from_output)
    }
}

/// Prints `line`.
pub(crate) fn print(line: impl std::fmt::Display) -> Outcome<()> {
    let mut output = Output::new();
    output.line(line)?;
    output.finish()
}

/// Prints `value` as JSON on several lines.
pub(crate) fn print_json(value: &impl Serialize) -> Outcome<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Failure::invalid(format!("cannot print as JSON: {e}")))?;
    print(text)
}

/// One line below the header and no others.
const HEADER_ONLY: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table with `header`. Columns from the second on are right-aligned if `numbers`.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>, numbers: bool) -> Table {
    let mut table = Table::new();
    table.load_style(HEADER_ONLY);
    table.set_header(header.iter().copied());
    table.add_rows(rows);
    for column in table
        .column_iter_mut()
        .skip(1)
        .take(if numbers { usize::MAX } else { 0 })
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A whole number in groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_in_groups() {
        assert_eq!(
            [0, 123, 1000, 1_234_567].map(grouped),
            ["0", "123", "1,000", "1,234,567"]
        );
    }
}

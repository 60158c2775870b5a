//! Cache lines, and the one function that computes which of them a range of bytes touches.
//!
//! Every flush in the crate, and the simulator, goes through [`line_range`], because a flush range
//! that misses its last line is the classic bug of persistent-memory code.

/// Bytes per cache line, the unit of flushing and of the crash model.
pub const LINE_BYTES: u64 = 64;

/// The lines that a range touches: an iterator over their offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRange {
    next: u64,
    left: u64,
}

impl LineRange {
    /// The number of lines left.
    pub fn count_lines(&self) -> u64 {
        self.left
    }
}

impl Iterator for LineRange {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        let line = self.next;
        self.left -= 1;
        self.next = self.next.wrapping_add(LINE_BYTES);
        Some(line)
    }
}

/// The lines that contain any of the `len` bytes at `offset`. An empty range touches no line.
///
/// The range must not wrap around; the pool checks that first.
#[inline]
pub fn line_range(offset: u64, len: u64) -> LineRange {
    let first = offset & !(LINE_BYTES - 1);
    if len == 0 {
        return LineRange {
            next: first,
            left: 0,
        };
    }
    let last = offset.saturating_add(len - 1) & !(LINE_BYTES - 1);
    LineRange {
        next: first,
        left: (last - first) / LINE_BYTES + 1,
    }
}

#[cfg(test)]
mod tests;

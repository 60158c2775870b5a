//! The entries that a scan found, in one buffer, which is kept for the next scan.

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    bytes: Vec<u8>,
    /// The end of each key and of each value.
    ends: Vec<(usize, usize)>,
}

impl ScanResult {
    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends an entry.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Keys and values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        let entry = |(at, (key_end, end)): (usize, &(usize, usize))| {
            (&self.bytes[at..*key_end], &self.bytes[*key_end..*end])
        };
        starts.zip(&self.ends).map(entry)
    }
}

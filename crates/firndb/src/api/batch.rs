//! A batch: several operations that are applied together or not at all.

use crate::memtable::Entry;
use firn_base::key::Kind;

/// Operations that are applied atomically, in order. All are encoded in one buffer, so that a large
/// batch costs no allocation per entry.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    operations: Vec<Operation>,
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    kind: Kind,
    key_at: usize,
    key_len: usize,
    value_len: usize,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(Kind::Delete, key.as_ref(), &[])
    }

    fn push(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> &mut Self {
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.operations.push(Operation {
            kind,
            key_at,
            key_len: key.len(),
            value_len: value.len(),
        });
        self
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// True if the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of the keys and values.
    pub fn byte_size(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.operations.clear();
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> + Clone {
        self.operations.iter().map(|op| {
            let value_at = op.key_at + op.key_len;
            Entry {
                kind: op.kind,
                key: &self.bytes[op.key_at..value_at],
                value: &self.bytes[value_at..value_at + op.value_len],
            }
        })
    }
}

//! The owner of an extent: one tag per kind of structure, so that `firn stats` can show the use of
//! persistent memory.
//!
//! The numbers are on media (root entries), so no number ever changes its meaning.

/// The kind of structure that holds an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Owner {
    /// The pool's own header and root pages. Never allocated.
    Pool = 1,
    /// The write-ahead log's buffer.
    LogBuffer = 2,
    /// Nodes of a B+tree.
    Btree = 3,
    /// Nodes of a skiplist.
    Skiplist = 4,
    /// A sorted table in persistent memory.
    Table = 5,
    /// An interval-filter tree over stash tables.
    IfTree = 6,
    /// The hot buffer.
    Hot = 7,
    /// Tests and experiments.
    Test = 8,
    /// A write-ahead log.
    Log = 9,
    /// Entries to which skiplists point.
    Payload = 10,
    /// The write buffers of partitions.
    WriteBuffer = 11,
}

impl Owner {
    /// All owners, in the order of their numbers.
    pub const ALL: [Owner; 11] = [
        Owner::Pool,
        Owner::LogBuffer,
        Owner::Btree,
        Owner::Skiplist,
        Owner::Table,
        Owner::IfTree,
        Owner::Hot,
        Owner::Test,
        Owner::Log,
        Owner::Payload,
        Owner::WriteBuffer,
    ];

    /// One more than the largest number: the size of a table indexed by [`Owner::number`].
    pub(crate) const SLOTS: usize = Owner::ALL.len() + 1;

    /// The number on media.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The owner with this number on media; `None` if this version knows none.
    pub fn from_number(number: u16) -> Option<Self> {
        let index = usize::from(number).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// The name used in tables, JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Owner::Pool => "pool",
            Owner::LogBuffer => "log_buffer",
            Owner::Btree => "btree",
            Owner::Skiplist => "skiplist",
            Owner::Table => "table",
            Owner::IfTree => "if_tree",
            Owner::Hot => "hot",
            Owner::Test => "test",
            Owner::Log => "log",
            Owner::Payload => "payload",
            Owner::WriteBuffer => "write_buffer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_strangers_are_refused() {
        for owner in Owner::ALL {
            assert_eq!(Owner::from_number(owner.number()), Some(owner));
        }
        assert_eq!(Owner::from_number(0), None);
        assert_eq!(Owner::from_number(12), None);
        assert_eq!(Owner::from_number(u16::MAX), None);
    }
}

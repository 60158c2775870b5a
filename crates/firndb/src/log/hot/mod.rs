//! The hot buffer (LAB-DB, 3.3). Values of keys that are written repeatedly go to slots in
//! persistent memory, and the log has a record that names the slot. So such a key neither adds a
//! value to the log with each write, nor costs a read of a log later on.
//!
//! A value is copied to a slot of its own and made durable, then the frame that names it is
//! written. The buffer as a whole is updated "in place": the slot of the previous version is free
//! once nothing needs it. A slot is needed
//!
//! 1. by its log, until the log's contents are in the trees and the log's floor has passed it. This
//!    does not apply if a newer acknowledged version of its key is in the same log and no snapshot
//!    sees the older one, because a replay meets the newer one too. Replay detects a slot that was
//!    reused, wholly or in part, by the entry's sequence number before the value, by the checksum
//!    and by the zeros after it, and skips such an entry;
//! 2. by each leaf and each retained version that points to it.
//!
//! So the hot buffer exists only with a pool that is durable at the fence and whose log goes
//! through that pool: an acknowledged version is durable, whatever durability was requested. The
//! set of used slots is kept in DRAM and rebuilt by an open.
//!
//! ```text
//! slot     entry's sequence number: u64 | value's checksum: u32 | length: u32 | value
//!          | zeros to a multiple of 64
//! ```

mod keys;
mod slots;
mod writer;

pub(crate) use slots::HotSlots;
pub use slots::HotStats;
pub(super) use writer::HotPlace;
pub(crate) use writer::HotWriter;

//! The hot buffer (LAB-DB, 3.3): values of keys that are written again and again go to slots in persistent memory, and
//! the log has a record that names the slot. So such a key neither makes the log grow by a value with each write, nor
//! costs a read of a log later on.
//!
//! A value is copied to a slot of its own, and that is made durable; then the frame that names it. "In place" is what
//! the buffer as a whole does: the slot of the version before is free once nobody needs it. A slot is needed
//!
//! 1. by its log, until what the log holds is in the trees and the log's floor has passed it; but not if a newer
//!    version of its key is in the same log, acknowledged, and no snapshot sees the older one: a replay meets the newer
//!    one too. It knows a slot that was used again, wholly or in part, by the entry's number in front of the value, by
//!    the checksum and by the zeros behind it, and leaves such an entry out;
//! 2. by each leaf and each version of the side table that points to it.
//!
//! So it is only there with a pool that is durable at the fence, whose log goes through that pool: an acknowledged
//! version is durable, whatever was asked for. Which slots are used is known in DRAM and found again by an open.
//!
//! ```text
//! slot     entry's sequence number: u64 | value's CRC-32C: u32 | length: u32 | value | zeros to a multiple of 64
//! ```

mod keys;
mod slots;
mod writer;

pub(crate) use slots::HotSlots;
pub use slots::HotStats;
pub(super) use writer::HotPlace;
pub(crate) use writer::HotWriter;

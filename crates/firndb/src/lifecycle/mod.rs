//! The life cycle of a database: opening, copying, checking, repairing and closing.

pub(crate) mod checkpoint;
mod close;
mod lost;
pub(crate) mod open;
pub(crate) mod owner;
pub(crate) mod repair;
mod reread;
pub(crate) mod stored;
pub(crate) mod verify;

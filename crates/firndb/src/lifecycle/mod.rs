//! The life of a database: it is opened, copied, checked, repaired and closed.

pub(crate) mod checkpoint;
mod close;
mod lost;
pub(crate) mod open;
pub(crate) mod owner;
pub(crate) mod repair;
mod reread;
pub(crate) mod stored;
pub(crate) mod verify;

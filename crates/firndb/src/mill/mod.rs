//! Mills: what runs a plan. Each does the I/O and returns an edit; none changes the state.

mod append;
mod copy;
mod entries;
mod selective;
mod versions;

pub(crate) use append::{Piece, SubTask, collect, run_sub_task, sub_tasks};
pub(crate) use copy::{Around, Below, Made, MillContext, Output, run, run_above, write_tables};
pub(crate) use entries::Held;
pub(crate) use selective::{Choice, Grain};

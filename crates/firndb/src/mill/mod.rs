//! Mills: what runs a plan. Each does the I/O and returns an edit; none changes the state.

mod copy;
mod versions;

pub(crate) use copy::{Below, Made, MillContext, Output, run, write_tables};

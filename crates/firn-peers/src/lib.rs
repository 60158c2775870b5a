//! Other key-value stores behind the interface of FirnDB's benchmark, so that they are measured by the same program.
//!
//! Each engine gets the same [`firn_bench::Setup`] and makes of it what a reasonable user of that engine would;
//! `docs/benchmarks.md` has a table of what is equal and of what cannot be. All of FirnDB's profiles stand beside them.
#![deny(unsafe_code)]

mod engines;

pub use engines::all;

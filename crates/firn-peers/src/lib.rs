//! Other key-value stores behind the interface of FirnDB's benchmark, so that one program measures
//! all of them.
//!
//! Each engine gets the same [`firn_bench::Setup`] and is configured from it as a reasonable user
//! of that engine would do. A table in `docs/benchmarks/method.md` shows which settings are equal
//! and which cannot be. All profiles of FirnDB are included.
#![deny(unsafe_code)]

mod engines;

pub use engines::all;

//! Target `pm_table`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("pm_table");

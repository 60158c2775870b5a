//! Target `pm_buffer`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("pm_buffer");

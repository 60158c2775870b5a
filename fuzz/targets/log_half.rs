//! Target `log_half`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("log_half");

//! Target `sst_block`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("sst_block");

//! Target `sst_index`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("sst_index");

//! Target `sst_properties`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("sst_properties");

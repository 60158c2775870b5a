//! Target `current`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("current");

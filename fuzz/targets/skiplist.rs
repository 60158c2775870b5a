//! Target `skiplist`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("skiplist");

//! Target `if_tree`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("if_tree");

//! Target `manifest_edit`: see `firn_sim::decoders`.
#![no_main]

firn_fuzz::fuzz!("manifest_edit");

//! Being laid.
#![forbid(unsafe_code)]

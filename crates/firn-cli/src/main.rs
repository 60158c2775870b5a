//! The `firn` command: what a person or a script does with a FirnDB database from outside of a program.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod byte_size;
mod bytes_text;
mod config;
mod encoding;
mod exit;
mod export;
mod get_put;
mod load;
mod maintain;
mod output;
mod place;
mod progress;
mod reserved;
mod scan;
mod stats;
mod verify;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = args::Cli::parse().run();
    bench::wait_if_interrupted();
    exit::report(outcome)
}

//! The `firn` command: operations on a FirnDB database for people and scripts.
//!
//! It is a library so that `firn-peers` can offer the same benchmarks with other engines next to
//! FirnDB.
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
mod help;
mod interrupt;
mod load;
mod maintain;
mod output;
mod place;
mod progress;
mod reserved;
mod scan;
mod stats;
mod stored;
mod verify;

use clap::{CommandFactory, FromArgMatches};
use firn_bench::{Engine, Engines};
use std::process::ExitCode;

/// The `firn` command.
pub fn main() -> ExitCode {
    finish(args::Cli::of_process().run())
}

/// A command `name` with the verbs of `firn bench` for `engines`.
pub fn bench_main(name: &'static str, engines: Vec<Box<dyn Engine>>) -> ExitCode {
    let matches = args::BenchCli::command().name(name).get_matches();
    let outcome = match args::BenchCli::from_arg_matches(&matches) {
        Ok(cli) => cli.run(&Engines::new(engines)),
        Err(error) => error.exit(),
    };
    finish(outcome)
}

fn finish(outcome: exit::Outcome) -> ExitCode {
    bench::wait_if_interrupted();
    exit::report(outcome)
}

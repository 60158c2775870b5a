//! The `firn-peers` command: FirnDB's benchmarks with other engines beside it.
#![deny(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    firn_cli::bench_main("firn-peers", firn_peers::all())
}

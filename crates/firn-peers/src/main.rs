//! The `firn-peers` command: FirnDB's benchmarks, extended by other engines.
#![deny(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    firn_cli::bench_main("firn-peers", firn_peers::all())
}

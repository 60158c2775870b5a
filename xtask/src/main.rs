//! `cargo xtask`: maintenance tasks of this repository, in plain `std` so that they build in a
//! second.
#![forbid(unsafe_code)]

mod ci;
mod peers;
mod perf;
mod soak;
mod source;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy             check what the compiler cannot: crate arrows, lengths, the list of unsafe code, dead files,
                   banned calls, text
  tidy --update    the same, and rewrite xtask/ratchet.txt to the present lengths
  ci               everything that must hold before a merge, ending in one line `N passed, N failed`
  ci --quick       formatting, tidy, lints, the quick test tier and the documentation only
  peers            get what other engines need (RocksDB, LevelDB) and build crates/firn-peers with all of them
  peers --native   the same, with RocksDB built from source for this processor: once, 20 to 30 minutes
  soak --minutes N [--suite S] [--seed X] [--threads N] [--append FILE]
                   every suite of firn-sim with fresh seeds, for as long as asked; the summary also goes to FILE
  soak --minutes N --site NAME
                   the suites with this one switched off, up to the first seed that notices
  perf             instructions per operation, by callgrind, beside the figures of xtask/perf.txt
  perf --update    the same, and rewrite those figures";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = match tree::workspace_root() {
        Ok(root) => root,
        Err(error) => {
            eprintln!("xtask: {error}");
            return ExitCode::from(2);
        }
    };
    match words.as_slice() {
        ["tidy"] => ExitCode::from(tidy::check(&root)),
        ["tidy", "--update"] => ExitCode::from(tidy::update(&root)),
        ["ci"] => ExitCode::from(ci::run(&root, ci::Extent::Full)),
        ["ci", "--quick"] => ExitCode::from(ci::run(&root, ci::Extent::Quick)),
        ["perf"] => ExitCode::from(perf::run(&root, false)),
        ["perf", "--update"] => ExitCode::from(perf::run(&root, true)),
        ["peers"] => ExitCode::from(peers::run(&root, peers::Library::Fetched)),
        ["peers", "--native"] => ExitCode::from(peers::run(&root, peers::Library::Native)),
        ["soak", rest @ ..] => ExitCode::from(soak::run(&root, rest)),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

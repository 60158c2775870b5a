//! The command line: one variant per verb, and what all verbs share.

use crate::config::Settings;
use crate::exit::{self, Outcome};
use crate::{bench, export, get_put, load, maintain, scan, stats, verify};
use clap::{Args, Parser, Subcommand};
use firn_bench::{Engines, Firn};
use std::path::PathBuf;

/// Read, write, load, export, check and measure FirnDB databases.
#[derive(Debug, Parser)]
#[command(name = "firn", version, after_help = exit::HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

/// Measure engines side by side.
#[derive(Debug, Parser)]
#[command(version, after_help = exit::HELP, arg_required_else_help = true)]
pub(crate) struct BenchCli {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    bench: bench::Bench,
}

/// What all verbs share.
#[derive(Debug, Args)]
struct Common {
    /// TOML file with options of the engine; without it, firn.toml where firn is started, if it is there
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "FIRN_CONFIG",
        hide_env_values = true,
        help_heading = "Options of the engine"
    )]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl Common {
    fn settings(self) -> Outcome<Settings> {
        self.settings.over_file(self.config.as_deref())
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the value at a key
    Get(get_put::Get),
    /// Write a value at a key; makes the database if it is not there
    Put(get_put::Put),
    /// Delete keys
    Del(get_put::Del),
    /// Print entries in key order
    Scan(scan::Scan),
    /// Print every entry, key and value whole
    Dump(scan::Dump),
    /// Print what the engine counts
    Stats(stats::Stats),
    /// Read everything and check it; exit code 4 if something is damaged
    Verify(verify::Verify),
    /// Make a damaged database open again, with whatever of it is whole
    Repair(verify::Repair),
    /// Merge tables until no stale entry is left in a range
    Compact(maintain::Compact),
    /// Write a copy of the database, as it is now, to another directory
    Checkpoint(maintain::Checkpoint),
    /// Load a directory tree or a CSV, TSV or JSON Lines file
    Load(load::Load),
    /// Write the entries to a directory tree or a CSV, TSV or JSON Lines file
    Export(export::Export),
    /// Measure
    Bench(bench::Bench),
}

impl Cli {
    pub(crate) fn run(self) -> Outcome {
        let settings = self.common.settings()?;
        match self.verb {
            Verb::Get(verb) => verb.run(settings.into_options()?),
            Verb::Put(verb) => verb.run(settings.into_options()?),
            Verb::Del(verb) => verb.run(settings.into_options()?),
            Verb::Scan(verb) => verb.run(settings.into_options()?),
            Verb::Dump(verb) => verb.run(settings.into_options()?),
            Verb::Stats(verb) => verb.run(settings.into_options()?),
            Verb::Verify(verb) => verb.run(settings.into_options()?),
            Verb::Repair(verb) => verb.run(settings.into_options()?),
            Verb::Compact(verb) => verb.run(settings.into_options()?),
            Verb::Checkpoint(verb) => verb.run(settings.into_options()?),
            Verb::Load(verb) => verb.run(settings.into_options()?),
            Verb::Export(verb) => verb.run(settings.into_options()?),
            Verb::Bench(verb) => verb.run(settings, &Engines::new(Firn::all()), &["bench"]),
        }
    }
}

impl BenchCli {
    pub(crate) fn run(self, engines: &Engines) -> Outcome {
        self.bench.run(self.common.settings()?, engines, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        BenchCli::command().debug_assert();
    }
}

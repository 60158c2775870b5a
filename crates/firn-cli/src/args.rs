//! The command line: one variant per verb, and what all verbs share.

use crate::config::Settings;
use crate::exit::{self, Outcome};
use crate::{bench, export, get_put, load, maintain, scan, stats, verify};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Read, write, load, export, check and measure FirnDB databases.
#[derive(Debug, Parser)]
#[command(name = "firn", version, after_help = exit::HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
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
    #[command(subcommand)]
    verb: Verb,
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
        let options = self.settings.options(self.config.as_deref())?;
        match self.verb {
            Verb::Get(verb) => verb.run(options),
            Verb::Put(verb) => verb.run(options),
            Verb::Del(verb) => verb.run(options),
            Verb::Scan(verb) => verb.run(options),
            Verb::Dump(verb) => verb.run(options),
            Verb::Stats(verb) => verb.run(options),
            Verb::Verify(verb) => verb.run(options),
            Verb::Repair(verb) => verb.run(options),
            Verb::Compact(verb) => verb.run(options),
            Verb::Checkpoint(verb) => verb.run(options),
            Verb::Load(verb) => verb.run(options),
            Verb::Export(verb) => verb.run(options),
            Verb::Bench(verb) => verb.run(options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}

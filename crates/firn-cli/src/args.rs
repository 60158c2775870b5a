//! The command line: one variant per verb, and the options that all verbs share.

use crate::config::{HEADING, Settings};
use crate::exit::{self, Outcome};
use crate::{bench, export, get_put, help, load, maintain, scan, stats, verify};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use firn_bench::{Engines, Firn};
use firndb::Options;
use std::path::{Path, PathBuf};

/// Read, write, load, export, check and measure FirnDB databases.
#[derive(Debug, Parser)]
#[command(
    name = "firn",
    version,
    after_help = exit::HELP,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
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

const SEE_OPTIONS: &str = "The options of the engine go here as well: see `firn help options`.";

/// The options of the engine.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// TOML file with options of the engine; without it, firn.toml in the current directory, if it
    /// exists
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "FIRN_CONFIG",
        hide_env_values = true,
        help_heading = HEADING
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
    #[command(flatten)]
    OfDatabase(OfDatabase),
    /// Measure
    Bench(bench::Bench),
    /// Print the help of a verb, or the options of the engine
    Help(help::Help),
    /// Print completions for a shell
    Completions(help::Completions),
    /// Print the manual page of firn or of a verb
    Man(help::Man),
}

/// A verb that operates on one database.
#[derive(Debug, Subcommand)]
enum OfDatabase {
    /// Print the value of a key
    Get(get_put::Get),
    /// Write a value to a key; creates the database if it does not exist
    Put(get_put::Put),
    /// Delete keys
    Del(get_put::Del),
    /// Print entries in key order
    Scan(scan::Scan),
    /// Print every entry with its whole key and value
    Dump(scan::Dump),
    /// Print the state of a database on one screen
    Stats(stats::Stats),
    /// Read and check everything; exit code 4 if something is damaged
    Verify(verify::Verify),
    /// Make a damaged database usable again, with everything that is still intact
    Repair(verify::Repair),
    /// Merge tables until no stale entry is left in a range
    Compact(maintain::Compact),
    /// Write a copy of the current state of the database to another directory
    Checkpoint(maintain::Checkpoint),
    /// Load a directory tree or a CSV, TSV or JSON Lines file
    #[command(long_about = load::LONG_ABOUT)]
    Load(load::Load),
    /// Write the entries to a directory tree or a CSV, TSV or JSON Lines file
    Export(export::Export),
}

impl Cli {
    /// The command. The help of its verbs omits the options of the engine, which `firn help
    /// options` prints.
    pub(crate) fn described() -> Command {
        let command = Self::command().mut_args(|argument| {
            let is_of_engine = argument.get_help_heading() == Some(HEADING);
            argument.hide(is_of_engine)
        });
        let of_database = OfDatabase::augment_subcommands(Command::new("firn"));
        let takes_options = |verb: &Command| {
            verb.get_name() == "bench" || of_database.find_subcommand(verb.get_name()).is_some()
        };
        command.mut_subcommands(|verb| {
            if takes_options(&verb) {
                verb.after_help(SEE_OPTIONS)
            } else {
                verb
            }
        })
    }

    /// The arguments of this process. Ends the process if they are wrong or ask for help.
    pub(crate) fn of_process() -> Self {
        Self::from_arg_matches(&Self::described().get_matches())
            .unwrap_or_else(|error| error.exit())
    }

    pub(crate) fn run(self) -> Outcome {
        match self.verb {
            Verb::Help(verb) => verb.run(),
            Verb::Completions(verb) => verb.run(),
            Verb::Man(verb) => verb.run(),
            Verb::Bench(verb) => verb.run(
                self.common.settings()?,
                &Engines::new(Firn::all()),
                &["bench"],
            ),
            Verb::OfDatabase(verb) => {
                let options = self.common.settings()?.into_options_for(verb.db())?;
                verb.run(options)
            }
        }
    }
}

impl OfDatabase {
    /// The database that the verb operates on.
    fn db(&self) -> &Path {
        match self {
            OfDatabase::Get(verb) => &verb.db,
            OfDatabase::Put(verb) => &verb.db,
            OfDatabase::Del(verb) => &verb.db,
            OfDatabase::Scan(verb) => &verb.db,
            OfDatabase::Dump(verb) => &verb.db,
            OfDatabase::Stats(verb) => &verb.db,
            OfDatabase::Verify(verb) => &verb.db,
            OfDatabase::Repair(verb) => &verb.db,
            OfDatabase::Compact(verb) => &verb.db,
            OfDatabase::Checkpoint(verb) => &verb.db,
            OfDatabase::Load(verb) => &verb.db,
            OfDatabase::Export(verb) => &verb.db,
        }
    }

    fn run(self, options: Options) -> Outcome {
        match self {
            OfDatabase::Get(verb) => verb.run(options),
            OfDatabase::Put(verb) => verb.run(options),
            OfDatabase::Del(verb) => verb.run(options),
            OfDatabase::Scan(verb) => verb.run(options),
            OfDatabase::Dump(verb) => verb.run(options),
            OfDatabase::Stats(verb) => verb.run(options),
            OfDatabase::Verify(verb) => verb.run(options),
            OfDatabase::Repair(verb) => verb.run(options),
            OfDatabase::Compact(verb) => verb.run(options),
            OfDatabase::Checkpoint(verb) => verb.run(options),
            OfDatabase::Load(verb) => verb.run(options),
            OfDatabase::Export(verb) => verb.run(options),
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

    #[test]
    fn the_command_line_is_sound() {
        Cli::described().debug_assert();
        BenchCli::command().debug_assert();
    }
}

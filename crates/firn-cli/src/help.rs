//! `firn help`, `firn completions` and `firn man`: descriptions of the command line for people,
//! shells and `man`.

use crate::args::{Cli, Common};
use crate::exit::{self, Exit, Failure, Outcome};
use crate::output::Output;
use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use firndb::Error;
use std::path::{Path, PathBuf};

/// A help topic that is not a verb.
const OPTIONS: &str = "options";

const ABOUT_OPTIONS: &str = "\
Options of the engine, which every verb takes. Each comes from the first of these that says something: the command \
line; FIRN_* in the environment; a TOML file (--config FILE, or firn.toml where firn is started), with underscores in \
the names; the database itself, for profile and pool; the default. Sizes take K, M, G and T, in powers of 1024.";

#[derive(Debug, Args)]
pub(crate) struct Help {
    /// A verb (and a verb of that verb), or `options` for the options of the engine
    topic: Vec<String>,
}

impl Help {
    pub(crate) fn run(self) -> Outcome {
        if self.topic == [OPTIONS] {
            let mut output = Output::new();
            output.bytes(options_page().render_long_help().to_string().as_bytes())?;
            output.finish()?;
            return Ok(Exit::Done);
        }
        find(Cli::described(), &self.topic)?;
        // The same output as `firn VERB --help`, including styles.
        let line = ["firn"]
            .into_iter()
            .chain(self.topic.iter().map(String::as_str))
            .chain(["--help"]);
        match Cli::described().try_get_matches_from(line) {
            Err(help) if help.kind() == ErrorKind::DisplayHelp => {
                help.print().map_err(Failure::from_output)?
            }
            Err(error) => return Err(Failure::usage(error.to_string())),
            Ok(_) => {}
        }
        Ok(Exit::Done)
    }
}

/// The options of the engine as the help of a separate command.
fn options_page() -> Command {
    let page = Common::augment_args(Command::new("firn VERB DB"));
    page.about(ABOUT_OPTIONS)
        .disable_help_flag(true)
        .help_template("{about}\n\n{all-args}\n")
}

/// The command at `path` below `command`, with its full name.
fn find(mut command: Command, path: &[String]) -> Outcome<Command> {
    command.build();
    for name in path {
        command = command.find_subcommand(name).cloned().ok_or_else(|| {
            Failure::usage(format!(
                "no help on {name}: `firn help` lists the verbs, `firn help options` is the rest"
            ))
        })?;
    }
    Ok(command)
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell, such as bash; write the output where that shell looks for completions
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "firn", &mut script);
        let mut output = Output::new();
        output.bytes(&script)?;
        output.finish()?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// A verb (and a verb of that verb); without it, firn itself
    #[arg(conflicts_with = "dir")]
    verb: Vec<String>,
    /// Write the pages of firn and of all verbs to DIR instead, which must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Outcome {
        match &self.dir {
            Some(directory) => {
                let mut command = Cli::described();
                command.build();
                write_pages(&command, directory)?;
                write_page(options_manual(), &directory.join("firn-options.1"))?;
            }
            None => {
                let command = match self.verb.as_slice() {
                    [topic] if topic == OPTIONS => options_manual(),
                    verb => find(Cli::described(), verb)?,
                };
                let mut output = Output::new();
                output.bytes(&page(command)?)?;
                output.finish()?;
            }
        }
        Ok(Exit::Done)
    }
}

fn options_manual() -> Command {
    options_page()
        .name("firn-options")
        .override_usage("firn VERB DB [OPTIONS]")
        .after_help(exit::HELP)
}

/// Writes the manual pages of `command` and its verbs.
fn write_pages(command: &Command, directory: &Path) -> Outcome<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    write_page(command.clone(), &directory.join(format!("{name}.1")))?;
    command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .try_for_each(|verb| write_pages(verb, directory))
}

fn write_page(command: Command, file: &Path) -> Outcome<()> {
    Ok(std::fs::write(file, page(command)?).map_err(|e| Error::from_io("write", file, e))?)
}

fn page(command: Command) -> Outcome<Vec<u8>> {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(command).title(name.to_uppercase());
    manual
        .render(&mut page)
        .map_err(|e| Failure::invalid(format!("cannot write the page of {name}: {e}")))?;
    Ok(page)
}

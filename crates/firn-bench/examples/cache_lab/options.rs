//! The command line.

use firn_base::{Error, Result};
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Replays traces of gets through cache policies and caches, all with the same bytes for keys and
values, and prints the misses per get beside the optimum; then memory and time.

cache_lab [OPTIONS]

  --keys N         keys of a trace (1000000)
  --gets N         gets of a trace (6000000)
  --only TEXT      only candidates whose name contains TEXT, in any case
  --of TEXT        only traces whose name contains TEXT, in any case; `recorded` is the name of the
                   recorded trace, `costs` of memory and time
  --recorded FILE  replays FILE too: a get in each line, as the hash of a key in hexadecimal digits,
                   a space, and the bytes of key and value as a decimal number
  --json           prints JSON instead of tables
  --help           prints this

Build it with --release. Everything takes about ten minutes of one core and 1.2 GiB of memory.
";

/// The fewest keys, so that a tenth of them is a cache worth its name.
const KEYS_MIN: u64 = 100;
const KEYS_MAX: u64 = 1 << 31;
const GETS_MAX: u64 = 1 << 33;

/// The options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) keys: u64,
    pub(crate) gets: u64,
    pub(crate) only: Option<String>,
    pub(crate) of: Option<String>,
    pub(crate) recorded: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) help: bool,
}

impl Options {
    /// Parses `arguments`, without the program's name.
    ///
    /// # Errors
    /// A message that names the option and what it expects.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            keys: 1_000_000,
            gets: 6_000_000,
            only: None,
            of: None,
            recorded: None,
            json: false,
            help: false,
        };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let mut value = |what: &str| {
                let missing = || Error::invalid(format!("{option} needs {what} after it"));
                rest.next().cloned().ok_or_else(missing)
            };
            match option.as_str() {
                "--keys" => {
                    options.keys = number(option, &value("a number")?, KEYS_MIN, KEYS_MAX)?;
                }
                "--gets" => options.gets = number(option, &value("a number")?, 2, GETS_MAX)?,
                "--only" => options.only = Some(value("a part of a candidate's name")?),
                "--of" => options.of = Some(value("a part of a trace's name")?),
                "--recorded" => options.recorded = Some(value("a file")?.into()),
                "--json" => options.json = true,
                "--help" | "-h" => options.help = true,
                other => {
                    let message = format!("`{other}` is not an option: see --help");
                    return Err(Error::invalid(message));
                }
            }
        }
        Ok(options)
    }

    /// True if the candidate `name` is selected.
    pub(crate) fn wants_candidate(&self, name: &str) -> bool {
        contains(&self.only, name)
    }

    /// True if the trace `name` is selected.
    pub(crate) fn wants_trace(&self, name: &str) -> bool {
        contains(&self.of, name)
    }
}

fn contains(part: &Option<String>, name: &str) -> bool {
    let lower = |text: &str| text.to_lowercase();
    part.as_ref()
        .is_none_or(|part| lower(name).contains(&lower(part)))
}

fn number(option: &str, text: &str, min: u64, max: u64) -> Result<u64> {
    let parsed = text.replace('_', "").parse().ok();
    parsed
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| {
            Error::invalid(format!(
                "{option} is `{text}`: expected a whole number from {min} to {max}"
            ))
        })
}

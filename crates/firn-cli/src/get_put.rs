//! `firn get`, `firn put`, `firn del`: one key at a time.

use crate::byte_size::ByteSize;
use crate::bytes_text::{from_argument, to_json};
use crate::exit::{Exit, Failure, Outcome};
use crate::load::value_bytes_max;
use crate::output::{Output, print_json};
use crate::reserved;
use clap::Args;
use data_encoding::HEXLOWER;
use firn_base::key::VALUE_BYTES_MAX;
use firndb::{Db, Error, Options, WriteBatch, WriteOptions};
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// The key
    key: OsString,
    /// The key is given, and the value printed, in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print {"key": .., "value": ..}
    #[arg(long)]
    json: bool,
}

impl Get {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let key = from_argument(&self.key, self.hex)?;
        let db = Db::open_read_only(&self.db, options)?;
        let Some(value) = db.get(&key)? else {
            return Err(Failure::new(
                Exit::NotFound,
                format!("no value at key {}", self.key.display()),
            ));
        };
        if self.json {
            print_json(
                &json!({ "key": to_json(&key, self.hex), "value": to_json(&value, self.hex) }),
            )?;
            return Ok(Exit::Done);
        }
        let mut output = Output::new();
        if self.hex {
            output.line(HEXLOWER.encode(&value))?;
        } else {
            output.bytes(&value)?;
            // The output is exactly the value, unless it goes to a terminal.
            if io::stdout().is_terminal() {
                output.line("")?;
            }
        }
        output.finish()?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// The key
    key: OsString,
    /// The value
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    value: Option<OsString>,
    /// Also create the parent directories of the database
    #[arg(long)]
    create_parents: bool,
    /// Read the value from FILE, or from stdin if FILE is -
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Key and value are given in hexadecimal
    #[arg(long)]
    hex: bool,
}

impl Put {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let key = from_argument(&self.key, self.hex)?;
        if reserved::is_reserved(&key) {
            return Err(Failure::invalid(reserved::REFUSAL));
        }
        let value = match (&self.value, &self.file) {
            (Some(value), _) => from_argument(value, self.hex)?,
            (None, Some(file)) => read_value(file, value_bytes_max(&options))?,
            (None, None) => return Err(Failure::usage("give a value, or --file")),
        };
        let create_parents = self.create_parents;
        let db = Db::open(
            &self.db,
            options
                .create_if_missing(true)
                .create_parents(create_parents),
        )?;
        db.put(&key, &value)?;
        db.close()?;
        Ok(Exit::Done)
    }
}

/// The bytes of `file`, or of stdin if it is `-`. Reads at most `bytes_max + 1` bytes and refuses a
/// longer input.
fn read_value(file: &Path, bytes_max: usize) -> Outcome<Vec<u8>> {
    let input: io::Result<Box<dyn Read>> = match file.as_os_str() == "-" {
        true => Ok(Box::new(io::stdin())),
        false => File::open(file).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let mut bytes = Vec::new();
    let read = input.and_then(|input| input.take(bytes_max as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|e| Error::from_io("read", file, e))?;
    if bytes.len() > bytes_max {
        let (file, max) = (file.display(), ByteSize(bytes_max as u64));
        return Err(Failure::invalid(match bytes_max < VALUE_BYTES_MAX {
            true => format!(
                "{file} has more than {max}, a quarter of the memory limit: raise --memory-limit"
            ),
            false => format!("{file} has more than {max}, the largest value"),
        }));
    }
    Ok(bytes)
}

#[derive(Debug, Args)]
pub(crate) struct Del {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// The keys; either all are deleted or none
    #[arg(required = true)]
    keys: Vec<OsString>,
    /// The keys are given in hexadecimal
    #[arg(long)]
    hex: bool,
}

impl Del {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let mut batch = WriteBatch::new();
        for key in &self.keys {
            batch.delete(from_argument(key, self.hex)?);
        }
        let durability = options.durability;
        let db = Db::open(&self.db, options.create_if_missing(false))?;
        db.write(&batch, &WriteOptions::new().durability(durability))?;
        db.close()?;
        Ok(Exit::Done)
    }
}

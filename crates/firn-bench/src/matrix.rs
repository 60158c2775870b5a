//! Engines compared with each other: each in its own process, in rounds A B A B.
//!
//! 1. A cell is one engine in one round: all workloads, in order, on one database. Its result is
//!    one JSON file, so that an interrupted matrix continues with the missing cells.
//! 2. If the workloads do not start with a load, each engine's database is loaded once, before the
//!    first round, and every cell works on a copy. Matrices with the same scratch directory share
//!    it if they load the same data.
//! 3. A cell that fails, gives a wrong answer or dies is a result too; the others remain valid.
//! 4. Databases are removed when their cell is done, and when the run is interrupted.

mod selection;

use crate::cell::{Cell, CellSpec, Engines};
use crate::engine::{PmBudget, Setup};
use crate::machine::{Machine, free_bytes};
use crate::phase::Watch;
use crate::run::RunConfig;
use crate::summary::Summary;
use crate::workload::Workload;
use firn_base::checksum::crc32c;
use firn_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The schema version of a serialized [`MatrixReport`].
pub const SCHEMA: &str = "firn-bench/1";

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Names of engines. The others are compared with the first.
    pub engines: Vec<String>,
    /// The number of rounds in which each engine runs.
    pub rounds: u32,
    /// The workloads.
    pub config: RunConfig,
    /// The setup common to all engines; `extra` is filled in per engine.
    pub setup: Setup,
    /// Options for one engine only: engine, option, value.
    pub extra: Vec<(String, String, String)>,
    /// Engines whose databases are in the directory on persistent memory instead of `scratch`.
    pub on_pm: Vec<String>,
    /// Directory for databases. It belongs to this run, and its creator removes it.
    pub scratch: PathBuf,
    /// Directory in which cells are stored and looked up.
    pub cells: PathBuf,
    /// The command line arguments for running one cell. The paths of its specification and result
    /// are appended.
    pub child: Vec<String>,
}

/// A run's results, as written by `--json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MatrixReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// End of the run, in seconds since 1970.
    pub unix_seconds: u64,
    /// The machine on which it ran.
    pub machine: Machine,
    /// The command line.
    pub command: Vec<String>,
    /// The workloads that were run.
    pub config: RunConfig,
    /// The setup common to all engines.
    pub setup: Setup,
    /// Each engine, in the requested order.
    pub engines: Vec<EngineReport>,
    /// Every engine in every round.
    pub cells: Vec<Cell>,
    /// Medians, spreads and ratios.
    pub summary: Summary,
}

/// One engine of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineReport {
    /// Its name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// The settings that it derived from the setup.
    pub settings: BTreeMap<String, String>,
}

/// Refuses a run that may need more than the free space in `directory`.
fn refuse_if_short(directory: &Path, needed: u64, advice: &str) -> Result<()> {
    let (free, megabytes) = (free_bytes(directory)?, |bytes: u64| bytes / 1_000_000);
    if free >= needed {
        return Ok(());
    }
    let (needed, place, free) = (megabytes(needed), directory.display(), megabytes(free));
    let text =
        format!("this run may need {needed} MB in {place}, and {free} MB are free: {advice}");
    Err(Error::new(ErrorKind::NoSpace, text))
}

impl Matrix {
    /// Runs the missing cells and reads the existing ones.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown engine or an impossible configuration,
    /// [`ErrorKind::NoSpace`] if it would not fit; both before anything is written. A failure
    /// within a cell is not an error of the matrix.
    pub fn run(&self, engines: &Engines, watch: &dyn Watch) -> Result<Vec<Cell>> {
        self.check(engines)?;
        self.check_room()?;
        create_dir(&self.cells)?;
        let mut cells = Vec::new();
        for round in 0..self.rounds {
            for engine in &self.engines {
                cells.push(self.cell(engine, round, watch)?);
            }
        }
        Ok(cells)
    }

    fn check(&self, engines: &Engines) -> Result<()> {
        self.config.check()?;
        if self.engines.is_empty() || self.rounds == 0 {
            return Err(Error::invalid(
                "a benchmark needs at least one engine and one round",
            ));
        }
        self.engines
            .iter()
            .try_for_each(|name| engines.named(name).map(drop))?;
        if self.setup.pm.is_none()
            && let Some(engine) = self.on_pm.first()
        {
            return Err(Error::invalid(format!(
                "the files of {engine} belong on persistent memory: name a directory on it with --pm-dir"
            )));
        }
        match self
            .extra
            .iter()
            .find(|(engine, _, _)| !self.engines.contains(engine))
        {
            Some((engine, _, _)) => Err(Error::invalid(format!(
                "{engine} is given an option and does not run"
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a run that would not fit.
    fn check_room(&self) -> Result<()> {
        let mut needed = self.config.bytes_needed();
        if !self.config.fills() {
            needed += self.config.loaded_bytes() * 2 * self.engines.len() as u64;
        }
        let smaller = self.config.smaller();
        refuse_if_short(
            &self.scratch,
            needed,
            &format!("choose another place with --dir, or {smaller}"),
        )?;
        if let Some(pm) = &self.setup.pm {
            let needed = self.pm_bytes_needed(pm.bytes);
            refuse_if_short(
                &pm.directory,
                needed,
                "choose another place with --pm-dir, or less of it",
            )?;
        }
        let megabytes = |bytes: u64| bytes / 1_000_000;
        let memory = crate::machine::memory_bytes().unwrap_or(u64::MAX);
        let checker = self.config.checker_bytes();
        if self.setup.memory_bytes + checker > memory {
            let text = format!(
                "the engines are to have {} MB and the check of their answers takes {} MB, and this machine or its \
                 memory group has {} MB: give them less with --memory-limit, or take {smaller}",
                megabytes(self.setup.memory_bytes),
                megabytes(checker),
                megabytes(memory)
            );
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// Persistent memory in bytes for one database at a time, and for a loaded copy of each
    /// engine's database where one is kept. Each engine may use `bytes`, or its own `pm_bytes`
    /// option, or what its files need if they are there.
    fn pm_bytes_needed(&self, bytes: u64) -> u64 {
        let told = |engine: &String| {
            if self.on_pm.contains(engine) {
                return self.config.bytes_needed();
            }
            let its = self
                .extra
                .iter()
                .find(|(of, name, _)| of == engine && name == "pm_bytes");
            its.and_then(|(_, _, value)| value.parse().ok())
                .unwrap_or(bytes)
        };
        let one = self.engines.iter().map(told).max().unwrap_or(0);
        let copies: u64 = self.engines.iter().map(told).sum();
        one + if self.config.fills() { 0 } else { copies }
    }

    /// The setup of `engine` with its database in `directory`.
    pub fn setup_of(&self, engine: &str, directory: PathBuf) -> Setup {
        let mut setup = Setup {
            pm: self.pm_beside(&directory),
            directory,
            ..self.setup.clone()
        };
        let its = self.extra.iter().filter(|(of, _, _)| of == engine);
        setup.extra = its
            .map(|(_, name, value)| (name.clone(), value.clone()))
            .collect();
        self.config.describe_run(&mut setup);
        setup
    }

    /// The directory of the databases of `engine`. On persistent memory it is beside those for
    /// pools.
    fn home(&self, engine: &str) -> PathBuf {
        let pm = self.setup.pm.as_ref();
        pm.filter(|_| self.on_pm.iter().any(|name| name == engine))
            .map_or_else(|| self.scratch.clone(), |pm| pm.directory.join("files"))
    }

    /// The persistent memory of a database in `directory`.
    fn pm_beside(&self, directory: &Path) -> Option<PmBudget> {
        let PmBudget {
            directory: all,
            bytes,
        } = self.setup.pm.as_ref()?;
        let directory = directory
            .file_name()
            .map_or_else(|| all.clone(), |name| all.join(name));
        Some(PmBudget {
            directory,
            bytes: *bytes,
        })
    }

    /// The directories of a database in `directory`, including the one in persistent memory.
    fn both(&self, directory: &Path) -> impl Iterator<Item = PathBuf> {
        std::iter::once(directory.to_owned())
            .chain(self.pm_beside(directory).map(|pm| pm.directory))
    }

    fn cell(&self, engine: &str, round: u32, watch: &dyn Watch) -> Result<Cell> {
        let file_name = engine.replace([':', '/'], "-");
        let directory = self.home(engine).join(format!("{file_name}-{round}"));
        let spec = CellSpec {
            engine: engine.to_owned(),
            round,
            setup: self.setup_of(engine, directory.clone()),
            config: self.config.clone(),
        };
        let result = self.cells.join(format!("{file_name}-{round}.json"));
        if let Some(done) = Cell::read(&result).ok().filter(|cell| cell.is_of(&spec)) {
            return Ok(done);
        }
        if self.config.fills() {
            self.both(&directory)
                .try_for_each(|path| create_dir(&path))?;
        } else {
            let loaded = match self.loaded(engine, watch)? {
                Ok(loaded) => loaded,
                Err(failed) => return Ok(Cell { round, ..failed }),
            };
            self.both(&loaded)
                .zip(self.both(&directory))
                .try_for_each(|(from, to)| copy_dir(&from, &to))?;
        }
        let cell = self.run_child(&spec, &result, watch)?;
        self.both(&directory)
            .try_for_each(|path| remove_dir(&path))?;
        Ok(cell)
    }

    /// The engine's loaded database, created if it does not exist; or the failed cell of loading
    /// it.
    fn loaded(
        &self,
        engine: &str,
        watch: &dyn Watch,
    ) -> Result<std::result::Result<PathBuf, Cell>> {
        // Parameters that do not affect a load are left out of its name.
        let workloads = vec![Workload::load()];
        let config = RunConfig {
            workloads,
            rate: None,
            theta: 0.0,
            operations: 1,
            seconds_min: 0,
            reopened_with: Vec::new(),
            ..self.config.clone()
        };
        let setup = self.setup_of(engine, PathBuf::new());
        // A different load has a different name, so that several matrices may share a scratch
        // directory.
        let load = serde_json::to_vec(&(&config, &setup))
            .map_err(|e| Error::invalid(format!("cannot write JSON: {e}")))?;
        let name = format!(
            "{}-loaded-{:08x}",
            engine.replace([':', '/'], "-"),
            crc32c(&load)
        );
        let directory = self.home(engine).join(name);
        if directory.exists() {
            return Ok(Ok(directory));
        }
        let making = directory.with_extension("part");
        self.both(&making).try_for_each(|path| create_dir(&path))?;
        let setup = Setup {
            directory: making.clone(),
            pm: self.pm_beside(&making),
            ..setup
        };
        let spec = CellSpec {
            engine: engine.to_owned(),
            round: 0,
            setup,
            config,
        };
        let result = self.scratch.join("load.json");
        let cell = self.run_child(&spec, &result, watch)?;
        if cell.failure.is_some() {
            self.both(&making).try_for_each(|path| remove_dir(&path))?;
            return Ok(Err(cell));
        }
        for (from, to) in self.both(&making).zip(self.both(&directory)) {
            std::fs::rename(&from, &to).map_err(|e| Error::from_io("rename", &from, e))?;
        }
        Ok(Ok(directory))
    }

    /// Runs a cell in its own process and shows its progress.
    fn run_child(&self, spec: &CellSpec, result: &Path, watch: &dyn Watch) -> Result<Cell> {
        let spec_path = result.with_extension("spec.json");
        write_json(&spec_path, spec)?;
        let program = std::env::current_exe()
            .map_err(|e| Error::from_io("find", Path::new("this program"), e))?;
        let mut command = Command::new(&program);
        command
            .args(&self.child)
            .arg(&spec_path)
            .arg(result)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| Error::from_io("start", &program, e))?;
        let title = format!("{} round {}", spec.engine, spec.round + 1);
        for line in child
            .stdout
            .take()
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines())
            .map_while(|l| l.ok())
        {
            let mut words = line.split(' ');
            let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).unwrap_or(0);
            match words.next() {
                Some("begin") => {
                    let name = words.next().unwrap_or("").to_owned();
                    watch.begin(&format!("{title}: {name}"), number(words.next()));
                }
                Some("at") => watch.advance(number(words.next())),
                Some("end") => watch.end(),
                _ => {}
            }
        }
        let status = child
            .wait()
            .map_err(|e| Error::from_io("wait for", &program, e))?;
        let _only_a_request = std::fs::remove_file(&spec_path);
        match Cell::read(result).ok().filter(|cell| cell.is_of(spec)) {
            Some(cell) => Ok(cell),
            None => {
                let failure = format!("its process ended without a result: {status}");
                Ok(Cell {
                    failure: Some(failure),
                    ..Cell::new(spec.clone())
                })
            }
        }
    }
}

fn create_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| Error::from_io("create", path, e))
}

fn remove_dir(path: &Path) -> Result<()> {
    std::fs::remove_dir_all(path).map_err(|e| Error::from_io("remove", path, e))
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    create_dir(to)?;
    let entries = std::fs::read_dir(from).map_err(|e| Error::from_io("list", from, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::from_io("list", from, e))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        match is_dir {
            true => copy_dir(&source, &target)?,
            false => std::fs::copy(&source, &target)
                .map(drop)
                .map_err(|e| Error::from_io("copy", &source, e))?,
        }
    }
    Ok(())
}

/// Writes `value` as JSON, completely or not at all.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::invalid(format!("cannot write JSON: {e}")))?;
    let part = path.with_extension("part");
    std::fs::write(&part, text + "\n").map_err(|e| Error::from_io("write", &part, e))?;
    std::fs::rename(&part, path).map_err(|e| Error::from_io("rename", &part, e))
}

#[cfg(test)]
mod tests;

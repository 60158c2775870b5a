//! One engine in one round, in its own process.

use crate::engine::{Engine, Setup};
use crate::machine::sync_ns;
use crate::matrix::write_json;
use crate::phase::Watch;
use crate::report::PhaseReport;
use crate::run::{RunConfig, run};
use firn_base::clock::Clock;
use firn_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

const SYNC_ROUNDS: usize = 50;

/// The engines of this program.
pub struct Engines(Vec<Box<dyn Engine>>);

impl Engines {
    /// A set of these engines.
    pub fn new(engines: Vec<Box<dyn Engine>>) -> Self {
        Self(engines)
    }

    /// All engines.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Engine> {
        self.0.iter().map(|engine| &**engine)
    }

    /// The engine named `name`, up to its label: `firn:blade@ssd` is `firn:blade` with options of
    /// its own, so that one engine can be compared with itself.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] with the names of all engines.
    pub fn named(&self, name: &str) -> Result<&dyn Engine> {
        self.iter()
            .find(|engine| engine.name() == unlabelled(name))
            .ok_or_else(|| {
                let names: Vec<String> = self.iter().map(Engine::name).collect();
                Error::invalid(format!(
                    "no engine is called {name}: this program has {}",
                    names.join(", ")
                ))
            })
    }
}

/// The engine of `name`, which may have a label after `@`.
pub(crate) fn unlabelled(name: &str) -> &str {
    name.split_once('@').map_or(name, |(engine, _)| engine)
}

/// The input of a cell's process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSpec {
    /// The engine's name.
    pub engine: String,
    /// The round, from 0.
    pub round: u32,
    /// The setup of the engine.
    pub setup: Setup,
    /// The work to do.
    pub config: RunConfig,
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The engine's name.
    pub engine: String,
    /// The round, from 0.
    pub round: u32,
    /// The setup of the engine.
    pub setup: Setup,
    /// The work that was requested.
    pub config: RunConfig,
    /// The engine's description of itself once open.
    pub described: String,
    /// The settings that the engine derived from the setup.
    pub settings: BTreeMap<String, String>,
    /// Time to append and sync 4 KiB on the device, in microseconds (median), before anything else
    /// was done.
    pub device_sync_us: f64,
    /// Each workload that ended successfully, in order.
    pub phases: Vec<PhaseReport>,
    /// The reason for an early end, if any: an error, a wrong answer, or the death of its process.
    pub failure: Option<String>,
}

impl Cell {
    pub(crate) fn new(spec: CellSpec) -> Self {
        let CellSpec {
            engine,
            round,
            setup,
            config,
        } = spec;
        let (described, settings, phases) = (String::new(), BTreeMap::new(), Vec::new());
        Self {
            engine,
            round,
            setup,
            config,
            described,
            settings,
            device_sync_us: 0.0,
            phases,
            failure: None,
        }
    }

    /// Reads a cell's file.
    ///
    /// # Errors
    /// If it does not exist or is not a cell's file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::from_io("read", path, e))?;
        serde_json::from_str(&text).map_err(|e| Error::invalid(format!("{}: {e}", path.display())))
    }

    /// True if this is a usable result of `spec`, whatever its directory.
    pub(crate) fn is_of(&self, spec: &CellSpec) -> bool {
        let mut setup = Setup {
            directory: spec.setup.directory.clone(),
            ..self.setup.clone()
        };
        if let (Some(its), Some(pm)) = (&mut setup.pm, &spec.setup.pm) {
            its.directory.clone_from(&pm.directory);
        }
        let is_same =
            self.engine == spec.engine && setup == spec.setup && self.config == spec.config;
        is_same && (self.failure.is_some() || self.phases.len() == self.config.workloads.len())
    }
}

/// Reports progress to the parent on standard output.
struct Telling(Mutex<()>);

impl Telling {
    fn line(&self, line: std::fmt::Arguments<'_>) {
        let _one_at_a_time = self.0.lock();
        // The work is the same without a parent that reads this.
        let _unheard = writeln!(std::io::stdout(), "{line}");
    }
}

impl Watch for Telling {
    fn begin(&self, name: &str, total: u64) {
        self.line(format_args!("begin {name} {total}"));
    }

    fn advance(&self, done: u64) {
        self.line(format_args!("at {done}"));
    }

    fn end(&self) {
        self.line(format_args!("end"));
    }
}

/// The main function of a cell's process: reads its specification, works, writes its result.
///
/// # Errors
/// If it cannot read or write those. A failure of the engine is part of the result.
pub fn run_cell(engines: &Engines, spec: &Path, result: &Path) -> Result<()> {
    let text = std::fs::read_to_string(spec).map_err(|e| Error::from_io("read", spec, e))?;
    let spec: CellSpec = serde_json::from_str(&text)
        .map_err(|e| Error::invalid(format!("{}: {e}", spec.display())))?;
    let mut cell = Cell::new(spec.clone());
    if let Err(error) = work(engines, &spec, &mut cell) {
        cell.failure = Some(error.to_string());
    }
    write_json(result, &cell)
}

fn work(engines: &Engines, spec: &CellSpec, cell: &mut Cell) -> Result<()> {
    let engine = engines.named(&spec.engine)?;
    let clock = Clock::system();
    cell.device_sync_us = sync_ns(&spec.setup.directory, SYNC_ROUNDS, &clock)? as f64 / 1e3;
    cell.settings = engine.settings(&spec.setup);
    let store = engine.open(&spec.setup)?;
    cell.described = store.describe();
    let telling = Telling(Mutex::new(()));
    run(
        store,
        &|setup| engine.open(setup),
        &spec.setup,
        &spec.config,
        &clock,
        &telling,
        &mut |phase| cell.phases.push(phase),
    )
}

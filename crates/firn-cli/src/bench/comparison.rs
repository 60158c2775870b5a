//! The part that every comparison of engines has: engines, rounds, places, and the report's forms.

use super::interrupt;
use super::place::Place;
use super::tables::{notes, ratios, sorts_table, summary_table};
use super::traffic::traffic;
use crate::config::Settings;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::print;
use crate::progress::BenchProgress;
use clap::Args;
use firn_base::clock::Clock;
use firn_bench::{
    Compression, EngineReport, Engines, Machine, Matrix, MatrixReport, PmBudget, RunConfig, SCHEMA,
    Setup, Summary,
};
use firndb::{Codec, Durability, Error, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Comparison {
    /// Engines, separated by commas; the others are compared with the first. `--engines help` lists
    /// them
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "firn:classic"
    )]
    pub(super) engines: Vec<String>,
    #[command(flatten)]
    pub(super) place: Place,
    /// An option for one engine only; may be given several times
    #[arg(long, value_name = "ENGINE.OPTION=VALUE")]
    set: Vec<Extra>,
    /// Write the report to FILE as JSON (docs/benchmarks/schema.md), or to stdout instead of the
    /// table if FILE is -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to FILE as a page with plots, readable offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// `ENGINE.OPTION=VALUE`.
#[derive(Debug, Clone)]
struct Extra(String, String, String);

impl std::str::FromStr for Extra {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('=')
            .and_then(|(name, value)| Some((name.rsplit_once('.')?, value)));
        let ((engine, option), value) =
            parts.ok_or_else(|| format!("`{text}` must be like rocksdb.block_bytes=16384"))?;
        Ok(Extra(
            engine.to_owned(),
            option.to_owned(),
            value.to_owned(),
        ))
    }
}

impl Comparison {
    /// Runs `config`, made for a durability, on all engines, or lists them. `child` holds the
    /// arguments with which this program runs a cell.
    pub(super) fn run(
        &self,
        settings: Settings,
        engines: &Engines,
        child: &[&str],
        config: impl FnOnce(Durability) -> Outcome<RunConfig>,
    ) -> Outcome {
        if self.engines == ["help"] {
            return list(engines.iter().map(|engine| (engine.name(), engine.about())));
        }
        let options = settings.for_bench()?;
        let config = config(options.durability)?;
        config.check()?;
        let scratch = self.place.scratch()?;
        let pm = self.place.pm()?;
        let setup = setup(&options, pm.as_ref().map(|(_, budget)| budget.clone()))?;
        let matrix = Matrix {
            engines: self.engines.clone(),
            rounds: self.place.rounds,
            config,
            setup,
            extra: self
                .set
                .iter()
                .map(|Extra(engine, name, value)| (engine.clone(), name.clone(), value.clone()))
                .collect(),
            on_pm: Vec::new(),
            scratch: scratch.path().to_owned(),
            cells: self.place.cells(&scratch),
            child: child.iter().map(|word| (*word).to_owned()).collect(),
        };
        let cells = matrix.run(engines, &BenchProgress::default());
        interrupt::wait_if_interrupted();
        let report = report(&matrix, engines, cells?)?;
        drop(scratch);
        self.show(&report)
    }

    fn show(&self, report: &MatrixReport) -> Outcome {
        let text = serde_json::to_string_pretty(report)
            .map_err(|e| Failure::invalid(format!("cannot write JSON: {e}")))?;
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        match &self.json {
            Some(_) if to_stdout => print(text)?,
            Some(file) => {
                std::fs::write(file, text + "\n").map_err(|e| Error::from_io("write", file, e))?
            }
            None => {}
        }
        if let Some(file) = &self.html {
            std::fs::write(file, firn_bench::html(report)?)
                .map_err(|e| Error::from_io("write", file, e))?;
        }
        if !to_stdout {
            print_tables(report)?;
        }
        let failed = report.cells.iter().any(|cell| cell.failure.is_some());
        Ok(if failed { Exit::NotFound } else { Exit::Done })
    }
}

/// Prints the report as tables.
pub(super) fn print_tables(report: &MatrixReport) -> Outcome<()> {
    print(summary_table(&report.summary))?;
    if report.config.retail.is_some() {
        print(sorts_table(&report.summary))?;
        // A report without its rounds has no counts by cause.
        if !report.cells.is_empty() {
            print(traffic(report))?;
        }
    }
    print(ratios(&report.summary))?;
    print(notes(report))
}

/// The setup common to all engines. The fields that describe the records are filled in later.
pub(super) fn setup(options: &Options, pm: Option<PmBudget>) -> Outcome<Setup> {
    let compression = match options.compression {
        Codec::None => Compression::None,
        Codec::Lz4 => Compression::Lz4,
        _ => {
            return Err(Failure::usage(
                "a comparison of engines can be had with compression none or lz4",
            ));
        }
    };
    Ok(Setup {
        directory: PathBuf::new(),
        memory_bytes: options.memory_limit_bytes,
        compression,
        direct_io: options.direct_io,
        background_threads: options.background_workers,
        durability: Durability::Process,
        records_max: 0,
        key_bytes_max: 0,
        value_bytes_max: 0,
        pm,
        extra: BTreeMap::new(),
    })
}

/// Prints names with their descriptions.
pub(super) fn list(
    mut rows: impl Iterator<Item = (impl std::fmt::Display, impl std::fmt::Display)>,
) -> Outcome {
    rows.try_for_each(|(name, about)| print(format!("{name:<20} {about}")))?;
    Ok(Exit::Done)
}

fn report(
    matrix: &Matrix,
    engines: &Engines,
    cells: Vec<firn_bench::Cell>,
) -> Outcome<MatrixReport> {
    let of_engine = |name: &String| {
        let engine = engines.named(name)?;
        let settings = engine.settings(&matrix.setup_of(name, matrix.scratch.clone()));
        Ok(EngineReport {
            name: name.clone(),
            about: engine.about(),
            settings,
        })
    };
    Ok(MatrixReport {
        schema: SCHEMA.to_owned(),
        unix_seconds: Clock::system().unix_seconds(),
        machine: Machine::here(&matrix.scratch),
        command: std::env::args().collect(),
        config: matrix.config.clone(),
        setup: matrix.setup.clone(),
        engines: matrix
            .engines
            .iter()
            .map(of_engine)
            .collect::<firndb::Result<_>>()?,
        summary: Summary::of(&cells),
        cells,
    })
}

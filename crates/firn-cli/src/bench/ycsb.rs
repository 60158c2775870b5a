//! `firn bench ycsb`: workloads on several engines, side by side.

use super::interrupt;
use super::place::Place;
use super::tables::{notes, ratios, summary_table};
use crate::config::Settings;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::print;
use crate::progress::BenchProgress;
use clap::Args;
use firn_base::clock::Clock;
use firn_bench::{
    Compression, EngineReport, Engines, Machine, Matrix, MatrixReport, PmBudget, RunConfig, SCHEMA,
    Setup, Sizes, Summary, Values, Workload,
};
use firndb::{Codec, Durability, Error, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Ycsb {
    /// Engines, separated by commas; the others are compared with the first. `--engines help` lists
    /// them
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "firn:classic"
    )]
    engines: Vec<String>,
    /// Workloads in order, separated by commas. `--workloads help` lists them
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "load,a,b,c,d,e,f,u"
    )]
    workloads: Vec<String>,
    /// Records in the database after the load
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Minimum operations of each workload except a load
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ops: u64,
    /// Total operations per second of all threads; latency then counts from the time at which an
    /// operation was due. A load that is followed by other workloads runs at full speed
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Size of keys in bytes: 16, or 16-40 for sizes distributed uniformly from one to the other
    #[arg(long, value_name = "SIZES", default_value = "16")]
    key_size: Sizes,
    /// Size of values in bytes: 1024, or 100-4000
    #[arg(long, value_name = "SIZES", default_value = "1024")]
    value_size: Sizes,
    /// The fraction of a value that compression can remove, 0 to 1
    #[arg(long, value_name = "X", default_value_t = 0.5)]
    compressibility: f64,
    /// The zipfian parameter, 0 (uniform) to below 1
    #[arg(long, value_name = "X", default_value_t = 0.99)]
    theta: f64,
    #[command(flatten)]
    place: Place,
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

impl Ycsb {
    /// `child` holds the arguments with which this program runs a cell.
    pub(super) fn run(self, settings: Settings, engines: &Engines, child: &[&str]) -> Outcome {
        if self.engines == ["help"] {
            return list(engines.iter().map(|engine| (engine.name(), engine.about())));
        }
        if self.workloads == ["help"] {
            return list(Workload::names());
        }
        let options = settings.for_bench()?;
        let config = self.config(options.durability)?;
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

    fn config(&self, durability: Durability) -> Outcome<RunConfig> {
        let workloads: firndb::Result<Vec<Workload>> =
            self.workloads.iter().map(|name| name.parse()).collect();
        let config = RunConfig {
            records: self.records,
            operations: self.ops,
            seconds_min: self.place.seconds,
            threads: self.place.threads,
            key_sizes: self.key_size,
            values: Values {
                sizes: self.value_size,
                compressibility: self.compressibility,
            },
            workloads: workloads?,
            durability,
            rate: self.rate,
            theta: self.theta,
        };
        config.check()?;
        Ok(config)
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
            print(summary_table(&report.summary))?;
            print(ratios(&report.summary))?;
            print(notes(report))?;
        }
        let failed = report.cells.iter().any(|cell| cell.failure.is_some());
        Ok(if failed { Exit::NotFound } else { Exit::Done })
    }
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

fn list(
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

//! `firn bench paper`: a paper's experiments, scaled, with the paper's figure next to ours.

use super::comparison::list;
use super::interrupt;
use super::place::Place;
use super::tables::paper_table;
use crate::config::Settings;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{print, print_json};
use crate::progress::BenchProgress;
use clap::Args;
use firn_bench::{
    Against, Cell, Engines, Experiment, Matrix, Paper as Evaluation, PaperRow, Place as FilesPlace,
    PmBudget, Setup, Shape, Side, TableExperiment, TableRun,
};
use firndb::Latency;
use std::collections::BTreeMap;

#[derive(Debug, Args)]
pub(super) struct Paper {
    /// The paper: block, lab, tlsm, blade or pmdb
    paper: String,
    /// Experiments by figure, separated by commas [default: all]. `--experiments help` lists them;
    /// `fig9` is all of `fig9a` to `fig9d`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    experiments: Vec<String>,
    /// Divide the paper's records by N, and everything that must keep its proportion to them
    #[arg(long, value_name = "N", default_value_t = 10)]
    scale: u64,
    /// The engine to compare the design with [default: the paper's, or the nearest one available]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// The engine that stands for the design [default: its profile]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Delays of emulated persistent memory for FirnDB, in nanoseconds for each line of 64 bytes
    /// that is read and written. An experiment that varies them ignores it
    #[arg(long, value_name = "READ/WRITE")]
    pm_latency: Option<LineDelays>,
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `READ/WRITE`, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct LineDelays(Latency);

impl std::str::FromStr for LineDelays {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok();
        let parts = text.split_once('/');
        let parts = parts.and_then(|(read, write)| Some((number(read)?, number(write)?)));
        let (read_ns, write_ns) =
            parts.ok_or_else(|| format!("`{text}` must be like 300/100, in nanoseconds"))?;
        Ok(Self(Latency { read_ns, write_ns }))
    }
}

/// The experiments that were asked for.
struct Chosen {
    experiments: Vec<&'static Experiment>,
    tables: Vec<&'static TableExperiment>,
}

impl Paper {
    pub(super) fn run(self, settings: Settings, engines: &Engines, child: &[&str]) -> Outcome {
        let paper = Evaluation::named(&self.paper)?;
        if self.experiments == ["help"] {
            let tables = paper.tables.iter().map(|table| (table.id, table.title));
            let all = paper.experiments.iter().map(|one| (one.id, one.title));
            return list(tables.chain(all));
        }
        let chosen = self.chosen(paper)?;
        let pair = [
            self.baseline.as_deref().unwrap_or(paper.baseline),
            self.engine.as_deref().unwrap_or(paper.engine),
        ];
        let shape = Shape {
            scale: self.scale,
            threads: self.place.threads,
            seconds_min: self.place.seconds,
        };
        let is_needed = needs_baseline(&chosen.experiments, &shape)?;
        let unneeded = usize::from(!is_needed);
        pair[unneeded..]
            .iter()
            .try_for_each(|name| engines.named(name).map(drop))?;
        let options = settings.for_bench()?;
        let scratch = self.place.scratch()?;
        let pm = self.place.pm()?;
        let setup =
            super::comparison::setup(&options, pm.as_ref().map(|(_, budget)| budget.clone()))?;
        if pm.is_none() {
            refuse_without_pm(&chosen.experiments, &shape, pair, paper.engine)?;
        }
        let cells = self.place.cells(&scratch);
        let (mut rows, mut failed) = (Vec::new(), false);
        let run = TableRun {
            scale: self.scale,
            rounds: self.place.rounds,
            directory: scratch.path().to_owned(),
            latency: self.pm_latency.map(|delays| delays.0),
        };
        for table in chosen.tables {
            rows.extend(table.rows(&run)?);
        }
        for experiment in chosen.experiments {
            for variant in &experiment.variants(&shape)? {
                let sides = variant.sides(pair, paper.engine);
                let pm = setup.pm.clone().map(|pm| PmBudget {
                    bytes: variant.pm_bytes.unwrap_or(pm.bytes),
                    ..pm
                });
                let matrix = Matrix {
                    engines: sides.iter().map(|(name, _)| name.clone()).collect(),
                    rounds: self.place.rounds,
                    config: variant.config.clone(),
                    setup: Setup {
                        memory_bytes: variant.memory_bytes,
                        pm,
                        ..setup.clone()
                    },
                    extra: sides.iter().flat_map(|side| self.extra(side)).collect(),
                    on_pm: (variant.place == FilesPlace::Pm)
                        .then(|| pair[0].to_owned())
                        .into_iter()
                        .collect(),
                    scratch: scratch.path().to_owned(),
                    // Results of another experiment with the same run are reused.
                    cells: cells.join(variant.run_name()?),
                    child: child.iter().map(|word| (*word).to_owned()).collect(),
                };
                let cells = matrix.run(engines, &BenchProgress::default());
                interrupt::wait_if_interrupted();
                let cells = cells?;
                failed |= cells.iter().any(|cell| cell.failure.is_some());
                say_failures(&cells);
                let (other, _) = &sides[0];
                rows.push(experiment.row(variant, &cells, other));
            }
        }
        drop(scratch);
        self.show(paper, pair, &rows)?;
        Ok(if failed { Exit::NotFound } else { Exit::Done })
    }

    /// The options of one side of a variant, with the delays of persistent memory.
    fn extra(&self, (engine, options): &Side) -> Vec<(String, String, String)> {
        let delays = self.pm_latency.filter(|_| engine.starts_with("firn:"));
        let delays = delays.into_iter().flat_map(|LineDelays(latency)| {
            [
                ("pm_read_ns", latency.read_ns.to_string()),
                ("pm_write_ns", latency.write_ns.to_string()),
            ]
        });
        let of = |(name, value): (&str, String)| (engine.clone(), name.to_owned(), value);
        // The last one counts.
        delays.chain(options.iter().cloned()).map(of).collect()
    }

    fn chosen(&self, paper: &'static Evaluation) -> Outcome<Chosen> {
        let is_chosen = |id: &str| {
            self.experiments.is_empty() || self.experiments.iter().any(|name| is_named(id, name))
        };
        let chosen = Chosen {
            experiments: paper
                .experiments
                .iter()
                .filter(|one| is_chosen(one.id))
                .collect(),
            tables: paper
                .tables
                .iter()
                .filter(|one| is_chosen(one.id))
                .collect(),
        };
        let tables = paper.tables.iter().map(|table| table.id);
        let ids: Vec<&str> = tables
            .chain(paper.experiments.iter().map(|one| one.id))
            .collect();
        match self
            .experiments
            .iter()
            .find(|name| !ids.iter().any(|id| is_named(id, name)))
        {
            None => Ok(chosen),
            Some(unknown) => Err(Failure::usage(format!(
                "no experiment of {} is called {unknown}: there are {}",
                paper.name,
                ids.join(", ")
            ))),
        }
    }

    fn show(&self, paper: &Evaluation, pair: [&str; 2], rows: &[PaperRow]) -> Outcome<()> {
        if self.json {
            let about = BTreeMap::from([
                ("paper", paper.title),
                ("baseline", pair[0]),
                ("engine", pair[1]),
            ]);
            return print_json(
                &serde_json::json!({ "about": about, "scale": self.scale, "rows": rows }),
            );
        }
        print(format!(
            "{}, at 1:{}: {} against {}",
            paper.title, self.scale, pair[1], pair[0]
        ))?;
        print(paper_table(rows))
    }
}

/// True if `name` is experiment `id`, or the figure that it is a part of.
fn is_named(id: &str, name: &str) -> bool {
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    id.strip_prefix(name).is_some_and(|rest| {
        let is_panel = is_digit(name.chars().last()) && !is_digit(rest.chars().next());
        rest.is_empty() || rest.starts_with('-') || is_panel
    })
}

/// True if an experiment compares the design with the baseline.
fn needs_baseline(chosen: &[&Experiment], shape: &Shape) -> Outcome<bool> {
    for experiment in chosen {
        let variants = experiment.variants(shape)?;
        if variants.iter().any(|of| of.against == Against::Baseline) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses experiments that need persistent memory.
fn refuse_without_pm(
    chosen: &[&Experiment],
    shape: &Shape,
    pair: [&str; 2],
    design: &str,
) -> Outcome<()> {
    for experiment in chosen {
        let variants = experiment.variants(shape)?;
        if variants
            .iter()
            .any(|variant| variant.needs_pm(pair, design))
        {
            return Err(Failure::usage(format!(
                "experiment {} needs persistent memory: name a directory on it with --pm-dir, and --pm-bytes",
                experiment.id
            )));
        }
    }
    Ok(())
}

fn say_failures(cells: &[Cell]) {
    for cell in cells.iter().filter(|cell| cell.failure.is_some()) {
        let failure = cell.failure.as_deref().unwrap_or_default();
        eprintln!(
            "firn: {} round {} failed: {failure}",
            cell.engine,
            cell.round + 1
        );
    }
}

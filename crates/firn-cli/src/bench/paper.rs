//! `firn bench paper`: a paper's experiments, scaled, with the paper's figure next to ours.

use super::interrupt;
use super::place::Place;
use super::tables::paper_table;
use crate::config::Settings;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{print, print_json};
use crate::progress::BenchProgress;
use clap::Args;
use firn_bench::{
    Cell, Engines, Experiment, Matrix, Paper as Evaluation, PaperRow, Place as FilesPlace, Setup,
    Shape, Variant,
};
use std::collections::BTreeMap;

#[derive(Debug, Args)]
pub(super) struct Paper {
    /// The paper: block, lab or tlsm
    paper: String,
    /// Experiments by figure, separated by commas [default: all]. `--experiments help` lists them
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
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Paper {
    pub(super) fn run(self, settings: Settings, engines: &Engines, child: &[&str]) -> Outcome {
        let paper = Evaluation::named(&self.paper)?;
        if self.experiments == ["help"] {
            let line = |experiment: &Experiment| {
                print(format!("{:<12} {}", experiment.id, experiment.title))
            };
            paper.experiments.iter().try_for_each(line)?;
            return Ok(Exit::Done);
        }
        let chosen = self.chosen(paper)?;
        let pair = [
            self.baseline.as_deref().unwrap_or(paper.baseline),
            self.engine.as_deref().unwrap_or(paper.engine),
        ];
        pair.iter()
            .try_for_each(|name| engines.named(name).map(drop))?;
        let options = settings.for_bench()?;
        let scratch = self.place.scratch()?;
        let pm = self.place.pm()?;
        let shape = Shape {
            scale: self.scale,
            threads: self.place.threads,
            seconds_min: self.place.seconds,
        };
        let setup =
            super::comparison::setup(&options, pm.as_ref().map(|(_, budget)| budget.clone()))?;
        if pm.is_none() {
            refuse_without_pm(&chosen, &shape, pair, paper.engine)?;
        }
        let cells = self.place.cells(&scratch);
        let (mut rows, mut failed) = (Vec::new(), false);
        for experiment in chosen {
            for variant in &experiment.variants(&shape)? {
                let matrix = Matrix {
                    engines: pair.map(str::to_owned).to_vec(),
                    rounds: self.place.rounds,
                    config: variant.config.clone(),
                    setup: Setup {
                        memory_bytes: variant.memory_bytes,
                        ..setup.clone()
                    },
                    extra: pair
                        .iter()
                        .flat_map(|engine| options_of(variant, engine, paper.engine))
                        .collect(),
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
                rows.push(experiment.row(variant, &cells, pair[0]));
            }
        }
        drop(scratch);
        self.show(paper, pair, &rows)?;
        Ok(if failed { Exit::NotFound } else { Exit::Done })
    }

    fn chosen(&self, paper: &Evaluation) -> Outcome<Vec<&'static Experiment>> {
        if self.experiments.is_empty() {
            return Ok(paper.experiments.iter().collect());
        }
        let named = |id: &String| {
            paper
                .experiments
                .iter()
                .find(|experiment| experiment.id == id)
                .ok_or_else(|| {
                    let ids: Vec<&str> = paper
                        .experiments
                        .iter()
                        .map(|experiment| experiment.id)
                        .collect();
                    Failure::usage(format!(
                        "no experiment of {} is called {id}: there are {}",
                        paper.name,
                        ids.join(", ")
                    ))
                })
        };
        self.experiments.iter().map(named).collect()
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

/// Refuses experiments that need persistent memory.
fn refuse_without_pm(
    chosen: &[&Experiment],
    shape: &Shape,
    pair: [&str; 2],
    design: &str,
) -> Outcome<()> {
    for experiment in chosen {
        let needs_it = |variant: &Variant| {
            let has_pool = |engine| {
                let options = variant.options_of(engine, design);
                options.iter().any(|(name, _)| *name == "pm_bytes")
            };
            variant.place == FilesPlace::Pm || pair.into_iter().any(has_pool)
        };
        if experiment.variants(shape)?.iter().any(needs_it) {
            return Err(Failure::usage(format!(
                "experiment {} needs persistent memory: name a directory on it with --pm-dir, and --pm-bytes",
                experiment.id
            )));
        }
    }
    Ok(())
}

/// The options of `variant` for an engine; `design` is the profile that implements the paper's
/// design.
fn options_of(variant: &Variant, engine: &str, design: &str) -> Vec<(String, String, String)> {
    let of = |(name, value): (&str, String)| (engine.to_owned(), name.to_owned(), value);
    variant
        .options_of(engine, design)
        .into_iter()
        .map(of)
        .collect()
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

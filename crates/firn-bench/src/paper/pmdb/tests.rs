//! The rows of the PMDB paper: their sides, their sizes and their figures.

use super::PAPER;
use crate::cell::unlabelled;
use crate::engine::Setup;
use crate::firn::Firn;
use crate::paper::figure::{Figure, MediumFigure};
use crate::paper::tests::{experiment, sides};
use crate::paper::{Against, Shape, Variant};
use crate::sample;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const SHAPE: Shape = Shape {
    scale: 25,
    threads: 4,
    seconds_min: 0,
};

fn variants(id: &str) -> Vec<Variant> {
    experiment(&PAPER, id).variants(&SHAPE).unwrap()
}

fn run_names(id: &str) -> Vec<String> {
    let variants = variants(id);
    variants.iter().map(|v| v.run_name().unwrap()).collect()
}

#[test]
fn every_figure_of_the_evaluation_has_a_row() {
    for figure in [
        "fig7a",
        "fig7b",
        "fig7c",
        "fig7d",
        "fig8a",
        "fig8b",
        "fig8c",
        "fig8d",
        "fig9a",
        "fig9b",
        "fig10a",
        "fig10b",
        "rec",
        "space-ssd",
        "space-pm",
        "fig11a",
        "fig11b",
        "pm-",
        "max_io-",
        "invalid-",
        "block-",
        "parts",
        "fig12",
    ] {
        let mut ids = PAPER.experiments.iter().map(|experiment| experiment.id);
        assert!(ids.any(|id| id.starts_with(figure)), "{figure}");
    }
}

#[test]
fn sizes_are_the_papers_by_the_scale() {
    for (variant, (millions, mb)) in variants("fig7a")
        .iter()
        .zip([(16, 128), (4, 512), (2, 1024)])
    {
        let config = &variant.config;
        assert_eq!(config.records, millions * 1_000_000, "{}", variant.name);
        assert_eq!(config.values.sizes.max(), mb);
        assert_eq!(config.operations, config.records / 5);
        assert_eq!(config.threads, 1, "the paper has one client");
        assert_eq!(variant.pm_bytes, Some(200_000_000));
    }
    let pm: Vec<_> = variants("pm-put").iter().map(|v| v.pm_bytes).collect();
    let mb = |mb: u64| Some(mb * 1_000_000);
    assert_eq!(pm, [mb(100), mb(200), mb(400)]);
    let small = Shape {
        scale: 5000,
        ..SHAPE
    };
    let small = experiment(&PAPER, "fig7a").variants(&small).unwrap();
    assert!(
        small
            .iter()
            .all(|variant| variant.pm_bytes >= Some(32 << 20))
    );
}

#[test]
fn both_sides_have_the_same_persistent_memory_and_their_own_options() {
    for experiment in PAPER.experiments {
        for variant in experiment.variants(&SHAPE).unwrap() {
            assert!(variant.needs_pm(["rocksdb-pm", "firn:pmdb"], PAPER.engine));
            for (name, options) in sides(&variant, &PAPER) {
                assert!(!options.contains_key("pm_bytes"), "{name}");
                if name == "rocksdb-pm" {
                    assert!(options.keys().eq(&["table_bytes"]), "{options:?}");
                } else {
                    assert_eq!(options["pmdb_table_bytes"], "2097152");
                    assert_eq!(options["background_workers"], "1");
                }
            }
        }
    }
}

/// A setup with the options of a side, in `directory`.
fn setup(variant: &Variant, options: &BTreeMap<&'static str, String>, directory: &Path) -> Setup {
    let mut setup = sample::report().setup;
    setup.directory = directory.join("database");
    let pm = setup.pm.as_mut().unwrap();
    (pm.bytes, pm.directory) = (variant.pm_bytes.unwrap(), directory.join("pm"));
    for made in [&setup.directory, &pm.directory] {
        std::fs::create_dir(made).unwrap();
    }
    setup.memory_bytes = variant.memory_bytes;
    let owned = |(name, value): (&&str, &String)| ((*name).to_owned(), value.clone());
    setup.extra = options.iter().map(owned).collect();
    variant.config.describe_run(&mut setup);
    setup
}

#[test]
fn the_engine_opens_with_every_option() {
    let small = Shape {
        scale: 5000,
        ..SHAPE
    };
    let engines = Firn::all();
    let mut opened = BTreeSet::new();
    for experiment in PAPER.experiments {
        for variant in experiment.variants(&small).unwrap() {
            let classic = variant.options_of("firn:classic", PAPER.engine);
            let classic = [("firn:classic".to_owned(), classic.into_iter().collect())];
            for (name, options) in sides(&variant, &PAPER).into_iter().chain(classic) {
                let name = unlabelled(&name).to_owned();
                let Some(engine) = engines.iter().find(|engine| engine.name() == name) else {
                    continue;
                };
                if opened.insert((name, options.clone())) {
                    let directory = tempfile::tempdir().unwrap();
                    let store = engine.open(&setup(&variant, &options, directory.path()));
                    let store = store.unwrap_or_else(|e| panic!("{}: {e}", experiment.id));
                    assert!(!store.counters().pm_bytes.is_empty());
                }
            }
        }
    }
    assert!(opened.len() > 12, "{opened:?}");
}

#[test]
fn a_parameter_is_compared_with_the_papers_value() {
    let changed = |id: &str, name: &str| -> Vec<[String; 2]> {
        let pair = |variant: &Variant| {
            let both = sides(variant, &PAPER);
            assert!(both[0].0.starts_with("firn:pmdb@"), "{}", both[0].0);
            [1, 0].map(|side: usize| both[side].1[name].clone())
        };
        variants(id).iter().map(pair).collect()
    };
    assert_eq!(
        changed("max_io-put", "pmdb_max_io"),
        [["10", "1"], ["20", "10"]]
    );
    assert_eq!(
        changed("invalid-put", "pmdb_invalid_share"),
        [["0.5", "0.3"]]
    );
    assert_eq!(
        changed("block-put", "block_bytes"),
        [["16384", "4096"], ["32768", "4096"]]
    );
    assert_eq!(
        changed("fig11a", "pm_read_ns"),
        [["200", "100"], ["500", "100"]]
    );
    assert_eq!(
        changed("fig11a", "pm_write_ns"),
        [["500", "200"], ["900", "200"]]
    );
    let both = sides(&variants("parts")[0], &PAPER);
    assert_eq!(both[0].1["pmdb_buffer_bytes"], "49283072");
    assert_eq!(both[1].1["pmdb_buffer_bytes"], "2097152");
    assert!(!both[1].1.contains_key("partitions_max"));
}

#[test]
fn figures_of_the_same_run_share_it() {
    for (one, other) in [
        ("fig7a", "fig7d"),
        ("fig7a", "fig8d"),
        ("fig7a", "space-pm-index"),
        ("fig9a", "fig9b"),
        ("fig11a", "fig11b"),
        ("pm-put", "pm-get"),
        ("max_io-put", "max_io-get"),
        ("invalid-put", "invalid-space"),
        ("block-put", "block-get"),
    ] {
        assert_eq!(run_names(one), run_names(other), "{one} {other}");
    }
    assert_eq!(run_names("space-ssd")[0], run_names("fig7a")[1]);
    let [five, ten, twenty] = &run_names("pm-put")[..] else {
        panic!("three sizes of persistent memory");
    };
    assert_eq!(ten, &run_names("fig7a")[1]);
    assert!(five != ten && ten != twenty && five != twenty);
    assert_ne!(run_names("max_io-put"), run_names("max_io-scan8"));
}

#[test]
fn mixes_are_shares_of_a_whole() {
    for variant in variants("fig10a").iter().chain(&variants("fig10b")) {
        assert_eq!(variant.against, Against::Baseline);
        let [mix] = &variant.config.workloads[..] else {
            panic!("{} is one workload on a loaded copy", variant.name);
        };
        assert!(mix.name().starts_with("mixed:"), "{}", mix.name());
        assert!(!mix.fills() && variant.config.operations >= 100);
    }
}

#[test]
fn figures_come_from_the_counters_of_a_medium() {
    let mut cell = sample::report().cells.remove(0);
    let figure = |cell: &crate::cell::Cell, figure: MediumFigure| {
        let figure = Figure::Medium(figure);
        figure.of(cell, figure.phase_of(cell)?)
    };
    for phase in &mut cell.phases {
        phase.engine.traffic[0].medium = "pm".to_owned();
        phase.engine.traffic[0].cause = "if_tree".to_owned();
        phase.engine.traffic[1].cause = "user_read".to_owned();
        phase.engine.traffic.truncate(2);
    }
    let load = &cell.phases[0];
    let written = load.engine.traffic[0].written_bytes as f64;
    assert_eq!(figure(&cell, MediumFigure::LoadPmBytes), Some(written));
    assert_eq!(figure(&cell, MediumFigure::LoadPmIndexBytes), Some(written));
    assert_eq!(
        figure(&cell, MediumFigure::LoadSsdBytes),
        load.os_written_bytes.map(|bytes| bytes as f64)
    );
    assert_eq!(
        Figure::LoadOperationsPerSecond.of(&cell, load),
        Some(load.operations_per_second)
    );
    let mb = |mb: u32| Some(f64::from(mb << 20));
    assert_eq!(figure(&cell, MediumFigure::SsdReads), Some(1.0 / 5000.0));
    assert_eq!(
        figure(&cell, MediumFigure::PmReadBytes),
        Some(4096.0 / 5000.0)
    );
    assert_eq!(figure(&cell, MediumFigure::PmLines), Some(18.0));
    assert_eq!(figure(&cell, MediumFigure::SsdSpace), mb(80));
    assert_eq!(figure(&cell, MediumFigure::PmSpace), mb(8));
    assert_eq!(figure(&cell, MediumFigure::PmIndexSpace), mb(3));
}

#[test]
fn an_engine_that_does_not_tell_media_apart_has_no_figure_of_one() {
    let mut cell = sample::report().cells.remove(0);
    let phase = &mut cell.phases[0];
    for traffic in &mut phase.engine.traffic {
        (traffic.medium, traffic.reads) = ("ssd+pm".to_owned(), None);
    }
    phase.engine.pm_bytes.clear();
    phase.engine.pm_search_lines = None;
    let phase = &cell.phases[0];
    let of = |figure: MediumFigure| Figure::Medium(figure).of(&cell, phase);
    for figure in [
        MediumFigure::LoadPmBytes,
        MediumFigure::LoadPmIndexBytes,
        MediumFigure::PmReadBytes,
        MediumFigure::PmLines,
        MediumFigure::PmSpace,
        MediumFigure::PmIndexSpace,
    ] {
        assert_eq!(of(figure), None, "{figure:?}");
    }
    // The blocks that missed its cache.
    assert_eq!(of(MediumFigure::SsdReads), Some(9.0 / 5000.0));
}

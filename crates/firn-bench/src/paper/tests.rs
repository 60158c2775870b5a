//! Every experiment has settings that can be run, and a row contains the results of the cells.

use super::*;
use crate::sample;
use std::collections::BTreeMap;

const SHAPE: Shape = Shape {
    scale: 1000,
    threads: 2,
    seconds_min: 0,
};

pub(super) fn experiment(paper: &'static Paper, id: &str) -> &'static Experiment {
    let mut experiments = paper.experiments.iter();
    experiments.find(|experiment| experiment.id == id).unwrap()
}

/// The options of both sides of `variant`, by side.
pub(super) fn sides(
    variant: &Variant,
    paper: &Paper,
) -> Vec<(String, BTreeMap<&'static str, String>)> {
    let sides = variant.sides([paper.baseline, paper.engine], paper.engine);
    let with_map = |(name, options): Side| (name, options.into_iter().collect());
    sides.into_iter().map(with_map).collect()
}

#[test]
fn every_variant_can_be_run() {
    for paper in Paper::ALL {
        assert_eq!(Paper::named(paper.name).unwrap().title, paper.title);
        for experiment in paper.experiments {
            let variants = experiment.variants(&SHAPE).unwrap();
            assert!(
                !variants.is_empty()
                    && !experiment.paper.is_empty()
                    && !experiment.differs.is_empty()
            );
            for variant in variants {
                variant
                    .config
                    .check()
                    .unwrap_or_else(|e| panic!("{} {}: {e}", experiment.id, variant.name));
                let buffers: u64 = variant
                    .options
                    .iter()
                    .filter(|(name, _)| *name == "write_buffer_bytes")
                    .map(|(_, v)| v.parse::<u64>().unwrap() * 3)
                    .sum();
                assert!(
                    buffers < variant.memory_bytes,
                    "{} {}",
                    experiment.id,
                    variant.name
                );
            }
            assert!(experiment.variants(&Shape { scale: 0, ..SHAPE }).is_err());
        }
    }
    let error = Paper::named("matrixkv").unwrap_err().to_string();
    assert!(error.contains("block, lab, tlsm, blade, pmdb"), "{error}");
}

#[test]
fn options_go_to_the_engines_that_they_are_for() {
    let variant = tlsm::PAPER.experiments[0]
        .variants(&SHAPE)
        .unwrap()
        .remove(0);
    assert_eq!(variant.place, Place::Ssd);
    let has = |engine: &str, name: &str| {
        let options = variant.options_of(engine, tlsm::PAPER.engine);
        options.iter().any(|(option, _)| *option == name)
    };
    for (name, who) in [
        ("write_buffer_bytes", [true, true, true]),
        ("level_base_bytes", [false, true, true]),
        ("tlsm_build", [false, false, true]),
    ] {
        assert_eq!(
            ["leveldb", "firn:classic", "firn:tlsm"].map(|e| has(e, name)),
            who
        );
    }
}

#[test]
fn the_pool_of_tlsm_has_room_for_its_data() {
    for experiment in tlsm::PAPER.experiments {
        for variant in experiment.variants(&Shape { scale: 4, ..SHAPE }).unwrap() {
            let own = |name: &str| {
                let mut options = variant.own.iter();
                options
                    .find(|(option, _)| *option == name)
                    .unwrap()
                    .1
                    .clone()
            };
            let pool: f64 = own("pm_bytes").parse().unwrap();
            let share = pool / variant.config.loaded_bytes() as f64;
            let name = (experiment.id, &variant.name);
            if own("tlsm_tiering") == "lru" {
                assert_eq!(pool, 2e9, "{name:?}");
            } else if variant.config.values.sizes.max() == 100 {
                assert!((1.7..1.9).contains(&share), "{name:?}: {share}");
            } else {
                assert!((1.36..1.65).contains(&share), "{name:?}: {share}");
            }
        }
    }
}

#[test]
fn a_figure_of_a_load_is_its_first_phase() {
    let mut cell = sample::report().cells.remove(0);
    let figure = |cell: &Cell, figure: Figure| figure.of(cell, figure.phase_of(cell)?);
    let [first, last] = [0, 1].map(|i| cell.phases[i].latency.mean_us);
    assert_eq!(figure(&cell, Figure::LoadMicros), Some(first));
    assert_eq!(figure(&cell, Figure::MicrosPerOperation), Some(last));
    assert_eq!(figure(&cell, Figure::StallSeconds), None, "no writes");
    let engine = &mut cell.phases[0].engine;
    engine.traffic[0].cause = "payload".to_owned();
    let tables = engine.traffic[0].written_bytes + engine.traffic[1].written_bytes;
    assert_eq!(figure(&cell, Figure::CompactionBytes), Some(tables as f64));
    let phase = &mut cell.phases[0];
    phase.engine.traffic.clear();
    let counted = phase.os_written_bytes.map(|bytes| bytes as f64);
    let writes = phase.latency_by_sort["read"].clone();
    phase
        .latency_by_sort
        .insert("write".to_owned(), writes.clone());
    assert_eq!(figure(&cell, Figure::CompactionBytes), counted);
    assert_eq!(figure(&cell, Figure::StallSeconds), writes.slow_seconds);
    assert!(writes.slow_seconds > Some(0.0));
    cell.phases.pop();
    assert_eq!(figure(&cell, Figure::LoadMicros), None, "it did not end");
}

#[test]
fn a_row_has_the_ratio_within_a_round() {
    let report = sample::report();
    let [first, second] = [0, 1].map(|i| report.engines[i].name.clone());
    let experiment = &block::PAPER.experiments[0];
    let variant = experiment.variants(&SHAPE).unwrap().remove(0);
    let whole: Vec<Cell> = report
        .cells
        .iter()
        .filter(|cell| cell.phases.len() == cell.config.workloads.len())
        .cloned()
        .collect();
    let row = experiment.row(&variant, &whole, &first);
    assert_eq!(row.variant, "40 M");
    assert!(row.baseline.is_some() && row.paper.contains("-28 %"));
    let of = |engine: &str| {
        whole
            .iter()
            .find(|cell| cell.engine == engine && cell.round == 0)
    };
    if let (Some(base), Some(other)) = (of(&first), of(&second)) {
        let seconds = |cell: &Cell| cell.phases.last().unwrap().settled_seconds();
        assert_eq!(row.ratio.unwrap().max, seconds(other) / seconds(base));
    }
    let none = experiment.row(&variant, &[], &first);
    assert!(none.baseline.is_none() && none.ours.is_none() && none.ratio.is_none());
}

#[test]
fn bytes_written_are_the_kernels() {
    let cell = sample::report().cells.remove(0);
    let mut phase = cell.phases[0].clone();
    phase.os_written_bytes = phase.written_bytes().map(|bytes| bytes + 1);
    assert_eq!(
        Figure::WrittenBytes.of(&cell, &phase),
        phase.written_bytes().map(|bytes| (bytes + 1) as f64)
    );
    phase.os_written_bytes = None;
    assert_eq!(Figure::WrittenBytes.of(&cell, &phase), None);
}

#[test]
fn chunks_are_compared_by_what_level_0_took() {
    let cell = sample::report().cells.remove(0);
    let mut phase = cell.phases[0].clone();
    assert_eq!(Figure::Level0Seconds.of(&cell, &phase), Some(1.25));
    assert_eq!(Figure::LogBytes.of(&cell, &phase), Some(f64::from(3 << 20)));
    (phase.engine.level0_seconds, phase.engine.log_bytes) = (None, None);
    assert!(
        Figure::Level0Seconds.of(&cell, &phase).is_none()
            && Figure::LogBytes.of(&cell, &phase).is_none()
    );
}

#[test]
fn tab3_is_by_one_client() {
    let of = |id: &str| {
        lab::PAPER
            .experiments
            .iter()
            .find(|experiment| experiment.id == id)
            .unwrap()
    };
    let threads = |id: &str| {
        of(id)
            .variants(&SHAPE)
            .unwrap()
            .iter()
            .map(|v| v.config.threads)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (threads("tab3"), threads("fig11")),
        (vec![1; 4], vec![2; 4])
    );
}

#[test]
fn what_runs_the_same_has_one_name() {
    let names = |paper: &Paper, id: &str, scale: u64| -> Vec<String> {
        let experiment = paper
            .experiments
            .iter()
            .find(|experiment| experiment.id == id)
            .unwrap();
        let variants = experiment.variants(&Shape { scale, ..SHAPE }).unwrap();
        variants
            .iter()
            .map(|variant| variant.run_name().unwrap())
            .collect()
    };
    let (block, lab) = (
        |id| names(&block::PAPER, id, 20),
        |id| names(&lab::PAPER, id, 20),
    );
    let tlsm = |id| names(&tlsm::PAPER, id, 4);
    for (one, other) in [("fig5a", "fig5b"), ("fig5g", "fig5h"), ("fig6a", "fig6b")] {
        assert_eq!(tlsm(one), tlsm(other));
    }
    assert_eq!(tlsm("fig7b"), tlsm("fig5c")[6..]);
    assert_eq!(tlsm("fig7c")[2], tlsm("fig5d")[8]);
    assert_eq!(tlsm("fig5a")[8], tlsm("fig5c")[3]);
    assert_ne!(
        tlsm("tab1")[2],
        tlsm("fig5c")[3],
        "the baseline's place counts"
    );
    assert_eq!(block("fig5"), block("fig7"));
    assert_eq!(
        block("fig17")[2],
        block("fig5")[0],
        "16 MB are the paper's size"
    );
    for same in [
        &lab("tab2")[0],
        &lab("fig17")[2],
        &lab("fig18-leaves")[1],
        &lab("fig18-hot")[4],
    ] {
        assert_eq!(same, &lab("fig12")[0]);
    }
    assert_eq!(lab("fig10-time"), lab("fig10-log"));
    let mut all = [
        lab("fig10-log"),
        lab("fig11"),
        lab("tab3"),
        lab("fig12"),
        names(&lab::PAPER, "fig12", 10),
        lab("fig15-theta")[..3].to_vec(),
    ]
    .concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

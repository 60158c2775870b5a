//! The rows of the PM-Blade paper: their sides, their sizes and their figures.

use super::PAPER;
use crate::paper::figure::{Call, Figure, TableJob};
use crate::paper::tests::{experiment, sides};
use crate::paper::{Against, Shape, TableRun, Variant};
use crate::sample;

const SHAPE: Shape = Shape {
    scale: 20,
    threads: 2,
    seconds_min: 0,
};

fn variants(id: &str) -> Vec<Variant> {
    experiment(&PAPER, id).variants(&SHAPE).unwrap()
}

#[test]
fn every_figure_of_the_evaluation_has_a_row() {
    let experiments = PAPER.experiments.iter().map(|experiment| experiment.id);
    let ids: Vec<&str> = experiments
        .chain(PAPER.tables.iter().map(|table| table.id))
        .collect();
    for figure in [
        "tab1", "fig2a", "tab3", "fig6a", "fig6b", "tab4", "tab5", "fig7a", "fig7b", "fig8a",
        "fig8b", "fig9a", "fig9b", "fig9c", "fig9d", "fig10", "fig11a", "fig11b", "fig11c",
        "fig11d", "fig11e", "fig12",
    ] {
        assert!(ids.iter().any(|id| id.starts_with(figure)), "{figure}");
    }
}

#[test]
fn the_design_is_compared_with_itself_under_a_label() {
    let both = sides(&variants("tab5")[0], &PAPER);
    let [ssd, pm] = &both[..] else {
        panic!("{both:?}");
    };
    assert_eq!((&*ssd.0, &*pm.0), ("firn:blade@ssd", "firn:blade"));
    assert_eq!(
        (&*ssd.1["pm_bytes"], &*pm.1["pm_bytes"]),
        ("0", "200000000")
    );
    assert_eq!(ssd.1["level0_rest"], pm.1["level0_rest"]);
    assert_eq!(sides(&variants("tab4")[0], &PAPER).len(), 1);
    let both = sides(&variants("fig12")[0], &PAPER);
    assert_eq!(both[0].0, "rocksdb");
    assert!(both[0].1.keys().eq(&["write_buffer_bytes"]), "{both:?}");
    // Another engine in the place of the design has none of its options.
    let other = variants("tab5")[0].sides(["rocksdb", "firn:classic"], PAPER.engine);
    assert!(other.iter().all(|(_, options)| options.len() == 1));
    assert_eq!(other[0].0, "firn:classic@ssd");
}

#[test]
fn executors_have_four_tasks_on_two_cores() {
    for variant in variants("fig9d") {
        for (name, options) in sides(&variant, &PAPER) {
            let [workers, depth] = ["background_workers", "compaction_io_depth"]
                .map(|name| options[name].parse::<u32>().unwrap());
            let of_worker = match &*options["compaction_concurrency"] {
                "threads" => 1,
                _ => depth / workers,
            };
            assert_eq!(workers * of_worker, 4, "{name} of {}", variant.name);
        }
    }
}

#[test]
fn a_major_compaction_moves_what_fitted_into_persistent_memory() {
    for variant in variants("tab3-time").into_iter().chain(variants("fig9a")) {
        let config = &variant.config;
        assert_eq!(config.operations, config.records);
        assert_eq!(config.reopened_with.len(), 2);
        let written = config.loaded_bytes() + 30 * config.records;
        for (_, options) in sides(&variant, &PAPER) {
            let pool: u64 = options["pm_bytes"].parse().unwrap();
            assert!(pool * 95 / 100 > written, "{}", variant.name);
        }
    }
}

#[test]
fn the_ablation_adds_one_part_after_the_other() {
    let variants = variants("fig10-read");
    let differences: Vec<usize> = variants
        .iter()
        .map(|variant| {
            let both = sides(variant, &PAPER);
            let (other, ours) = (&both[0].1, &both[1].1);
            ours.iter()
                .filter(|(k, v)| other.get(*k) != Some(*v))
                .count()
        })
        .collect();
    // Persistent memory and the merges that an SSD needs; merges and models; groups; coroutines.
    assert_eq!(differences, [2, 2, 3, 4]);
    let same = |id: &str| -> Vec<String> {
        let variants = self::variants(id);
        variants.iter().map(|v| v.run_name().unwrap()).collect()
    };
    assert_eq!(same("fig10-read"), same("fig10-rate"));
    assert_eq!(same("fig9a"), same("fig9d"));
    assert_eq!(same("fig8a-flush"), same("fig8a-ssd"));
    let mut majors = same("fig9a");
    majors.dedup();
    assert_eq!(majors.len(), 15);
}

#[test]
fn figures_come_from_the_engines_counters() {
    let mut cell = sample::report().cells.remove(0);
    let mut phase = cell.phases[0].clone();
    phase.cpu_seconds = phase.settled_seconds() / 2.0;
    let of = |figure: Figure| figure.of(&cell, &phase);
    assert_eq!(
        of(Figure::JobBytes(TableJob::Flush)),
        Some(f64::from(7 << 20))
    );
    assert_eq!(of(Figure::JobBytes(TableJob::Internal)), None);
    assert_eq!(of(Figure::PmHitShare), Some(0.8));
    assert_eq!(of(Figure::Seconds), Some(20.5));
    assert_eq!(of(Figure::CpuBusy(2)), Some(0.25));
    assert_eq!(of(Figure::CpuIdle(1)), Some(0.5));
    assert_eq!(of(Figure::DeviceBusy), Some(0.5));
    assert_eq!(of(Figure::IoMicros), Some(150.0));
    let mean = phase.latency_by_sort["read"].mean_us;
    assert_eq!(of(Figure::CallMicros(Call::Read)), Some(mean));
    assert_eq!(of(Figure::CallP999(Call::Scan)), None);
    assert_eq!(of(Figure::SecondsPerMajorGb), None);
    phase.engine.pm_table_bytes = Some(2 << 20);
    cell.phases = vec![cell.phases[0].clone(), phase.clone()];
    assert_eq!(
        Figure::FreedBytes.of(&cell, &phase),
        Some(f64::from(4 << 20))
    );
    assert_eq!(Figure::FreedShare.of(&cell, &phase), Some(2.0 / 3.0));
    assert_eq!(Figure::ReadMicrosRise.of(&cell, &phase), Some(1.0));
    cell.phases.remove(0);
    assert_eq!(Figure::FreedBytes.of(&cell, &phase), None);
}

#[test]
fn nothing_beside_a_row_is_said() {
    let (variant, cells) = (variants("tab4").remove(0), sample::report().cells);
    assert_eq!(variant.against, Against::Nothing);
    let engine = cells[0].engine.clone();
    let row = experiment(&PAPER, "tab4").row(&variant, &cells[..1], &engine);
    assert!(row.is_alone && row.baseline_cpu_us.is_none() && row.our_cpu_us.is_some());
}

#[test]
fn tables_are_measured_without_an_engine() {
    let directory = tempfile::tempdir().unwrap();
    let run = TableRun {
        scale: 100_000,
        rounds: 2,
        directory: directory.path().to_owned(),
        latency: None,
    };
    let counts: Vec<usize> = PAPER
        .tables
        .iter()
        .map(|table| {
            let rows = table.rows(&run).unwrap();
            for row in &rows {
                let (ours, ratio) = (row.ours.unwrap(), row.ratio.unwrap());
                assert!(ours.min > 0.0 && ratio.min > 0.0, "{row:?}");
            }
            rows.len()
        })
        .collect();
    assert_eq!(counts, [12, 7, 15, 15]);
}

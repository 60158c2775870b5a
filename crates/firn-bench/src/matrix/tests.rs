//! The output of a matrix matches its schema; and the refusals before it starts.

use super::{Engines, Matrix, Setup};
use crate::engine::PmBudget;
use crate::firn::Firn;
use crate::retail::Retail;
use crate::sample;
use firn_base::ErrorKind;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Fields whose keys are names of engines, options or kinds of operations, which are not part of
/// the schema.
const MAPS: [&str; 10] = [
    "settings",
    "extra",
    "latency_by_sort",
    "grains",
    "job_bytes",
    "hits",
    "pm_bytes",
    "reopened_with[]",
    "geomean_ratio",
    "geomean_spread",
];
const SPREAD: [&str; 3] = ["max", "median", "min"];

/// Adds the fields of `value`, each with the path of its object. A spread counts as a value.
fn collect(value: &Value, path: &str, fields: &mut BTreeSet<(String, String)>) {
    match value {
        // In any order, because another crate of the workspace may make serde_json preserve the
        // order of fields.
        Value::Object(object)
            if !(object.len() == SPREAD.len()
                && SPREAD.iter().all(|key| object.contains_key(*key))) =>
        {
            let is_map = MAPS
                .iter()
                .any(|map| path == *map || path.ends_with(&format!(".{map}")));
            for (key, value) in object {
                let name = if is_map { "*" } else { key };
                if !is_map {
                    fields.insert((
                        if path.is_empty() { "." } else { path }.to_owned(),
                        key.clone(),
                    ));
                }
                collect(
                    value,
                    format!("{path}.{name}").trim_start_matches('.'),
                    fields,
                );
            }
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| collect(value, &format!("{path}[]"), fields)),
        _ => {}
    }
}

/// True if a section of `document` describes objects at `path` and has a row for `field`.
fn says(document: &str, path: &str, field: &str) -> bool {
    let section = document.split("\n## ").find(|section| {
        let heading = section.lines().next().unwrap_or("");
        heading.contains(&format!("`{path}`"))
    });
    section.is_some_and(|section| section.contains(&format!("\n| `{field}` | ")))
}

#[test]
fn the_schema_names_every_field_and_its_version() {
    let document = include_str!("../../../../docs/benchmarks/schema.md");
    let mut fields = BTreeSet::new();
    let mut report = sample::report();
    report.config.retail = Some(Retail { orders: 1, seed: 1 });
    report.cells[0].phases[0].harness.kept_bytes = Some(1);
    report.config.reopened_with = vec![[("row_cache".to_owned(), "false".to_owned())].into()];
    collect(&serde_json::to_value(report).unwrap(), "", &mut fields);
    let missing: Vec<_> = fields
        .iter()
        .filter(|(path, field)| !says(document, path, field))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/benchmarks/schema.md does not say what these are: {missing:?}"
    );
    assert!(
        document.contains(&format!("`{}`", super::SCHEMA)),
        "docs/benchmarks/schema.md is of another version"
    );
    for (path, field) in [
        (".", "cells"),
        ("cells[].phases[].engine.traffic[]", "cause"),
        ("config.values", "sizes"),
        ("config.retail", "orders"),
    ] {
        assert!(
            fields.contains(&(path.to_owned(), field.to_owned())),
            "the sample has no {path} {field}"
        );
    }
    for map in ["settings", "geomean_ratio"] {
        assert!(
            fields.iter().all(|(path, _)| !path.ends_with(map)),
            "{map} has no fields of its own"
        );
    }
}

/// A run that would not fit is refused before anything is written, also for persistent memory.
#[test]
fn what_would_not_fit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let report = sample::report();
    let matrix = |bytes: u64, extra: &[(&str, &str)]| {
        let of = |(name, value): &(&str, &str)| {
            (
                "firn:lab".to_owned(),
                (*name).to_owned(),
                (*value).to_owned(),
            )
        };
        Matrix {
            engines: vec!["firn:lab".to_owned()],
            rounds: 1,
            config: report.config.clone(),
            setup: Setup {
                memory_bytes: 64 << 20,
                pm: Some(PmBudget {
                    directory: directory.path().to_owned(),
                    bytes,
                }),
                ..report.setup.clone()
            },
            extra: extra.iter().map(of).collect(),
            on_pm: Vec::new(),
            scratch: directory.path().to_owned(),
            cells: directory.path().join("cells"),
            child: Vec::new(),
        }
    };
    assert!(matrix(1 << 20, &[]).check_room().is_ok());
    for wrong in [
        matrix(1 << 60, &[]),
        matrix(1 << 20, &[("pm_bytes", "1152921504606846976")]),
    ] {
        let error = wrong.check_room().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("--pm-dir"), "{error}");
    }
    let fits = matrix(1 << 60, &[("pm_bytes", "1048576")]).check_room();
    assert!(fits.is_ok(), "what it alone is told counts: {fits:?}");
    // The advice is to change an option that the command has.
    let retail = Retail { orders: 8, seed: 1 }.config(1, 1, 0, report.config.durability);
    assert_eq!(retail.checker_bytes(), 64);
    for (config, advice) in [
        (retail, "fewer --orders"),
        (report.config.clone(), "fewer --records"),
    ] {
        let mut wrong = matrix(1 << 20, &[]);
        (wrong.config, wrong.setup.memory_bytes) = (config, 1 << 60);
        let error = wrong.check_room().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().ends_with(advice), "{error}");
    }
}

/// Files on persistent memory are apart from pools there, and need a directory.
#[test]
fn files_may_be_on_persistent_memory() {
    let report = sample::report();
    let mut matrix = Matrix {
        engines: vec!["x".to_owned(), "y".to_owned()],
        rounds: 1,
        config: report.config.clone(),
        setup: report.setup.clone(),
        extra: Vec::new(),
        on_pm: vec!["x".to_owned()],
        scratch: "/scratch".into(),
        cells: "/cells".into(),
        child: Vec::new(),
    };
    let directory = matrix.home("x").join("x-0");
    assert_eq!(directory, Path::new("/dev/shm/files/x-0"));
    let pool = matrix.setup_of("x", directory.clone()).pm.unwrap();
    assert_ne!(pool.directory, directory);
    assert_eq!(matrix.home("y"), Path::new("/scratch"));
    assert_eq!(matrix.pm_bytes_needed(1), matrix.config.bytes_needed());
    matrix.setup.pm = None;
    let engines = Engines::new(Firn::all());
    matrix.engines = vec!["firn:classic".to_owned()];
    matrix.on_pm = matrix.engines.clone();
    let error = matrix.check(&engines).unwrap_err();
    assert!(error.to_string().contains("--pm-dir"), "{error}");
}

//! Tests of the policies, the traces and the options, on small traces.

use crate::candidates::{CANDIDATES, Room};
use crate::options::Options;
use crate::oracle::{OPTIMUM, ORACLES};
use crate::policies::{Lru, Policy};
use crate::replay;
use crate::sketch::Sketch;
use crate::trace::{Scale, Trace, plans, recorded};
use firn_base::seed::Seed;
use std::collections::VecDeque;

const SCALE: Scale = Scale {
    keys: 8_000,
    gets: 80_000,
};

fn made(name: &str) -> Trace {
    let plans = plans();
    let plan = plans.iter().find(|plan| plan.name == name);
    plan.expect("a trace's name").make(SCALE)
}

fn room(trace: &Trace) -> Room {
    Room {
        bytes: trace.capacity,
        entries: trace.entries(),
    }
}

fn misses(trace: &Trace, name: &str) -> f64 {
    let candidate = CANDIDATES.iter().find(|candidate| candidate.name == name);
    let mut policy = candidate.expect("a candidate's name").policy(room(trace));
    replay(trace, &mut *policy)
}

#[test]
fn no_cache_holds_more_than_its_capacity() {
    for name in ["zipf 0.9 of mixed sizes", "zipf 0.99 beside scans", "loop"] {
        let trace = made(name);
        for candidate in CANDIDATES {
            // Libraries count off their own bytes, some of them late and at a cost.
            let checked_one_in = if candidate.is_library() { 1000 } else { 1 };
            let mut policy = candidate.policy(room(&trace));
            let mut most = 0;
            for (number, get) in trace.gets.iter().take(40_000).enumerate() {
                policy.get(get.key, get.bytes);
                if number % checked_one_in == 0 {
                    most = most.max(policy.bytes());
                }
            }
            let (capacity, name) = (trace.capacity, candidate.name);
            assert!(most <= capacity, "{name}: {most} of {capacity}");
            assert!(most >= capacity / 2, "{name}: {most} of {capacity}");
        }
    }
}

#[test]
fn lru_does_what_a_list_does() {
    const CAPACITY: u64 = 2_000;
    let (mut lru, mut list) = (Lru::new(CAPACITY), VecDeque::<(u64, u32)>::new());
    let mut seed = Seed::new(1);
    for _ in 0..50_000 {
        let key = seed.below(100);
        let bytes = 1 + (key * 37 % 200) as u32;
        let found = list.iter().position(|(held, _)| *held == key);
        assert_eq!(lru.get(key, bytes), found.is_some());
        found.map(|at| list.remove(at));
        list.push_front((key, bytes));
        while list.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>() > CAPACITY {
            list.pop_back();
        }
    }
    let held: u64 = list.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    assert_eq!(lru.bytes(), held);
}

#[test]
fn no_candidate_beats_the_optimum() {
    const SAMPLING: f64 = 0.01;
    for name in [
        "zipf 0.7",
        "zipf 0.99",
        "zipf 0.9 of mixed sizes",
        "uniform",
    ] {
        let trace = made(name);
        let best = OPTIMUM.misses(&trace).unwrap();
        for candidate in CANDIDATES {
            let misses = misses(&trace, candidate.name);
            assert!(misses >= best - SAMPLING, "{}: {misses}", candidate.name);
            assert!(misses < 1.0, "{} never hits in {name}", candidate.name);
        }
    }
}

#[test]
fn no_oracle_beats_the_optimum_and_one_of_equal_sizes_is_it() {
    let equal = made("zipf 0.99");
    let mixed = made("zipf 0.9 of mixed sizes");
    let misses = |trace| ORACLES.map(|oracle| oracle.misses(trace).unwrap());
    let [optimum, with_overhead, most_frequent] = misses(&equal);
    assert_eq!(most_frequent, optimum);
    assert!(with_overhead > optimum);
    let [optimum, with_overhead, most_frequent] = misses(&mixed);
    assert!(with_overhead > optimum && most_frequent > 1.5 * optimum);
}

#[test]
fn a_scan_does_not_wash_out_what_is_used_often() {
    let (before, behind) = (made("zipf 0.99"), made("zipf 0.99 behind a scan"));
    for name in ["S3-FIFO", "W-TinyLFU"] {
        let (before, behind) = (misses(&before, name), misses(&behind, name));
        assert!(behind < before * 1.1, "{name}: {before}, then {behind}");
    }
}

#[test]
fn a_sketch_never_counts_too_few_and_ages() {
    const KEYS: u64 = 100;
    let mut sketch = Sketch::new(KEYS as usize);
    let notes = (0..KEYS).flat_map(|key| (0..key % 16).map(move |_| key));
    let (aged, kept) = (10 * KEYS, notes.clone().count() as u64);
    notes.for_each(|key| sketch.note(key));
    for key in 0..KEYS {
        assert!(sketch.count(key) >= key % 16, "{key}");
    }
    assert!(sketch.count(15) == 15 && kept < aged);
    (kept..aged).for_each(|_| sketch.note(KEYS));
    assert!((7..15).contains(&sketch.count(15)));
}

#[test]
fn lru_gains_nothing_from_a_loop() {
    let trace = made("loop");
    assert_eq!(misses(&trace, "LRU"), 1.0);
    let best = OPTIMUM.misses(&trace).unwrap();
    assert!((best - 1.0 / 3.0).abs() < 0.01, "{best}");
}

#[test]
fn a_key_has_one_size_and_some_gets_count() {
    for plan in plans() {
        let trace = plan.make(SCALE);
        let mut sizes = std::collections::HashMap::new();
        for get in &trace.gets {
            assert_eq!(*sizes.entry(get.key).or_insert(get.bytes), get.bytes);
        }
        assert!(!trace.counted.is_empty() && trace.counted.end <= trace.gets.len());
        assert!(trace.capacity > 0 && trace.entries() > 0, "{}", plan.name);
    }
}

#[test]
fn a_recorded_trace_is_read_or_its_line_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gets");
    std::fs::write(&path, "ff 100\n1 50\nff 70\n1 50\n").unwrap();
    let trace = recorded(&path).unwrap();
    let gets: Vec<(u64, u32)> = trace.gets.iter().map(|get| (get.key, get.bytes)).collect();
    assert_eq!(gets, [(255, 100), (1, 50), (255, 100), (1, 50)]);
    assert_eq!((trace.capacity, trace.counted.clone()), (15, 2..4));
    // One of 50 bytes: three tenths of a hit in two gets.
    let best = OPTIMUM.misses(&trace).unwrap();
    assert!((best - 0.85).abs() < 1e-9, "{best}");
    std::fs::write(&path, "ff 100\nff\n").unwrap();
    let error = recorded(&path).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    std::fs::write(&path, "").unwrap();
    assert!(recorded(&path).is_err());
}

#[test]
fn options_are_read_or_named() {
    let parse = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    };
    let options = parse("--keys 5_000 --only lru --of ZIPF --json").unwrap();
    assert_eq!(
        (options.keys, options.gets, options.json),
        (5_000, 6_000_000, true)
    );
    assert!(options.wants_candidate("LRU") && !options.wants_candidate("ARC"));
    assert!(options.wants_trace("zipf 0.7") && !options.wants_trace("loop"));
    for (line, named) in [
        ("--keys 3", "--keys"),
        ("--gets", "--gets"),
        ("--gets many", "whole number"),
        ("--fast", "--fast"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

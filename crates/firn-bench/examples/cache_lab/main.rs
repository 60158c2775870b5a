//! A laboratory of cache policies: replays traces of gets through candidates and compares their
//! misses per get with each other and with the optimum; then compares the libraries' memory and
//! time. `cargo run --release -p firn-bench --example cache_lab -- --help` describes its options.
//!
//! `trace.rs` says what the traces are and which of their gets count, `policies.rs` and
//! `libraries.rs` what the candidates are, `oracle.rs` what no fixed choice of entries can do
//! better, and `costs.rs` how memory and time are measured.
#![forbid(unsafe_code)]

mod candidates;
mod costs;
mod libraries;
mod options;
mod oracle;
mod policies;
mod queues;
mod report;
mod sketch;
#[cfg(test)]
mod tests;
mod trace;

use candidates::{CANDIDATES, Candidate, Room};
use firn_base::{Error, Result};
use options::Options;
use oracle::{ORACLES, Oracle};
use policies::Policy;
use report::{Misses, OracleMisses, Report, TraceReport};
use std::io::Write;
use trace::{Scale, Trace};

const SCHEMA: &str = "firn-cache-lab/2";
/// The name by which `--of` selects the recorded trace.
const RECORDED: &str = "recorded";
/// The name by which `--of` selects the costs.
const COSTS: &str = "costs";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &arguments[..] {
        [hidden, name, value_bytes] if hidden == costs::HIDDEN => child(name, value_bytes),
        _ => parent(&arguments),
    };
    if let Err(error) = result {
        eprintln!("cache_lab: {error}");
        std::process::exit(2);
    }
}

fn parent(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    if options.help {
        return print(options::HELP);
    }
    let report = run(&options)?;
    if options.json {
        return print(&(json(&report)? + "\n"));
    }
    print(&report.text())
}

/// Measures the costs of one candidate and prints them.
fn child(name: &str, value_bytes: &str) -> Result<()> {
    let candidate = CANDIDATES.iter().find(|candidate| candidate.name == name);
    let wrong = || Error::invalid("expected a candidate's name and the bytes of a value");
    let candidate = candidate.ok_or_else(wrong)?;
    let value_bytes = value_bytes.parse().map_err(|_| wrong())?;
    print(&json(&costs::measure_here(candidate, value_bytes)?)?)
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value);
    text.map_err(|e| Error::invalid(format!("cannot print as JSON: {e}")))
}

fn print(text: &str) -> Result<()> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|e| Error::from_io("write to", "standard output".as_ref(), e))
}

/// Replays and measures all that `options` select.
fn run(options: &Options) -> Result<Report> {
    let wanted = |candidate: &&Candidate| options.wants_candidate(candidate.name);
    let candidates: Vec<Candidate> = CANDIDATES.iter().filter(wanted).copied().collect();
    if candidates.is_empty() {
        return Err(nothing("--only", CANDIDATES.map(|c| c.name).to_vec()));
    }
    let scale = Scale {
        keys: options.keys,
        gets: options.gets,
    };
    let (plans, mut traces) = (trace::plans(), Vec::new());
    let recorded = options.recorded.as_deref();
    let names = plans.iter().map(|plan| plan.name).chain([COSTS]);
    let names: Vec<&str> = names.chain(recorded.map(|_| RECORDED)).collect();
    if !names.iter().any(|name| options.wants_trace(name)) {
        return Err(nothing("--of", names));
    }
    // First, so that a wrong file is reported at once.
    if let Some(path) = recorded.filter(|_| options.wants_trace(RECORDED)) {
        let trace = trace::recorded(path)?;
        traces.push(replay_all(RECORDED, &trace, &candidates));
    }
    for plan in plans.iter().filter(|plan| options.wants_trace(plan.name)) {
        traces.push(replay_all(plan.name, &plan.make(scale), &candidates));
    }
    let mut costs = Vec::new();
    let libraries = candidates.iter().filter(|candidate| candidate.is_library());
    for candidate in libraries.filter(|_| options.wants_trace(COSTS)) {
        eprintln!("cache_lab: costs of {}", candidate.name);
        for value_bytes in costs::VALUE_BYTES {
            costs.push(costs::measure(candidate, value_bytes)?);
        }
    }
    Ok(Report {
        schema: SCHEMA,
        keys: options.keys,
        traces,
        costs,
    })
}

fn nothing(option: &str, names: Vec<&str>) -> Error {
    let names = names.join(", ");
    Error::invalid(format!(
        "{option} selects nothing: expected a part of one of {names}"
    ))
}

fn replay_all(name: &str, trace: &Trace, candidates: &[Candidate]) -> TraceReport {
    eprintln!("cache_lab: trace {name}");
    let room = Room {
        bytes: trace.capacity,
        entries: trace.entries(),
    };
    let misses = |candidate: &Candidate| Misses {
        candidate: candidate.name,
        misses_per_get: replay(trace, &mut *candidate.policy(room)),
    };
    let oracle = |oracle: Oracle| OracleMisses {
        oracle: oracle.name,
        misses_per_get: oracle.misses(trace),
    };
    TraceReport {
        trace: name.to_owned(),
        capacity_bytes: trace.capacity,
        gets: trace.gets.len(),
        counted_gets: trace.counted.len(),
        candidates: candidates.iter().map(misses).collect(),
        oracles: ORACLES.map(oracle).to_vec(),
    }
}

/// The misses per counted get of `policy`.
fn replay(trace: &Trace, policy: &mut dyn Policy) -> f64 {
    let mut misses = 0u64;
    let before_end = trace.gets.iter().take(trace.counted.end);
    for (number, get) in before_end.enumerate() {
        let is_miss = !policy.get(get.key, get.bytes);
        misses += u64::from(is_miss && trace.counted.contains(&number));
    }
    misses as f64 / trace.counted.len().max(1) as f64
}

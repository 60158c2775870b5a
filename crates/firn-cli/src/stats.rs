//! `firn stats`: the state of a database on one screen, and all counters of the engine as tables,
//! as JSON or for Prometheus.

mod screen;

use crate::byte_size::ByteSize;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Output, print, print_json, table};
use clap::Args;
use firndb::{Db, Options};
use screen::Summary;
use serde::Serialize;
use serde_json::Value as Json;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// Directory of the database; another process may have it open
    pub(crate) db: PathBuf,
    /// Print all counters of the engine
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    all: bool,
    /// Print all of them as JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print in Prometheus text format
    #[arg(long)]
    prometheus: bool,
}

/// The facts of the screen, then those of the engine.
#[derive(Serialize)]
struct Everything<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(flatten)]
    stats: &'a firndb::Stats,
}

impl Stats {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let memory_limit = options.memory_limit_bytes;
        let db = Db::open_read_only(&self.db, options)?;
        let stats = db.stats();
        if self.prometheus {
            let mut output = Output::new();
            output.bytes(stats.to_prometheus().as_bytes())?;
            output.finish()?;
            return Ok(Exit::Done);
        }
        let summary = Summary::of(&self.db, &db, &stats, memory_limit)?;
        let everything = Everything {
            summary: &summary,
            stats: &stats,
        };
        if self.json {
            print_json(&everything)?;
        } else if self.all {
            print_report(&everything)?;
        } else {
            let screen = summary.screen(&self.db, &stats);
            print(screen.map_err(|e| Failure::invalid(format!("cannot print: {e}")))?)?;
        }
        Ok(Exit::Done)
    }
}

/// Prints any report: its single values as one table, each list of similar records as a separate
/// table.
pub(crate) fn print_report(report: &impl Serialize) -> Outcome<()> {
    let json =
        serde_json::to_value(report).map_err(|e| Failure::invalid(format!("cannot print: {e}")))?;
    let (mut singles, mut lists) = (Vec::new(), Vec::new());
    sort_out("", &json, &mut singles, &mut lists);
    print(table(&["what", "value"], singles, true))?;
    for (name, rows) in lists {
        print(format_args!("\n{name}\n{}", list_table(rows)))?;
    }
    Ok(())
}

type Lists<'a> = Vec<(String, &'a [Json])>;

fn sort_out<'a>(path: &str, json: &'a Json, singles: &mut Vec<Vec<String>>, lists: &mut Lists<'a>) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    match json {
        Json::Object(fields) => {
            for (name, value) in fields {
                sort_out(&below(name), value, singles, lists);
            }
        }
        Json::Array(items)
            if !items.is_empty() && items.iter().all(|item| pair(item).is_some()) =>
        {
            for (name, value) in items.iter().filter_map(pair) {
                sort_out(&below(name), value, singles, lists);
            }
        }
        Json::Array(items) if items.iter().any(Json::is_object) => {
            lists.push((path.to_owned(), items))
        }
        single => singles.push(vec![path.to_owned(), cell(path, single)]),
    }
}

/// A name and its value.
fn pair(json: &Json) -> Option<(&str, &Json)> {
    match json.as_array()?.as_slice() {
        [Json::String(name), value] => Some((name, value)),
        _ => None,
    }
}

fn list_table(rows: &[Json]) -> comfy_table::Table {
    let fields = rows.first().and_then(Json::as_object);
    let names: Vec<&str> = fields.map_or(Vec::new(), |fields| {
        fields.keys().map(String::as_str).collect()
    });
    let line = |row: &Json| {
        names
            .iter()
            .map(|name| cell(name, row.get(*name).unwrap_or(&Json::Null)))
            .collect()
    };
    table(&names, rows.iter().map(line).collect(), true)
}

/// A value in human-readable form: bytes with their unit, a list on one line.
fn cell(name: &str, value: &Json) -> String {
    match value {
        Json::Number(number) if name.ends_with("bytes") => number
            .as_u64()
            .map_or_else(|| number.to_string(), |bytes| ByteSize(bytes).to_string()),
        Json::Number(number) if number.is_f64() => number
            .as_f64()
            .map_or_else(String::new, |n| format!("{n:.3}")),
        Json::String(text) => text.clone(),
        Json::Null => "-".to_owned(),
        Json::Array(items) if items.is_empty() => "-".to_owned(),
        Json::Array(items) => items
            .iter()
            .map(|item| cell(name, item))
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_sorted_out() {
        let levels = json!([{ "level": 0 }, { "level": 1 }]);
        let report =
            json!({ "a": { "b_bytes": 2048, "c": [1, 2] }, "d": [["e", 1.5]], "levels": levels });
        let (mut singles, mut lists) = (Vec::new(), Vec::new());
        sort_out("", &report, &mut singles, &mut lists);
        assert_eq!(
            singles,
            [["a.b_bytes", "2.00 KiB"], ["a.c", "1, 2"], ["d.e", "1.500"]]
        );
        assert_eq!(
            (lists.len(), lists[0].0.as_str(), lists[0].1.len()),
            (1, "levels", 2)
        );
        assert!(list_table(lists[0].1).to_string().contains("level"));
    }
}

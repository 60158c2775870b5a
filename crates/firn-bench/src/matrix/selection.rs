//! Parts of a report: some of its engines, or its summary alone.

use super::MatrixReport;
use crate::summary::Summary;
use firn_base::{Error, Result};
use serde_json::Value;

/// Significant digits of the figures in a brief report.
const DIGITS: i32 = 5;

impl MatrixReport {
    /// This report with only the engines `names`, in this order; the others are compared with the
    /// first of them.
    ///
    /// # Errors
    /// If an engine did not run, or if the report has no rounds to compare anew.
    pub fn of_engines(mut self, names: &[String]) -> Result<Self> {
        let mut engines = Vec::new();
        for name in names {
            let engine = self.engines.iter().find(|engine| engine.name == *name);
            let engine = engine.ok_or_else(|| {
                Error::invalid(format!("{name} is not among the engines of the report"))
            })?;
            engines.push(engine.clone());
        }
        let place = |engine: &String| names.iter().position(|name| name == engine);
        let is_first = self.engines.first().map(|engine| &engine.name) == names.first();
        if self.cells.is_empty() {
            if !is_first {
                return Err(Error::invalid(
                    "the report has no rounds, so its engines can only be compared with its first",
                ));
            }
            let workloads = &mut self.summary.workloads;
            workloads.retain(|summary| place(&summary.engine).is_some());
        } else {
            self.cells.retain(|cell| place(&cell.engine).is_some());
            self.cells
                .sort_by_key(|cell| (cell.round, place(&cell.engine)));
            self.summary = Summary::of(&self.cells);
        }
        self.engines = engines;
        Ok(self)
    }

    /// The report without its rounds and with its figures rounded, as JSON on one line, for a
    /// document that cites it.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn brief(&self) -> Result<String> {
        let brief = Self {
            cells: Vec::new(),
            ..self.clone()
        };
        let unwritten = |e| Error::invalid(format!("cannot write JSON: {e}"));
        let mut value = serde_json::to_value(brief).map_err(unwritten)?;
        if let Some(summary) = value.get_mut("summary") {
            round(summary);
        }
        serde_json::to_string(&value).map_err(unwritten)
    }
}

/// Rounds every number in `value`.
fn round(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Number(number) => {
            let rounded = number.as_f64().map(to_digits);
            if let Some(rounded) = rounded.and_then(shortest) {
                *number = rounded;
            }
        }
        _ => {}
    }
}

/// `number` in its shortest form: a whole one without a decimal point.
fn shortest(number: f64) -> Option<serde_json::Number> {
    const WHOLE_MAX: f64 = (1u64 << 53) as f64;
    match number.fract() == 0.0 && number.abs() <= WHOLE_MAX {
        true => Some((number as i64).into()),
        false => serde_json::Number::from_f64(number),
    }
}

/// `number` with [`DIGITS`] significant digits.
fn to_digits(number: f64) -> f64 {
    let decimals = (DIGITS - 1) as usize;
    format!("{number:.decimals$e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::report;

    #[test]
    fn engines_are_compared_with_the_first_that_was_named() {
        let report = report();
        let names: Vec<String> = report.engines.iter().map(|e| e.name.clone()).collect();
        let reversed: Vec<String> = names.iter().rev().cloned().collect();
        let turned = report.clone().of_engines(&reversed).unwrap();
        assert_eq!(turned.engines[0].name, names[1]);
        let ratio = |report: &MatrixReport, engine: &String| {
            let mut of_engine = report.summary.workloads.iter();
            let summary = of_engine.find(|summary| summary.engine == *engine).unwrap();
            summary.ratio.map(|ratios| ratios.operations_per_second)
        };
        assert_eq!(ratio(&turned, &names[1]), None);
        let (there, back) = (ratio(&report, &names[1]), ratio(&turned, &names[0]));
        let product = there.unwrap().min * back.unwrap().max;
        assert!((product - 1.0).abs() < 1e-9, "{product}");
        assert!(report.of_engines(&["another".to_owned()]).is_err());
    }

    #[test]
    fn a_brief_report_is_one_that_can_be_read() {
        let report = report();
        let text = report.brief().unwrap();
        let read: MatrixReport = serde_json::from_str(&text).unwrap();
        assert!(
            read.cells.is_empty() && text.len() < serde_json::to_string(&report).unwrap().len()
        );
        assert_eq!(read.summary.workloads.len(), report.summary.workloads.len());
        assert_eq!(read.brief().unwrap(), text);
        let names: Vec<String> = report.engines.iter().map(|e| e.name.clone()).collect();
        let reversed: Vec<String> = names.iter().rev().cloned().collect();
        assert!(read.clone().of_engines(&reversed).is_err());
        let one = read.of_engines(&names[..1]).unwrap();
        assert!(one.summary.workloads.iter().all(|s| s.engine == names[0]));
    }

    #[test]
    fn figures_keep_their_significant_digits() {
        assert_eq!(to_digits(123_456_789.0), 123_460_000.0);
        assert_eq!(to_digits(0.001_234_567), 0.001_234_6);
        assert_eq!(to_digits(0.0), 0.0);
    }
}

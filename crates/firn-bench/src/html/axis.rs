//! Axes: their ranges, and the positions of their labels. The drawing library's own choice of
//! positions knows neither bytes nor numbers of nines, and crowds logarithmic axes.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// An axis of a plot, in the plot's own coordinates. Those of a logarithmic axis are logarithms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Positions with their labels, ascending.
    pub(super) ticks: Vec<(f64, String)>,
    /// The quantity that it shows; may be empty.
    pub(super) name: &'static str,
    /// The position of a line across the plot, at the value that others are compared with.
    pub(super) mark: Option<f64>,
}

impl Axis {
    /// A linear axis from 0 to `max`. If `rounded`, it extends to the next position with a label.
    pub(super) fn linear(
        max: f64,
        rounded: bool,
        name: &'static str,
        label: fn(f64) -> String,
    ) -> Self {
        let max = if max.is_finite() && max > 0.0 {
            max
        } else {
            1.0
        };
        let step = step(max / 4.0);
        let count = if rounded {
            (max / step).ceil()
        } else {
            (max / step + 1e-9).floor()
        };
        let ticks = (0..=count as u32)
            .map(|i| f64::from(i) * step)
            .map(|at| (at, label(at)))
            .collect();
        Self {
            from: 0.0,
            to: if rounded { count * step } else { max },
            ticks,
            name,
            mark: None,
        }
    }

    /// A logarithmic axis around `values`. Values that are not above 0 are ignored.
    pub(super) fn logarithmic(
        values: impl Iterator<Item = f64>,
        name: &'static str,
        label: fn(f64) -> String,
    ) -> Self {
        const ONE_TWO_FIVE: [f64; 3] = [1.0, 2.0, 5.0];
        // Above this many decades only whole decades have labels.
        const DECADES_FINE: f64 = 2.0;
        let (low, high) = values
            .filter(|value| *value > 0.0 && value.is_finite())
            .fold((f64::INFINITY, 0.0f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = if high > 0.0 { (low, high) } else { (1.0, 10.0) };
        let decades = (low.log10().floor() as i32 - 1)..=(high.log10().ceil() as i32 + 1);
        let places: Vec<f64> = decades
            .flat_map(|decade| ONE_TWO_FIVE.map(|digit| digit * 10f64.powi(decade)))
            .collect();
        // Some tolerance, because powers of ten are not exact.
        let from = places
            .iter()
            .copied()
            .filter(|place| *place <= low * 1.0001)
            .fold(places[0], f64::max);
        let is_past = |place: &f64| *place >= high * 0.9999 && *place > from;
        let to = places.iter().copied().find(is_past).unwrap_or(high * 10.0);
        let (from, to) = (from.log10(), to.log10());
        let is_labelled = |log: &f64| to - from <= DECADES_FINE || (log - log.round()).abs() < 1e-6;
        let inside = places
            .iter()
            .map(|place| place.log10())
            .filter(|log| (from - 1e-6..=to + 1e-6).contains(log));
        let ticks = inside
            .filter(is_labelled)
            .map(|log| (log, label(10f64.powf(log))))
            .collect();
        Self {
            from,
            to,
            ticks,
            name,
            mark: None,
        }
    }

    /// Numbers of nines up to that of `quantile_max`, labelled in percent.
    pub(super) fn nines(quantile_max: f64, name: &'static str) -> Self {
        const LABELS: [&str; 8] = [
            "0", "90", "99", "99.9", "99.99", "99.999", "99.9999", "99.99999",
        ];
        let whole = LABELS
            .iter()
            .enumerate()
            .map(|(nines, label)| (nines as f64, (*label).to_owned()));
        let mut ticks: Vec<_> = whole.chain([(nines(0.5), "50".to_owned())]).collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let to = nines(quantile_max).clamp(1.0, (LABELS.len() - 1) as f64);
        ticks.retain(|(at, _)| *at <= to + 1e-6);
        Self {
            from: 0.0,
            to,
            ticks,
            name,
            mark: None,
        }
    }

    /// The axis with a line across the plot at `at`.
    pub(super) fn marked(self, at: f64) -> Self {
        Self {
            mark: Some(at),
            ..self
        }
    }

    /// The pixel between `start` and `end` for the position `at`.
    pub(super) fn unit(&self, at: f64, start: i32, end: i32) -> i32 {
        start + ((at - self.from) / (self.to - self.from) * f64::from(end - start)).round() as i32
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, at: &f64, limit: (i32, i32)) -> i32 {
        self.unit(*at, limit.0, limit.1)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|(at, _)| *at).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, at: &f64) -> String {
        let found = self
            .ticks
            .iter()
            .find(|(place, _)| (place - at).abs() < 1e-9);
        found.map_or_else(String::new, |(_, label)| label.clone())
    }
}

/// The number of nines of `quantile`: 1 for 0.9, 2 for 0.99.
pub(super) fn nines(quantile: f64) -> f64 {
    // 0 rather than negative 0, which the logarithm of 1 yields here.
    -(1.0 - quantile).max(1e-12).log10() + 0.0
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`.
fn step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|digit| digit * decade)
        .into_iter()
        .find(|step| *step >= least * 0.9999)
        .unwrap_or(decade * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::text::{digits, micros};

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn linear_axes_end_on_a_label_or_at_their_data() {
        let rounded = Axis::linear(730.0, true, "", digits);
        assert_eq!(
            (rounded.to, labels(&rounded)),
            (800.0, vec!["0", "200", "400", "600", "800"])
        );
        let exact = Axis::linear(730.0, false, "", digits);
        assert_eq!(
            (exact.to, labels(&exact)),
            (730.0, vec!["0", "200", "400", "600"])
        );
        for nothing in [0.0, f64::NAN, -1.0] {
            assert_eq!(Axis::linear(nothing, true, "", digits).to, 1.0);
        }
    }

    #[test]
    fn logarithmic_axes_surround_their_data() {
        let narrow = Axis::logarithmic([12.0, 45.0, 0.0].into_iter(), "", micros);
        assert_eq!(labels(&narrow), ["10 µs", "20 µs", "50 µs"]);
        let wide = Axis::logarithmic([3.0, 450_000.0].into_iter(), "", micros);
        assert_eq!(
            labels(&wide),
            ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]
        );
        let one = Axis::logarithmic([1000.0].into_iter(), "", micros);
        assert_eq!(labels(&one), ["1 ms", "2 ms"]);
        assert!(Axis::logarithmic(std::iter::empty(), "", micros).from < 1.0);
    }

    #[test]
    fn nines_are_labelled_in_percent() {
        assert_eq!(
            labels(&Axis::nines(0.9995, "")),
            ["0", "50", "90", "99", "99.9"]
        );
        assert_eq!(labels(&Axis::nines(0.0, "")), ["0", "50", "90"]);
        assert!((nines(0.999) - 3.0).abs() < 1e-9);
    }
}

//! Colours, and the classes by which the page's style sheet and script find the elements that have
//! them.
//!
//! 1. An engine has one colour in all plots, and so has a cause of writes.
//! 2. No two keys of a page have the same colour, because the drawing library knows only colours
//!    and the class of a drawn element is found by its colour.
//! 3. Colour is never the only distinction: lines also have patterns (in the style sheet), bars
//!    have labels.

use plotters::style::RGBColor;

/// Text, grid lines and axes. Their colours are never visible, because the style sheet replaces
/// them with one for light mode and one for dark mode.
pub(super) const INK: RGBColor = RGBColor(1, 1, 1);
pub(super) const GRID: RGBColor = RGBColor(221, 221, 222);
pub(super) const AXIS: RGBColor = RGBColor(119, 119, 120);

/// Okabe and Ito, "Color Universal Design" (2008): the colours that stand out from white and from
/// black, and a grey.
const ENGINES: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 134),
];
/// Paul Tol, "Colour Schemes" (SRON/EPS/TN/09-002): the muted scheme, with a lighter indigo that is
/// visible on black.
const CAUSES: [RGBColor; 9] = [
    RGBColor(136, 204, 238),
    RGBColor(204, 102, 119),
    RGBColor(221, 204, 119),
    RGBColor(17, 119, 51),
    RGBColor(110, 95, 200),
    RGBColor(136, 34, 85),
    RGBColor(68, 170, 153),
    RGBColor(153, 153, 51),
    RGBColor(170, 68, 153),
];

/// The meaning of a drawn element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// An engine, by its index in the report.
    Engine(usize),
    /// A medium and a cause of writes, by its index among the page's.
    Cause(usize),
    /// The kernel's count for the process.
    Process,
    /// The block device's count.
    Device,
}

impl Key {
    /// The class of its drawn elements.
    pub(super) fn class(self) -> String {
        match self {
            Key::Engine(index) => format!("engine-{index}"),
            Key::Cause(index) => format!("cause-{index}"),
            Key::Process => "count-process".to_owned(),
            Key::Device => "count-device".to_owned(),
        }
    }

    pub(super) fn colour(self) -> RGBColor {
        match self {
            Key::Engine(index) => nth(&ENGINES, index),
            Key::Cause(index) => nth(&CAUSES, index),
            Key::Process => RGBColor(122, 122, 122),
            Key::Device => RGBColor(165, 165, 165),
        }
    }

    /// The pattern of its lines: lengths of dashes and gaps, in the units of a plot.
    pub(super) fn dashes(self) -> &'static str {
        const DASHES: [&str; 5] = ["", "14 7", "4 6", "18 6 4 6", "8 4"];
        match self {
            Key::Engine(index) => DASHES[index % DASHES.len()],
            _ => "",
        }
    }
}

/// The colour at `index`. Past the end the colours repeat, each time with a slightly different
/// blue, which is invisible but keeps them distinct.
fn nth(colours: &[RGBColor], index: usize) -> RGBColor {
    let RGBColor(red, green, blue) = colours[index % colours.len()];
    RGBColor(red, green, blue ^ (index / colours.len()).min(255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_keys_share_a_colour() {
        let keys = (0..40).flat_map(|index| [Key::Engine(index), Key::Cause(index)]);
        let colours = keys
            .chain([Key::Process, Key::Device])
            .map(Key::colour)
            .chain([INK, GRID, AXIS]);
        let distinct: BTreeSet<_> = colours
            .map(|RGBColor(red, green, blue)| (red, green, blue))
            .collect();
        assert_eq!(distinct.len(), 85);
    }
}

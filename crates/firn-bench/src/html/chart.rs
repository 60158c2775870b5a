//! Lines and bars as SVG, from numbers alone: a chart does not know what it shows.
//!
//! Charts are drawn in twice the units they are shown in, because the drawing library rounds to
//! whole units. Elements get classes by their colour (see `palette`), so that a style sheet can
//! change them and a script can find them.

use super::axis::Axis;
use super::palette::{AXIS, GRID, INK, Key};
use super::text::{escape, shortened};
use firn_base::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeSet;
use std::fmt::Display;

const WIDTH: i32 = 860;
const LINES_HEIGHT: i32 = 520;
/// The library divides text sizes by 1.24.
const TEXT: f64 = 25.0 * 1.24;
/// A line with at most this many points gets a dot for each, so that a few seconds are visible.
const DOTS_MAX: usize = 40;
const LABEL_CHARACTERS: usize = 18;
/// Heights: of a group's heading, of a bar with its margins, of a bar, and of the axis below.
const HEADING: i32 = 50;
const ROW: i32 = 40;
const BAR: i32 = 28;
const FOOT: i32 = 84;
/// The range of the bars. Labels are on the left; on the right is room for the text at a bar's end.
const LEFT: i32 = 270;
const RIGHT: i32 = WIDTH - 170;

/// A plot.
#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) svg: String,
    /// The keys drawn at least once.
    pub(super) keys: BTreeSet<Key>,
}

/// A line of a plot, with gaps between its segments.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) key: Key,
    pub(super) segments: Vec<Vec<(f64, f64)>>,
}

/// Bars under a heading.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// A horizontal bar made of parts.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) parts: Vec<(Key, f64)>,
    /// The smallest and the largest value over the rounds, drawn as a whisker if they differ.
    pub(super) spread: Option<(f64, f64)>,
    /// The text at its end.
    pub(super) text: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Lines in a coordinate system. Screen readers read `title` instead of the picture.
pub(super) fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> Result<Drawing> {
    draw(title, LINES_HEIGHT, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_left(12)
            .margin_right(36)
            .margin_top(20)
            .x_label_area_size(80)
            .y_label_area_size(118)
            .build_cartesian_2d(x.clone(), y.clone())
            .map_err(undrawn)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(1))
            .axis_style(AXIS.stroke_width(2))
            .label_style(text(HPos::Left, VPos::Top))
            .x_desc(x.name)
            .axis_desc_style(text(HPos::Left, VPos::Top))
            .draw()
            .map_err(undrawn)?;
        let mut keys = BTreeSet::new();
        for line in lines {
            let colour = line.key.colour();
            let points: usize = line.segments.iter().map(Vec::len).sum();
            let with_dots = |segment: &&Vec<(f64, f64)>| points <= DOTS_MAX || segment.len() == 1;
            let dotted = line.segments.iter().filter(with_dots).flatten();
            let dots = dotted.map(|point| Circle::new(*point, 6, colour.filled()));
            chart.draw_series(dots).map_err(undrawn)?;
            let paths = line.segments.iter().filter(|segment| segment.len() > 1);
            let paths =
                paths.map(|segment| PathElement::new(segment.clone(), colour.stroke_width(4)));
            chart.draw_series(paths).map_err(undrawn)?;
            keys.extend((points > 0).then_some(line.key));
        }
        Ok(keys)
    })
}

/// Groups of horizontal bars below each other, starting at 0. Screen readers read `title` instead
/// of the picture.
pub(super) fn bars(title: &str, axis: &Axis, groups: &[Group]) -> Result<Drawing> {
    let rows: i32 = groups
        .iter()
        .map(|group| HEADING + ROW * group.bars.len() as i32)
        .sum();
    draw(title, rows + FOOT, |area| {
        for (value, label) in &axis.ticks {
            let x = axis.unit(*value, LEFT, RIGHT);
            let line = vec![(x, 8), (x, rows + 8)];
            area.draw(&PathElement::new(line, GRID.stroke_width(1)))
                .map_err(undrawn)?;
            write(area, label, (x, rows + 16), text(HPos::Center, VPos::Top))?;
        }
        write(
            area,
            axis.name,
            ((LEFT + RIGHT) / 2, rows + 50),
            text(HPos::Center, VPos::Top),
        )?;
        let (mut keys, mut top) = (BTreeSet::new(), 0);
        for group in groups {
            let font = ("sans-serif", TEXT)
                .into_font()
                .style(FontStyle::Bold)
                .color(&INK);
            write(
                area,
                &group.name,
                (8, top + HEADING - 18),
                font.pos(Pos::new(HPos::Left, VPos::Center)),
            )?;
            top += HEADING;
            for bar in &group.bars {
                keys.extend(draw_bar(area, axis, bar, top + ROW / 2)?);
                top += ROW;
            }
        }
        let mark = axis.mark.map(|at| axis.unit(at, LEFT, RIGHT));
        for x in [Some(LEFT), mark].into_iter().flatten() {
            let line = vec![(x, 8), (x, rows + 8)];
            area.draw(&PathElement::new(line, AXIS.stroke_width(2)))
                .map_err(undrawn)?;
        }
        Ok(keys)
    })
}

/// Draws `bar` around the height `centre`. Returns the keys it drew.
fn draw_bar(area: &Area<'_>, axis: &Axis, bar: &Bar, centre: i32) -> Result<Vec<Key>> {
    let label = shortened(&bar.label, LABEL_CHARACTERS);
    write(
        area,
        &label,
        (LEFT - 12, centre),
        text(HPos::Right, VPos::Center),
    )?;
    let (mut keys, mut from, mut end) = (Vec::new(), 0.0, LEFT);
    for (key, value) in bar.parts.iter().filter(|(_, value)| *value > 0.0) {
        let start = axis.unit(from, LEFT, RIGHT);
        // At least wide enough to remain visible between its edges.
        end = axis.unit(from + value, LEFT, RIGHT).max(start + 4);
        let corners = [(start, centre - BAR / 2), (end, centre + BAR / 2)];
        area.draw(&Rectangle::new(corners, key.colour().filled()))
            .map_err(undrawn)?;
        keys.push(*key);
        from += value;
    }
    if let Some((min, max)) = bar.spread.filter(|(min, max)| min < max) {
        let (start, stop) = (axis.unit(min, LEFT, RIGHT), axis.unit(max, LEFT, RIGHT));
        let whisker = vec![(start, centre), (stop, centre)];
        area.draw(&PathElement::new(whisker, INK.stroke_width(3)))
            .map_err(undrawn)?;
        end = end.max(stop);
    }
    write(
        area,
        &bar.text,
        (end + 12, centre),
        text(HPos::Left, VPos::Center),
    )?;
    Ok(keys)
}

fn text(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    ("sans-serif", TEXT)
        .into_font()
        .color(&INK)
        .pos(Pos::new(horizontal, vertical))
}

fn write(area: &Area<'_>, words: &str, place: (i32, i32), style: TextStyle<'_>) -> Result<()> {
    area.draw(&Text::new(words.to_owned(), place, style))
        .map_err(undrawn)
}

fn undrawn(error: impl Display) -> Error {
    Error::invalid(format!("cannot draw a plot of the report: {error}"))
}

fn draw(
    title: &str,
    height: i32,
    content: impl FnOnce(&Area<'_>) -> Result<BTreeSet<Key>>,
) -> Result<Drawing> {
    let mut svg = String::new();
    let area =
        SVGBackend::with_string(&mut svg, (WIDTH as u32, height.max(1) as u32)).into_drawing_area();
    let keys = content(&area)?;
    area.present().map_err(undrawn)?;
    drop(area);
    Ok(Drawing {
        svg: dressed(&svg, title, &keys),
        keys,
    })
}

/// The library's drawing with its title, without its fixed size, and with classes.
///
/// The library writes one tag per line, and puts text, which it escapes, on separate lines. So no
/// text starts with `<`.
fn dressed(svg: &str, title: &str, keys: &BTreeSet<Key>) -> String {
    let fixed = [(INK, "ink"), (GRID, "grid"), (AXIS, "axis")]
        .map(|(colour, class)| (colour, class.to_owned()));
    let named =
        |RGBColor(red, green, blue): RGBColor| format!("=\"#{red:02X}{green:02X}{blue:02X}\"");
    let colours = keys
        .iter()
        .map(|key| (key.colour(), key.class()))
        .chain(fixed);
    let classes: Vec<(String, String)> = colours
        .map(|(colour, class)| (named(colour), class))
        .collect();
    let mut dressed = String::with_capacity(svg.len() * 5 / 4);
    for line in svg.lines() {
        let class = classes
            .iter()
            .find(|(colour, _)| line.starts_with('<') && line.contains(colour));
        match (line.strip_prefix("<svg "), line.split_once(' '), class) {
            (Some(rest), _, _) => {
                let rest = &rest[rest.find("viewBox").unwrap_or(0)..];
                dressed.push_str(&format!(
                    "<svg class=\"plot\" role=\"img\" {rest}\n<title>{}</title>",
                    escape(title)
                ));
            }
            (None, Some((tag, rest)), Some((_, class))) => {
                dressed.push_str(&format!("{tag} class=\"{class}\" {rest}"));
            }
            _ => dressed.push_str(line),
        }
        dressed.push('\n');
    }
    dressed
}

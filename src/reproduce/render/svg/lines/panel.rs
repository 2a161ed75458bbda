//! One panel of lines. May use: the data model.

use super::labels::apart;
use super::{COLOURS, mark};
use crate::reproduce::render::layout::Field;
use crate::reproduce::render::svg::axis::{self, Logarithmic, Tick};
use crate::reproduce::render::svg::canvas::{Anchor, Canvas};
use crate::reproduce::render::svg::letters::{SMALL, TEXT};
use crate::reproduce::render::svg::page::{LINE, MARGIN};
use crate::reproduce::render::svg::series::{Point, Series, crossings, number};
use crate::reproduce::{Part, Unit};

const HEIGHT: f64 = 340.0;
/// The most that the name of a line takes, on each of its lines.
const NAME: f64 = 150.0;
const NAME_LINES: usize = 3;
/// Between the right edge of the plot and the names: a sign of the line, and room around it.
const SIGN: f64 = 38.0;
/// Pixels between labels on one line.
const ROOM: f64 = 10.0;
/// Crossings that are told in words; of more, lines that lie near each other, only the rings are drawn.
const TOLD: usize = 4;

pub(super) struct Panel<'a> {
    part: &'a Part,
    pub(super) series: &'a [Series],
    /// Where lines that were measured cross.
    pub(super) crossings: Vec<(f64, f64)>,
    ticks: Vec<Tick>,
    /// The names of the series, in lines.
    names: Vec<Vec<String>>,
    left: f64,
    right: f64,
}

/// The axes once the place of the panel is known.
struct Axes {
    x: Logarithmic,
    y: Logarithmic,
}

impl Axes {
    fn at(&self, point: &Point) -> (f64, f64) {
        (self.x.place(point.x), self.y.place(point.y))
    }
}

impl<'a> Panel<'a> {
    pub(super) fn of(part: &'a Part, unit: Unit, series: &'a [Series], width: f64) -> Self {
        let points = || series.iter().flat_map(Series::all);
        let low = points()
            .map(|point| point.low)
            .fold(f64::INFINITY, f64::min);
        let high = points().map(|point| point.high).fold(0.0, f64::max);
        let ticks = axis::logarithmic(unit, low, high);
        let labels = ticks.iter().map(|tick| SMALL.width(&tick.label));
        let names = series.iter();
        let names: Vec<Vec<String>> = names
            .map(|series| TEXT.lines(&series.name, NAME, NAME_LINES))
            .collect();
        let widest = names.iter().flatten().map(|line| TEXT.width(line));
        let pairs = series.iter().enumerate();
        let pairs = pairs.flat_map(|(place, one)| {
            let others = series[place + 1..].iter();
            others.map(move |other| (one, other))
        });
        let found = pairs.flat_map(|(one, other)| {
            crossings(one.points(Field::Measured), other.points(Field::Measured))
        });
        let mut crossings: Vec<(f64, f64)> = found.collect();
        crossings.sort_by(|one, other| one.0.total_cmp(&other.0));
        Panel {
            part,
            series,
            crossings,
            left: MARGIN + labels.fold(0.0, f64::max) + 8.0,
            right: width - MARGIN - widest.fold(0.0, f64::max) - SIGN,
            ticks,
            names,
        }
    }

    /// Draws it from `top` on; gives where it ends.
    pub(super) fn write(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let told = self.told();
        let words = told.iter().map(|(_, words)| SMALL.width(words));
        let words: Vec<f64> = words.collect();
        let axes = |top: f64| self.axes(top);
        let lines = self.lines_of(&told, &words, &axes(top));
        let deep = lines.iter().max().map_or(0, |most| most + 1);
        let plot = top + deep as f64 * LINE + 8.0;
        let axes = axes(plot);
        self.write_grid(canvas, &axes);
        for (((x, _), words), (line, width)) in told.iter().zip(lines.iter().zip(&words)) {
            let at = axes.x.place(*x);
            let label = self.within(at, *width);
            let y = top + *line as f64 * LINE + 11.0;
            canvas.text((label, y), "small key", Anchor::Middle, words);
            canvas.line("guide", (at, y + 4.0), (at, plot + HEIGHT));
        }
        for series in self.series {
            write_series(canvas, series, &axes);
        }
        for (x, y) in &self.crossings {
            canvas.circle("ring", (axes.x.place(*x), axes.y.place(*y)), 8.0);
        }
        self.write_names(canvas, &axes);
        plot + HEIGHT + 2.0 * LINE + 16.0
    }

    fn axes(&self, top: f64) -> Axes {
        let points = || self.series.iter().flat_map(Series::all);
        let least = points().map(|point| point.x).fold(f64::INFINITY, f64::min);
        let most = points().map(|point| point.x).fold(0.0, f64::max);
        // A little room, so that marks do not lie on the frame.
        let room = (most / least).powf(0.03);
        let ends = |tick: Option<&Tick>| tick.map_or(1.0, |tick| tick.value);
        Axes {
            x: Logarithmic {
                low: least / room,
                high: most * room,
                from: self.left,
                to: self.right,
            },
            y: Logarithmic {
                low: ends(self.ticks.first()),
                high: ends(self.ticks.last()),
                from: top + HEIGHT,
                to: top,
            },
        }
    }

    /// What is written of the crossings.
    fn told(&self) -> Vec<((f64, f64), String)> {
        if self.crossings.len() > TOLD {
            return Vec::new();
        }
        let told = |at: &(f64, f64)| (*at, format!("equal near {}", two_digits(at.0)));
        self.crossings.iter().map(told).collect()
    }

    /// On which line above the plot each is written.
    fn lines_of(&self, told: &[((f64, f64), String)], widths: &[f64], axes: &Axes) -> Vec<usize> {
        let mut ends: Vec<f64> = Vec::new();
        let places = told.iter().zip(widths).map(|(((x, _), _), width)| {
            let middle = self.within(axes.x.place(*x), *width);
            let free = ends
                .iter()
                .position(|end| end + ROOM <= middle - 0.5 * width);
            let line = free.unwrap_or(ends.len());
            ends.resize(ends.len().max(line + 1), 0.0);
            ends[line] = middle + 0.5 * width;
            line
        });
        places.collect()
    }

    /// Where the middle of a label lies that is to be at `x`, and not beyond the plot.
    fn within(&self, x: f64, width: f64) -> f64 {
        let (from, to) = (self.left + 0.5 * width, self.right - 0.5 * width);
        x.max(from).min(to.max(from))
    }

    fn write_grid(&self, canvas: &mut Canvas, axes: &Axes) {
        let (top, bottom) = (axes.y.to, axes.y.from);
        for tick in &self.ticks {
            let y = axes.y.place(tick.value);
            canvas.line("grid", (self.left, y), (self.right, y));
            if !tick.label.is_empty() {
                let at = (self.left - 8.0, y + 4.0);
                canvas.text(at, "small quiet", Anchor::End, &tick.label);
            }
        }
        let mut rows: Vec<(f64, &str)> = self
            .part
            .rows
            .iter()
            .filter_map(|row| Some((number(&row.name)?, row.name.split_whitespace().next()?)))
            .collect();
        rows.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut end = 0.0;
        for (value, name) in rows {
            let x = axes.x.place(value);
            // Rows without a figure may lie beyond the others.
            if !(self.left..=self.right).contains(&x) {
                continue;
            }
            canvas.line("grid", (x, top), (x, bottom));
            let half = 0.5 * SMALL.width(name);
            if x - half >= end {
                canvas.text((x, bottom + 15.0), "small quiet", Anchor::Middle, name);
                end = x + half + ROOM;
            }
        }
        canvas.line("axis", (self.left, bottom), (self.right, bottom));
        let middle = 0.5 * (self.left + self.right);
        let at = (middle, bottom + 15.0 + LINE);
        canvas.text(at, "small quiet", Anchor::Middle, &self.part.rows_are);
    }

    fn write_names(&self, canvas: &mut Canvas, axes: &Axes) {
        let ends: Vec<(f64, f64)> = self
            .series
            .iter()
            .map(|series| {
                series
                    .last()
                    .map_or((self.right, axes.y.from), |p| axes.at(p))
            })
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
        let heights = self.names.iter().map(|name| name.len() as f64 * 15.0 + 4.0);
        let heights: Vec<f64> = heights.collect();
        let places = apart(&wanted, &heights, (axes.y.to - 8.0, axes.y.from + 8.0));
        for ((series, name), (end, y)) in self
            .series
            .iter()
            .zip(&self.names)
            .zip(ends.iter().zip(places))
        {
            let colour = series.place % COLOURS;
            let sign = self.right + 16.0;
            canvas.line("guide", (end.0 + 7.0, end.1), (sign - 3.0, y));
            canvas.line(&format!("series s{colour}"), (sign, y), (sign + 16.0, y));
            mark(canvas, &format!("f{colour}"), (sign + 8.0, y), series.place);
            let first = y - 7.5 * (name.len() as f64 - 1.0) + 4.5;
            for (line, place) in name.iter().zip(0u8..) {
                let at = (self.right + SIGN, first + 15.0 * f64::from(place));
                canvas.text(at, "", Anchor::Start, line);
            }
        }
    }
}

fn write_series(canvas: &mut Canvas, series: &Series, axes: &Axes) {
    let colour = series.place % COLOURS;
    let kinds = [
        (Field::Published, " dash", format!("hollow s{colour}")),
        (Field::Predicted, " dots", format!("hollow s{colour}")),
        (Field::Measured, "", format!("f{colour}")),
    ];
    for (field, style, marked) in kinds {
        let points = series.points(field);
        let places: Vec<(f64, f64)> = points.iter().map(|point| axes.at(point)).collect();
        if places.len() > 1 {
            canvas.path(&format!("series s{colour}{style}"), &places, false);
        }
        for (point, at) in points.iter().zip(places) {
            let ends = (axes.y.place(point.high), axes.y.place(point.low));
            if ends.1 - ends.0 > 1.0 {
                canvas.upright_span(&format!("thin s{colour}"), ends, at.0);
            }
            mark(canvas, &marked, at, series.place);
        }
    }
}

/// `value` with two digits: what lies between two rows is known no better.
fn two_digits(value: f64) -> String {
    let digits = value.log10().floor() as i32 - 1;
    let step = 10_f64.powi(digits);
    let places = usize::try_from(-digits).unwrap_or(0);
    format!("{:.places$}", (value / step).round() * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_is_told_with_two_digits() {
        assert_eq!(two_digits(617.3), "620");
        assert_eq!(two_digits(61.73), "62");
        assert_eq!(two_digits(6.173), "6.2");
        assert_eq!(two_digits(99.9), "100");
    }
}

//! One column's bars, from 0. May use: the data model.

use super::{GAP, LANE, Rows, end_of};
use crate::reproduce::render::figure;
use crate::reproduce::render::layout::Field;
use crate::reproduce::render::svg::axis;
use crate::reproduce::render::svg::canvas::{Anchor, At, Canvas};
use crate::reproduce::render::svg::letters::{SMALL, SMALL_KEY};
use crate::reproduce::{Cell, Part, Unit};

/// Of a bar.
const BAR: f64 = 11.0;
/// Between a bar's end and its figure.
const BESIDE: f64 = 6.0;
/// The least that is left to the bars, however long their figures are.
const LEAST: f64 = 40.0;

pub(super) struct Panel<'a> {
    part: &'a Part,
    column: usize,
    unit: Unit,
    width: f64,
    /// Pixels of 1.
    scale: f64,
}

impl<'a> Panel<'a> {
    pub(super) fn of(part: &'a Part, column: usize, width: f64) -> Panel<'a> {
        let unit = part.columns[column].unit;
        let cells = part.rows.iter().filter_map(|row| row.cells.get(column));
        let fields = cells.flat_map(|cell| Field::ALL.iter().map(move |field| (cell, *field)));
        let scale = fields.filter_map(|(cell, field)| {
            // Every bar leaves room for its figure.
            let (end, text) = (end_of(cell, field), figure_of(cell, field, unit)?);
            let room = width - BESIDE - text_width(field, &text);
            (end > 0.0).then(|| room.max(LEAST) / end)
        });
        Panel {
            part,
            column,
            unit,
            width,
            scale: scale.fold(f64::INFINITY, f64::min),
        }
    }

    pub(super) fn write(&self, canvas: &mut Canvas, rows: &Rows, (x, y): At) {
        let bottom = y + rows.height;
        for tick in axis::linear(self.unit, self.width / self.scale, self.width) {
            let at = x + tick.value * self.scale;
            let class = if tick.main { "axis" } else { "grid" };
            canvas.line(class, (at, y), (at, bottom));
            let label = (at, bottom + 14.0);
            // The next panel's begin a gap further on.
            if at + 0.5 * SMALL.width(&tick.label) <= x + self.width + 0.5 * GAP {
                canvas.text(label, "small quiet", Anchor::Middle, &tick.label);
            }
        }
        let places = rows.tops.iter().zip(&rows.lanes);
        for (row, (top, lanes)) in self.part.rows.iter().zip(places) {
            let Some(cell) = row.cells.get(self.column) else {
                continue;
            };
            canvas.titled(&self.tooltip(&row.name, cell), |canvas| {
                for (lane, place) in lanes.iter().zip(0u8..) {
                    let middle = y + top + (f64::from(place) + 0.5) * LANE;
                    self.write_lane(canvas, cell, *lane, (x, middle));
                }
            });
        }
    }

    fn write_lane(&self, canvas: &mut Canvas, cell: &Cell, lane: Field, (x, y): At) {
        let end = x + end_of(cell, lane) * self.scale + BESIDE;
        let baseline = y + 4.0;
        let Some(text) = figure_of(cell, lane, self.unit) else {
            if let Some(remark) = cell.remark.as_ref().filter(|_| lane == Field::Measured) {
                let words = SMALL.fitted(remark, self.width - BESIDE);
                let at = (x + BESIDE, baseline);
                canvas.text(at, "small quiet halo", Anchor::Start, &words);
            }
            return;
        };
        // Within the panel, even where a figure is none.
        let at = |value: f64| x + (value.max(0.0) * self.scale).min(self.width);
        match lane {
            Field::Published => {
                if let Some(span) = cell.published {
                    let size = (at(span.low) - x, BAR);
                    canvas.rectangle("published", (x, y - 0.5 * BAR), size);
                    if span.high > span.low {
                        canvas.span("span", (at(span.low), at(span.high)), y);
                    }
                }
            }
            Field::Predicted => {
                if let Some(made) = cell.predicted {
                    canvas.span("predicted-line", (at(made.low), at(made.high)), y);
                    canvas.diamond("predicted", (at(made.value), y), 5.0);
                }
            }
            Field::Measured => {
                if let Some(made) = cell.measured {
                    let size = (at(made.median) - x, BAR);
                    canvas.rectangle("measured", (x, y - 0.5 * BAR), size);
                    if made.runs > 1 && made.high > made.low {
                        canvas.span("whisker", (at(made.low), at(made.high)), y);
                    }
                }
            }
        }
        let class = match lane {
            Field::Measured => "small key halo",
            _ => "small quiet halo",
        };
        canvas.text((end, baseline), class, Anchor::Start, &text);
    }

    /// All that is known of a cell.
    fn tooltip(&self, name: &str, cell: &Cell) -> String {
        let mut told = name.to_owned();
        for field in Field::ALL {
            let range = match field {
                Field::Published => None,
                Field::Predicted => cell.predicted.map(|made| (made.low, made.high)),
                Field::Measured => cell.measured.map(|made| (made.low, made.high)),
            };
            let range = range.and_then(|(low, high)| figure::range(self.unit, low, high));
            if let Some(text) = figure_of(cell, field, self.unit) {
                let range = range.map(|range| format!(" ({range})")).unwrap_or_default();
                told.push_str(&format!("\n{} {text}{range}", field.name()));
            }
        }
        if let Some(remark) = &cell.remark {
            told.push_str(&format!("\n{remark}"));
        }
        told
    }
}

/// What is written at the end of a bar.
fn figure_of(cell: &Cell, field: Field, unit: Unit) -> Option<String> {
    match field {
        Field::Published => cell.published.map(|span| figure::published(unit, span)),
        Field::Predicted => cell
            .predicted
            .map(|made| figure::measured(unit, made.value)),
        Field::Measured => cell
            .measured
            .map(|made| figure::measured(unit, made.median)),
    }
}

fn text_width(field: Field, text: &str) -> f64 {
    match field {
        Field::Measured => SMALL_KEY.width(text),
        _ => SMALL.width(text),
    }
}

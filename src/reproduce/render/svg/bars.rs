//! Bars: a panel for each column, and in it for each row what was published, predicted and measured, one beneath
//! the other. May use: the data model.

mod panel;

use super::canvas::{Anchor, At, Canvas};
use super::letters::{KEY, TEXT};
use super::page::{LINE, MARGIN, Page, Sign};
use crate::reproduce::render::figure;
use crate::reproduce::render::layout::{self, Field};
use crate::reproduce::{Cell, Part, Row};
use panel::Panel;

/// Of the whole picture, with one panel side by side, two, and three.
const WIDTHS: [f64; 3] = [760.0, 860.0, 980.0];
/// The most that the rows' names take.
const NAMES: f64 = 190.0;
/// Between panels.
const GAP: f64 = 28.0;
/// Of one bar, with the room around it.
const LANE: f64 = 16.0;
/// Between the bars of two rows.
const BETWEEN: f64 = 14.0;
/// Lines that a row's name, and a column's, may have.
const NAME_LINES: usize = 3;
const HEADING_LINES: usize = 2;

/// The columns that are charted and have a figure.
pub(super) fn columns(part: &Part) -> Vec<usize> {
    let mut columns = part.charted.clone();
    columns.retain(|column| {
        let cells = part.rows.iter().filter_map(|row| row.cells.get(*column));
        *column < part.columns.len() && cells.map(end).any(|end| end > 0.0)
    });
    columns
}

/// The largest figure of a cell, which its bars and whiskers end at; 0 where there is none.
fn end(cell: &Cell) -> f64 {
    let fields = Field::ALL.iter().map(|field| end_of(cell, *field));
    fields.fold(0.0, f64::max)
}

fn end_of(cell: &Cell, field: Field) -> f64 {
    let ends = match field {
        Field::Published => cell.published.map(|span| [span.low, span.high]),
        Field::Predicted => cell.predicted.map(|made| [made.value, made.high]),
        Field::Measured => cell.measured.map(|made| [made.median, made.high]),
    };
    let ends = ends.into_iter().flatten().filter(|end| end.is_finite());
    ends.fold(0.0, f64::max)
}

/// Where the rows lie, the same in every panel.
struct Rows {
    /// The names in lines.
    names: Vec<Vec<String>>,
    /// Pixels that the names take.
    width: f64,
    /// The fields of each row that have a lane: those that it has in any panel.
    lanes: Vec<Vec<Field>>,
    /// From the top of the plot to the top of each row's lanes, and to the end of all.
    tops: Vec<f64>,
    height: f64,
}

impl Rows {
    fn of(part: &Part, columns: &[usize]) -> Rows {
        let lanes = |row: &Row| {
            let cells = || columns.iter().filter_map(|column| row.cells.get(*column));
            let mut lanes = Field::ALL.to_vec();
            lanes.retain(|lane| cells().any(|cell| lane.is_in(cell)));
            lanes
        };
        let names = part.rows.iter();
        let names: Vec<Vec<String>> = names
            .map(|row| TEXT.lines(&row.name, NAMES, NAME_LINES))
            .collect();
        let width = names.iter().flatten().map(|line| TEXT.width(line));
        let mut rows = Rows {
            width: width.fold(0.0, f64::max),
            lanes: part.rows.iter().map(lanes).collect(),
            tops: Vec::new(),
            height: 0.5 * BETWEEN,
            names,
        };
        for (name, lanes) in rows.names.iter().zip(&rows.lanes) {
            let lanes = lanes.len() as f64 * LANE;
            let height = lanes.max(name.len() as f64 * LINE);
            rows.tops.push(rows.height + 0.5 * (height - lanes));
            rows.height += height + BETWEEN;
        }
        rows.height -= 0.5 * BETWEEN;
        rows
    }

    fn write_names(&self, canvas: &mut Canvas, (x, y): At) {
        let places = self.tops.iter().zip(&self.lanes);
        for (name, (top, lanes)) in self.names.iter().zip(places) {
            let middle = y + top + 0.5 * LANE * lanes.len() as f64;
            let first = middle - 0.5 * LINE * (name.len() as f64 - 1.0) + 4.5;
            for (line, place) in name.iter().zip(0u8..) {
                let at = (x + self.width, first + f64::from(place) * LINE);
                canvas.text(at, "", Anchor::End, line);
            }
        }
    }
}

/// The chart of `part`, which has something to draw.
pub(super) fn render(part: &Part, subtitle: &str) -> String {
    let columns = columns(part);
    let side_by_side = match columns.len() {
        1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    let rows = Rows::of(part, &columns);
    let width = WIDTHS[side_by_side - 1];
    let mut page = Page::new(&part.title, subtitle, width);
    page.legend(&signs(part, &rows));
    let left = MARGIN + rows.width + 10.0;
    let gaps = GAP * (side_by_side as f64 - 1.0);
    let room = (width - MARGIN - left - gaps) / side_by_side as f64;
    for columns in columns.chunks(side_by_side) {
        let headings: Vec<Vec<String>> = columns
            .iter()
            .map(|column| {
                let column = &part.columns[*column];
                let heading = figure::heading(&column.name, column.unit);
                KEY.lines(&heading, room, HEADING_LINES)
            })
            .collect();
        let deep = headings.iter().map(Vec::len).max().unwrap_or(0) as f64;
        let top = page.top + deep * LINE + 6.0;
        rows.write_names(&mut page.canvas, (MARGIN, top));
        for (place, (column, heading)) in columns.iter().zip(&headings).enumerate() {
            let x = left + place as f64 * (room + GAP);
            let first = top - 6.0 - heading.len() as f64 * LINE;
            for (line, place) in heading.iter().zip(0u8..) {
                let at = (x, first + f64::from(place) * LINE + 12.0);
                page.canvas.text(at, "key", Anchor::Start, line);
            }
            Panel::of(part, *column, room).write(&mut page.canvas, &rows, (x, top));
        }
        page.top = top + rows.height + 2.0 * LINE + 8.0;
    }
    page.top -= 8.0;
    page.left_out(part, &columns);
    page.finish()
}

fn signs(part: &Part, rows: &Rows) -> Vec<Sign> {
    let sign = |lane: &Field| match lane {
        Field::Published => Sign {
            words: "published".to_owned(),
            draw: |canvas, (x, y), width| {
                canvas.rectangle("published", (x, y - 5.5), (width, 11.0));
            },
        },
        Field::Predicted => Sign {
            words: "predicted before it was measured, with its interval".to_owned(),
            draw: |canvas, (x, y), width| {
                canvas.span("predicted-line", (x, x + width), y);
                canvas.diamond("predicted", (x + 0.5 * width, y), 5.0);
            },
        },
        Field::Measured => match layout::runs(part) {
            Some(runs) => Sign {
                words: format!("measured: median, least and most of {runs}"),
                draw: |canvas, (x, y), width| {
                    canvas.rectangle("measured", (x, y - 5.5), (0.8 * width, 11.0));
                    canvas.span("whisker", (x + 0.6 * width, x + width), y);
                },
            },
            None => Sign {
                words: "measured".to_owned(),
                draw: |canvas, (x, y), width| {
                    canvas.rectangle("measured", (x, y - 5.5), (width, 11.0));
                },
            },
        },
    };
    let mut lanes = Field::ALL.to_vec();
    lanes.retain(|lane| rows.lanes.iter().flatten().any(|other| other == lane));
    lanes.iter().map(sign).collect()
}

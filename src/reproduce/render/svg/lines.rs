//! Lines over rows that are numbers, on logarithmic axes: one panel for each unit, and in it a line for each column.
//! May use: the data model.

mod labels;
mod panel;

use super::canvas::Canvas;
use super::page::{Page, Sign};
use super::series::Series;
use crate::reproduce::render::layout::Field;
use crate::reproduce::{Part, Unit};
use panel::Panel;

const WIDTH: f64 = 860.0;

/// The colours that there are; further lines use them again, with other marks.
const COLOURS: usize = 6;

/// The series of each unit that have something to draw.
pub(super) fn panels(part: &Part) -> Vec<(Unit, Vec<Series>)> {
    let mut panels: Vec<(Unit, Vec<Series>)> = Vec::new();
    for (place, column) in part.charted.iter().enumerate() {
        let series = Series::of(part, *column, place);
        let Some(unit) = part.columns.get(*column).map(|column| column.unit) else {
            continue;
        };
        if series.all().next().is_none() {
            continue;
        }
        match panels.iter_mut().find(|(same, _)| *same == unit) {
            Some((_, all)) => all.push(series),
            None => panels.push((unit, vec![series])),
        }
    }
    // One place on the axis makes no line.
    panels.retain(|(_, all)| {
        let mut xs = all.iter().flat_map(Series::all).map(|point| point.x);
        xs.next().is_some_and(|first| xs.any(|x| x != first))
    });
    panels
}

/// The chart of `part`, which has something to draw.
pub(super) fn render(part: &Part, subtitle: &str) -> String {
    let panels = panels(part);
    let mut page = Page::new(&part.title, subtitle, WIDTH);
    let panels: Vec<Panel<'_>> = panels
        .iter()
        .map(|(unit, all)| Panel::of(part, *unit, all, WIDTH))
        .collect();
    page.legend(&signs(&panels));
    for panel in &panels {
        page.top = panel.write(&mut page.canvas, page.top);
    }
    let drawn = panels.iter().flat_map(|panel| panel.series);
    let drawn: Vec<usize> = drawn.map(|series| series.column).collect();
    page.left_out(part, &drawn);
    page.finish()
}

/// How fields differ, where there are several, and what else is drawn.
fn signs(panels: &[Panel<'_>]) -> Vec<Sign> {
    let all = || panels.iter().flat_map(|panel| panel.series);
    let has = |field: Field| all().any(|series| !series.points(field).is_empty());
    let ranges = all()
        .flat_map(Series::all)
        .any(|point| point.low < point.high);
    let mut signs = Vec::new();
    if has(Field::Measured) {
        signs.push(Sign {
            words: match ranges {
                true => "measured: median, least and most of the runs".to_owned(),
                false => "measured".to_owned(),
            },
            draw: |canvas, (x, y), width| {
                canvas.line("series ink", (x, y), (x + width, y));
            },
        });
    }
    if has(Field::Published) {
        signs.push(Sign {
            words: "published".to_owned(),
            draw: |canvas, (x, y), width| {
                canvas.line("series ink dash", (x, y), (x + width, y));
            },
        });
    }
    if has(Field::Predicted) {
        signs.push(Sign {
            words: "predicted before it was measured".to_owned(),
            draw: |canvas, (x, y), width| {
                canvas.line("series ink dots", (x, y), (x + width, y));
            },
        });
    }
    if panels.iter().any(|panel| !panel.crossings.is_empty()) {
        signs.push(Sign {
            words: "where measured lines cross".to_owned(),
            draw: |canvas, (x, y), width| canvas.circle("ring", (x + 0.5 * width, y), 6.5),
        });
    }
    signs
}

/// The mark of the series at `place`: another for each, so that colour is not all that tells them apart.
fn mark(canvas: &mut Canvas, class: &str, (x, y): (f64, f64), place: usize) {
    match place % 4 {
        0 => canvas.circle(class, (x, y), 4.0),
        1 => canvas.rectangle(class, (x - 3.6, y - 3.6), (7.2, 7.2)),
        2 => canvas.path(
            class,
            &[(x, y - 4.8), (x + 4.6, y + 3.4), (x - 4.6, y + 3.4)],
            true,
        ),
        _ => canvas.diamond(class, (x, y), 5.0),
    }
}

//! A part's chart as one SVG file that needs no other, readable on a light and on a dark page. May use: the data
//! model.
//!
//! Invariant: no text lies on another. Where there is no room for it, it is wrapped, shortened (and whole in its
//! tooltip) or left out.

mod axis;
mod bars;
mod canvas;
mod letters;
mod lines;
mod page;
mod series;

pub use canvas::{Anchor, Canvas};

use crate::reproduce::{ChartKind, Part, Reproduction};

/// The text of the file; `None` where `part` asks for no chart, or has no figure to draw.
pub fn svg(reproduction: &Reproduction, part: &Part) -> Option<String> {
    if !is_drawn(part) {
        return None;
    }
    let made = &reproduction.made;
    let subtitle = format!(
        "{}: {}, {}",
        reproduction.table, made.machine.processor, made.date
    );
    Some(match part.chart {
        ChartKind::Bars => bars::render(part, &subtitle),
        ChartKind::Lines => lines::render(part, &subtitle),
    })
}

/// Whether [`svg`] makes a chart of `part`.
pub(super) fn is_drawn(part: &Part) -> bool {
    match part.chart {
        ChartKind::Bars => !bars::columns(part).is_empty(),
        ChartKind::Lines => !lines::panels(part).is_empty(),
    }
}

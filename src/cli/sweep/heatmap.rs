//! Which point lies where in a heat map: two keys span it, and what others there are make more of them.
//!
//! May use: `tune`.

use crate::tune::sweep::{Axis, Grid, PointResult, SweepResults};

/// Heat maps at most; more say nothing at a glance.
const MOST_PANELS: usize = 8;

/// One or more heat maps over the same two keys.
pub(super) struct Heatmap<'a> {
    /// Downwards; `None` where only one key has several values.
    pub rows: Option<&'a Axis>,
    /// To the right.
    pub columns: &'a Axis,
    pub panels: Vec<Panel>,
}

/// A heat map.
pub(super) struct Panel {
    /// `key=value` of the keys that differ between panels.
    pub caption: String,
    /// Places of points among all, row by row.
    pub cells: Vec<Vec<usize>>,
}

/// The heat maps of `grid`; `None` where no key has several values, or there were too many.
pub(super) fn heatmap(grid: &Grid) -> Option<Heatmap<'_>> {
    let axes = &grid.axes;
    let varying = || (0..axes.len()).filter(|axis| axes[*axis].values.len() > 1);
    let columns = varying().next_back()?;
    let rows = varying().rev().nth(1);
    let others: Vec<usize> = varying()
        .filter(|axis| *axis != columns && Some(*axis) != rows)
        .collect();
    let mut panels: Vec<(Vec<usize>, Panel)> = Vec::new();
    for (index, point) in grid.points().iter().enumerate() {
        let at: Vec<usize> = others.iter().map(|axis| point.places[*axis]).collect();
        let found = panels.iter().position(|(places, _)| *places == at);
        let panel = found.unwrap_or_else(|| {
            let caption: Vec<&str> = others.iter().map(|a| point.settings[*a].as_str()).collect();
            let height = rows.map_or(1, |rows| axes[rows].values.len());
            let caption = caption.join(" ");
            let cells = vec![Vec::new(); height];
            panels.push((at, Panel { caption, cells }));
            panels.len() - 1
        });
        let row = rows.map_or(0, |rows| point.places[rows]);
        // Points come with the last key's values fastest, so columns come in order.
        panels[panel].1.cells[row].push(index);
    }
    (panels.len() <= MOST_PANELS).then(|| Heatmap {
        rows: rows.map(|rows| &axes[rows]),
        columns: &axes[columns],
        panels: panels.into_iter().map(|(_, panel)| panel).collect(),
    })
}

/// The least and the most samples/s of all points; `None` where nothing was measured.
pub(super) fn range(results: &SweepResults) -> Option<(f64, f64)> {
    let rates = || results.points.iter().filter_map(rate);
    let least = rates().reduce(f64::min)?;
    Some((least, rates().reduce(f64::max)?))
}

/// Samples/s of a point.
pub(super) fn rate(point: &PointResult) -> Option<f64> {
    Some(point.samples_per_second?.median)
}

/// A word for a point that has no samples/s.
pub(super) fn word(point: &PointResult) -> &'static str {
    use crate::tune::sweep::Outcome;
    match point.trials.first().map(|trial| &trial.outcome) {
        None => "not run",
        Some(Outcome::OutOfMemory | Outcome::Killed) => "no memory",
        Some(_) => "failed",
    }
}

/// Samples/s in a cell: few digits, and as many in all cells of which the fastest has `most`.
pub(super) fn short(rate: f64, most: f64) -> String {
    let decimals = match most {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{rate:.decimals$}")
}

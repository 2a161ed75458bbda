//! The heat maps of a sweep: two keys span one, and what others there are make more of them. May use: `charts`,
//! `tune`.

use super::Shown;
use crate::charts::{Frame, Heading, Heatmap, HeatmapPanel, Key, Tile};
use crate::tune::sweep::{Axis, Outcome, PointResult, SweepResults};

/// Heat maps at most; more say nothing at a glance.
const MOST_PANELS: usize = 8;

/// `None` where no key has several values, or there were too many heat maps.
pub(super) fn heatmap(shown: &Shown<'_>) -> Option<Heatmap> {
    let grid = shown.grid();
    let axes = &grid.axes;
    let varying = || (0..axes.len()).filter(|axis| axes[*axis].values.len() > 1);
    let columns = varying().next_back()?;
    let rows = varying().rev().nth(1);
    let others: Vec<usize> = varying()
        .filter(|axis| *axis != columns && Some(*axis) != rows)
        .collect();
    let range = range(shown.results);
    let most = range.map_or(0.0, |(_, most)| most);
    let mut panels: Vec<(Vec<usize>, HeatmapPanel)> = Vec::new();
    for (index, point) in grid.points().iter().enumerate() {
        let at: Vec<usize> = others.iter().map(|axis| point.places[*axis]).collect();
        let found = panels.iter().position(|(places, _)| *places == at);
        let panel = found.unwrap_or_else(|| {
            let caption: Vec<&str> = others.iter().map(|a| point.settings[*a].as_str()).collect();
            let caption = caption.join(" ");
            let height = rows.map_or(1, |rows| axes[rows].values.len());
            let tiles = (0..height).map(|_| Vec::new()).collect();
            panels.push((at, HeatmapPanel { caption, tiles }));
            panels.len() - 1
        });
        let row = rows.map_or(0, |rows| point.places[rows]);
        // Points come with the last key's values fastest, so columns come in order.
        panels[panel].1.tiles[row].push(tile(shown.results, index, most));
    }
    let key = |axis: &Axis| Key {
        name: axis.key.clone(),
        values: axis.values.clone(),
    };
    let knee = match shown.results.knee_is_sure {
        true => "the smallest within 2 % of it",
        false => "perhaps the smallest within 2 %",
    };
    (panels.len() <= MOST_PANELS).then(|| Heatmap {
        heading: heading(shown),
        columns: key(&axes[columns]),
        rows: rows.map(|rows| key(&axes[rows])),
        panels: panels.into_iter().map(|(_, panel)| panel).collect(),
        range,
        ends: [short(range.unwrap_or_default().0, most), short(most, most)],
        unit: "samples/s",
        signs: vec![
            (Some(Frame::Solid), "the best"),
            (Some(Frame::Dashed), knee),
            (None, "nothing measured"),
        ],
    })
}

/// The least and the most samples/s of all points; `None` where nothing was measured.
pub(super) fn range(results: &SweepResults) -> Option<(f64, f64)> {
    let rates = || results.points.iter().filter_map(rate);
    let least = rates().reduce(f64::min)?;
    Some((least, rates().reduce(f64::max)?))
}

/// Samples/s of a point.
fn rate(point: &PointResult) -> Option<f64> {
    Some(point.samples_per_second?.median)
}

fn tile(results: &SweepResults, index: usize, most: f64) -> Tile {
    let point = &results.points[index];
    let value = rate(point);
    let mut words = vec![
        match (value, point.trials.first().map(|trial| &trial.outcome)) {
            (Some(rate), _) => short(rate, most),
            (None, None) => "not run".to_owned(),
            (None, Some(Outcome::OutOfMemory | Outcome::Killed | Outcome::TooLargeForHost)) => {
                "no memory".to_owned()
            }
            (None, Some(_)) => "failed".to_owned(),
        },
    ];
    if value.is_some() && point.failed > 0 {
        words.push(format!("{} of {} failed", point.failed, point.trials.len()));
    }
    let frame = match results.best == Some(index) {
        true => Some(Frame::Solid),
        false => (results.knee == Some(index)).then_some(Frame::Dashed),
    };
    Tile {
        value,
        words,
        frame,
    }
}

/// Samples/s in a cell: few digits, and as many in all cells of which the fastest has `most`.
fn short(rate: f64, most: f64) -> String {
    let decimals = match most {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{rate:.decimals$}")
}

/// With what holds in all cells.
fn heading(shown: &Shown<'_>) -> Heading {
    let device = shown.plan.device();
    let device = device.map_or(String::new(), |device| format!(" on {device}"));
    let axes = shown.grid().axes.iter();
    let fixed = axes.filter(|axis| axis.values.len() == 1);
    let fixed: String = fixed
        .map(|axis| format!("{}={}; ", axis.key, axis.values[0]))
        .collect();
    let (done, all) = (shown.results.trials_done, shown.results.trials_in_all);
    let part = match done < all {
        true => format!(" ({done} of {all} trials are done)"),
        false => String::new(),
    };
    let repeats = shown.plan.manifest.repeats;
    Heading {
        title: format!("{}{device}: samples/s", shown.plan.name()),
        subtitle: format!("{fixed}median of {repeats} runs{part}"),
    }
}

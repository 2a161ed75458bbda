//! A sweep's points as CSV (RFC 4180), a row each. May use: `tune`.

use super::Shown;
use crate::tune::sweep::{IntervalKind, PointResult};

/// The columns after the grid's keys.
const COLUMNS: [&str; 14] = [
    "samples_per_second",
    "samples_per_second_low",
    "samples_per_second_high",
    "interval",
    "runs",
    "failed",
    "device_busy_share",
    "data_wait_share",
    "first_batch_ns",
    "reserved_bytes",
    "elapsed_ns",
    "best",
    "knee",
    "failure",
];

pub(super) fn render(shown: &Shown<'_>) -> String {
    let keys = shown.grid().axes.iter().map(|axis| axis.key.clone());
    let header = line(keys.chain(COLUMNS.map(str::to_owned)));
    let points = shown.results.points.iter().enumerate();
    let rows = points.map(|(index, point)| line(row(shown, index, point)));
    std::iter::once(header).chain(rows).collect()
}

fn row(shown: &Shown<'_>, index: usize, point: &PointResult) -> impl Iterator<Item = String> {
    fn text<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let axes = shown.grid().axes.iter().zip(&point.places);
    let values: Vec<String> = axes
        .map(|(axis, place)| axis.values[*place].clone())
        .collect();
    let spread = point.samples_per_second;
    let interval = spread.map(|spread| match spread.interval {
        IntervalKind::LeastToMost => "least_to_most",
        IntervalKind::Median95Percent => "median_95_percent",
    });
    let figures = [
        text(spread.map(|spread| spread.median)),
        text(spread.map(|spread| spread.low)),
        text(spread.map(|spread| spread.high)),
        text(interval),
        (point.trials.len() - point.failed).to_string(),
        point.failed.to_string(),
        text(point.device_busy_share),
        text(point.data_wait_share),
        text(point.first_batch_ns),
        text(point.reserved_bytes),
        text(point.elapsed_ns),
        (shown.results.best == Some(index)).to_string(),
        (shown.results.knee == Some(index)).to_string(),
        text(point.failure()),
    ];
    values.into_iter().chain(figures)
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(quoted).collect();
    cells.join(",") + "\r\n"
}

fn quoted(cell: String) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

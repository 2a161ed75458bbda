//! A sweep's points as a table for the terminal, with the best and the knee below. May use: `report`, `text`,
//! `timeline`, `tune`.

use super::Shown;
use crate::report;
use crate::text::{Column, Table, paragraph};
use crate::timeline::{Bytes, Nanos};
use crate::tune::of_the_knee;
use crate::tune::sweep::PointResult;

/// What the interval of a point is.
pub(super) const INTERVAL: &str =
    "interval: least to most of fewer than 6 runs; of more, the 95 % interval of the median";
/// What the columns behind the keys take.
const FIGURES: usize = 75;

/// The table and the answers, in lines of at most `width`; commands may be longer.
pub(super) fn render(shown: &Shown<'_>, width: usize) -> String {
    let table = table(shown, width).render(width);
    format!("{table}{}", answers(shown, width))
}

/// A row for each point, for lines of `width`.
pub(super) fn table(shown: &Shown<'_>, width: usize) -> Table {
    let axes = &shown.grid().axes;
    let names = axes.iter().map(|axis| axis.key.len() + 2);
    let is_wide = names.sum::<usize>() + FIGURES <= width;
    let keys = axes.iter().map(|axis| match is_wide {
        true => Column::key(axis.key.clone()),
        // Broken behind its dot.
        false => Column::key(axis.key.replace('.', ".\n")),
    });
    let figures = [
        "samples/s",
        "interval",
        "device busy",
        "data wait",
        "first batch",
        "memory",
        "runs",
    ];
    let columns = keys.chain(figures.map(Column::figure));
    let mut table = Table::new(columns.chain([Column::words("")]));
    for (index, point) in shown.results.points.iter().enumerate() {
        table.push(row(shown, index, point));
    }
    table
}

fn row(shown: &Shown<'_>, index: usize, point: &PointResult) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let percent = |share: Option<f64>| or_dash(share.map(report::percent));
    let axes = shown.grid().axes.iter().zip(&point.places);
    let mut row: Vec<String> = axes
        .map(|(axis, place)| axis.values[*place].clone())
        .collect();
    let spread = point.samples_per_second;
    let measured = point.trials.len() - point.failed;
    row.extend([
        or_dash(spread.map(|spread| format!("{:.1}", spread.median))),
        or_dash(spread.map(|spread| format!("{:.1}..{:.1}", spread.low, spread.high))),
        percent(point.device_busy_share),
        percent(point.data_wait_share),
        or_dash(point.first_batch_ns.map(|nanos| Nanos(nanos).to_string())),
        or_dash(point.reserved_bytes.map(|bytes| Bytes(bytes).to_string())),
        measured.to_string(),
        remark(shown, index, point),
    ]);
    row
}

fn remark(shown: &Shown<'_>, index: usize, point: &PointResult) -> String {
    let best = (shown.results.best == Some(index)).then_some("best");
    let knee = (shown.results.knee == Some(index)).then_some("knee");
    let marks: Vec<&str> = best.into_iter().chain(knee).collect();
    match point.failure() {
        Some(reason) => failure(point, reason),
        None => marks.join(", "),
    }
}

fn failure(point: &PointResult, reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    match (point.failed, point.trials.len()) {
        (failed, all) if failed == all => line.to_owned(),
        (failed, all) => format!("{line} ({failed} of {all} times)"),
    }
}

fn answers(shown: &Shown<'_>, width: usize) -> String {
    let mut out = format!("\n{}", paragraph("", 0, INTERVAL, width));
    let mut answer = |name: &str, index: usize, why: &str| {
        let point = &shown.results.points[index];
        let rate = point.samples_per_second.map_or(0.0, |spread| spread.median);
        let text = format!("{}: {rate:.1} samples/s{why}", point.settings.join(" "));
        out += &paragraph(name, 6, &text, width);
        out += &format!("      {}\n", shown.command(index));
    };
    let results = shown.results;
    let knee = of_the_knee("the settings", results.knee_is_sure, results.run_spread);
    if let Some(best) = results.best {
        let is_knee = results.knee == Some(best);
        let why = is_knee.then(|| format!("; {knee}"));
        answer("best", best, &why.unwrap_or_default());
    }
    if let Some(smallest) = results.knee.filter(|knee| results.best != Some(*knee)) {
        answer("knee", smallest, &format!("; {knee}"));
    }
    out
}

//! A sweep's points as a table for the terminal, with the best and the knee below. May use: `report`, `timeline`, `tune`.

use super::Shown;
use crate::report;
use crate::timeline::{Bytes, Nanos};
use crate::tune::of_the_knee;
use crate::tune::sweep::PointResult;
use std::fmt::Write;

/// Characters of a failure's reason that a line has room for.
const REASON: usize = 60;

pub(super) fn render(shown: &Shown<'_>) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    write_table(&mut out, shown).ok();
    write_answers(&mut out, shown).ok();
    out
}

fn write_table(out: &mut String, shown: &Shown<'_>) -> std::fmt::Result {
    let axes = &shown.grid().axes;
    let mut header: Vec<String> = axes.iter().map(|axis| axis.key.clone()).collect();
    let columns = [
        "samples/s",
        "interval",
        "device busy",
        "data wait",
        "first batch",
        "memory",
        "runs",
        "",
    ];
    header.extend(columns.map(str::to_owned));
    let points = shown.results.points.iter().enumerate();
    let rows = points.map(|(index, point)| row(shown, index, point));
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let last = rows[0].len() - 1;
    let widths: Vec<usize> = (0..last).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:>width$}  ")?;
        }
        line.push_str(&row[last]);
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
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
    let short: String = line.chars().take(REASON).collect();
    let dots = if short.len() < line.len() { "..." } else { "" };
    let times = match (point.failed, point.trials.len()) {
        (failed, all) if failed == all => String::new(),
        (failed, all) => format!(" ({failed} of {all} times)"),
    };
    format!("{short}{dots}{times}")
}

fn write_answers(out: &mut String, shown: &Shown<'_>) -> std::fmt::Result {
    writeln!(
        out,
        "\ninterval: of fewer than 6 runs the least and the most; of more, where the median lies with 95 %"
    )?;
    let mut answer = |name: &str, index: usize, why: &str| {
        let point = &shown.results.points[index];
        let rate = point.samples_per_second.map_or(0.0, |spread| spread.median);
        writeln!(
            out,
            "{name}  {}: {rate:.1} samples/s{why}",
            point.settings.join(" ")
        )?;
        writeln!(out, "      {}", shown.command(index))
    };
    let results = shown.results;
    let knee = of_the_knee("the settings", results.knee_is_sure, results.run_spread);
    if let Some(best) = results.best {
        let is_knee = results.knee == Some(best);
        answer(
            "best",
            best,
            &if is_knee {
                format!("; {knee}")
            } else {
                String::new()
            },
        )?;
    }
    if let Some(smallest) = results.knee.filter(|knee| results.best != Some(*knee)) {
        answer("knee", smallest, &format!("; {knee}"))?;
    }
    Ok(())
}

//! The figures of all sides, side by side. May use: `compare`, `report`, `text`, `timeline`.

use crate::compare::{CauseFigures, Comparison, Figures, StageFigures};
use crate::report::percent;
use crate::text::{Column, Table, paragraph};
use crate::timeline::Nanos;

/// Causes with less of the window on every side are left out.
const SHOWN: f64 = 0.005;

/// The table, not wider than `width`.
pub(super) fn render(comparison: &Comparison, width: usize) -> String {
    let sides: Vec<&Figures> = comparison.sides.iter().map(|side| &side.figures).collect();
    let names = comparison.sides.iter();
    let names = names.map(|side| Column::figure(side.side.clone()));
    let mut table = Table::new(std::iter::once(Column::name("")).chain(names));
    for (label, cells) in rows(&sides) {
        table.push(std::iter::once(label).chain(cells));
    }
    let reading = "(stage: workers, busy share of their time, p50 of an item)";
    table.render(width) + &paragraph("", 0, reading, width)
}

type Row = (String, Vec<String>);

fn rows(sides: &[&Figures]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |label: &str, cell: &dyn Fn(&Figures) -> Option<String>| {
        let cells = sides
            .iter()
            .map(|side| cell(side).unwrap_or("-".to_owned()));
        rows.push((label.to_owned(), cells.collect::<Vec<_>>()));
    };
    let counts_steps = sides.iter().all(|side| side.counts_steps);
    let rate = if counts_steps { "steps/s" } else { "samples/s" };
    row(rate, &|side| {
        Some(format!("{:.1}", side.samples_per_second))
    });
    row("device busy", &|side| side.device_busy_share.map(percent));
    row("data wait", &|side| Some(percent(side.data_wait_share)));
    row("step p50", &|side| side.step_p50_ns.map(time));
    for cause in union(sides, causes) {
        let cell = |side: &Figures| {
            let found = side.idle_causes.iter().find(|row| row.cause == cause)?;
            let (share, time) = (percent(found.share), time(found.ns_per_step));
            Some(format!("{share}, {time}/step"))
        };
        row(&format!("idle: {cause}"), &cell);
    }
    for stage in union(sides, stages) {
        let of = |side: &Figures| -> Option<StageFigures> {
            side.stages.iter().find(|row| row.stage == stage).cloned()
        };
        row(&format!("stage {stage}"), &|side| {
            let stage = of(side)?;
            let (busy, service) = (percent(stage.busy_share), time(stage.service_p50_ns));
            Some(format!("{}, {busy}, {service}", stage.workers))
        });
    }
    rows
}

fn time(ns: f64) -> String {
    Nanos(ns.round() as u64).to_string()
}

/// Each name that any side has, in the order in which they are met.
fn union(sides: &[&Figures], names: fn(&Figures) -> Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in sides.iter().flat_map(|side| names(side)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn causes(side: &Figures) -> Vec<String> {
    let shown = side.idle_causes.iter().filter(|cause| cause.share >= SHOWN);
    shown
        .map(|cause: &CauseFigures| cause.cause.clone())
        .collect()
}

fn stages(side: &Figures) -> Vec<String> {
    side.stages.iter().map(|row| row.stage.clone()).collect()
}

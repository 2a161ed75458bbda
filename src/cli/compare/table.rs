//! The figures of all sides, side by side. May use: `compare`, `report`, `timeline`.

use crate::compare::{CauseFigures, Comparison, Figures, StageFigures};
use crate::report::percent;
use crate::timeline::Nanos;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Of a terminal whose width is unknown, and of a file.
const USUAL_WIDTH: u16 = 100;
/// Causes with less of the window on every side are left out.
const SHOWN: f64 = 0.0005;

/// The terminal's width.
pub(super) fn width() -> u16 {
    terminal_size::terminal_size().map_or(USUAL_WIDTH, |(width, _)| width.0)
}

/// The table, not wider than `width`.
pub(super) fn render(comparison: &Comparison, width: u16) -> String {
    let sides: Vec<&Figures> = comparison.sides.iter().map(|side| &side.figures).collect();
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width);
    let names = comparison.sides.iter().map(|side| side.side.clone());
    table.set_header(std::iter::once(String::new()).chain(names));
    for (label, cells) in rows(&sides) {
        table.add_row(std::iter::once(label).chain(cells));
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if number > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
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
    row("samples/s", &|side| {
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
        row(&format!("{stage}: workers"), &|side| {
            Some(of(side)?.workers.to_string())
        });
        row(&format!("{stage}: busy"), &|side| {
            Some(percent(of(side)?.busy_share))
        });
        row(&format!("{stage}: service p50"), &|side| {
            Some(time(of(side)?.service_p50_ns))
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

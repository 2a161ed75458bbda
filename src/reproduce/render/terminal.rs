//! A re-measured table as plain text. May use: `text`, the data model.

use super::layout::{self, Remarks};
use super::{figure, provenance};
use crate::reproduce::{DataUsed, Part, Reproduction, Row, Source};
use crate::text::{Column, Table, paragraph};

/// Of the names before what is said.
const LABEL: usize = 10;

/// The whole of it in lines of at most `width`: where it was measured, a table for each part with its reasons, and what
/// explains the figures.
pub fn terminal(reproduction: &Reproduction, width: usize) -> String {
    let made = &reproduction.made;
    let say = |label: &str, text: &str| match label.len() < LABEL {
        true => paragraph(label, LABEL, text, width),
        false => paragraph("", 0, &format!("{label}  {text}"), width),
    };
    let mut out = say(&reproduction.table, &reproduction.title);
    out += &say("machine", &provenance::machine(&made.machine));
    out += &say("made", &provenance::made(made));
    // A command is to be copied: it stays on its line.
    out += &format!("{:LABEL$}{}\n", "command", made.command);
    for (label, data) in labelled("data", &made.data) {
        out += &say(label, &described(data));
    }
    for (label, config) in labelled("configs", &made.configs) {
        out += &say(label, provenance::config(config));
    }
    for part in &reproduction.parts {
        out += &shown(part, width);
    }
    let sources: Vec<String> = reproduction.sources.iter().map(source).collect();
    out += &list("explanation", &reproduction.explanation, width);
    out += &list("notes", &reproduction.notes, width);
    out + &list("sources", &sources, width)
}

fn shown(part: &Part, width: usize) -> String {
    let remarks = Remarks::of(part);
    let mut out = format!(
        "\n{}\n\n{}",
        part.title,
        table(part, &remarks).render(width)
    );
    let reading = layout::reading(part);
    if reading.is_some() || remarks.all().next().is_some() {
        out.push('\n');
    }
    if let Some(reading) = reading {
        out += &paragraph("", 2, &reading, width);
    }
    for (number, remark) in remarks.all() {
        out += &paragraph(&format!("  *{number}"), 6, remark, width);
    }
    let reasons = part.rows.iter().filter_map(reason);
    let reasons: Vec<String> = reasons
        .map(|reason| paragraph("", 2, &reason, width))
        .collect();
    if !reasons.is_empty() {
        out.push('\n');
    }
    out + &reasons.concat()
}

/// A column for each field of each of the part's columns.
fn table(part: &Part, remarks: &Remarks<'_>) -> Table {
    let fields = layout::all_fields(part);
    let columns = fields.iter().map(|(place, field)| {
        let column = &part.columns[*place];
        let heading = figure::heading(&column.name, column.unit);
        Column::figure(format!("{}\n{heading}", field.name()))
    });
    let mut table = Table::new(std::iter::once(Column::name(&*part.rows_are)).chain(columns));
    for row in &part.rows {
        let cells = fields.iter().map(|(place, field)| {
            let unit = part.columns[*place].unit;
            let cell = layout::written(row.cells.get(*place), *field, unit, remarks);
            cell.text(|number| format!("*{number}"))
        });
        table.push(std::iter::once(row.name.clone()).chain(cells));
    }
    table
}

fn reason(row: &Row) -> Option<String> {
    Some(format!("{}: {}", row.name, row.reason.as_deref()?))
}

fn list(title: &str, lines: &[String], width: usize) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines.iter().map(|line| paragraph("", 2, line, width));
    format!("\n{title}\n{}", lines.collect::<String>())
}

/// `label` before the first of `all`, and nothing before the others.
fn labelled<'a, T>(label: &'a str, all: &'a [T]) -> impl Iterator<Item = (&'a str, &'a T)> {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(all)
}

fn described(data: &DataUsed) -> String {
    let origin = provenance::origin(data);
    format!("{} ({}): {origin}", data.name, data.path)
}

fn source(source: &Source) -> String {
    let url = source.url.as_deref().map(|url| format!(" <{url}>"));
    let setup = source.setup.as_deref();
    let setup = setup.map(|setup| format!("; measured on {setup}"));
    format!(
        "{}{}{}",
        source.title,
        url.unwrap_or_default(),
        setup.unwrap_or_default()
    )
}

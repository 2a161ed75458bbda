//! A re-measured table as a page. May use: `report`, the data model.

use super::layout::{self, Remarks};
use super::{figure, provenance, svg};
use crate::report::page::{Chart, Document, Fact, Sentence, Table};
use crate::reproduce::{Part, Reproduction};

/// All of it; `written` is when, in seconds since 1970.
pub fn page(reproduction: &Reproduction, written: f64) -> Document {
    let explanation = &reproduction.explanation;
    let mut rest = explanation.iter();
    let verdict = rest.next().unwrap_or(&reproduction.title);
    let reasons = reproduction.parts.iter().flat_map(reasons);
    let parts = reproduction.parts.iter();
    let charts = parts.clone().filter_map(|part| {
        Some(Chart {
            title: part.title.clone(),
            reading: String::new(),
            svg: svg(reproduction, part)?,
        })
    });
    Document {
        title: format!("{} ({})", reproduction.title, reproduction.table),
        written,
        verdict: Sentence {
            change: Some(reproduction.made.command.trim().to_owned()),
            ..Sentence::of(verdict)
        },
        charts: charts.collect(),
        tables: parts.map(table).collect(),
        notes: { rest.cloned() }
            .chain(reasons)
            .chain(reproduction.notes.iter().cloned())
            .collect(),
        facts: facts(reproduction),
        ..Document::default()
    }
}

fn table(part: &Part) -> Table {
    let remarks = Remarks::of(part);
    let fields = layout::all_fields(part);
    let heads = fields.iter().map(|(place, field)| {
        let column = &part.columns[*place];
        let name = figure::heading(&column.name, column.unit);
        format!("{name}, {}", field.name())
    });
    let rows = part.rows.iter().map(|row| {
        let cells = fields.iter().map(|(place, field)| {
            let unit = part.columns[*place].unit;
            let cell = layout::written(row.cells.get(*place), *field, unit, &remarks);
            cell.text(|number| format!("[{number}]"))
        });
        [row.name.clone()].into_iter().chain(cells).collect()
    });
    let told = remarks
        .all()
        .map(|(number, remark)| format!("[{number}] {remark}."));
    let reading = layout::reading(part).map(|reading| format!("{reading}."));
    let reading: Vec<String> = reading.into_iter().chain(told).collect();
    Table::new(
        part.title.as_str(),
        reading.join(" "),
        [part.rows_are.clone()].into_iter().chain(heads),
        rows.collect(),
    )
}

/// Why figures are missing.
fn reasons(part: &Part) -> impl Iterator<Item = String> + '_ {
    let rows = part.rows.iter();
    rows.filter_map(|row| Some(format!("{}: {}", row.name, row.reason.as_deref()?)))
}

fn facts(reproduction: &Reproduction) -> Vec<Fact> {
    let made = &reproduction.made;
    let mut facts = vec![
        Fact::new("Machine", provenance::machine(&made.machine)),
        Fact::new("Made", provenance::made(made)),
    ];
    facts.extend({ made.data.iter() }.map(|data| {
        let origin = provenance::origin(data);
        Fact::new("Data", format!("{} ({}): {origin}", data.name, data.path))
    }));
    facts.extend({ reproduction.sources.iter() }.map(|source| {
        let setup = source.setup.as_ref();
        let setup = setup.map_or(String::new(), |setup| format!("; measured on {setup}"));
        let url = source.url.as_ref();
        let url = url.map_or(String::new(), |url| format!(", {url}"));
        Fact::new("Published", format!("{}{url}{setup}", source.title))
    }));
    facts
}

//! A re-measured table as GitHub's Markdown, to be kept with its charts. May use: the data model.

use super::layout::{self, Field, Remarks};
use super::{chart_file, figure, provenance};
use crate::reproduce::{Part, Provenance, Reproduction, Row, Source};
use std::fmt::{self, Write};

/// A page; the charts that it shows are files of their own beside it, see [`super::chart_file`].
pub fn markdown(reproduction: &Reproduction) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    write_all(&mut out, reproduction).ok();
    out
}

fn write_all(out: &mut String, reproduction: &Reproduction) -> fmt::Result {
    let title = escaped(&reproduction.title);
    writeln!(out, "# {title} ({})", code(&reproduction.table))?;
    for part in &reproduction.parts {
        write_part(out, part)?;
    }
    let explanation = reproduction.explanation.iter();
    write_list(out, "## Explanation", explanation.map(|line| escaped(line)))?;
    let notes = reproduction.notes.iter();
    write_list(out, "## Notes", notes.map(|line| escaped(line)))?;
    write_provenance(out, &reproduction.made)?;
    let sources = reproduction.sources.iter().map(linked);
    write_list(out, "## Sources of the published figures", sources)
}

fn write_part(out: &mut String, part: &Part) -> fmt::Result {
    writeln!(out, "\n## {}\n", escaped(&part.title))?;
    write_table(out, part)?;
    let remarks = Remarks::of(part);
    if let Some(reading) = layout::reading(part) {
        // A paragraph of its own: right behind a table it would be a row of it.
        writeln!(
            out,
            "\n{}{}.",
            reading[..1].to_uppercase(),
            escaped(&reading[1..])
        )?;
    }
    for (number, remark) in remarks.all() {
        writeln!(out, "\n<sup>{number}</sup> {}", escaped(remark))?;
    }
    if let Some(file) = chart_file(part) {
        writeln!(out, "\n![{}]({file})", escaped(&part.title))?;
    }
    let reasons = part.rows.iter().filter_map(|row| {
        let reason = escaped(row.reason.as_deref()?);
        Some(format!("**{}**: {reason}", escaped(&row.name)))
    });
    write_list(out, "### Why", reasons)?;
    let any = part.rows.iter().any(|row| !row.settings.is_empty());
    let settings = part.rows.iter().filter(|_| any).map(settings);
    write_list(out, "### Settings beside the experiment file", settings)
}

fn write_table(out: &mut String, part: &Part) -> fmt::Result {
    let remarks = Remarks::of(part);
    let fields = layout::all_fields(part);
    let heading = |(place, field): &(usize, Field)| {
        let column = &part.columns[*place];
        let name = figure::heading(&column.name, column.unit);
        format!("{}<br>{}", escaped(&name), field.name())
    };
    let headings: Vec<String> = fields.iter().map(heading).collect();
    write_row(out, &escaped(&part.rows_are), &headings)?;
    writeln!(out, "|---|{}", "---:|".repeat(fields.len()))?;
    for row in &part.rows {
        let cell = |(place, field): &(usize, Field)| {
            let unit = part.columns[*place].unit;
            let cell = layout::written(row.cells.get(*place), *field, unit, &remarks);
            cell.text(|number| format!("<sup>{number}</sup>"))
        };
        let cells: Vec<String> = fields.iter().map(cell).collect();
        write_row(out, &escaped(&row.name), &cells)?;
    }
    Ok(())
}

fn write_row(out: &mut String, name: &str, cells: &[String]) -> fmt::Result {
    let cells: String = cells.iter().map(|cell| format!(" {cell} |")).collect();
    writeln!(out, "| {name} |{cells}")
}

fn settings(row: &Row) -> String {
    let settings = row.settings.iter();
    let settings: Vec<String> = settings
        .map(|setting| code(&format!("--set {setting}")))
        .collect();
    let settings = match settings.is_empty() {
        true => "none".to_owned(),
        false => settings.join(" "),
    };
    format!("**{}**: {settings}", escaped(&row.name))
}

/// `items` below `heading`, where there are any.
fn write_list(out: &mut String, heading: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    for (place, item) in items.enumerate() {
        if place == 0 {
            writeln!(out, "\n{heading}\n")?;
        }
        writeln!(out, "- {item}")?;
    }
    Ok(())
}

fn write_provenance(out: &mut String, made: &Provenance) -> fmt::Result {
    writeln!(out, "\n## How it was measured\n")?;
    writeln!(out, "```sh\n{}\n```\n", made.command.trim())?;
    writeln!(
        out,
        "- Machine: {}",
        escaped(&provenance::machine(&made.machine))
    )?;
    writeln!(out, "- Made: {}", escaped(&provenance::made(made)))?;
    for data in &made.data {
        let origin = provenance::origin(data);
        writeln!(
            out,
            "- Data: {} ({}): {origin}",
            escaped(&data.name),
            code(&data.path)
        )?;
    }
    for config in &made.configs {
        let name = provenance::config(config);
        writeln!(out, "- Configuration: [{}]({})", code(name), target(config))?;
    }
    Ok(())
}

fn linked(source: &Source) -> String {
    let title = escaped(&source.title);
    let title = match &source.url {
        Some(url) => format!("[{title}]({})", target(url)),
        None => title,
    };
    match &source.setup {
        Some(setup) => format!("{title}; measured on {}", escaped(setup)),
        None => title,
    }
}

/// `words` on one line, with nothing in them that is Markdown's.
fn escaped(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for letter in words
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
    {
        if r"\`*<>|~$[]".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// As code, whatever is in it.
fn code(words: &str) -> String {
    match words.contains('`') {
        true => format!("`` {words} ``"),
        false => format!("`{words}`"),
    }
}

/// Where a link leads: within its brackets.
fn target(url: &str) -> String {
    url.replace(' ', "%20")
        .replace('(', "%28")
        .replace(')', "%29")
}

//! A re-measured table as plain text of at most 120 columns. May use: the data model.

mod block;

use super::{layout, provenance};
use crate::reproduce::{DataUsed, Part, Reproduction, Row, Source};
use std::fmt::{self, Write};

/// Columns of a terminal that tables keep to.
const WIDTH: usize = 120;
/// The same of running text.
const TEXT: usize = 110;
/// Of the names before what is told.
const LABEL: usize = 10;

/// The whole of it: where it was measured, a table for each part with its reasons, and what explains the figures.
pub fn terminal(reproduction: &Reproduction) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    write_all(&mut out, reproduction).ok();
    out
}

fn write_all(out: &mut String, reproduction: &Reproduction) -> fmt::Result {
    let made = &reproduction.made;
    told(out, &reproduction.table, &reproduction.title)?;
    told(out, "machine", &provenance::machine(&made.machine))?;
    told(out, "made", &provenance::made(made))?;
    // A command is to be copied: it stays on its line.
    writeln!(out, "{:LABEL$}{}", "command", made.command)?;
    for (label, data) in labelled("data", &made.data) {
        told(out, label, &described(data))?;
    }
    for (label, config) in labelled("configs", &made.configs) {
        writeln!(out, "{label:LABEL$}{}", provenance::config(config))?;
    }
    for part in &reproduction.parts {
        write_part(out, part)?;
    }
    write_list(out, "explanation", &reproduction.explanation)?;
    write_list(out, "notes", &reproduction.notes)?;
    let sources: Vec<String> = reproduction.sources.iter().map(source).collect();
    write_list(out, "sources", &sources)
}

fn write_part(out: &mut String, part: &Part) -> fmt::Result {
    writeln!(out, "\n{}", part.title)?;
    for block in block::blocks(part, WIDTH) {
        writeln!(out)?;
        for line in block {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    let remarks = layout::Remarks::of(part);
    let reading = layout::reading(part);
    let reasons: Vec<(&str, &str)> = part.rows.iter().filter_map(reason).collect();
    if reading.is_some() || remarks.all().next().is_some() {
        writeln!(out)?;
    }
    if let Some(reading) = reading {
        paragraph(out, "  ", &reading)?;
    }
    for (number, remark) in remarks.all() {
        paragraph(out, &format!("  *{number}  "), remark)?;
    }
    if !reasons.is_empty() {
        writeln!(out)?;
    }
    for (name, reason) in reasons {
        let lines = wrap(&format!("{name}: {reason}"), TEXT - 4);
        for (place, line) in lines.iter().enumerate() {
            let indent = if place == 0 { 2 } else { 4 };
            writeln!(out, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}

fn reason(row: &Row) -> Option<(&str, &str)> {
    Some((row.name.as_str(), row.reason.as_deref()?))
}

fn write_list(out: &mut String, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    lines.iter().try_for_each(|line| paragraph(out, "  ", line))
}

fn told(out: &mut String, label: &str, text: &str) -> fmt::Result {
    let gap = usize::from(letters(label) >= LABEL);
    let label = format!("{label:LABEL$}{:gap$}", "");
    paragraph(out, &label, text)
}

/// `text` behind `label`, and its further lines beneath its first.
fn paragraph(out: &mut String, label: &str, text: &str) -> fmt::Result {
    let indent = letters(label);
    let limit = TEXT.saturating_sub(indent);
    for (place, line) in wrap(text, limit).iter().enumerate() {
        let before = if place == 0 { label } else { "" };
        writeln!(out, "{}", format!("{before:indent$}{line}").trim_end())?;
    }
    Ok(())
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

/// The words of `text` in lines of at most `limit` letters, one at least; a word that is longer has a line of its own.
fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else {
            break;
        };
        let longer = match line.is_empty() {
            true => word.to_owned(),
            false => format!("{line} {word}"),
        };
        if line.is_empty() || letters(&longer) <= limit {
            *line = longer;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// How many letters there are.
fn letters(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_they_may_be() {
        let lines = wrap("one two  three\nfour incomprehensible", 9);
        assert_eq!(lines, ["one two", "three", "four", "incomprehensible"]);
        assert_eq!(wrap("", 9), [""]);
    }
}

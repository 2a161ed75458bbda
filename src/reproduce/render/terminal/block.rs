//! The columns of a part in blocks that are no wider than the terminal, each with the names of the rows. May use:
//! the data model.

use super::{letters, wrap};
use crate::reproduce::Part;
use crate::reproduce::render::figure;
use crate::reproduce::render::layout::{self, Field, Remarks, Written};

/// Letters of a row's name on one line.
const NAME: usize = 34;
/// The same where the columns leave little room.
const SHORT_NAME: usize = 12;
/// Letters of a column's name on one line, at least.
const HEADING: usize = 14;
/// Between the fields of a column, and between columns.
const GAP: usize = 2;
const GROUP_GAP: usize = 3;

/// A column of the part: its heading, and below it the names of its fields and the fields of each row, all of one width.
struct Group {
    heading: Vec<String>,
    rows: Vec<String>,
    width: usize,
}

/// The lines of each block.
pub(super) fn blocks(part: &Part, width: usize) -> Vec<Vec<String>> {
    let remarks = Remarks::of(part);
    let columns = 0..part.columns.len();
    let groups: Vec<Group> = columns
        .map(|column| group(part, column, &remarks))
        .collect();
    let widest = groups.iter().map(|group| group.width).max().unwrap_or(0);
    let room = width.saturating_sub(widest + GROUP_GAP);
    let names = Names::of(part, room.clamp(SHORT_NAME, NAME));
    let mut blocks: Vec<Vec<&Group>> = Vec::new();
    let mut used = usize::MAX;
    for group in &groups {
        let wider = used.saturating_add(GROUP_GAP + group.width);
        match blocks.last_mut() {
            Some(block) if wider <= width => {
                used = wider;
                block.push(group);
            }
            _ => {
                used = names.width + GROUP_GAP + group.width;
                blocks.push(vec![group]);
            }
        }
    }
    blocks.iter().map(|groups| lines(&names, groups)).collect()
}

/// The first column: what rows stand for, and the names of the rows; each in lines.
struct Names {
    rows: Vec<Vec<String>>,
    width: usize,
}

impl Names {
    fn of(part: &Part, limit: usize) -> Names {
        let mut rows = vec![vec![part.rows_are.clone()]];
        rows.extend(part.rows.iter().map(|row| wrap(&row.name, limit)));
        let width = rows.iter().flatten().map(|name| letters(name)).max();
        Names {
            width: width.unwrap_or(0),
            rows,
        }
    }
}

fn lines(names: &Names, groups: &[&Group]) -> Vec<String> {
    let line = |name: &str, cells: &dyn Fn(&Group) -> String| {
        let mut line = format!("{name:<0$}", names.width);
        for group in groups {
            let cells = cells(group);
            line.push_str(&format!("{:GROUP_GAP$}{cells:<1$}", "", group.width));
        }
        line
    };
    let deep = groups.iter().map(|group| group.heading.len()).max();
    let deep = deep.unwrap_or(0);
    let heading = |place: usize| {
        line("", &|group: &Group| {
            // Headings of fewer lines stand at the bottom.
            let own = (place + group.heading.len()).checked_sub(deep);
            own.map(|own| group.heading[own].clone())
                .unwrap_or_default()
        })
    };
    let mut lines: Vec<String> = (0..deep).map(heading).collect();
    for (row, name) in names.rows.iter().enumerate() {
        for (place, part_of_name) in name.iter().enumerate() {
            lines.push(match place {
                0 => line(part_of_name, &|group| group.rows[row].clone()),
                _ => part_of_name.clone(),
            });
        }
    }
    lines
}

fn group(part: &Part, column: usize, remarks: &Remarks<'_>) -> Group {
    let fields = layout::fields(part, column);
    let drawn = fields.iter();
    let drawn: Vec<Vec<String>> = drawn
        .map(|field| drawn_field(part, column, *field, remarks))
        .collect();
    let rows = (0..=part.rows.len()).map(|row| {
        let cells: Vec<&str> = drawn.iter().map(|lines| lines[row].as_str()).collect();
        cells.join(&" ".repeat(GAP))
    });
    let rows: Vec<String> = rows.collect();
    let of = &part.columns[column];
    let inner = letters(&rows[0]);
    let heading = figure::heading(&of.name, of.unit);
    let mut heading = wrap(&heading, inner.max(HEADING));
    let widest = heading.iter().map(|line| letters(line)).max();
    let width = inner.max(widest.unwrap_or(0));
    // The rule shows how far a heading goes.
    if let Some(last) = heading.last_mut()
        && fields.len() > 1
        && letters(last) + 2 < width
    {
        *last = format!("{last} {}", "-".repeat(width - letters(last) - 1));
    }
    Group {
        heading,
        rows,
        width,
    }
}

/// A field of a column: its name, its figures right-aligned and what is in brackets behind them left-aligned.
fn drawn_field(part: &Part, column: usize, field: Field, remarks: &Remarks<'_>) -> Vec<String> {
    let unit = part.columns[column].unit;
    let cells = part.rows.iter().map(|row| row.cells.get(column));
    let written: Vec<Written> = cells
        .map(|cell| layout::written(cell, field, unit, remarks))
        .collect();
    let behind: Vec<String> = written.iter().map(behind).collect();
    let name = field.name();
    let figures = written.iter().map(|cell| letters(&cell.figure));
    let figure = figures.max().unwrap_or(0);
    let behind_width = behind.iter().map(|text| letters(text)).max().unwrap_or(0);
    let figure = figure.max(letters(name).saturating_sub(behind_width));
    let width = figure + behind_width;
    // Above the figures, unless these are narrow.
    let name = format!("{name:>0$}", figure.max(letters(name)));
    let mut lines = vec![format!("{name:<width$}")];
    lines.extend(
        written
            .iter()
            .zip(&behind)
            .map(|(cell, behind)| format!("{:>figure$}{behind:<behind_width$}", cell.figure)),
    );
    lines
}

/// Behind a figure: its range, and where its remark is told.
fn behind(cell: &Written) -> String {
    let range = cell.range.as_ref().map(|range| format!(" {range}"));
    let remark = cell.remark.map(|number| format!(" *{number}"));
    format!(
        "{}{}",
        range.unwrap_or_default(),
        remark.unwrap_or_default()
    )
}

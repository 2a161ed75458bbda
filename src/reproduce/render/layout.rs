//! What the columns of a table are, and where its remarks are told: the same in every format. May use: `charts`, the
//! data model.

use super::figure;
use crate::reproduce::{Cell, Part, Unit};

/// What a column is divided into.
pub(super) use crate::charts::Kind as Field;

/// Whether `cell` has `field`; a remark stands in the place of what was measured.
fn has(cell: &Cell, field: Field) -> bool {
    match field {
        Field::Published => cell.published.is_some(),
        Field::Predicted => cell.predicted.is_some(),
        Field::Measured => cell.measured.is_some() || cell.remark.is_some(),
    }
}

/// What is written of one field of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) figure: String,
    /// Its range in brackets, where it has one.
    pub(super) range: Option<String>,
    /// The number of the remark.
    pub(super) remark: Option<usize>,
}

impl Written {
    /// On one line; `mark` writes the number of the remark.
    pub(super) fn text(&self, mark: impl Fn(usize) -> String) -> String {
        let range = self.range.as_ref().map(|range| format!(" {range}"));
        let remark = self.remark.map(|number| format!(" {}", mark(number)));
        let [range, remark] = [range, remark].map(Option::unwrap_or_default);
        format!("{}{range}{remark}", self.figure)
    }
}

/// The fields that any cell of a column has; measured where none has any.
pub(super) fn fields(part: &Part, column: usize) -> Vec<Field> {
    let cells = || part.rows.iter().filter_map(|row| row.cells.get(column));
    let mut found = Field::ALL.to_vec();
    found.retain(|field| cells().any(|cell| has(cell, *field)));
    if found.is_empty() {
        found.push(Field::Measured);
    }
    found
}

/// All of these, column by column, each with its column's number.
pub(super) fn all_fields(part: &Part) -> Vec<(usize, Field)> {
    let columns = 0..part.columns.len();
    let fields = columns.flat_map(|column| {
        let fields = fields(part, column).into_iter();
        fields.map(move |field| (column, field))
    });
    fields.collect()
}

/// The remarks of a part's cells, each told once, in the order of the rows.
pub(super) struct Remarks<'a>(Vec<&'a str>);

impl<'a> Remarks<'a> {
    pub(super) fn of(part: &'a Part) -> Remarks<'a> {
        let mut told = Vec::new();
        let cells = part.rows.iter().flat_map(|row| &row.cells);
        for remark in cells.filter_map(|cell| cell.remark.as_deref()) {
            if !told.contains(&remark) {
                told.push(remark);
            }
        }
        Remarks(told)
    }

    /// Of `cell`'s, from 1.
    fn number(&self, cell: &Cell) -> Option<usize> {
        let remark = cell.remark.as_deref()?;
        let place = self.0.iter().position(|told| *told == remark)?;
        Some(place + 1)
    }

    /// With their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &'a str)> + '_ {
        self.0
            .iter()
            .zip(1..)
            .map(|(remark, number)| (number, *remark))
    }
}

/// The figure in `field` of `cell`, without its range.
pub(super) fn figure_text(cell: &Cell, field: Field, unit: Unit) -> Option<String> {
    match field {
        Field::Published => cell.published.map(|span| figure::published(unit, span)),
        Field::Predicted => Some(figure::measured(unit, cell.predicted?.value)),
        Field::Measured => Some(figure::measured(unit, cell.measured?.median)),
    }
}

/// What stands in `field` of `cell`; a dash where that is nothing.
pub(super) fn written(
    cell: Option<&Cell>,
    field: Field,
    unit: Unit,
    remarks: &Remarks<'_>,
) -> Written {
    let figure = cell.and_then(|cell| figure_text(cell, field, unit));
    let range = figure.as_ref().and_then(|figure| {
        let (low, high, [open, close]) = match field {
            Field::Published => return None,
            Field::Predicted => {
                let made = cell?.predicted?;
                (made.low, made.high, ["[", "]"])
            }
            Field::Measured => {
                let made = cell?.measured.filter(|made| made.runs > 1)?;
                (made.low, made.high, ["(", ")"])
            }
        };
        let range = figure::range_beside(figure, unit, low, high)?;
        Some(format!("{open}{range}{close}"))
    });
    let remarked = cell.filter(|_| field == Field::Measured);
    Written {
        figure: figure.unwrap_or_else(|| "-".to_owned()),
        range,
        remark: remarked.and_then(|cell| remarks.number(cell)),
    }
}

/// Of how many runs the figures of a part are, such as `1 to 3 runs`; `None` where none has several.
pub(super) fn runs(part: &Part) -> Option<String> {
    let cells = part.rows.iter().flat_map(|row| &row.cells);
    let runs = cells.filter_map(|cell| Some(cell.measured?.runs));
    let (fewest, most) = (runs.clone().min()?, runs.max()?);
    let runs = match fewest {
        fewest if fewest == most => format!("{most} runs"),
        fewest => format!("{fewest} to {most} runs"),
    };
    (most > 1).then_some(runs)
}

/// How the figures of a part are to be read: of how many runs they are, and what is in brackets.
pub(super) fn reading(part: &Part) -> Option<String> {
    let measured = runs(part).map(|runs| format!("measured: the median of {runs} (least..most)"));
    let mut cells = part.rows.iter().flat_map(|row| &row.cells);
    let any = cells.any(|cell| cell.predicted.is_some());
    let predicted =
        any.then(|| "predicted: before anything of the row was measured [interval]".to_owned());
    let told: Vec<String> = measured.into_iter().chain(predicted).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

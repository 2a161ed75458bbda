//! A part's chart as an SVG file. May use: `charts`, the data model.

use super::figure;
use super::layout::{self, Field};
use crate::charts::{Bar, BarPanel, Bars, Heading, LinePanel, Lines, Point, Series};
use crate::reproduce::{Cell, ChartKind, Part, Reproduction, Unit};

/// Crossings that are told in words; of more, lines that lie near each other, only the rings are drawn.
const TOLD: usize = 4;

/// The text of the file; `None` where `part` asks for no chart, or has no figure to draw.
pub fn svg(reproduction: &Reproduction, part: &Part) -> Option<String> {
    let made = &reproduction.made;
    let subtitle = format!(
        "{}: {}, {}",
        reproduction.table, made.machine.processor, made.date
    );
    let heading = Heading {
        title: part.title.clone(),
        subtitle,
    };
    is_drawn(part).then(|| match part.chart {
        ChartKind::Bars => bars(part, heading).svg(),
        ChartKind::Lines => lines(part, heading).svg(),
    })
}

/// Whether [`svg`] makes a chart of `part`.
pub(super) fn is_drawn(part: &Part) -> bool {
    match part.chart {
        ChartKind::Bars => !columns(part).is_empty(),
        ChartKind::Lines => !panels(part).is_empty(),
    }
}

/// A figure, and from where to where it goes: all finite and none below 0. `None` where there is none.
fn figure_of(cell: &Cell, field: Field) -> Option<[f64; 3]> {
    let [value, low, high] = match field {
        Field::Published => cell.published.map(|span| [span.low, span.low, span.high]),
        Field::Predicted => cell.predicted.map(|made| [made.value, made.low, made.high]),
        Field::Measured => cell.measured.map(|made| [made.median, made.low, made.high]),
    }?;
    let end = |end: f64| if end.is_finite() { end } else { value };
    let value = value.max(0.0);
    let is_figure = value.is_finite();
    is_figure.then(|| [value, end(low).clamp(0.0, value), end(high).max(value)])
}

fn cells(part: &Part, column: usize) -> impl Iterator<Item = &Cell> {
    part.rows
        .iter()
        .filter_map(move |row| row.cells.get(column))
}

/// All figures of a column.
fn figures(part: &Part, column: usize) -> impl Iterator<Item = [f64; 3]> {
    cells(part, column).flat_map(|cell| {
        Field::ALL
            .into_iter()
            .filter_map(|field| figure_of(cell, field))
    })
}

/// The columns that are charted and have a figure.
fn columns(part: &Part) -> Vec<usize> {
    let mut columns = part.charted.clone();
    columns.retain(|column| {
        *column < part.columns.len() && figures(part, *column).any(|[_, _, high]| high > 0.0)
    });
    columns
}

fn bars(part: &Part, heading: Heading) -> Bars {
    let columns = columns(part);
    let panel = |column: &usize| {
        let named = &part.columns[*column];
        let unit = named.unit;
        let most = figures(part, *column).map(|[_, _, high]| high);
        let most = most.fold(0.0, f64::max);
        let bars = part.rows.iter().map(|row| match row.cells.get(*column) {
            Some(cell) => Field::ALL
                .iter()
                .filter_map(|field| bar(cell, *field, unit))
                .collect(),
            None => Vec::new(),
        });
        BarPanel {
            heading: figure::heading(&named.name, unit),
            one: figure::axis_unit(unit, most),
            label: Box::new(move |value| figure::round(unit, value)),
            bars: bars.collect(),
        }
    };
    Bars {
        heading,
        legend: legend(part, &columns),
        rows: part.rows.iter().map(|row| row.name.clone()).collect(),
        panels: columns.iter().map(panel).collect(),
        notes: left_out(part, &columns),
    }
}

fn bar(cell: &Cell, field: Field, unit: Unit) -> Option<Bar> {
    let words = layout::figure_text(cell, field, unit);
    let remark = cell.remark.as_ref();
    let words = words.or_else(|| remark.filter(|_| field == Field::Measured).cloned());
    let figure = figure_of(cell, field);
    let [_, low, high] = figure.unwrap_or_default();
    Some(Bar {
        kind: field,
        value: figure.map(|[value, ..]| value),
        low,
        high,
        words: words?,
    })
}

/// What the kinds of figures that the `drawn` columns have stand for.
fn legend(part: &Part, drawn: &[usize]) -> Vec<(Field, String)> {
    let mut fields = Field::ALL.to_vec();
    let cells = || drawn.iter().flat_map(|column| cells(part, *column));
    fields.retain(|field| cells().any(|cell| figure_of(cell, *field).is_some()));
    let words = |field: Field| match (field, layout::runs(part)) {
        (Field::Predicted, _) => "predicted before it was measured, with its interval".to_owned(),
        (Field::Measured, Some(runs)) => format!("measured: median, least and most of {runs}"),
        (field, _) => field.name().to_owned(),
    };
    fields
        .into_iter()
        .map(|field| (field, words(field)))
        .collect()
}

/// Which charted columns are not among the `drawn`, since they have no figure, and why.
fn left_out(part: &Part, drawn: &[usize]) -> Vec<String> {
    let left = part.charted.iter().filter(|column| !drawn.contains(column));
    let told = left.filter_map(|column| {
        let remark = cells(part, *column).find_map(|cell| cell.remark.as_deref());
        let why = remark.unwrap_or("nothing was measured");
        Some(format!("{}: {why}", part.columns.get(*column)?.name))
    });
    told.collect()
}

/// The lines of each unit that have something to draw.
fn panels(part: &Part) -> Vec<(Unit, Vec<Series>)> {
    let mut panels: Vec<(Unit, Vec<Series>)> = Vec::new();
    for (place, column) in part.charted.iter().enumerate() {
        let Some(named) = part.columns.get(*column) else {
            continue;
        };
        let series = Series {
            name: figure::heading(&named.name, named.unit),
            place,
            points: Field::ALL
                .map(|field| (field, points(part, *column, field)))
                .to_vec(),
        };
        if series.all().next().is_none() {
            continue;
        }
        match panels.iter_mut().find(|(unit, _)| *unit == named.unit) {
            Some((_, all)) => all.push(series),
            None => panels.push((named.unit, vec![series])),
        }
    }
    // One place on the axis makes no line.
    panels.retain(|(_, all)| {
        let mut xs = all.iter().flat_map(Series::all).map(|point| point.x);
        xs.next().is_some_and(|first| xs.any(|x| x != first))
    });
    panels
}

fn points(part: &Part, column: usize, field: Field) -> Vec<Point> {
    let rows = part.rows.iter().filter_map(|row| {
        let [value, low, high] = figure_of(row.cells.get(column)?, field)?;
        // Of a range, what a logarithmic axis shows in the middle.
        let y = if field == Field::Published {
            (low * high).sqrt()
        } else {
            value
        };
        let low = if low > 0.0 { low } else { y };
        (y > 0.0).then_some(Point {
            x: number(&row.name)?,
            y,
            low,
            high,
        })
    });
    let mut points: Vec<Point> = rows.collect();
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    points
}

fn lines(part: &Part, heading: Heading) -> Lines {
    let panels = panels(part);
    let drawn = panels.iter().flat_map(|(_, all)| all);
    let drawn: Vec<usize> = drawn.map(|series| part.charted[series.place]).collect();
    let panels = panels.into_iter().map(|(unit, series)| {
        let points = series.iter().flat_map(Series::all);
        let most = points.map(|point| point.high).fold(0.0, f64::max);
        LinePanel {
            title: None,
            bounds: Vec::new(),
            rings: crossings_of(&series),
            series,
            // The places of a logarithmic axis are no whole minutes.
            one: if unit == Unit::Seconds {
                1.0
            } else {
                figure::axis_unit(unit, most)
            },
            label: Box::new(move |value| figure::round_short(unit, value)),
        }
    });
    let panels: Vec<LinePanel> = panels.collect();
    let rings = panels.iter().flat_map(|panel| &panel.rings);
    let rings: Vec<String> = rings.map(|(x, _)| two_digits(*x)).collect();
    let told = if rings.len() > TOLD {
        String::new()
    } else {
        format!(": near {}", rings.join(", "))
    };
    let places = part.rows.iter().filter_map(|row| {
        let name = row.name.split_whitespace().next()?;
        Some((number(name)?, name.to_owned()))
    });
    let mut places: Vec<(f64, String)> = places.collect();
    places.sort_by(|one, other| one.0.total_cmp(&other.0));
    Lines {
        heading,
        legend: legend(part, &drawn),
        bounds_are: None,
        ringed: (!rings.is_empty()).then(|| format!("where measured lines cross{told}")),
        across: part.rows_are.clone(),
        places,
        panels,
        notes: left_out(part, &drawn),
    }
}

/// The number that a row's name is or begins with, such as 1024 of `1,024 units`; `None` where that is none above 0.
fn number(name: &str) -> Option<f64> {
    let word = name.split_whitespace().next()?;
    let digits = |letter: char| letter.is_ascii_digit() || "._,".contains(letter);
    let end = word.find(|letter| !digits(letter)).unwrap_or(word.len());
    let plain = |text: &str| text.replace([',', '_'], "").parse::<f64>().ok();
    let number = plain(word).or_else(|| plain(&word[..end]))?;
    (number > 0.0 && number.is_finite()).then_some(number)
}

/// Where any two of the measured lines cross.
fn crossings_of(all: &[Series]) -> Vec<(f64, f64)> {
    let measured = |series: &Series| {
        let mut kinds = series.points.iter();
        let found = kinds.find(|(kind, _)| *kind == Field::Measured);
        found.map_or(Vec::new(), |(_, points)| points.clone())
    };
    let lines: Vec<Vec<Point>> = all.iter().map(measured).collect();
    let mut found = Vec::new();
    for (place, one) in lines.iter().enumerate() {
        for other in &lines[place + 1..] {
            found.extend(crossings(one, other));
        }
    }
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found
}

/// Where two lines cross, drawn on logarithmic axes.
fn crossings(one: &[Point], other: &[Point]) -> Vec<(f64, f64)> {
    let both = one.iter().filter_map(|point| {
        let beside = other.iter().find(|beside| beside.x == point.x)?;
        Some((*point, (point.y / beside.y).ln()))
    });
    // Where they touch they have not crossed yet.
    let apart: Vec<(Point, f64)> = both.filter(|(_, gap)| *gap != 0.0).collect();
    let pairs = apart.windows(2).filter_map(|pair| match pair {
        [(before, gap), (after, then)] if gap.signum() != then.signum() => {
            let part = gap / (gap - then);
            let between = |from: f64, to: f64| from * (to / from).powf(part);
            Some((between(before.x, after.x), between(before.y, after.y)))
        }
        _ => None,
    });
    pairs.collect()
}

/// `value` with two digits: what lies between two rows is known no better.
fn two_digits(value: f64) -> String {
    let digits = value.log10().floor() as i32 - 1;
    let step = 10_f64.powi(digits);
    let places = usize::try_from(-digits).unwrap_or(0);
    format!("{:.places$}", (value / step).round() * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_say_more_than_its_number() {
        assert_eq!(number("1024"), Some(1024.0));
        assert_eq!(number("1,024 units"), Some(1024.0));
        assert_eq!(number("512x512"), Some(512.0));
        assert_eq!(number("1e3"), Some(1000.0));
        assert_eq!(number("width"), None);
        assert_eq!(number("0"), None);
        assert_eq!(number("inf"), None);
    }

    #[test]
    fn lines_cross_between_the_rows_where_their_order_changes() {
        let line = |points: &[(f64, f64)]| -> Vec<Point> {
            let point = |&(x, y): &(f64, f64)| Point {
                x,
                y,
                low: y,
                high: y,
            };
            points.iter().map(point).collect()
        };
        let rising = line(&[(1.0, 1.0), (100.0, 100.0)]);
        let falling = line(&[(1.0, 100.0), (100.0, 1.0)]);
        let found = crossings(&rising, &falling);
        assert_eq!(found.len(), 1);
        assert!((found[0].0 - 10.0).abs() < 1e-9, "{found:?}");
        assert!((found[0].1 - 10.0).abs() < 1e-9, "{found:?}");
        let above = line(&[(1.0, 2.0), (100.0, 100.0)]);
        assert_eq!(crossings(&rising, &above), []);
    }

    #[test]
    fn a_crossing_is_told_with_two_digits() {
        assert_eq!(two_digits(617.3), "620");
        assert_eq!(two_digits(61.73), "62");
        assert_eq!(two_digits(6.173), "6.2");
        assert_eq!(two_digits(99.9), "100");
    }
}

//! The lines of a chart, and where two of them cross. May use: the data model.

use crate::reproduce::render::figure;
use crate::reproduce::render::layout::Field;
use crate::reproduce::{Cell, Part};

/// A figure over a row's number, and its range; all above 0.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// One column, in the order of its rows' numbers.
pub(super) struct Series {
    pub(super) name: String,
    /// Of the part.
    pub(super) column: usize,
    /// Which of the colours and marks it has.
    pub(super) place: usize,
    points: [Vec<Point>; 3],
}

impl Series {
    pub(super) fn of(part: &Part, column: usize, place: usize) -> Series {
        let named = part.columns.get(column);
        let name = named.map(|column| figure::heading(&column.name, column.unit));
        Series {
            name: name.unwrap_or_default(),
            column,
            place,
            points: Field::ALL.map(|field| points(part, column, field)),
        }
    }

    pub(super) fn points(&self, field: Field) -> &[Point] {
        let place = Field::ALL.iter().position(|each| *each == field);
        place.map_or(&[], |place| &self.points[place])
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().flatten()
    }

    /// The last point of what was measured; of what was predicted or published, where nothing was.
    pub(super) fn last(&self) -> Option<&Point> {
        let mut fields = self.points.iter().rev();
        fields.find_map(|points| points.last())
    }
}

fn points(part: &Part, column: usize, field: Field) -> Vec<Point> {
    let rows = part.rows.iter().filter_map(|row| {
        let x = number(&row.name)?;
        let (y, low, high) = figures(row.cells.get(column)?, field)?;
        let is_drawn = y > 0.0 && y.is_finite();
        let low = if low > 0.0 { low.min(y) } else { y };
        let high = if high.is_finite() { high.max(y) } else { y };
        is_drawn.then_some(Point { x, y, low, high })
    });
    let mut points: Vec<Point> = rows.collect();
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    points
}

/// The middle and the ends. That of a published range is the one that a logarithmic axis shows in the middle.
fn figures(cell: &Cell, field: Field) -> Option<(f64, f64, f64)> {
    match field {
        Field::Published => {
            let span = cell.published?;
            Some(((span.low * span.high).sqrt(), span.low, span.high))
        }
        Field::Predicted => cell.predicted.map(|made| (made.value, made.low, made.high)),
        Field::Measured => cell.measured.map(|made| (made.median, made.low, made.high)),
    }
}

/// The number that a row's name is or begins with, such as 1024 of `1,024 units`; `None` where that is none above 0.
pub(super) fn number(name: &str) -> Option<f64> {
    let word = name.split_whitespace().next()?;
    let digits = |letter: char| letter.is_ascii_digit() || "._,".contains(letter);
    let end = word.find(|letter| !digits(letter)).unwrap_or(word.len());
    let plain = |text: &str| text.replace([',', '_'], "").parse::<f64>().ok();
    let number = plain(word).or_else(|| plain(&word[..end]))?;
    (number > 0.0 && number.is_finite()).then_some(number)
}

/// Where two lines cross, drawn on logarithmic axes.
pub(super) fn crossings(one: &[Point], other: &[Point]) -> Vec<(f64, f64)> {
    let both: Vec<(Point, f64)> = one
        .iter()
        .filter_map(|point| {
            let beside = other.iter().find(|beside| beside.x == point.x)?;
            Some((*point, (point.y / beside.y).ln()))
        })
        .collect();
    // Where they touch they have not crossed yet.
    let apart: Vec<&(Point, f64)> = both.iter().filter(|(_, gap)| *gap != 0.0).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Vec<Point> {
        let point = |(x, y): &(f64, f64)| Point {
            x: *x,
            y: *y,
            low: *y,
            high: *y,
        };
        points.iter().map(point).collect()
    }

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
        let rising = line(&[(1.0, 1.0), (100.0, 100.0)]);
        let falling = line(&[(1.0, 100.0), (100.0, 1.0)]);
        let found = crossings(&rising, &falling);
        assert_eq!(found.len(), 1);
        assert!((found[0].0 - 10.0).abs() < 1e-9, "{found:?}");
        assert!((found[0].1 - 10.0).abs() < 1e-9, "{found:?}");
        let above = line(&[(1.0, 2.0), (100.0, 100.0)]);
        assert_eq!(crossings(&rising, &above), []);
    }
}

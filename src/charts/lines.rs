//! Lines over numbers on logarithmic axes: a panel for each unit, and in it a line for each series. May use: nothing.

use super::*;
use plotters::element::DashedPathElement;
use std::collections::BTreeSet;
use std::iter::once;

/// A chart of several panels over the same numbers.
pub struct Lines {
    pub heading: Heading,
    /// What kinds of lines stand for.
    pub legend: Vec<(Kind, String)>,
    /// What the lines without marks are.
    pub bounds_are: Option<String>,
    /// What the ringed places are.
    pub ringed: Option<String>,
    /// The name of the numbers, and their places.
    pub across: String,
    pub places: Vec<(f64, String)>,
    pub panels: Vec<LinePanel>,
    /// Written below.
    pub notes: Vec<String>,
}

/// The lines of one unit.
pub struct LinePanel {
    pub title: Option<String>,
    /// The places of the upright axis are round multiples of it.
    pub one: f64,
    pub label: Label,
    pub series: Vec<Series>,
    /// Lines without marks, of places and figures.
    pub bounds: Vec<Vec<(f64, f64)>>,
    pub rings: Vec<(f64, f64)>,
}

/// One line of each kind, in the order of the numbers.
pub struct Series {
    pub name: String,
    /// Which of the colours and marks it has.
    pub place: usize,
    pub points: Vec<(Kind, Vec<Point>)>,
}

/// A figure over a number, and its range; all above 0.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

impl Series {
    pub fn all(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().flat_map(|(_, points)| points)
    }

    fn colour(&self) -> RGBColor {
        SERIES[self.place % SERIES.len()]
    }
}

const WIDTH: i32 = 812;
const HEIGHT: i32 = 400;
/// Dashes of a bound, and the gaps between them, in pixels.
const BOUND: (i32, i32) = (5, 4);

impl Lines {
    /// The file's text.
    pub fn svg(&self) -> String {
        let legend = Legend::of(self.signs(), WIDTH);
        let notes = words::wrapped(&self.notes, SMALL, WIDTH);
        let below = legend.height + self.panels.len() as i32 * HEIGHT;
        let height = below + LINE * notes.len() as i32;
        self.heading.page((WIDTH, height), |area| {
            legend.draw(area)?;
            let parts = area.margin(legend.height, LINE * notes.len() as i32, 0, 0);
            for (panel, part) in self
                .panels
                .iter()
                .zip(parts.split_evenly((self.panels.len(), 1)))
            {
                panel.draw(self, &part)?;
            }
            write_lines(area, &notes, SMALL, (0, below))
        })
    }

    fn signs(&self) -> Vec<Sign<'_>> {
        let mut named = BTreeSet::new();
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        let series = series.filter(|series| named.insert(&series.name));
        let series = series.map(|series| {
            Sign::of(&series.name, |area, (x, y)| {
                let line = [(x, y), (x + Sign::WIDTH, y)];
                area.draw(&PathElement::new(line, series.colour().stroke_width(2)))?;
                area.draw(&mark((x + Sign::WIDTH / 2, y), series, true))
            })
        });
        let kinds = self.legend.iter().map(|(kind, words)| {
            Sign::of(words, |area, (x, y)| {
                let ((dash, gap), ink) = (dashes(*kind), INK.stroke_width(2));
                let line = [(x, y), (x + Sign::WIDTH, y)];
                area.draw(&DashedPathElement::new(line, dash, gap, ink))
            })
        });
        let bound = self.bounds_are.iter().map(|words| {
            Sign::of(words, |area, (x, y)| {
                let line = [(x, y), (x + Sign::WIDTH, y)];
                area.draw(&DashedPathElement::new(
                    line,
                    BOUND.0,
                    BOUND.1,
                    INK.stroke_width(1),
                ))
            })
        });
        let ring = self.ringed.iter().map(|words| {
            Sign::of(words, |area, (x, y)| {
                area.draw(&Circle::new((x + Sign::WIDTH / 2, y), 7, INK))
            })
        });
        series.chain(kinds).chain(bound).chain(ring).collect()
    }
}

impl LinePanel {
    fn draw(&self, chart: &Lines, area: &Area<'_>) -> Drawn {
        let (xs, ys) = (
            self.ends(|point| [point.x, point.x]),
            self.ends(|point| [point.low, point.high]),
        );
        // A little room, so that marks do not lie on the frame.
        let room = (xs.1 / xs.0).powf(0.03);
        let (from, to) = (xs.0 / room, xs.1 * room);
        let up = round_places(ys.0 / self.one, ys.1 / self.one);
        let label = |place: &f64| (self.label)(place * self.one);
        let labels: Vec<String> = up.iter().map(label).collect();
        let left = words::widest(&labels, SMALL) + 10;
        let (least, most) = (up[0], up[up.len() - 1]);
        let width = f64::from(WIDTH - left);
        let across = |x: f64| (x / from).ln() / (to / from).ln() * width;
        let mut end = f64::NEG_INFINITY;
        let named = |x: &f64| chart.places.iter().find(|(place, _)| place == x);
        // Only names that have room.
        let mut places = chart.places.clone();
        places.retain(|(x, name)| {
            let half = 0.5 * f64::from(words::width(name, SMALL));
            let fits = (from..=to).contains(x) && across(*x) - half > end;
            end = if fits { across(*x) + half + 8.0 } else { end };
            fits
        });
        let places: Vec<f64> = places.iter().map(|(x, _)| *x).collect();
        let title = self.title.iter();
        let title: Vec<String> = title
            .flat_map(|title| words::lines(title, KEY, WIDTH, 1))
            .collect();
        write_lines(area, &title, KEY, (left + 8, 8))?;
        let area = &area.margin(LINE * title.len() as i32, 0, 0, 0);
        let mut plot = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(left)
            .build_cartesian_2d(
                (from..to).log_scale().with_key_points(places),
                (least..most).log_scale().with_key_points(up),
            )?;
        plot.configure_mesh()
            .x_desc(&chart.across)
            .x_label_formatter(&|x| named(x).map_or(String::new(), |(_, name)| name.clone()))
            .y_label_formatter(&label)
            .label_style(SMALL.style(HPos::Center))
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .set_all_tick_mark_size(3)
            .draw()?;
        let at = |point: &Point| (point.x, point.y / self.one);
        for series in &self.series {
            let colour = series.colour().stroke_width(2);
            for (kind, points) in &series.points {
                let (dash, gap) = dashes(*kind);
                let line: Vec<(f64, f64)> = points.iter().map(at).collect();
                plot.draw_series(DashedLineSeries::new(line, dash, gap, colour))?;
                for point in points {
                    let range = [
                        (point.x, point.low / self.one),
                        (point.x, point.high / self.one),
                    ];
                    plot.draw_series(once(PathElement::new(range, colour)))?;
                    let filled = *kind == Kind::Measured;
                    plot.draw_series(once(
                        EmptyElement::at(at(point)) + mark((0, 0), series, filled),
                    ))?;
                }
            }
        }
        for line in &self.bounds {
            let line: Vec<(f64, f64)> = line.iter().map(|(x, y)| (*x, y / self.one)).collect();
            plot.draw_series(DashedLineSeries::new(
                line,
                BOUND.0,
                BOUND.1,
                INK.stroke_width(1),
            ))?;
        }
        let rings = self.rings.iter();
        plot.draw_series(rings.map(|(x, y)| Circle::new((*x, y / self.one), 8, INK)))?;
        Ok(())
    }

    fn ends(&self, of: impl Fn(&Point) -> [f64; 2]) -> (f64, f64) {
        let all = self.series.iter().flat_map(Series::all).flat_map(of);
        all.fold((f64::INFINITY, 0.0), |(least, most), end| {
            (least.min(end), f64::max(most, end))
        })
    }
}

/// The lengths of dashes and of the gaps between them, in pixels.
fn dashes(kind: Kind) -> (i32, i32) {
    match kind {
        Kind::Published => (7, 4),
        Kind::Predicted => (2, 4),
        Kind::Measured => SOLID,
    }
}

/// Another one for each series, so that colour is not all that tells them apart.
fn mark<'a>(at: At, series: &Series, filled: bool) -> DynElement<'static, SVGBackend<'a>, At> {
    let colour = series.colour();
    let style = ShapeStyle {
        color: colour.to_rgba(),
        filled,
        stroke_width: 2,
    };
    match series.place % 4 {
        0 => Circle::new(at, 4, style).into_dyn(),
        1 => Rectangle::new([(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)], style).into_dyn(),
        2 => TriangleMarker::new(at, 5, style).into_dyn(),
        _ => Cross::new(at, 4, style).into_dyn(),
    }
}

/// Places 1, 2, 5, 10, ... from the last one up to `low` to the first one from `high` on; over more than three decades
/// only 1, 10, 100, ...
fn round_places(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high / low > 1e3 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let powers = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
    let all: Vec<f64> = powers
        .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)))
        .collect();
    // A hair, so that a figure on a place needs no further one.
    let first = all
        .iter()
        .rposition(|place| *place <= low * (1.0 + 1e-9))
        .unwrap_or(0);
    let last = all
        .iter()
        .position(|place| *place >= high * (1.0 - 1e-9))
        .unwrap_or(all.len() - 1);
    // Of a single figure: one place further on either side.
    let further = usize::from(first >= last);
    all[first.saturating_sub(further)..=(last + further).min(all.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_reaches_beyond_its_figures() {
        let places = |low, high| -> Vec<String> {
            let places = round_places(low, high);
            places.iter().map(|place| format!("{place:.3}")).collect()
        };
        assert_eq!(
            places(0.0031, 0.046),
            ["0.002", "0.005", "0.010", "0.020", "0.050"]
        );
        assert_eq!(places(1.0, 10.0), ["1.000", "2.000", "5.000", "10.000"]);
        assert_eq!(places(3.0, 3.0), ["2.000", "5.000"]);
        assert_eq!(places(5.0, 5.0), ["2.000", "5.000", "10.000"]);
        assert_eq!(places(2.0, 3_000.0).len(), 5);
    }
}

//! Bars: a panel for each column, and in it for each row what was published, predicted and measured, one beneath
//! the other. May use: nothing.

use super::*;
use plotters::coord::ranged1d::BoldPoints;
use plotters::coord::types::RangedCoordf64;
use std::iter::once;

/// A chart of several panels over the same rows.
pub struct Bars {
    pub heading: Heading,
    /// What a kind of bar stands for.
    pub legend: Vec<(Kind, String)>,
    pub rows: Vec<String>,
    pub panels: Vec<BarPanel>,
    /// Written below.
    pub notes: Vec<String>,
}

/// One column's bars, from 0.
pub struct BarPanel {
    pub heading: String,
    /// The places of the axis are round multiples of it.
    pub one: f64,
    pub label: Label,
    /// The bars of each row.
    pub bars: Vec<Vec<Bar>>,
}

/// A figure with its range.
pub struct Bar {
    pub kind: Kind,
    /// `None`: there is none, and the words say why.
    pub value: Option<f64>,
    pub low: f64,
    pub high: f64,
    /// Written at the end.
    pub words: String,
}

/// Of the whole chart, with one panel side by side, two, and three.
const WIDTHS: [i32; 3] = [712, 812, 932];
/// The most that the rows' names take, and their lines.
const NAMES: (i32, usize) = (190, 3);
/// Between panels.
const GAP: i32 = 28;
/// Of one bar, with the room around it.
const LANE: i32 = 16;
/// Half of a bar.
const HALF: f64 = 5.5;
/// Between the bars of two rows.
const BETWEEN: i32 = 14;
/// Between a bar's end and its figure.
const BESIDE: i32 = 7;
/// Of the labels of an axis.
const BELOW: i32 = 32;

impl Bars {
    /// The file's text.
    pub fn svg(&self) -> String {
        let side_by_side = match self.panels.len() {
            0 | 1 => 1,
            2 | 4 => 2,
            _ => 3,
        };
        let width = WIDTHS[side_by_side - 1];
        let rows = Rows::of(self);
        let signs = self.legend.iter().map(|sign| self.sign(sign)).collect();
        let legend = Legend::of(signs, width);
        let left = rows.width + 10;
        let step = (width - left + GAP) / side_by_side as i32;
        let headings = self.panels.iter();
        let headings: Vec<Vec<String>> = headings
            .map(|panel| words::lines(&panel.heading, KEY, step - GAP, 2))
            .collect();
        let deep = LINE * headings.iter().map(Vec::len).max().unwrap_or(0) as i32 + 6;
        let band = deep + rows.height + BELOW;
        let notes = words::wrapped(&self.notes, SMALL, width);
        let bands = self.panels.len().div_ceil(side_by_side) as i32;
        let height = legend.height + bands * band + LINE * notes.len() as i32;
        self.heading.page((width, height), |area| {
            legend.draw(area)?;
            for (place, (panel, heading)) in self.panels.iter().zip(&headings).enumerate() {
                let (across, down) = (place % side_by_side, place / side_by_side);
                let (x, top) = (
                    left + across as i32 * step,
                    legend.height + down as i32 * band,
                );
                if across == 0 {
                    rows.write_names(area, top + deep)?;
                }
                let part = area.margin(top, 0, x, 0).shrink((0, 0), (step - GAP, band));
                write_lines(
                    &part,
                    heading,
                    KEY,
                    (0, deep - 6 - LINE * heading.len() as i32),
                )?;
                panel.draw(&part.margin(deep, 0, 0, 0), &rows)?;
            }
            write_lines(area, &notes, SMALL, (0, legend.height + bands * band))
        })
    }

    fn sign(&self, (kind, words): &(Kind, String)) -> Sign<'static> {
        let kind = *kind;
        let mut bars = self
            .panels
            .iter()
            .flat_map(|panel| panel.bars.iter().flatten());
        let ranges = bars.any(|bar| bar.kind == kind && bar.low < bar.high);
        Sign::of(words, move |area, (x, y)| {
            let end = x + Sign::WIDTH;
            let (colour, range) = colours(kind);
            if kind != Kind::Predicted {
                let end = if ranges { end - 6 } else { end };
                area.draw(&Rectangle::new([(x, y - 5), (end, y + 6)], colour.filled()))?;
            }
            if ranges {
                let low = if kind == Kind::Predicted { x } else { end - 12 };
                let range = ErrorBar::new_horizontal(
                    y,
                    low,
                    i32::midpoint(low, end),
                    end,
                    range.filled(),
                    7,
                );
                area.draw(&range)?;
            }
            Ok(())
        })
    }
}

/// Of a bar, and of its range.
fn colours(kind: Kind) -> (RGBColor, RGBColor) {
    match kind {
        Kind::Published => (PUBLISHED, QUIET),
        Kind::Predicted => (PREDICTED, PREDICTED),
        Kind::Measured => (MEASURED, INK),
    }
}

/// Where the rows lie, the same in every panel.
struct Rows {
    /// The names in lines, and pixels that they take.
    names: Vec<Vec<String>>,
    width: i32,
    /// The kinds that have a lane in each row: those that it has in any panel.
    lanes: Vec<Vec<Kind>>,
    /// From the top of the plot to the top of each row's lanes, and to the end of all.
    tops: Vec<i32>,
    height: i32,
}

impl Rows {
    fn of(chart: &Bars) -> Rows {
        let names = chart.rows.iter();
        let names: Vec<Vec<String>> = names
            .map(|name| words::lines(name, TEXT, NAMES.0, NAMES.1))
            .collect();
        let lanes = |row: usize| {
            let bars = || chart.panels.iter().flat_map(move |panel| &panel.bars[row]);
            let mut lanes = Kind::ALL.to_vec();
            lanes.retain(|kind| bars().any(|bar| bar.kind == *kind));
            lanes
        };
        let mut rows = Rows {
            width: words::widest(names.iter().flatten(), TEXT),
            lanes: (0..names.len()).map(lanes).collect(),
            tops: Vec::new(),
            height: BETWEEN / 2,
            names,
        };
        for (name, lanes) in rows.names.iter().zip(&rows.lanes) {
            let lanes = lanes.len() as i32 * LANE;
            let height = lanes.max(name.len() as i32 * LINE);
            rows.tops.push(rows.height + (height - lanes) / 2);
            rows.height += height + BETWEEN;
        }
        rows.height -= BETWEEN / 2;
        rows
    }

    fn write_names(&self, area: &Area<'_>, y: i32) -> Drawn {
        for (name, (top, lanes)) in self.names.iter().zip(self.tops.iter().zip(&self.lanes)) {
            let middle = y + top + LANE * lanes.len() as i32 / 2;
            let first = middle - LINE * (name.len() as i32 - 1) / 2;
            for (line, place) in name.iter().zip(0..) {
                write(
                    area,
                    line,
                    TEXT,
                    HPos::Right,
                    (self.width, first + place * LINE),
                )?;
            }
        }
        Ok(())
    }
}

impl BarPanel {
    fn draw(&self, area: &Area<'_>, rows: &Rows) -> Drawn {
        let bars = || self.bars.iter().flatten();
        let most = bars().map(Bar::end).fold(0.0, f64::max) / self.one;
        let width = area.dim_in_pixel().0 as i32;
        // Every bar leaves room for its figure.
        let room = bars().filter(|bar| bar.end() > 0.0).map(|bar| {
            let left = width - BESIDE - words::width(&bar.words, FIGURE);
            f64::from(left) * most * self.one / bar.end()
        });
        let room = room.fold(f64::from(width), f64::min).max(40.0) as i32;
        let label = |place: &f64| match *place {
            0.0 => "0".to_owned(),
            place => (self.label)(place * self.one),
        };
        let axis = RangedCoordf64::from(0.0..most);
        let places = (2..=9).rev().find(|places| {
            let places = axis.key_points(BoldPoints(*places));
            let labels: Vec<String> = places.iter().map(label).collect();
            let step = places.get(1).map_or(most, |place| *place) / most * f64::from(room);
            f64::from(words::widest(&labels, SMALL) + 14) <= step
        });
        let mut chart = ChartBuilder::on(area)
            .margin_right(width - room)
            .x_label_area_size(BELOW)
            .build_cartesian_2d(axis.range(), f64::from(rows.height)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_labels(places.unwrap_or(2))
            .x_label_formatter(&label)
            .label_style(SMALL.style(HPos::Center))
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(AXIS)
            .set_all_tick_mark_size(3)
            .draw()?;
        for ((bars, lanes), top) in self.bars.iter().zip(&rows.lanes).zip(&rows.tops) {
            for bar in bars {
                let lane = lanes.iter().position(|kind| *kind == bar.kind).unwrap_or(0);
                let y = f64::from(top + LANE / 2) + f64::from(LANE) * lane as f64;
                let letters = if bar.kind == Kind::Measured && bar.value.is_some() {
                    FIGURE
                } else {
                    SMALL
                };
                let words = match bar.value {
                    Some(_) => bar.words.clone(),
                    None => words::fitted(&bar.words, SMALL, width - BESIDE),
                };
                let words = Text::new(plain(&words), (BESIDE, 0), letters.style(HPos::Left));
                chart.draw_series(once(EmptyElement::at((bar.end() / self.one, y)) + words))?;
                let Some(value) = bar.value else { continue };
                let [low, value, high] = [bar.low, value, bar.high].map(|at| at / self.one);
                let (colour, range) = colours(bar.kind);
                if bar.kind != Kind::Predicted {
                    let corners = [(0.0, y - HALF), (value, y + HALF)];
                    chart.draw_series(once(Rectangle::new(corners, colour.filled())))?;
                }
                if low < high || bar.kind == Kind::Predicted {
                    let range = ErrorBar::new_horizontal(y, low, value, high, range.filled(), 7);
                    chart.draw_series(once(range))?;
                }
            }
        }
        Ok(())
    }
}

impl Bar {
    /// What it and its range end at.
    fn end(&self) -> f64 {
        self.value.map_or(0.0, |value| value.max(self.high))
    }
}

//! Heat maps: dark is low, bright is high, as in matplotlib's viridis, which the colour-blind can read and a grey
//! printer prints in order. May use: nothing.

use super::*;
use plotters::element::DashedPathElement;

/// One or more maps over the same two keys.
pub struct Heatmap {
    pub heading: Heading,
    pub columns: Key,
    /// Downwards; `None`: there is one row.
    pub rows: Option<Key>,
    pub panels: Vec<HeatmapPanel>,
    /// The least and the most value of all, where there is any; how they are written; and what they are.
    pub range: Option<(f64, f64)>,
    pub ends: [String; 2],
    pub unit: &'static str,
    /// What frames stand for, and a tile without a value.
    pub signs: Vec<(Option<Frame>, &'static str)>,
}

/// A name, and its values.
pub struct Key {
    pub name: String,
    pub values: Vec<String>,
}

pub struct HeatmapPanel {
    pub caption: String,
    /// Row by row.
    pub tiles: Vec<Vec<Tile>>,
}

pub struct Tile {
    pub value: Option<f64>,
    /// In lines.
    pub words: Vec<String>,
    pub frame: Option<Frame>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Solid,
    Dashed,
}

/// Of a place in a map.
const TILE: At = (96, 46);
/// Between a tile and its place's edge; its frame lies in between.
const GAP: i32 = 5;
/// Of a column's value.
const MOST_LINES: usize = 3;
const RAMP: At = (200, 14);

/// Red, green and blue of `value` between `least` and `most`.
pub fn colour(value: f64, (least, most): (f64, f64)) -> [u8; 3] {
    let place = if most > least {
        (value - least) / (most - least)
    } else {
        1.0
    };
    let RGBColor(red, green, blue) = ViridisRGB.get_color(place.clamp(0.0, 1.0));
    [red, green, blue]
}

/// Whether text on a colour is to be dark.
pub fn is_bright(colour: [u8; 3]) -> bool {
    let [red, green, blue] = colour.map(f64::from);
    0.299 * red + 0.587 * green + 0.114 * blue > 130.0
}

/// Lines of the longest head.
fn height(heads: &[Vec<String>]) -> i32 {
    heads.iter().map(Vec::len).max().unwrap_or(1) as i32
}

fn drawn([red, green, blue]: [u8; 3]) -> RGBColor {
    RGBColor(red, green, blue)
}

impl Heatmap {
    /// The file's text.
    pub fn svg(&self) -> String {
        let rows = self.rows.as_ref();
        let names = rows.map_or(0, |rows| {
            let name = words::width(&rows.name, KEY);
            words::widest(&rows.values, TEXT).max(name) + 8
        });
        let across = names + TILE.0 * self.columns.values.len() as i32;
        let heads = self.heads();
        let tiles = TILE.1 * rows.map_or(1, |rows| rows.values.len()) as i32;
        let panel = tiles + (3 + height(&heads)) * LINE;
        let panels = panel * self.panels.len() as i32;
        let title = words::width(&self.heading.title, TITLE);
        let width = across.max(title).max(RAMP.0 + 280);
        self.heading.page((width, panels + 3 * LINE), |area| {
            for (map, top) in self.panels.iter().zip((0..).step_by(panel as usize)) {
                self.draw_panel(map, &area.margin(top, 0, 0, 0), names, &heads)?;
            }
            self.draw_legend(&area.margin(panels, 0, 0, 0))
        })
    }

    /// The columns' values in lines that are no wider than their tiles.
    fn heads(&self) -> Vec<Vec<String>> {
        let values = self.columns.values.iter();
        values
            .map(|value| words::lines(value, TEXT, TILE.0 - GAP, MOST_LINES))
            .collect()
    }

    fn draw_panel(
        &self,
        panel: &HeatmapPanel,
        area: &Area<'_>,
        names: i32,
        heads: &[Vec<String>],
    ) -> Drawn {
        let line = |line: i32| LINE * line + LINE / 2;
        let lines = height(heads);
        let at =
            |column: i32, row: i32| (names + TILE.0 * column, (2 + lines) * LINE + TILE.1 * row);
        write(area, &panel.caption, KEY, HPos::Left, (0, line(0)))?;
        let columns = &self.columns;
        let middle = names + TILE.0 * columns.values.len() as i32 / 2;
        write(area, &columns.name, KEY, HPos::Center, (middle, line(1)))?;
        for (head, column) in heads.iter().zip(0..) {
            let x = at(column, 0).0 + TILE.0 / 2;
            // The last of its lines is beside the tiles.
            for (words, above) in head.iter().rev().zip(0..) {
                write(
                    area,
                    words,
                    TEXT,
                    HPos::Center,
                    (x, line(1 + lines - above)),
                )?;
            }
        }
        if let Some(rows) = &self.rows {
            write(
                area,
                &rows.name,
                KEY,
                HPos::Right,
                (names - 8, line(1 + lines)),
            )?;
            for (value, row) in rows.values.iter().zip(0..) {
                let y = at(0, row).1 + TILE.1 / 2;
                write(area, value, TEXT, HPos::Right, (names - 8, y))?;
            }
        }
        for (tiles, row) in panel.tiles.iter().zip(0..) {
            for (tile, column) in tiles.iter().zip(0..) {
                self.draw_tile(tile, area, at(column, row))?;
            }
        }
        Ok(())
    }

    fn draw_tile(&self, tile: &Tile, area: &Area<'_>, (x, y): At) -> Drawn {
        let value = tile.value.zip(self.range);
        let colour = value.map(|(value, range)| colour(value, range));
        let square = |inset: i32| {
            [
                (x + inset, y + inset),
                (x + TILE.0 - inset, y + TILE.1 - inset),
            ]
        };
        area.draw(&Rectangle::new(
            square(GAP),
            colour.map_or(EMPTY, drawn).filled(),
        ))?;
        let ink = match colour.map(is_bright) {
            None => INK,
            // Neither is among the colours that a dark page changes.
            Some(true) => RGBColor(0x0b, 0x0b, 0x0b),
            Some(false) => RGBColor(0xfe, 0xfe, 0xfe),
        };
        let first = y + TILE.1 / 2 + 7 - 7 * tile.words.len() as i32;
        for ((words, line), size) in tile.words.iter().zip(0..).zip([13.0, 11.0]) {
            let at = (x + TILE.0 / 2, first + 14 * line);
            write(
                area,
                words,
                Letters::of(size, colour.is_some(), ink),
                HPos::Center,
                at,
            )?;
        }
        match tile.frame {
            Some(frame) => draw_frame(area, frame, square(2)),
            None => Ok(()),
        }
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        if let Some(range) = self.range {
            for x in 0..RAMP.0 {
                let place = f64::from(x) / f64::from(RAMP.0 - 1);
                let colour = drawn(colour(range.0 + place * (range.1 - range.0), range));
                area.draw(&Rectangle::new([(x, 0), (x + 1, RAMP.1)], colour.filled()))?;
            }
            let y = RAMP.1 + 9;
            write(area, &self.ends[0], SMALL, HPos::Left, (0, y))?;
            write(area, self.unit, SMALL, HPos::Center, (RAMP.0 / 2, y))?;
            write(area, &self.ends[1], SMALL, HPos::Right, (RAMP.0, y))?;
        }
        let x = RAMP.0 + 32;
        for ((frame, words), y) in self.signs.iter().zip((0..).step_by(LINE as usize + 2)) {
            let corners = [(x, y), (x + 22, y + RAMP.1)];
            match frame {
                Some(frame) => draw_frame(area, *frame, corners)?,
                None => area.draw(&Rectangle::new(corners, EMPTY.filled()))?,
            }
            write(area, words, SMALL, HPos::Left, (x + 30, y + RAMP.1 / 2))?;
        }
        Ok(())
    }
}

fn draw_frame(area: &Area<'_>, frame: Frame, [(x, y), (right, bottom)]: [At; 2]) -> Drawn {
    let line = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)];
    let (dash, gap) = match frame {
        Frame::Dashed => (5, 4),
        Frame::Solid => SOLID,
    };
    area.draw(&DashedPathElement::new(
        line,
        dash,
        gap,
        INK.stroke_width(2),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_brighter() {
        assert_eq!(colour(0.0, (0.0, 20.0)), [68, 1, 84]);
        assert_eq!(colour(7.0, (7.0, 7.0)), [254, 232, 37]);
        assert!(is_bright(colour(1.0, (0.0, 1.0))) && !is_bright(colour(0.0, (0.0, 1.0))));
        let light = |at: i32| colour(f64::from(at), (0.0, 20.0)).map(f64::from);
        let light = |at: i32| {
            light(at)
                .iter()
                .zip([0.299, 0.587, 0.114])
                .map(|(c, part)| c * part)
                .sum::<f64>()
        };
        assert!((0..20).all(|at| light(at) < light(at + 1)));
    }
}

//! Charts as SVG files that need no other, drawn by plotters and readable on a light and on a dark page. May use:
//! nothing of this crate.
//!
//! Invariant: no text lies on another. Where there is no room for it, it is wrapped, shortened or left out.

mod bars;
#[cfg(test)]
mod documented;
mod heatmap;
mod lines;
#[cfg(test)]
mod ranks;
#[cfg(test)]
mod scaling;
mod words;

pub use bars::{Bar, BarPanel, Bars};
pub use heatmap::{Frame, Heatmap, HeatmapPanel, Key, Tile, colour, is_bright};
pub use lines::{LinePanel, Lines, Point, Series};

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What a figure is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Published,
    Predicted,
    Measured,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Published, Kind::Predicted, Kind::Measured];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Published => "published",
            Kind::Predicted => "predicted",
            Kind::Measured => "measured",
        }
    }
}

/// What stands above a chart.
pub struct Heading {
    pub title: String,
    pub subtitle: String,
}

/// Writes a place of an axis.
pub type Label = Box<dyn Fn(f64) -> String>;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
/// Pixels from the left and from the top.
type At = (i32, i32);

/// Around everything.
const MARGIN: i32 = 24;
/// Of a line of text.
const LINE: i32 = 17;
/// The length of dashes, and of the gaps between them, of a line without any.
const SOLID: (i32, i32) = (10_000, 0);

const PAGE: RGBColor = RGBColor(0xff, 0xff, 0xff);
const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const QUIET: RGBColor = RGBColor(0x59, 0x63, 0x6e);
const GRID: RGBColor = RGBColor(0xe4, 0xe8, 0xec);
const AXIS: RGBColor = RGBColor(0x9a, 0xa4, 0xae);
const PUBLISHED: RGBColor = RGBColor(0xb8, 0xc0, 0xc8);
const PREDICTED: RGBColor = RGBColor(0xd5, 0x5e, 0x01);
const MEASURED: RGBColor = RGBColor(0x2a, 0x78, 0xd6);
const EMPTY: RGBColor = RGBColor(0xea, 0xee, 0xf2);
/// Those of Okabe and Ito, which the colour-blind can tell apart, darker.
const SERIES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x79, 0x5a),
    RGBColor(0xa8, 0x43, 0x7f),
    RGBColor(0x8a, 0x6d, 0x00),
    RGBColor(0x56, 0x61, 0x6b),
];
/// What colours become on a dark page.
const DARK: [(RGBColor, &str); 15] = [
    (PAGE, "0d1117"),
    (INK, "e6edf3"),
    (QUIET, "9198a1"),
    (GRID, "21262d"),
    (AXIS, "59636e"),
    (PUBLISHED, "4a525b"),
    (PREDICTED, "f59a4a"),
    (MEASURED, "4a90e2"),
    (EMPTY, "21262e"),
    (SERIES[0], "56b4e9"),
    (SERIES[1], "f58a45"),
    (SERIES[2], "2fc79a"),
    (SERIES[3], "e08fbf"),
    (SERIES[4], "e6c229"),
    (SERIES[5], "b6bfc8"),
];

/// How text is written; the size is in pixels.
#[derive(Copy, Clone)]
struct Letters {
    size: f64,
    bold: bool,
    colour: RGBColor,
}

impl Letters {
    const fn of(size: f64, bold: bool, colour: RGBColor) -> Letters {
        Letters { size, bold, colour }
    }

    fn style(self, anchor: HPos) -> TextStyle<'static> {
        let weight = if self.bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        // The backend writes a font's size divided by this.
        let font = ("system-ui,'DejaVu Sans',sans-serif", self.size * 1.24).into_font();
        let style = font.style(weight).color(&self.colour);
        style.pos(Pos::new(anchor, VPos::Center))
    }
}

const TITLE: Letters = Letters::of(16.0, true, INK);
const TEXT: Letters = Letters::of(13.0, false, INK);
const KEY: Letters = Letters::of(13.0, true, INK);
const SMALL: Letters = Letters::of(11.0, false, QUIET);
const FIGURE: Letters = Letters::of(11.0, true, INK);

fn write(area: &Area<'_>, words: &str, letters: Letters, anchor: HPos, at: At) -> Drawn {
    area.draw_text(&plain(words), &letters.style(anchor), at)
}

/// Lines from `at` on.
fn write_lines(area: &Area<'_>, lines: &[String], letters: Letters, (x, y): At) -> Drawn {
    for (line, place) in lines.iter().zip(0..) {
        write(
            area,
            line,
            letters,
            HPos::Left,
            (x, y + LINE * place + LINE / 2),
        )?;
    }
    Ok(())
}

/// Without the control characters that XML must not have.
fn plain(words: &str) -> String {
    words.replace(char::is_control, " ")
}

impl Heading {
    /// The text of a file: this, and below it what `draw` draws on `width` by `height` pixels.
    fn page(&self, (width, height): At, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
        let title = words::lines(&self.title, TITLE, width, 3);
        let subtitle = words::lines(&self.subtitle, TEXT, width, 2);
        let below = LINE * (title.len() + subtitle.len()) as i32 + 14;
        let size = (width + 2 * MARGIN, below + height + 2 * MARGIN);
        let mut file = String::new();
        let drawing = || -> Drawn {
            let (across, down) = (size.0.unsigned_abs(), size.1.unsigned_abs());
            let root = SVGBackend::with_string(&mut file, (across, down)).into_drawing_area();
            root.fill(&PAGE)?;
            let inside = root.margin(MARGIN, MARGIN, MARGIN, MARGIN);
            write_lines(&inside, &title, TITLE, (0, 0))?;
            let quiet = Letters {
                colour: QUIET,
                ..TEXT
            };
            write_lines(
                &inside,
                &subtitle,
                quiet,
                (0, LINE * title.len() as i32 + 4),
            )?;
            draw(&inside.margin(below, 0, 0, 0))?;
            root.present()
        };
        // Writing to a string does not fail.
        drawing().ok();
        let title = plain(&self.title);
        let title = title
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let dark: String = DARK.iter().map(dark).collect();
        let head = format!(
            " role=\"img\">\n<title>{title}</title>\n<style>@media (prefers-color-scheme:dark){{\n{dark}}}</style>\n"
        );
        file.replacen(">\n", &head, 1)
    }
}

fn dark((RGBColor(red, green, blue), dark): &(RGBColor, &str)) -> String {
    let light = format!("\"#{red:02X}{green:02X}{blue:02X}\"");
    format!("[fill={light}]{{fill:#{dark}}}[stroke={light}]{{stroke:#{dark}}}\n")
}

type Draw<'a> = Box<dyn Fn(&Area<'_>, At) -> Drawn + 'a>;

/// What a sign in a chart stands for.
struct Sign<'a> {
    words: String,
    /// Draws it on [`Sign::WIDTH`] pixels, from the middle of its left end.
    draw: Draw<'a>,
}

impl<'a> Sign<'a> {
    const WIDTH: i32 = 28;

    fn of(words: &str, draw: impl Fn(&Area<'_>, At) -> Drawn + 'a) -> Sign<'a> {
        Sign {
            words: words.to_owned(),
            draw: Box::new(draw),
        }
    }
}

/// Signs side by side, on as many lines as are needed.
struct Legend<'a> {
    signs: Vec<(Sign<'a>, At)>,
    height: i32,
}

impl<'a> Legend<'a> {
    fn of(signs: Vec<Sign<'a>>, room: i32) -> Legend<'a> {
        let (mut x, mut y) = (0, 0);
        let place = |sign: Sign<'a>| {
            let width = Sign::WIDTH + 8 + words::width(&sign.words, SMALL);
            if x > 0 && x + width > room {
                (x, y) = (0, y + LINE);
            }
            let at = (x, y + LINE / 2);
            x += width + 22;
            (sign, at)
        };
        let signs = signs.into_iter().map(place).collect();
        Legend {
            signs,
            height: y + LINE + 8,
        }
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        for (sign, (x, y)) in &self.signs {
            (sign.draw)(area, (*x, *y))?;
            write(
                area,
                &sign.words,
                SMALL,
                HPos::Left,
                (x + Sign::WIDTH + 8, *y),
            )?;
        }
        Ok(())
    }
}

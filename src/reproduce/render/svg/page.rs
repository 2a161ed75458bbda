//! What is around a chart: the style, the heading, the legend. May use: the data model.

use super::canvas::{Anchor, At, Canvas};
use super::letters::{SMALL, TEXT, TITLE};
use crate::reproduce::Part;

/// Pixels around everything.
pub(super) const MARGIN: f64 = 24.0;
/// Of a line of text.
pub(super) const LINE: f64 = 17.0;
/// Of a sign in the legend.
const SIGN: f64 = 28.0;

/// The colours are those of Okabe and Ito, which the colour-blind can tell apart, darker on white and brighter on
/// black.
const STYLE: [&str; 2] = [
    "\
.halo{paint-order:stroke;stroke:#ffffff;stroke-width:4;stroke-linejoin:round}
.grid{stroke:#e4e8ec}
.axis{stroke:#9aa4ae}
.published{fill:#e4e8ec;stroke:#7d8790}
.span,.published-line{fill:none;stroke:#59636e;stroke-width:1.5}
.predicted{fill:#d55e00}
.predicted-line{fill:none;stroke:#d55e00;stroke-width:1.5}
.measured{fill:#2a78d6}
.whisker{fill:none;stroke:#0b2f5c;stroke-width:1.5}
.series{fill:none;stroke-width:2.5;stroke-linejoin:round}
.dash{stroke-width:1.75;stroke-dasharray:7 4}
.dots{stroke-width:1.75;stroke-dasharray:2 3.5}
.hollow{fill:#ffffff;stroke-width:1.75}
.thin{fill:none;stroke-width:1.5}
.ring{fill:none;stroke:#1f2328;stroke-width:1.5}
.guide{stroke:#59636e;stroke-dasharray:3 3}
.ink{stroke:#1f2328}
.s0{stroke:#0072b2}.s1{stroke:#d55e00}.s2{stroke:#00795a}.s3{stroke:#a8437f}.s4{stroke:#8a6d00}.s5{stroke:#56616b}
.f0{fill:#0072b2}.f1{fill:#d55e00}.f2{fill:#00795a}.f3{fill:#a8437f}.f4{fill:#8a6d00}.f5{fill:#56616b}
",
    "\
.halo{stroke:#0d1117}
.grid{stroke:#21262d}
.axis{stroke:#59636e}
.published{fill:#30363d;stroke:#8b949e}
.span,.published-line{stroke:#9198a1}
.predicted{fill:#f59a4a}
.predicted-line{stroke:#f59a4a}
.measured{fill:#4a90e2}
.whisker{stroke:#dbe9fb}
.hollow{fill:#0d1117}
.ring,.ink{stroke:#e6edf3}
.guide{stroke:#9198a1}
.s0{stroke:#56b4e9}.s1{stroke:#f58a45}.s2{stroke:#2fc79a}.s3{stroke:#e08fbf}.s4{stroke:#e6c229}.s5{stroke:#b6bfc8}
.f0{fill:#56b4e9}.f1{fill:#f58a45}.f2{fill:#2fc79a}.f3{fill:#e08fbf}.f4{fill:#e6c229}.f5{fill:#b6bfc8}
",
];

/// What a sign in a chart stands for.
pub(super) struct Sign {
    pub(super) words: String,
    /// Draws it, from the place of its left end.
    pub(super) draw: fn(&mut Canvas, At, f64),
}

/// A page that is filled from the top.
pub(super) struct Page {
    pub(super) canvas: Canvas,
    /// Where the next thing begins.
    pub(super) top: f64,
    width: f64,
    title: String,
}

impl Page {
    /// With its heading.
    pub(super) fn new(title: &str, subtitle: &str, width: f64) -> Page {
        let mut page = Page {
            canvas: Canvas::default(),
            top: MARGIN,
            width,
            title: title.to_owned(),
        };
        let room = width - 2.0 * MARGIN;
        for line in TITLE.lines(title, room, 3) {
            page.text("title", &line, 21.0);
        }
        for line in TEXT.lines(subtitle, room, 2) {
            page.text("quiet", &line, LINE);
        }
        page.top += 6.0;
        page
    }

    fn text(&mut self, class: &str, words: &str, height: f64) {
        let at = (MARGIN, self.top + 0.7 * height);
        self.canvas.text(at, class, Anchor::Start, words);
        self.top += height;
    }

    /// What the signs mean, on as many lines as are needed.
    pub(super) fn legend(&mut self, signs: &[Sign]) {
        let end = self.width - MARGIN;
        let mut x = MARGIN;
        for sign in signs {
            let width = SIGN + 8.0 + SMALL.width(&sign.words) + 22.0;
            if x > MARGIN && x + width - 22.0 > end {
                x = MARGIN;
                self.top += LINE;
            }
            (sign.draw)(&mut self.canvas, (x, self.top + 0.5 * LINE), SIGN);
            let at = (x + SIGN + 8.0, self.top + 0.5 * LINE + 4.0);
            self.canvas
                .text(at, "small quiet", Anchor::Start, &sign.words);
            x += width;
        }
        self.top += LINE + 8.0;
    }

    /// Tells which charted columns of `part` are not among the `drawn`, since they have no figure, and why.
    pub(super) fn left_out(&mut self, part: &Part, drawn: &[usize]) {
        let charted = part.charted.iter().filter(|column| !drawn.contains(column));
        for column in charted {
            let Some(named) = part.columns.get(*column) else {
                continue;
            };
            let mut cells = part.rows.iter().filter_map(|row| row.cells.get(*column));
            let remark = cells.find_map(|cell| cell.remark.as_deref());
            let why = remark.unwrap_or("nothing was measured");
            let words = format!("{}: {why}", named.name);
            for line in SMALL.lines(&words, self.width - 2.0 * MARGIN, 2) {
                self.text("small quiet", &line, LINE);
            }
        }
    }

    /// The file's text.
    pub(super) fn finish(self) -> String {
        let size = (self.width, self.top + MARGIN - 8.0);
        self.canvas.into_page(&self.title, STYLE, "", size)
    }
}

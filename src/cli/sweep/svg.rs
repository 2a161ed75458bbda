//! Heat maps as one SVG file that needs no other, readable on a light and on a dark page. May use: `reproduce`, `tune`.

use super::Shown;
use super::heatmap::{Heatmap, Panel, heatmap, range, rate, short, word};
use super::ramp::Colour;
use crate::reproduce::{Anchor, Canvas};

// Pixels.
const CELL: (f64, f64) = (96.0, 46.0);
const MARGIN: f64 = 24.0;
const LINE: f64 = 20.0;
/// Of a letter of 13 px, about.
const LETTER: f64 = 8.0;
const LEGEND: (f64, f64) = (200.0, 14.0);
/// Between a cell and its place's edge; the frame of a cell lies there.
const GAP: f64 = 5.0;
const FRAME: f64 = 3.0;

/// On a light and on a dark page.
const STYLE: [&str; 2] = [
    "\
.empty{fill:#eaeef2;stroke:#c4ccd4}
.hatch{stroke:#b3bcc6;stroke-width:3}
.best{fill:none;stroke:#1f2328;stroke-width:2.5}
.knee{fill:none;stroke:#1f2328;stroke-width:2.5;stroke-dasharray:5 4}
.dark{fill:#0b0b0b;font-weight:600}
.light{fill:#ffffff;font-weight:600}
",
    "\
.empty{fill:#21262d;stroke:#3d444d}
.hatch{stroke:#3d444d}
.best,.knee{stroke:#f0f6fc}
.dark{fill:#0b0b0b}
.light{fill:#ffffff}
",
];

/// The file's text; `None` where no key has several values, or there are too many heat maps.
pub(super) fn render(shown: &Shown<'_>) -> Option<String> {
    let map = heatmap(shown.grid())?;
    let labels = map.rows.map_or(0, |rows| {
        let values = rows.values.iter().map(|value| value.chars().count());
        values.chain([rows.key.chars().count()]).max().unwrap_or(0)
    });
    let beside = if labels > 0 { 8.0 } else { 0.0 };
    let mut drawing = Drawing {
        shown,
        map: &map,
        left: MARGIN + labels as f64 * LETTER + beside,
        canvas: Canvas::default(),
    };
    Some(drawing.draw())
}

/// The stripes of what was not measured, and the colours from least to most.
fn definitions() -> String {
    let stops = (0..=8).map(|step| {
        let place = f64::from(step) / 8.0;
        format!(
            "<stop offset=\"{place}\" stop-color=\"{}\"/>",
            Colour::at(place).hex()
        )
    });
    format!(
        "<defs><pattern id=\"hatch\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"8\"/></pattern>\n\
         <linearGradient id=\"ramp\">{}</linearGradient></defs>\n",
        stops.collect::<String>()
    )
}

struct Drawing<'a> {
    shown: &'a Shown<'a>,
    map: &'a Heatmap<'a>,
    /// Left of the cells.
    left: f64,
    canvas: Canvas,
}

impl Drawing<'_> {
    fn draw(&mut self) -> String {
        let title = title(self.shown);
        let cells = self.left + self.map.columns.values.len() as f64 * CELL.0;
        let heading = title.chars().count() as f64 * 9.0 + MARGIN;
        let width = cells.max(MARGIN + LEGEND.0 + 240.0).max(heading) + MARGIN;
        let y = MARGIN + 10.0;
        self.canvas
            .text((MARGIN, y), "title", Anchor::Start, &title);
        let subtitle = subtitle(self.shown);
        self.canvas
            .text((MARGIN, y + LINE), "quiet", Anchor::Start, &subtitle);
        let mut y = MARGIN + 2.0 * LINE + 8.0;
        for panel in &self.map.panels {
            y = self.draw_panel(panel, y) + MARGIN;
        }
        self.draw_legend(y);
        let size = (width, y + 3.0 * LINE + MARGIN);
        let canvas = std::mem::take(&mut self.canvas);
        canvas.into_page(&title, STYLE, &definitions(), size)
    }

    /// Returns where it ends.
    fn draw_panel(&mut self, panel: &Panel, top: f64) -> f64 {
        let (map, canvas, left) = (self.map, &mut self.canvas, self.left);
        let mut y = top + 13.0;
        if !panel.caption.is_empty() {
            canvas.text((MARGIN, y), "key", Anchor::Start, &panel.caption);
            y += LINE;
        }
        let (columns, centre) = (&map.columns, |at: f64| left + at * CELL.0);
        let middle = centre(columns.values.len() as f64 / 2.0);
        canvas.text((middle, y), "key", Anchor::Middle, &columns.key);
        y += LINE;
        for (column, value) in columns.values.iter().enumerate() {
            canvas.text((centre(column as f64 + 0.5), y), "", Anchor::Middle, value);
        }
        if let Some(rows) = map.rows {
            canvas.text((left - 8.0, y), "key", Anchor::End, &rows.key);
        }
        y += LINE - 13.0;
        for (row, cells) in panel.cells.iter().enumerate() {
            if let Some(rows) = map.rows {
                let at = (left - 8.0, y + CELL.1 / 2.0 + 5.0);
                self.canvas.text(at, "", Anchor::End, &rows.values[row]);
            }
            for (column, index) in cells.iter().enumerate() {
                self.draw_cell(*index, (left + column as f64 * CELL.0 + GAP, y + GAP));
            }
            y += CELL.1;
        }
        y
    }

    fn draw_cell(&mut self, index: usize, (x, y): (f64, f64)) {
        let results = self.shown.results;
        let point = &results.points[index];
        let size @ (width, height) = (CELL.0 - 2.0 * GAP, CELL.1 - 2.0 * GAP);
        let (x_middle, y_middle) = (x + width / 2.0, y + height / 2.0 + 5.0);
        let write = |canvas: &mut Canvas, up: f64, class: &str, words: &str| {
            canvas.text((x_middle, y_middle - up), class, Anchor::Middle, words);
        };
        self.canvas.titled(&tooltip(self.shown, index), |canvas| {
            match (rate(point), range(results)) {
                (Some(rate), Some(range)) => {
                    let colour = Colour::of(rate, range);
                    canvas.tile("", (x, y), size, Some(&colour.hex()));
                    let class = if colour.is_bright() { "dark" } else { "light" };
                    let up = if point.failed == 0 { 0.0 } else { 7.0 };
                    write(canvas, up, class, &short(rate, range.1));
                    if point.failed > 0 {
                        let words = format!("{} of {} failed", point.failed, point.trials.len());
                        write(canvas, -7.0, &format!("{class} small"), &words);
                    }
                }
                _ => {
                    canvas.tile("empty", (x, y), size, None);
                    if !point.trials.is_empty() {
                        canvas.tile("", (x, y), size, Some("url(#hatch)"));
                    }
                    write(canvas, 0.0, "", word(point));
                }
            }
            let best = results.best == Some(index);
            if best || results.knee == Some(index) {
                let class = if best { "best" } else { "knee" };
                let size = (width + 2.0 * FRAME, height + 2.0 * FRAME);
                canvas.tile(class, (x - FRAME, y - FRAME), size, None);
            }
        });
    }

    fn draw_legend(&mut self, top: f64) {
        let (canvas, (width, height)) = (&mut self.canvas, LEGEND);
        if let Some((least, most)) = range(self.shown.results) {
            canvas.tile("", (MARGIN, top), LEGEND, Some("url(#ramp)"));
            let y = top + height + 15.0;
            canvas.text((MARGIN, y), "quiet", Anchor::Start, &short(least, most));
            canvas.text(
                (MARGIN + width / 2.0, y),
                "quiet",
                Anchor::Middle,
                "samples/s",
            );
            canvas.text(
                (MARGIN + width, y),
                "quiet",
                Anchor::End,
                &short(most, most),
            );
        }
        let knee = match self.shown.results.knee_is_sure {
            true => "the smallest within 2 % of it",
            false => "perhaps the smallest within 2 %",
        };
        let keys = [
            ("best", "the best"),
            ("knee", knee),
            ("empty", "nothing measured"),
        ];
        let (x, mut y) = (MARGIN + width + 32.0, top);
        for (class, words) in keys {
            canvas.tile(class, (x, y), (22.0, height), None);
            if class == "empty" {
                canvas.tile("", (x, y), (22.0, height), Some("url(#hatch)"));
            }
            canvas.text((x + 30.0, y + 12.0), "quiet", Anchor::Start, words);
            y += LINE;
        }
    }
}

fn title(shown: &Shown<'_>) -> String {
    let device = shown.plan.device();
    let device = device.map(|device| format!(" on {device}"));
    format!(
        "{}{}: samples/s",
        shown.plan.name(),
        device.unwrap_or_default()
    )
}

/// What holds in all cells.
fn subtitle(shown: &Shown<'_>) -> String {
    let axes = shown.grid().axes.iter();
    let fixed = axes.filter(|axis| axis.values.len() == 1);
    let fixed: String = fixed
        .map(|axis| format!("{}={}; ", axis.key, axis.values[0]))
        .collect();
    let (done, all) = (shown.results.trials_done, shown.results.trials_in_all);
    let part = if done < all {
        format!(" ({done} of {all} trials are done)")
    } else {
        String::new()
    };
    format!(
        "{fixed}median of {} runs{part}",
        shown.plan.manifest.repeats
    )
}

fn tooltip(shown: &Shown<'_>, index: usize) -> String {
    let point = &shown.results.points[index];
    let settings = point.settings.join(" ");
    let spread = point.samples_per_second.map(|spread| {
        let (median, low, high) = (spread.median, spread.low, spread.high);
        format!(
            "\n{median:.1} samples/s ({low:.1}..{high:.1}, {} runs)",
            spread.count
        )
    });
    let failure = point.failure().map(|reason| format!("\n{reason}"));
    format!(
        "{settings}{}{}",
        spread.unwrap_or_default(),
        failure.unwrap_or_default()
    )
}

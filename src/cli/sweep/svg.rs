//! Heat maps as one SVG file that needs no other, readable on a light and on a dark page. May use: `reproduce`, `tune`.

use super::Shown;
use super::heatmap::{Heatmap, Panel, heatmap, range, rate, short, word};
use super::ramp::Colour;
use crate::reproduce::escaped;
use std::fmt::{self, Write};

// Pixels.
const CELL: (usize, usize) = (96, 46);
const MARGIN: usize = 24;
const LINE: usize = 20;
/// Of a letter of 13 px, about.
const LETTER: usize = 8;
const LEGEND: (usize, usize) = (200, 14);
/// Between a cell and its place's edge; the frame of a cell lies there.
const GAP: usize = 5;
const FRAME: usize = 3;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}
.small{font-size:11px}
.title{font-size:16px;font-weight:600}
.key{font-weight:600}
.quiet{fill:#59636e}
.page{fill:#ffffff}
.empty{fill:#eaeef2;stroke:#c4ccd4}
.hatch{stroke:#b3bcc6;stroke-width:3}
.best{fill:none;stroke:#1f2328;stroke-width:2.5}
.knee{fill:none;stroke:#1f2328;stroke-width:2.5;stroke-dasharray:5 4}
.dark{fill:#0b0b0b;font-weight:600}
.light{fill:#ffffff;font-weight:600}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.quiet{fill:#9198a1}
.page{fill:#0d1117}
.empty{fill:#21262d;stroke:#3d444d}
.hatch{stroke:#3d444d}
.best,.knee{stroke:#f0f6fc}
.dark{fill:#0b0b0b}
.light{fill:#ffffff}
}";

/// The file's text; `None` where no key has several values, or there are too many heat maps.
pub(super) fn render(shown: &Shown<'_>) -> Option<String> {
    let map = heatmap(shown.grid())?;
    let drawing = Drawing::new(shown, &map);
    let mut out = String::new();
    // Writing to a string does not fail.
    drawing.write(&mut out).ok();
    Some(out)
}

struct Drawing<'a> {
    shown: &'a Shown<'a>,
    map: &'a Heatmap<'a>,
    /// Left of the cells.
    left: usize,
    width: usize,
}

impl<'a> Drawing<'a> {
    fn new(shown: &'a Shown<'a>, map: &'a Heatmap<'a>) -> Drawing<'a> {
        let labels = map.rows.map_or(0, |rows| {
            let values = rows.values.iter().map(|value| value.chars().count());
            values.chain([rows.key.chars().count()]).max().unwrap_or(0)
        });
        let left = MARGIN + labels * LETTER + if labels > 0 { 8 } else { 0 };
        let cells = left + map.columns.values.len() * CELL.0;
        let legend = MARGIN + LEGEND.0 + 240;
        let width = cells
            .max(legend)
            .max(title(shown).chars().count() * 9 + MARGIN)
            + MARGIN;
        Drawing {
            shown,
            map,
            left,
            width,
        }
    }

    fn panel_height(&self, panel: &Panel) -> usize {
        let caption = if panel.caption.is_empty() { 0 } else { LINE };
        caption + 2 * LINE + panel.cells.len() * CELL.1 + MARGIN
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let top = MARGIN + 2 * LINE + 8;
        let panels: usize = self.map.panels.iter().map(|p| self.panel_height(p)).sum();
        let height = top + panels + 3 * LINE + MARGIN;
        let width = self.width;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">"
        )?;
        writeln!(out, "<title>{}</title>", escaped(&title(self.shown)))?;
        writeln!(out, "<style>\n{STYLE}\n</style>")?;
        writeln!(
            out,
            "<defs><pattern id=\"hatch\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"8\"/></pattern>"
        )?;
        write!(out, "<linearGradient id=\"ramp\">")?;
        for step in 0..=8 {
            let place = f64::from(step) / 8.0;
            let colour = Colour::at(place).hex();
            write!(out, "<stop offset=\"{place}\" stop-color=\"{colour}\"/>")?;
        }
        writeln!(out, "</linearGradient></defs>")?;
        writeln!(
            out,
            "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>"
        )?;
        text(
            out,
            (MARGIN, MARGIN + 10),
            "title",
            "start",
            &title(self.shown),
        )?;
        text(
            out,
            (MARGIN, MARGIN + 10 + LINE),
            "quiet",
            "start",
            &subtitle(self.shown),
        )?;
        let mut y = top;
        for panel in &self.map.panels {
            self.write_panel(out, panel, y)?;
            y += self.panel_height(panel);
        }
        self.write_legend(out, y)?;
        writeln!(out, "</svg>")
    }

    fn write_panel(&self, out: &mut String, panel: &Panel, top: usize) -> fmt::Result {
        let mut y = top;
        if !panel.caption.is_empty() {
            text(out, (MARGIN, y + 13), "key", "start", &panel.caption)?;
            y += LINE;
        }
        let columns = &self.map.columns;
        let middle = self.left + columns.values.len() * CELL.0 / 2;
        text(out, (middle, y + 13), "key", "middle", &columns.key)?;
        y += LINE;
        for (column, value) in columns.values.iter().enumerate() {
            let x = self.left + column * CELL.0 + CELL.0 / 2;
            text(out, (x, y + 13), "", "middle", value)?;
        }
        if let Some(rows) = self.map.rows {
            text(out, (self.left - 8, y + 13), "key", "end", &rows.key)?;
        }
        y += LINE;
        for (row, cells) in panel.cells.iter().enumerate() {
            let y = y + row * CELL.1;
            if let Some(rows) = self.map.rows {
                let at = (self.left - 8, y + CELL.1 / 2 + 5);
                text(out, at, "", "end", &rows.values[row])?;
            }
            for (column, index) in cells.iter().enumerate() {
                self.write_cell(out, *index, (self.left + column * CELL.0, y))?;
            }
        }
        Ok(())
    }

    fn write_cell(&self, out: &mut String, index: usize, (x, y): (usize, usize)) -> fmt::Result {
        let results = self.shown.results;
        let point = &results.points[index];
        let (width, height) = (CELL.0 - 2 * GAP, CELL.1 - 2 * GAP);
        let (x, y) = (x + GAP, y + GAP);
        let place = rectangle((x, y), (width, height), 3);
        writeln!(
            out,
            "<g><title>{}</title>",
            escaped(&tooltip(self.shown, index))
        )?;
        let at = (x + width / 2, y + height / 2 + 5);
        match (rate(point), range(results)) {
            (Some(rate), Some(range)) => {
                let colour = Colour::of(rate, range);
                let hex = colour.hex();
                writeln!(out, "<rect {place} fill=\"{hex}\"/>")?;
                let class = if colour.is_bright() { "dark" } else { "light" };
                if point.failed == 0 {
                    text(out, at, class, "middle", &short(rate, range.1))?;
                } else {
                    let words = format!("{} of {} failed", point.failed, point.trials.len());
                    text(
                        out,
                        (at.0, at.1 - 7),
                        class,
                        "middle",
                        &short(rate, range.1),
                    )?;
                    let class = format!("{class} small");
                    text(out, (at.0, at.1 + 7), &class, "middle", &words)?;
                }
            }
            _ => {
                writeln!(out, "<rect {place} class=\"empty\"/>")?;
                if !point.trials.is_empty() {
                    writeln!(out, "<rect {place} fill=\"url(#hatch)\"/>")?;
                }
                text(out, at, "", "middle", word(point))?;
            }
        }
        let best = results.best == Some(index);
        if best || results.knee == Some(index) {
            let class = if best { "best" } else { "knee" };
            let size = (width + 2 * FRAME, height + 2 * FRAME);
            let frame = rectangle((x - FRAME, y - FRAME), size, 5);
            writeln!(out, "<rect {frame} class=\"{class}\"/>")?;
        }
        writeln!(out, "</g>")
    }

    fn write_legend(&self, out: &mut String, top: usize) -> fmt::Result {
        let (width, height) = LEGEND;
        if let Some((least, most)) = range(self.shown.results) {
            writeln!(
                out,
                "<rect x=\"{MARGIN}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"url(#ramp)\"/>"
            )?;
            let y = top + height + 15;
            text(out, (MARGIN, y), "quiet", "start", &short(least, most))?;
            text(out, (MARGIN + width / 2, y), "quiet", "middle", "samples/s")?;
            text(out, (MARGIN + width, y), "quiet", "end", &short(most, most))?;
        }
        let keys = [
            ("best", "the best"),
            ("knee", "the smallest within 2 % of it"),
            ("empty", "nothing measured"),
        ];
        let x = MARGIN + width + 32;
        for (row, (class, words)) in keys.into_iter().enumerate() {
            let y = top + row * LINE;
            let place = rectangle((x, y), (22, height), 3);
            writeln!(out, "<rect {place} class=\"{class}\"/>")?;
            if class == "empty" {
                writeln!(out, "<rect {place} fill=\"url(#hatch)\"/>")?;
            }
            text(out, (x + 30, y + 12), "quiet", "start", words)?;
        }
        Ok(())
    }
}

fn rectangle((x, y): (usize, usize), (width, height): (usize, usize), radius: usize) -> String {
    format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"")
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

fn text(
    out: &mut String,
    at: (usize, usize),
    class: &str,
    anchor: &str,
    words: &str,
) -> fmt::Result {
    let (x, y) = at;
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    };
    writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{class}>{}</text>",
        escaped(words)
    )
}

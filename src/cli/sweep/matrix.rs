//! Heat maps for the terminal: samples/s as a matrix, on colours where there are any. May use: `tune`.

use super::Shown;
use super::heatmap::{Heatmap, Panel, heatmap, range, rate, short, word};
use super::ramp::Colour;
use std::fmt::Write;

/// The matrices; empty where fewer than two keys have several values, or there were too many.
pub(super) fn render(shown: &Shown<'_>, colours: bool) -> String {
    let mut out = String::new();
    let Some(map) = heatmap(shown.grid()) else {
        return out;
    };
    if map.rows.is_some() {
        for panel in &map.panels {
            // Writing to a string does not fail.
            write_panel(&mut out, shown, &map, panel, colours).ok();
        }
    }
    out
}

fn write_panel(
    out: &mut String,
    shown: &Shown<'_>,
    map: &Heatmap<'_>,
    panel: &Panel,
    colours: bool,
) -> std::fmt::Result {
    let Some(rows) = map.rows else {
        return Ok(());
    };
    let caption = match panel.caption.as_str() {
        "" => String::new(),
        caption => format!(" at {caption}"),
    };
    writeln!(
        out,
        "\nsamples/s{caption}: {} down, {} across",
        rows.key, map.columns.key
    )?;
    let texts: Vec<Vec<String>> = panel.cells.iter().map(|row| texts(shown, row)).collect();
    let width = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let label = width(&mut rows.values.iter());
    let cell = width(&mut texts.iter().flatten().chain(&map.columns.values));
    let across = map.columns.values.iter();
    let across: String = across.map(|value| format!(" {value:>cell$} ")).collect();
    writeln!(out, "{:label$} {}", "", across.trim_end())?;
    for ((value, cells), texts) in rows.values.iter().zip(&panel.cells).zip(&texts) {
        let cells = cells.iter().zip(texts);
        let cells =
            cells.map(|(index, text)| painted(shown, *index, format!(" {text:>cell$} "), colours));
        let cells: String = cells.collect();
        writeln!(out, "{value:>label$} {}", cells.trim_end())?;
    }
    Ok(())
}

fn texts(shown: &Shown<'_>, row: &[usize]) -> Vec<String> {
    let most = range(shown.results).map_or(0.0, |(_, most)| most);
    let points = row.iter().map(|index| &shown.results.points[*index]);
    let text = points.map(|point| match rate(point) {
        Some(rate) => short(rate, most),
        None => word(point).to_owned(),
    });
    text.collect()
}

fn painted(shown: &Shown<'_>, index: usize, text: String, colours: bool) -> String {
    let rate = rate(&shown.results.points[index]);
    let (Some(rate), Some(range), true) = (rate, range(shown.results), colours) else {
        return text;
    };
    let colour = Colour::of(rate, range);
    let letters = if colour.is_bright() { 16 } else { 231 };
    format!("\x1b[48;5;{};38;5;{letters}m{text}\x1b[0m", colour.of_256())
}

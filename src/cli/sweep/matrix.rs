//! Heat maps for the terminal: samples/s as a matrix, on colours where there are any. May use: `charts`.

use crate::charts::{Heatmap, HeatmapPanel, Key, Tile, colour, is_bright};
use std::fmt::Write;

/// The matrices; empty where fewer than two keys have several values, or there were too many.
pub(super) fn render(map: Option<&Heatmap>, colours: bool) -> String {
    let mut out = String::new();
    if let Some((map, rows)) = map.and_then(|map| Some((map, map.rows.as_ref()?))) {
        for panel in &map.panels {
            // Writing to a string does not fail.
            write_panel(&mut out, map, rows, panel, colours).ok();
        }
    }
    out
}

fn write_panel(
    out: &mut String,
    map: &Heatmap,
    rows: &Key,
    panel: &HeatmapPanel,
    colours: bool,
) -> std::fmt::Result {
    let caption = match panel.caption.as_str() {
        "" => String::new(),
        caption => format!(" at {caption}"),
    };
    writeln!(
        out,
        "\nsamples/s{caption}: {} down, {} across",
        rows.name, map.columns.name
    )?;
    let width = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let texts = panel
        .tiles
        .iter()
        .flatten()
        .filter_map(|tile| tile.words.first());
    let label = width(&mut rows.values.iter());
    let cell = width(&mut texts.chain(&map.columns.values));
    let across = map.columns.values.iter();
    let across: String = across.map(|value| format!(" {value:>cell$} ")).collect();
    writeln!(out, "{:label$} {}", "", across.trim_end())?;
    for (value, tiles) in rows.values.iter().zip(&panel.tiles) {
        let tiles = tiles.iter();
        let tiles: String = tiles
            .map(|tile| painted(map, tile, cell, colours))
            .collect();
        writeln!(out, "{value:>label$} {}", tiles.trim_end())?;
    }
    Ok(())
}

fn painted(map: &Heatmap, tile: &Tile, width: usize, colours: bool) -> String {
    let text = format!(
        " {:>width$} ",
        tile.words.first().map_or("", String::as_str)
    );
    let (Some(rate), Some(range), true) = (tile.value, map.range, colours) else {
        return text;
    };
    let colour = colour(rate, range);
    let letters = if is_bright(colour) { 16 } else { 231 };
    format!("\x1b[48;5;{};38;5;{letters}m{text}\x1b[0m", of_256(colour))
}

/// The nearest of the 6 x 6 x 6 colours that terminals with 256 have.
fn of_256(colour: [u8; 3]) -> u8 {
    let level = |channel: u8| match channel {
        0..48 => 0,
        48..115 => 1,
        other => (other - 35) / 40,
    };
    let [red, green, blue] = colour.map(level);
    16 + 36 * red + 6 * green + blue
}

//! Heat maps for the terminal: samples/s as a matrix, on colours where there are any. May use: `charts`, `text`.

use crate::charts::{Heatmap, HeatmapPanel, Key, Tile, colour, is_bright};
use crate::text::{Column, Look, Table};

/// The matrices; empty where fewer than two keys have several values, or there were too many.
pub(super) fn render(map: Option<&Heatmap>, look: &Look) -> String {
    let Some((map, rows)) = map.and_then(|map| Some((map, map.rows.as_ref()?))) else {
        return String::new();
    };
    let panels = map.panels.iter();
    let panels = panels.map(|panel| {
        let text = matrix(map, rows, panel).render(look.width);
        let text = match look.colours {
            true => painted(map, rows, panel, &text),
            false => text,
        };
        format!("\n{}{text}", caption(map, rows, panel))
    });
    panels.collect()
}

fn caption(map: &Heatmap, rows: &Key, panel: &HeatmapPanel) -> String {
    let at = match panel.caption.as_str() {
        "" => String::new(),
        caption => format!(" at {caption}"),
    };
    let (down, across) = (&rows.name, &map.columns.name);
    format!("samples/s{at}: {down} down, {across} across\n")
}

fn matrix(map: &Heatmap, rows: &Key, panel: &HeatmapPanel) -> Table {
    let values = map.columns.values.iter();
    let columns = values.map(|value| Column::figure(value.clone()));
    let mut table = Table::new(std::iter::once(Column::key("")).chain(columns));
    for (value, tiles) in rows.values.iter().zip(&panel.tiles) {
        let tiles = tiles.iter().map(|tile| words(tile).to_owned());
        table.push(std::iter::once(value.clone()).chain(tiles));
    }
    table
}

fn words(tile: &Tile) -> &str {
    tile.words.first().map_or("", String::as_str)
}

/// `text` with the matrix of `panel`, whose cells are one line each, on colours.
fn painted(map: &Heatmap, rows: &Key, panel: &HeatmapPanel, text: &str) -> String {
    let labels = rows.values.iter().map(|value| value.chars().count());
    let label = labels.max().unwrap_or(0);
    let mut tiles: Vec<_> = panel
        .tiles
        .iter()
        .map(|row| row.iter().peekable())
        .collect();
    let mut out = String::new();
    // A matrix that is too wide comes in parts, each with a heading, and an empty line between them.
    for (number, line) in text.lines().enumerate() {
        let row = (number % (panel.tiles.len() + 2)).checked_sub(1);
        let mut rest = line;
        if let Some(tiles) = row.and_then(|row| tiles.get_mut(row)) {
            let end = line.char_indices().nth(label);
            let (label, cells) = line.split_at(end.map_or(line.len(), |(end, _)| end));
            out += label;
            rest = cells;
            while let Some(tile) = tiles.peek()
                && let Some(at) = rest.find(words(tile)).filter(|_| !rest.is_empty())
            {
                let (cell, others) = rest.split_at(at + words(tile).len());
                out += &on_colour(map, tile, cell);
                rest = others;
                tiles.next();
            }
        }
        out += rest;
        out.push('\n');
    }
    out
}

fn on_colour(map: &Heatmap, tile: &Tile, cell: &str) -> String {
    let (Some(rate), Some(range)) = (tile.value, map.range) else {
        return cell.to_owned();
    };
    let colour = colour(rate, range);
    let letters = if is_bright(colour) { 16 } else { 231 };
    format!("\x1b[48;5;{};38;5;{letters}m{cell}\x1b[0m", of_256(colour))
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

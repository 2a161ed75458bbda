//! A re-measured table for people and programs: text for a terminal, Markdown, JSON and a chart for each part.
//! Pure: nothing is read, written or asked of the clock. May use: `charts`, the data model beside it.

mod chart;
mod figure;
mod layout;
mod markdown;
mod page;
mod provenance;
mod terminal;

pub use chart::svg;
pub(super) use figure::{measured as measured_figure, published as published_figure};
pub use markdown::markdown;
pub use page::page;
pub use terminal::terminal;

use super::{Part, Reproduction};

/// All of it, in a line for each figure.
pub fn json(reproduction: &Reproduction) -> String {
    // Only a map whose keys are no text could fail, and there is none.
    let text = serde_json::to_string_pretty(reproduction).unwrap_or_default();
    text + "\n"
}

/// The file beside the Markdown that holds the chart of `part`, such as `rungs.svg`; `None` where [`svg`] draws
/// none.
pub fn chart_file(part: &Part) -> Option<String> {
    let plain = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || "-_".contains(letter) => letter,
        _ => '-',
    };
    let name: String = part.name.chars().map(plain).collect();
    chart::is_drawn(part).then(|| format!("{name}.svg"))
}

#[cfg(test)]
mod tests;

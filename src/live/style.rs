//! Colours, which stand beside words that say the same, and bars of characters.

use super::figures::States;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// How things look.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Palette {
    colours: bool,
}

impl Palette {
    #[cfg(test)]
    pub const PLAIN: Palette = Palette { colours: false };
    #[cfg(test)]
    pub const COLOURED: Palette = Palette { colours: true };

    /// Without colours where NO_COLOR is set to anything, as <https://no-color.org> has it.
    pub fn of_environment() -> Palette {
        let no_color = std::env::var_os("NO_COLOR");
        Palette {
            colours: no_color.is_none_or(|value| value.is_empty()),
        }
    }

    fn colour(self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub fn busy(self) -> Style {
        self.colour(Color::Green)
    }

    pub fn starved(self) -> Style {
        self.colour(Color::Yellow)
    }

    pub fn blocked(self) -> Style {
        self.colour(Color::Magenta)
    }

    pub fn queue(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub fn cause(self) -> Style {
        self.colour(Color::Red)
    }

    pub fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn faint(self) -> Style {
        self.colour(Color::DarkGray)
    }
}

/// `98%`.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// A bar of `width` characters, `share` of which are full.
pub fn bar(share: f64, width: usize, full: Style, palette: Palette) -> [Span<'static>; 2] {
    let length = ((share * width as f64).round() as usize).min(width);
    [
        Span::styled("█".repeat(length), full),
        Span::styled("░".repeat(width - length), palette.faint()),
    ]
}

/// A bar of `width` characters: busy, blocked, and the rest starved.
pub fn state_bar(states: &States, width: usize, palette: Palette) -> [Span<'static>; 3] {
    let upto = |share: f64| ((share * width as f64).round() as usize).min(width);
    let busy = upto(states.busy);
    let blocked = upto(states.busy + states.blocked) - busy;
    [
        Span::styled("█".repeat(busy), palette.busy()),
        Span::styled("▒".repeat(blocked), palette.blocked()),
        Span::styled("·".repeat(width - busy - blocked), palette.starved()),
    ]
}

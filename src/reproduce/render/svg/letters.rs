//! How wide text is, for fonts of which only the size is known: by the letters of a wide one (DejaVu Sans), so that
//! in others there is room to spare. May use: nothing.

use crate::reproduce::render::words;

/// A size of text, in pixels, and whether it is bold.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Type {
    pub(super) size: f64,
    pub(super) bold: bool,
}

pub(super) const TITLE: Type = Type {
    size: 16.0,
    bold: true,
};
pub(super) const TEXT: Type = Type {
    size: 13.0,
    bold: false,
};
pub(super) const KEY: Type = Type {
    size: 13.0,
    bold: true,
};
pub(super) const SMALL: Type = Type {
    size: 11.0,
    bold: false,
};
pub(super) const SMALL_KEY: Type = Type {
    size: 11.0,
    bold: true,
};

impl Type {
    /// Of `text`, in pixels.
    pub(super) fn width(self, text: &str) -> f64 {
        let wider = if self.bold { 1.1 } else { 1.0 };
        text.chars().map(em).sum::<f64>() * self.size * wider
    }

    /// Lines of at most `limit` pixels, and of those `most`; what does not fit ends in dots.
    pub(super) fn lines(self, text: &str, limit: f64, most: usize) -> Vec<String> {
        let mut lines = words::wrap(text, limit, |text| self.width(text));
        if lines.len() > most {
            let rest = lines.split_off(most.saturating_sub(1)).join(" ");
            lines.push(rest);
        }
        lines.iter().map(|line| self.fitted(line, limit)).collect()
    }

    /// `text`, or as much of it as has room before three dots.
    pub(super) fn fitted(self, text: &str, limit: f64) -> String {
        if self.width(text) <= limit {
            return text.to_owned();
        }
        let mut kept = text.to_owned();
        while kept.pop().is_some() {
            let shortened = format!("{}...", kept.trim_end());
            if self.width(&shortened) <= limit || kept.is_empty() {
                return shortened;
            }
        }
        kept
    }
}

/// A letter's width as a part of the font's size.
fn em(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '\'' => 0.28,
        ' ' | '.' | ',' | '|' | 'I' | 'J' => 0.32,
        '/' | ':' | ';' | '-' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '!' => 0.41,
        'c' | 'k' | 's' | 'v' | 'x' | 'y' | 'z' | '"' => 0.57,
        'm' | '%' | 'M' | 'W' | '@' => 0.97,
        'w' | '+' | '=' | '<' | '>' | '~' => 0.84,
        'A'..='Z' => 0.73,
        letter if letter.is_ascii() => 0.64,
        // Of other writings: as wide as high.
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_ends_in_dots() {
        assert_eq!(SMALL.fitted("short", 100.0), "short");
        let fitted = SMALL.fitted("not run: there is no GPU here", 100.0);
        assert!(fitted.ends_with("..."), "{fitted}");
        assert!(SMALL.width(&fitted) <= 100.0);
        assert!(fitted.len() > 12, "{fitted}");
    }

    #[test]
    fn the_last_line_takes_what_is_left() {
        let lines = TEXT.lines("one two three four five six", 60.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with("..."), "{lines:?}");
    }
}

//! How wide text is, for fonts of which only the size is known: by the letters of a wide one (DejaVu Sans), so that
//! in others there is room to spare. May use: nothing.

use super::Letters;

/// Of `text`, in pixels.
pub(super) fn width(text: &str, letters: Letters) -> i32 {
    let wider = if letters.bold { 1.1 } else { 1.0 };
    (text.chars().map(em).sum::<f64>() * letters.size * wider).ceil() as i32
}

/// Of the widest of `texts`.
pub(super) fn widest<'a>(texts: impl IntoIterator<Item = &'a String>, letters: Letters) -> i32 {
    let widths = texts.into_iter().map(|text| width(text, letters));
    widths.max().unwrap_or(0)
}

/// Lines of at most `limit` pixels, and of those `most`; what does not fit ends in dots.
pub(super) fn lines(text: &str, letters: Letters, limit: i32, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let full = lines.len() == most;
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} {word}");
            if line.is_empty() {
                word.clone_into(line);
            } else if full || width(&longer, letters) <= limit {
                *line = longer;
            } else {
                lines.push(word.to_owned());
            }
        }
    }
    let lines = lines.iter();
    lines.map(|line| fitted(line, letters, limit)).collect()
}

/// The lines of notes, two of each at most.
pub(super) fn wrapped(notes: &[String], letters: Letters, limit: i32) -> Vec<String> {
    let notes = notes.iter();
    notes
        .flat_map(|note| lines(note, letters, limit, 2))
        .collect()
}

/// `text`, or as much of it as has room before three dots.
pub(super) fn fitted(text: &str, letters: Letters, limit: i32) -> String {
    let mut fitted = text.to_owned();
    let mut kept = text.to_owned();
    while width(&fitted, letters) > limit && kept.pop().is_some() {
        fitted = format!("{}...", kept.trim_end());
    }
    fitted
}

/// A letter's width as a part of the font's size.
fn em(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '\'' => 0.28,
        ' ' | '.' | ',' | '|' | 'I' | 'J' => 0.32,
        '/' | ':' | ';' | '-' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '!' => 0.41,
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
    use crate::charts::{SMALL, TEXT};

    #[test]
    fn what_is_too_long_ends_in_dots() {
        assert_eq!(fitted("short", SMALL, 100), "short");
        let fitted = fitted("not run: there is no GPU here", SMALL, 100);
        assert!(fitted.ends_with("...") && fitted.len() > 12, "{fitted}");
        assert!(width(&fitted, SMALL) <= 100);
    }

    #[test]
    fn the_last_line_takes_what_is_left() {
        let lines = lines("one two three four five six", TEXT, 60, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with("..."), "{lines:?}");
    }
}

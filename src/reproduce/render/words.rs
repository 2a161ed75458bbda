//! Lines of words that fit. May use: nothing.

/// The words of `text` in lines of at most `limit` by `measure`, one at least; a word that is longer has a line of
/// its own.
pub(super) fn wrap(text: &str, limit: f64, measure: impl Fn(&str) -> f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else {
            break;
        };
        let longer = match line.is_empty() {
            true => word.to_owned(),
            false => format!("{line} {word}"),
        };
        if line.is_empty() || measure(&longer) <= limit {
            *line = longer;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// How many letters there are.
pub(super) fn letters(text: &str) -> usize {
    text.chars().count()
}

/// The same, for [`wrap`].
pub(super) fn count(text: &str) -> f64 {
    letters(text) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_they_may_be() {
        let lines = wrap("one two  three\nfour incomprehensible", 9.0, count);
        assert_eq!(lines, ["one two", "three", "four", "incomprehensible"]);
        assert_eq!(wrap("", 9.0, count), [""]);
    }
}

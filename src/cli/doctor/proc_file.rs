//! The kernel's files below /proc.
//!
//! Invariant: what cannot be read is absent; [`unreadable`] is the row that says so.
//!
//! May use: `checklist`.

use std::fs;

use super::checklist::Row;

/// What follows `name` in the first line of the file that starts with it.
pub fn field(path: &str, name: &str) -> Option<String> {
    field_of(&fs::read_to_string(path).ok()?, name).map(str::to_owned)
}

fn field_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// The row of a subject that only an unreadable `path` could tell of.
pub fn unreadable(subject: &str, path: &str) -> Row {
    Row::warning(subject, format!("{path} cannot be read"), "mount /proc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_field_by_its_name() {
        let text = "MemTotal:       8139196 kB\nMemAvailable:    100 kB\n";
        assert_eq!(field_of(text, "MemAvailable:"), Some("100 kB"));
        assert_eq!(field_of(text, "Zebra:"), None);
    }
}

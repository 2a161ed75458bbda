//! Options that had other names in earlier versions. The old ones still work, and a hint says what to write. May use:
//! `config`.

use crate::config::renamed;
use std::ffi::OsString;

/// A verb, an old option of it, and the new one.
const OPTIONS: [(&str, &str, &str); 2] = [
    ("batch-size", "--least", "--min"),
    ("batch-size", "--most", "--max"),
];

/// The words of a command line, with the names that options have now.
pub(super) fn current(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    for (verb, old, new) in OPTIONS {
        let verb = words.iter().position(|word| word == verb);
        for word in words
            .iter_mut()
            .skip(verb.map_or(usize::MAX, |verb| verb + 1))
        {
            let text = word.to_str().unwrap_or_default();
            let (option, value) = text.split_at(text.find('=').unwrap_or(text.len()));
            if option == old {
                renamed(old, new);
                *word = OsString::from(format!("{new}{value}"));
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_options_are_understood_for_their_verb() {
        let read = |words: &[&str]| current(words.iter().map(OsString::from));
        let words = [
            "stallscope",
            "batch-size",
            "x.toml",
            "--least",
            "8",
            "--most=64",
        ];
        let expected = [
            "stallscope",
            "batch-size",
            "x.toml",
            "--min",
            "8",
            "--max=64",
        ];
        assert_eq!(read(&words), expected);
        let others = ["stallscope", "run", "--least", "batch-size"];
        assert_eq!(read(&others), others);
    }
}

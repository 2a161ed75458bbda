//! `stallscope help`: every verb on one screen, by purpose.
//!
//! Invariant: at most 24 lines of 80 columns, with every verb that is not hidden; a test checks it. What a verb does
//! is the first line of its own help. May use: `args`.

use super::args::Command;
use clap::Subcommand;
use std::fmt::Write;

/// The verbs by purpose. A new verb is one more name here.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Profile", &["run", "torch", "demo", "init"]),
    (
        "Understand",
        &["report", "compare", "predict", "diagnose", "analyze"],
    ),
    ("Tune", &["tune", "sweep", "batch-size"]),
    ("Machine", &["data", "doctor"]),
    ("Published", &["reproduce"]),
    ("Reference", &["config", "keys", "completions"]),
];

/// The text of `stallscope help`.
pub(super) fn overview() -> String {
    let verbs = Command::augment_subcommands(clap::Command::new("stallscope"));
    let mut text = "\
Find out which loader stage keeps your GPU waiting, and what to change.

Usage: stallscope COMMAND ...     Try it: stallscope demo
"
    .to_owned();
    for (group, names) in GROUPS {
        text.push_str(if group == "Profile" { "\n" } else { "" });
        for (place, name) in names.iter().enumerate() {
            let about = verbs
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map_or_else(String::new, ToString::to_string);
            let group = if place == 0 { group } else { "" };
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{group:<11} {name:<12} {about}");
        }
    }
    text.push_str(
        "\n`stallscope help COMMAND` explains one with examples; `stallscope --version`.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_verb_stands_in_one_group() {
        let verbs = Command::augment_subcommands(clap::Command::new("stallscope"));
        let verbs = verbs.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs: BTreeSet<&str> = verbs.map(clap::Command::get_name).collect();
        let named: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), verbs);
        assert_eq!(named.len(), verbs.len(), "one stands twice");
    }

    #[test]
    fn it_fits_a_screen() {
        let text = overview();
        assert!(text.lines().count() <= 24, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(
                line.is_empty() || line.trim_end() == line,
                "a verb without words: {line:?}"
            );
        }
    }
}

//! One key explained, for `stallscope keys KEY`.
//!
//! May use: `reference`, `schema`, `suggest`.

use std::fmt::Write;

use super::reference::default_words;
use super::schema::{self, Key};
use super::suggest;

/// A key that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no key `{name}`\n  try: {}", others(near))]
pub struct UnknownKey {
    name: String,
    near: Vec<&'static str>,
}

fn others(near: &[&str]) -> String {
    match near {
        [] => "`stallscope keys`, which lists every key".to_owned(),
        near => near.join(", "),
    }
}

/// The key `name` in words, or in a line each the keys of the table `name`.
///
/// # Errors
/// Neither of that name, with those that are near.
pub fn explain(name: &str) -> Result<String, UnknownKey> {
    let name = name.trim().trim_end_matches('.');
    if let Some(key) = schema::find(name) {
        return Ok(one(key));
    }
    let inside = format!("{name}.");
    let table: Vec<&Key> = schema::keys()
        .filter(|key| key.name.starts_with(&inside) && !key.hidden)
        .collect();
    if table.is_empty() {
        return Err(UnknownKey {
            name: name.to_owned(),
            near: suggest::several(name, schema::public_names()),
        });
    }
    Ok(listed(&table))
}

fn listed(keys: &[&Key]) -> String {
    let width = keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for key in keys {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{:width$}  {}", key.name, key.doc);
    }
    text
}

fn one(key: &Key) -> String {
    let experiment = schema::EXPERIMENT
        .iter()
        .any(|other| other.name == key.name);
    let place = match experiment {
        true => "an experiment file or --set",
        false => "a pipeline file, an experiment file or --set",
    };
    let mut text = format!("{}\n  {}\n\n", key.name, key.doc);
    let _ = writeln!(text, "  value     {}", key.kind.expects());
    let _ = writeln!(text, "  default   {}", plain(&default_words(key)));
    if let Some(condition) = key.condition {
        let _ = writeln!(text, "  only      with {}", plain(&condition.words()));
    }
    let _ = writeln!(text, "  set in    {place}");
    text
}

/// Without the marks of Markdown.
fn plain(text: &str) -> String {
    text.replace("**", "").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_explained() {
        insta::assert_snapshot!(explain("decode.workers").unwrap());
    }

    #[test]
    fn every_public_key_is_explained() {
        for name in schema::public_names() {
            let text = explain(name).unwrap();
            assert!(
                text.starts_with(name) && text.contains("  default   "),
                "{text}"
            );
        }
    }

    #[test]
    fn a_table_is_listed() {
        let text = explain("copy").unwrap();
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split("  ").next())
            .collect();
        assert_eq!(
            names,
            [
                "copy.workers",
                "copy.prefetch",
                "copy.pinned",
                "copy.overlap"
            ]
        );
    }

    #[test]
    fn a_wrong_key_is_answered_with_those_that_are_near() {
        for (typed, near) in [
            ("decode.wokers", "decode.workers"),
            ("batch_size", "batch.size"),
            ("workers", "preprocess.workers"),
            ("latency", "emulated.copy_latency"),
            ("zebra", "stallscope keys"),
        ] {
            let said = explain(typed).unwrap_err().to_string();
            assert!(said.contains(near) && said.contains("  try: "), "{said}");
        }
    }
}

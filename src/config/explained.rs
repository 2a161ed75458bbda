//! One key explained, for `stallscope keys KEY`.
//!
//! May use: `reference`, `renamed`, `schema`, `suggest`.

use std::fmt::Write;

use serde::Serialize;

use super::reference::default_words;
use super::renamed;
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

/// What there is to know of a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyFacts {
    pub name: &'static str,
    pub doc: &'static str,
    /// What it takes.
    pub expects: String,
    /// Its default as text, or what happens without it.
    pub default: String,
    /// When it has an effect.
    pub only_with: Option<String>,
}

/// The facts of the key or table `name`, or of all keys.
///
/// # Errors
/// As of [`explain`].
pub fn facts(name: Option<&str>) -> Result<Vec<KeyFacts>, UnknownKey> {
    let keys = match name {
        None => schema::keys().filter(|key| !key.hidden).collect(),
        Some(name) => named(name)?,
    };
    let facts = keys.into_iter().map(|key| KeyFacts {
        name: key.name,
        doc: key.doc,
        expects: key.kind.expects(),
        default: plain(&default_words(key)),
        only_with: key.condition.map(|condition| plain(&condition.words())),
    });
    Ok(facts.collect())
}

/// The key `name`, or those of the table `name`.
fn named(name: &str) -> Result<Vec<&'static Key>, UnknownKey> {
    let name = renamed::key(name.trim().trim_end_matches('.'));
    let inside = format!("{name}.");
    let is_meant = |key: &&Key| key.name == name || key.name.starts_with(&inside) && !key.hidden;
    let keys: Vec<&Key> = schema::keys().filter(is_meant).collect();
    match keys.is_empty() {
        true => Err(UnknownKey {
            name: name.to_owned(),
            near: suggest::several(name, schema::public_names()),
        }),
        false => Ok(keys),
    }
}

/// The key `name` in words, or in a line each the keys of the table `name`.
///
/// # Errors
/// Neither of that name, with those that are near.
pub fn explain(name: &str) -> Result<String, UnknownKey> {
    let keys = named(name)?;
    Ok(match keys[..] {
        [key] if !name.trim().ends_with('.') => one(key),
        _ => listed(&keys),
    })
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

//! One TOML file as a flat list of dotted keys, each with the place it stands at.
//!
//! Invariant: `[decode]` / `workers = 2`, `decode.workers = 2` and `decode = { workers = 2 }` give
//! the same list.
//!
//! May use: `error`, `origin`, `value`.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, Key, TableLike};

use super::error::{ConfigError, Problem};
use super::origin::{Excerpt, Origin};
use super::value::Value;

/// One `key = value` of a file.
#[derive(Debug)]
pub(super) struct Found {
    pub key: String,
    /// `None` where no value can stand: an empty table, a list of tables.
    pub value: Option<Value>,
    /// What stands there, for a message.
    pub description: String,
    /// The line with the key underlined, and with the value underlined.
    pub key_at: Excerpt,
    pub value_at: Excerpt,
}

/// Reads a file's text; `path` is only named in errors.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Found>, ConfigError> {
    let document = document(path, text)?;
    let mut found = Vec::new();
    flatten(text, document.as_table(), "", &mut found);
    // Tables come in the parser's order; problems should come in the reader's.
    found.sort_by_key(|entry| (entry.key_at.line, entry.key_at.indent));
    Ok(found)
}

/// A file's text as TOML.
pub(super) fn document<'a>(path: &Path, text: &'a str) -> Result<Document<&'a str>, ConfigError> {
    Document::parse(text).map_err(|error| syntax_error(path, text, &error))
}

fn syntax_error(path: &Path, text: &str, error: &toml_edit::TomlError) -> ConfigError {
    let span = error.span().unwrap_or(0..0);
    let at = Excerpt::cut(text, span.start, span.end);
    let origin = Origin::File {
        path: path.to_owned(),
        line: at.line,
        column: at.column(),
    };
    let message = error.message().trim().replace('\n', "; ");
    let problem = Problem::new(origin, Some(at), format!("this is not TOML: {message}"));
    ConfigError::Syntax(Box::new(problem))
}

fn flatten(text: &str, table: &dyn TableLike, prefix: &str, found: &mut Vec<Found>) {
    for (name, item) in table.iter() {
        let key = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        match item.as_table_like() {
            Some(inner) if !inner.is_empty() => flatten(text, inner, &key, found),
            _ => {
                let place = table.key(name).and_then(Key::span).unwrap_or(0..0);
                found.push(leaf(text, key, item, place));
            }
        }
    }
}

fn leaf(text: &str, key: String, item: &Item, place: Range<usize>) -> Found {
    let value = item.as_value().and_then(Value::from_toml);
    let description = match (&value, item) {
        (Some(value), _) => value.describe(),
        (None, Item::ArrayOfTables(_)) => "a list of tables".to_owned(),
        (None, Item::Value(toml_edit::Value::Array(_))) => "a list of tables".to_owned(),
        (None, _) => "an empty table".to_owned(),
    };
    let start = dotted_start(text, place.start);
    let key_at = Excerpt::cut(text, start, place.end);
    let value_at = match item.span() {
        Some(span) if item.is_value() => Excerpt::cut(text, span.start, span.end),
        _ => key_at.clone(),
    };
    Found {
        key,
        value,
        description,
        key_at,
        value_at,
    }
}

/// Where a dotted key begins whose last part begins at `start`: in `decode.workers = 2` the parser
/// places `workers` only.
fn dotted_start(text: &str, start: usize) -> usize {
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let before = &text[line_start..start];
    let part_of_key = |c: char| c.is_alphanumeric() || "._-\"' \t".contains(c);
    if before.chars().all(part_of_key) {
        return line_start + (before.len() - before.trim_start().len());
    }
    start
}

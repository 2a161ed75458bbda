//! The rungs of a ladder, which an experiment file may have: named lists of settings that are tried one after
//! another. A run of the file itself leaves them alone.
//!
//! May use: `document`, `error`, `origin`, `settings`.

use std::path::Path;

use toml_edit::{ArrayOfTables, Item, Table};

use super::error::{ConfigError, Problem};
use super::origin::{Excerpt, Origin};
use super::settings::{check_setting, read};

/// The table that rungs stand in: `[[rung]]`.
pub(super) const RUNG: &str = "rung";

/// One rung.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rung {
    pub name: String,
    /// What it sets, as `key=value`.
    pub set: Vec<String>,
    /// The place of what it sets in the file.
    pub line: usize,
}

/// The rungs of the experiment file `path`, top to bottom.
///
/// # Errors
/// A file that cannot be read, and a rung that is not a name and a list of settings.
pub fn rungs(path: &Path) -> Result<Vec<Rung>, ConfigError> {
    let text = read(path, "configuration")?;
    let document = super::document::document(path, &text)?;
    let none = ArrayOfTables::new();
    let tables = match document.get(RUNG) {
        None => &none,
        Some(Item::ArrayOfTables(tables)) => tables,
        Some(other) => {
            let what = format!("`{RUNG}` is {}, not a list of tables", other.type_name());
            return Err(wrong(path, &text, other, what));
        }
    };
    tables
        .iter()
        .map(|table| rung(path, &text, table))
        .collect()
}

fn rung(path: &Path, text: &str, table: &Table) -> Result<Rung, ConfigError> {
    let mut rung = Rung {
        name: String::new(),
        set: Vec::new(),
        line: table
            .span()
            .map_or(1, |span| Excerpt::cut(text, span.start, span.end).line),
    };
    for (key, item) in table.iter() {
        match (key, item.as_str(), item.as_array()) {
            ("name", Some(name), _) => name.clone_into(&mut rung.name),
            ("set", _, Some(sets)) => {
                for set in sets {
                    let typed = set.as_str().ok_or_else(|| "it is not a text".to_owned());
                    let typed = typed.and_then(|typed| {
                        check_setting(typed).map_err(|error| error.to_string())?;
                        Ok(typed.to_owned())
                    });
                    let problem =
                        |why| wrong(path, text, item, format!("`{set}` cannot be set: {why}"));
                    rung.set.push(typed.map_err(problem)?);
                }
            }
            _ => {
                let what = format!(
                    "a rung has `name = \"...\"` and `set = [\"key=value\", ...]`, and `{key}` is neither"
                );
                return Err(wrong(path, text, item, what));
            }
        }
    }
    if rung.name.is_empty() {
        let what = "a rung without a name".to_owned();
        return Err(wrong(path, text, &Item::Table(table.clone()), what));
    }
    Ok(rung)
}

fn wrong(path: &Path, text: &str, item: &Item, what: String) -> ConfigError {
    let span = item.span().unwrap_or(0..0);
    let at = Excerpt::cut(text, span.start, span.end);
    let origin = Origin::File {
        path: path.to_owned(),
        line: at.line,
        column: at.column(),
    };
    ConfigError::Problems {
        config: path.to_owned(),
        problems: vec![Problem::new(origin, Some(at), what)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::fs;

    fn of(text: &str) -> Result<Vec<Rung>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ladder.toml");
        fs::write(&path, text).unwrap();
        rungs(&path).map_err(|error| error.to_string())
    }

    const LADDER: &str = r#"
        source.path = "data"
        [[rung]]
        name = "default settings"
        [[rung]]
        name = "num_workers"
        set = ["num_workers=2", "prefetch_factor=4"]
    "#;

    #[test]
    fn rungs_come_in_their_order_and_a_run_leaves_them_alone() {
        let rungs = of(LADDER).unwrap();
        assert_eq!(rungs.len(), 2);
        assert_eq!(rungs[0].name, "default settings");
        assert_eq!(rungs[1].set, ["num_workers=2", "prefetch_factor=4"]);
        assert_eq!(rungs[1].line, 5);
        assert_eq!(of("source.path = 'data'").unwrap(), []);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ladder.toml");
        fs::write(&path, LADDER).unwrap();
        Settings::load(&path, &[]).unwrap().resolve().unwrap();
    }

    #[test]
    fn what_is_no_rung_is_said_with_its_line() {
        for (text, what) in [
            ("rung = 3", "not a list of tables"),
            ("[[rung]]\nset = []", "without a name"),
            ("[[rung]]\nname = 'a'\nsets = []", "`sets` is neither"),
            ("[[rung]]\nname = 'a'\nset = ['num_worker=2']", "num_worker"),
            ("[[rung]]\nname = 'a'\nset = [2]", "not a text"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
            assert!(error.contains("ladder.toml:"), "{error}");
        }
    }
}

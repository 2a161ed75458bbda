//! What the user typed: every dotted key that was given a value, and where.
//!
//! Invariants: layers are kept apart until they are asked for, so that a message can say what
//! overrides what. Only a file that cannot be read or is not TOML fails here; keys that are wrong
//! are remembered and reported by [`Settings::resolve`], all of them together.
//!
//! May use: `document`, `error`, `kind`, `lookup`, `origin`, `provided`, `renamed`, `resolve`, `rungs`,
//! `schema`, `suggest`, `value`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::document::{self, Found};
use super::error::{ConfigError, Problem};
use super::lookup::{self, Lookup};
use super::origin::{Excerpt, Layer, Origin};
use super::renamed;
use super::resolve;
use super::resolved::Resolved;
use super::rungs::RUNG;
use super::schema::{self, Key};
use super::suggest;
use super::value::Value;
use crate::data::is_data;

/// One value that somebody typed.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub value: Value,
    pub origin: Origin,
    pub layer: Layer,
    pub key_at: Option<Excerpt>,
    pub value_at: Option<Excerpt>,
}

/// Everything that was typed, before any of it is judged.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    path: PathBuf,
    /// Weakest first; the last one counts.
    entries: BTreeMap<&'static str, Vec<Entry>>,
    problems: Vec<Problem>,
}

/// One line of `stallscope config`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub key: &'static str,
    /// As TOML; `None` where nothing is set.
    pub value: Option<String>,
    /// What it is where nobody sets it, as TOML.
    pub default: Option<String>,
    /// What happens instead where nothing is set.
    pub unset_means: Option<&'static str>,
    pub origin: Origin,
    /// The weaker layers this value won over, strongest first.
    pub overrides: Vec<Origin>,
    /// Why the key has no effect here, if it has none.
    pub unused_because: Option<String>,
}

/// A key that was given a value, as a report keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedKey {
    pub key: String,
    /// As TOML.
    pub value: String,
    layer: Layer,
}

static DEFAULT: Origin = Origin::Default;

impl Settings {
    /// Reads an experiment file, the pipeline file it names, and `--set` texts (`key=value`). A folder of data, or a tar
    /// file, is an experiment with the settings that [`Starter`](super::Starter) chooses for it.
    pub fn load(config_path: &Path, sets: &[String]) -> Result<Settings, ConfigError> {
        if is_data(config_path) {
            return Settings::chosen_for(config_path, sets);
        }
        if !config_path.exists() {
            let hint = neighbour(config_path);
            let path = config_path.to_owned();
            return Err(ConfigError::Missing { path, hint });
        }
        let mut settings = Settings::named(config_path);
        let text = read(config_path, "configuration")?;
        settings.take_file(config_path, &text, Layer::Experiment)?;
        settings.with(sets)
    }

    /// Nothing typed yet, in the file `path`.
    pub(super) fn named(path: &Path) -> Settings {
        Settings {
            path: path.to_owned(),
            ..Settings::default()
        }
    }

    /// The same with `--set` texts on top, and the pipeline file below that is then named.
    pub(super) fn with(mut self, sets: &[String]) -> Result<Settings, ConfigError> {
        for set in sets {
            self.take_set(set);
        }
        if let Some((path, text)) = self.read_pipeline()? {
            self.take_file(&path, &text, Layer::Pipeline)?;
        }
        Ok(self)
    }

    /// The settings that a report has kept, and `--set` texts on top of them. `name` is the experiment's.
    pub fn recorded(name: &str, typed: &[TypedKey], sets: &[String]) -> Settings {
        let mut settings = Settings::named(Path::new(&format!("{name}.toml")));
        for TypedKey { key, value, layer } in typed {
            let layer = (*layer).min(Layer::Recorded);
            let text = format!("{}={value}", renamed::current_key(key));
            settings.take_text(&text, layer, Origin::Report(text.clone()));
        }
        for set in sets {
            settings.take_set(set);
        }
        settings
    }

    /// Every key that was given a value, for a report to keep. The pipeline file's are among them, so that
    /// its path is not.
    pub fn typed_keys(&self) -> Vec<TypedKey> {
        let keys = schema::keys().filter(|key| key.name != "pipeline");
        let typed = keys.filter_map(|key| {
            let entry = self.winner(key.name)?;
            let value = key.kind.check(&entry.value).ok()?;
            Some(TypedKey {
                key: key.name.to_owned(),
                value: key.kind.written(&value),
                layer: entry.layer,
            })
        });
        typed.collect()
    }

    /// Types, defaults and cross-checks everything; on failure every bad key is named.
    pub fn resolve(&self) -> Result<Resolved, ConfigError> {
        resolve::resolve(self).map_err(|problems| ConfigError::Problems {
            config: self.path.clone(),
            problems,
        })
    }

    /// Where `key`'s value comes from; `None` for a key that does not exist.
    pub fn get_origin(&self, key: &str) -> Option<&Origin> {
        let key = schema::find(key)?;
        Some(
            self.winner(key.name)
                .map_or(&DEFAULT, |entry| &entry.origin),
        )
    }

    /// The file this was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every key with its value and where that comes from, in the order of the reference.
    pub fn rows(&self) -> Vec<Row> {
        let (lookup, _) = Lookup::new(self);
        let shown = schema::keys().filter(|key| !key.hidden || lookup.is_typed(key.name));
        shown.map(|key| self.row(&lookup, key)).collect()
    }

    fn row(&self, lookup: &Lookup, key: &'static Key) -> Row {
        let value = lookup.value(key.name);
        let value = value.map(|value| key.kind.written(value));
        let losers = self.typed(key.name).iter().rev().skip(1);
        Row {
            key: key.name,
            unset_means: match (&value, key.default) {
                (None, schema::Default::Unset(words)) => Some(words),
                _ => None,
            },
            value,
            default: key
                .default_value(|condition| lookup.holds(condition))
                .map(|value| key.kind.written(&value)),
            origin: self
                .get_origin(key.name)
                .cloned()
                .unwrap_or(Origin::Default),
            overrides: losers.map(|entry| entry.origin.clone()).collect(),
            unused_because: unused_because(lookup, key),
        }
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// All that was typed for `key`, weakest layer first.
    pub(super) fn typed(&self, key: &str) -> &[Entry] {
        self.entries.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn winner(&self, key: &str) -> Option<&Entry> {
        self.typed(key).last()
    }

    pub(super) fn take_file(
        &mut self,
        path: &Path,
        text: &str,
        layer: Layer,
    ) -> Result<(), ConfigError> {
        for found in document::parse(path, text)? {
            let origin = Origin::File {
                path: path.to_owned(),
                line: found.key_at.line,
                column: found.key_at.column(),
            };
            if found.key == RUNG && found.value.is_none() && layer == Layer::Experiment {
                continue; // Of a ladder, which [`rungs`](super::rungs) reads.
            }
            let Some(key) = schema::find(renamed::key(&found.key)) else {
                let problem = unknown(
                    &found.key,
                    Some(&found.description),
                    origin,
                    Some(found.key_at),
                );
                self.problems.push(problem);
                continue;
            };
            self.take_found(key, found, origin, layer);
        }
        Ok(())
    }

    fn take_found(&mut self, key: &'static Key, found: Found, origin: Origin, layer: Layer) {
        if layer == Layer::Pipeline
            && schema::EXPERIMENT
                .iter()
                .any(|other| other.name == key.name)
        {
            let what = format!(
                "`{}` belongs to the experiment, not to a pipeline file",
                key.name
            );
            let hint = format!("move it to {}", self.path.display());
            self.problems.push(
                Problem::new(origin, Some(found.key_at), what)
                    .about(key.name)
                    .hint(hint),
            );
            return;
        }
        let Some(value) = found.value else {
            let what = format!(
                "`{}` expects {}, found {}",
                key.name,
                key.kind.expects(),
                found.description
            );
            self.problems
                .push(Problem::new(origin, Some(found.value_at), what).about(key.name));
            return;
        };
        let entry = Entry {
            value: renamed::value(key.name, value),
            origin,
            layer,
            key_at: Some(found.key_at),
            value_at: Some(found.value_at),
        };
        self.add(key, entry);
    }

    /// Drops what was typed for `key`.
    pub(super) fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Adds what was typed for `key`, behind all of its own layer.
    pub(super) fn add(&mut self, key: &'static Key, entry: Entry) {
        let entries = self.entries.entry(key.name).or_default();
        let place = entries.partition_point(|other| other.layer <= entry.layer);
        entries.insert(place, entry);
    }

    /// Takes one `key=value` of the command line. Later ones win.
    fn take_set(&mut self, set: &str) {
        self.take_text(set, Layer::Set, Origin::Set(set.to_owned()));
    }

    fn take_text(&mut self, set: &str, layer: Layer, origin: Origin) {
        match typed_set(set) {
            Ok((key, entry)) => {
                let entry = Entry {
                    layer,
                    origin,
                    ..entry
                };
                self.add(key, entry);
            }
            Err(problem) => self.problems.push(*problem),
        }
    }

    /// The pipeline file's path and text, if one is named.
    fn read_pipeline(&mut self) -> Result<Option<(PathBuf, String)>, ConfigError> {
        let Some(entry) = self.winner("pipeline") else {
            return Ok(None);
        };
        let Value::Text(named) = &entry.value else {
            return Ok(None); // The wrong type is reported with all the others.
        };
        // Relative to the file that names it; on the command line, to where the user stands.
        let path = match (&entry.origin, self.path.parent()) {
            (Origin::File { .. }, Some(folder)) => tidy(folder.join(named)),
            _ => PathBuf::from(named),
        };
        match read(&path, "pipeline") {
            Ok(text) => Ok(Some((path, text))),
            Err(ConfigError::Read { cause, hint, .. }) => {
                let what = format!("cannot read the pipeline file {}: {cause}", path.display());
                let problem = Problem::new(entry.origin.clone(), entry.value_at.clone(), what);
                let problem = problem.about("pipeline").maybe_hint(hint);
                let config = self.path.clone();
                Err(ConfigError::Problems {
                    config,
                    problems: vec![problem],
                })
            }
            Err(other) => Err(other),
        }
    }
}

fn unused_because(lookup: &Lookup, key: &'static Key) -> Option<String> {
    if key.name.starts_with("generate.") && !lookup.generates() {
        return Some("no generate key is set".to_owned());
    }
    let unmet = lookup.broken_condition(key)?;
    Some(format!("needs {}", unmet.words()))
}

/// The key that `key=value` sets.
pub fn key_of(set: &str) -> &str {
    renamed::current_key(set.split('=').next().unwrap_or_default().trim())
}

/// Reads one `key=value` of the command line.
fn typed_set(set: &str) -> Result<(&'static Key, Entry), Box<Problem>> {
    let origin = Origin::Set(set.to_owned());
    let Some((name, text)) = set.split_once('=') else {
        let hint = "write it as key=value, for example --set decode.workers=4";
        let problem = Problem::new(origin, None, "there is no `=` in it");
        return Err(Box::new(problem.hint(hint)));
    };
    let (name, text) = (name.trim(), text.trim());
    let Some(key) = schema::find(renamed::key(name)) else {
        return Err(Box::new(unknown(name, None, origin, None)));
    };
    let entry = Entry {
        value: renamed::value(key.name, command_line_value(key, text)),
        origin,
        layer: Layer::Set,
        key_at: None,
        value_at: None,
    };
    Ok((key, entry))
}

/// What the text `key=value` sets its key to, as TOML. It is judged alone: whether the key has an effect is
/// a matter of the others.
///
/// # Errors
/// A key that does not exist, or a value that it does not take.
pub fn check_setting(set: &str) -> Result<String, Box<Problem>> {
    let (key, entry) = typed_set(set)?;
    let value = lookup::check(key, &entry)?;
    Ok(key.kind.written(&value))
}

/// Reads a value of the command line: TOML where it is TOML, otherwise the bare text; keys that
/// take text take it literally unless it is quoted.
fn command_line_value(key: &Key, text: &str) -> Value {
    let bare = || Value::Text(text.to_owned());
    if key.kind.takes_bare_text() && !text.starts_with(['"', '\'']) {
        return bare();
    }
    match text.parse::<toml_edit::Value>() {
        Ok(value) => Value::from_toml(&value).unwrap_or_else(bare),
        Err(_) => bare(),
    }
}

/// A key that does not exist. `found` describes its value, where there is one.
fn unknown(name: &str, found: Option<&str>, origin: Origin, at: Option<Excerpt>) -> Problem {
    let problem = |what: String| Problem::new(origin.clone(), at.clone(), what).about(name);
    let inside = format!("{name}.");
    let members: Vec<_> = schema::public_names()
        .filter(|key| key.starts_with(&inside))
        .collect();
    if !members.is_empty() {
        let found = found.map_or_else(String::new, |found| format!(", found {found}"));
        return problem(format!("`{name}` is a table of keys{found}"))
            .hint(format!("the keys in it are {}", members.join(", ")));
    }
    let outer = schema::keys().find(|key| name.starts_with(&format!("{}.", key.name)));
    if let Some(key) = outer {
        let what = format!(
            "`{}` expects {}, found a table with `{name}`",
            key.name,
            key.kind.expects()
        );
        return problem(what);
    }
    let near = suggest::key(name, schema::public_names());
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`stallscope keys` lists every key".to_owned(),
    };
    problem(format!("unknown key `{name}`")).hint(hint)
}

pub(super) fn read(path: &Path, role: &'static str) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|cause| {
        let hint = if cause.kind() == io::ErrorKind::NotFound {
            neighbour(path)
        } else {
            None
        };
        ConfigError::Read {
            role,
            path: path.to_owned(),
            cause,
            hint,
        }
    })
}

/// The file beside `path` whose name is nearest, or those that are there.
fn neighbour(path: &Path) -> Option<String> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    let wanted = path.file_name()?.to_str()?;
    let place = |name: &str| folder.map_or_else(|| PathBuf::from(name), |at| at.join(name));
    if let Some(near) = suggest::nearest(wanted, names.iter().map(String::as_str)) {
        return Some(format!("did you mean {}?", place(near).display()));
    }
    names.truncate(5);
    let there = names.iter().map(|name| place(name).display().to_string());
    let there: Vec<String> = there.collect();
    (!there.is_empty()).then(|| there.join(", "))
}

/// `configs/../pipelines/x.toml` as `pipelines/x.toml`, if that is the same file.
fn tidy(path: PathBuf) -> PathBuf {
    let mut short = PathBuf::new();
    for part in path.components() {
        let poppable = short.file_name().is_some();
        match part {
            std::path::Component::ParentDir if poppable => {
                short.pop();
            }
            std::path::Component::CurDir => {}
            other => short.push(other),
        }
    }
    // With a symbolic link in between, `..` may lead elsewhere.
    match (path.canonicalize(), short.canonicalize()) {
        (Ok(long), Ok(same)) if long == same => short,
        (Err(_), Err(_)) => short,
        _ => path,
    }
}

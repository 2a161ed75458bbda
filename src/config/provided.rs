//! Settings that stand in no file of the user's: those that are built into the program, and those that it chooses for a
//! folder of data.
//!
//! May use: `document`, `error`, `origin`, `schema`, `settings`, `starter`; `data`, to recognise it, and `machine`, for
//! its threads.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::document;
use super::error::ConfigError;
use super::origin::{Layer, Origin};
use super::resolved::SourceKind;
use super::schema;
use super::settings::{Entry, Settings, key_of};
use super::starter::Starter;
use crate::data::recognise;
use crate::machine::usable_threads;

impl Settings {
    /// The experiment `name` and its pipeline, both built into the program, and `--set` texts on top of them.
    ///
    /// # Errors
    /// Texts that are not TOML.
    pub fn built_in(
        name: &str,
        experiment: &str,
        pipeline: &str,
        sets: &[String],
    ) -> Result<Settings, ConfigError> {
        let path = PathBuf::from(format!("{name}.toml"));
        let mut settings = Settings::named(&path);
        settings.take_file(&path, experiment, Layer::Experiment)?;
        settings.forget("pipeline");
        settings.take_file(Path::new("pipeline"), pipeline, Layer::Pipeline)?;
        settings.with(sets)
    }

    /// The settings that [`Starter`] has for the data at `path`, and `--set` texts on top of them.
    pub(super) fn chosen_for(path: &Path, sets: &[String]) -> Result<Settings, ConfigError> {
        let named = sets.iter().rev().find(|set| key_of(set) == "source.kind");
        let kind = match named.and_then(|set| kind_named(set)) {
            Some(kind) => kind,
            None => recognise(path)?,
        };
        let starter = Starter {
            kind,
            path,
            generates: false,
            threads: usable_threads(),
        };
        // "." has no name of its own.
        let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut settings = Settings::named(&name);
        for found in document::parse(path, &starter.text())? {
            if let (Some(key), Some(value)) = (schema::find(&found.key), found.value) {
                let entry = Entry {
                    value,
                    origin: Origin::Chosen(path.to_owned()),
                    layer: Layer::Experiment,
                    key_at: None,
                    value_at: None,
                };
                settings.add(key, entry);
            }
        }
        settings.with(sets)
    }
}

/// The kind of data that a `source.kind=...` names.
fn kind_named(set: &str) -> Option<SourceKind> {
    let (_, word) = set.split_once('=')?;
    let word = word.trim().trim_matches(['"', '\'']);
    SourceKind::deserialize(StrDeserializer::<ValueError>::new(word)).ok()
}

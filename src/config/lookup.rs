//! The winning value of every key, checked against its kind: what `resolve` reads from.
//!
//! Invariant: a value found here is of its key's kind. Where the user's value was turned down, the
//! default stands in, so that the remaining checks can still run and report.
//!
//! May use: `condition`, `error`, `origin`, `schema`, `settings`, `value`.

use std::collections::{BTreeMap, BTreeSet};

use super::condition::Condition;
use super::error::Problem;
use super::origin::Layer;
use super::schema::{self, Key};
use super::settings::{Entry, Settings};
use super::value::Value;

/// Checked values, by key.
pub(super) struct Lookup<'a> {
    settings: &'a Settings,
    values: BTreeMap<&'static str, Value>,
    refused: BTreeSet<&'static str>,
}

impl<'a> Lookup<'a> {
    /// Checks everything that was typed; also returns what was wrong with it.
    pub(super) fn new(settings: &'a Settings) -> (Lookup<'a>, Vec<Problem>) {
        let mut lookup = Lookup {
            settings,
            values: BTreeMap::new(),
            refused: BTreeSet::new(),
        };
        let mut problems = Vec::new();
        for key in schema::keys() {
            for entry in settings.typed(key.name) {
                match check(key, entry) {
                    Ok(value) => drop(lookup.values.insert(key.name, value)),
                    Err(problem) => {
                        lookup.refused.insert(key.name);
                        problems.push(*problem);
                    }
                }
            }
        }
        // First those that other defaults depend on.
        let (plain, depending): (Vec<&Key>, Vec<&Key>) =
            schema::keys().partition(|key| key.other_defaults.is_empty());
        for key in plain.into_iter().chain(depending) {
            if let Some(value) = key.default_value(|condition| lookup.holds(condition)) {
                lookup.values.entry(key.name).or_insert(value);
            }
        }
        (lookup, problems)
    }

    /// The value of a key; `None` if it has none.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Whether the user's value for `key` was turned down already.
    pub(super) fn is_refused(&self, key: &str) -> bool {
        self.refused.contains(key)
    }

    pub(super) fn is_typed(&self, key: &str) -> bool {
        self.settings.winner(key).is_some()
    }

    /// Whether `key` was typed in the layer of `selector` or a stronger one.
    pub(super) fn is_as_strong(&self, key: &str, selector: &str) -> bool {
        let layer = |key| self.settings.winner(key).map(|entry| entry.layer);
        layer(key).is_some_and(|layer_of_key| Some(layer_of_key) >= layer(selector))
    }

    pub(super) fn holds(&self, condition: &Condition) -> bool {
        self.value(condition.selector)
            .is_some_and(|selected| condition.holds(selected))
    }

    /// Whether data is to be made when there is none: any key of `generate` says so. A path given on the
    /// command line is somebody's data, which nobody asked to be made unless there as well.
    pub(super) fn generates(&self) -> bool {
        let mut keys = schema::keys().filter(|key| key.name.starts_with("generate."));
        if self.is_on_command_line("source.path") {
            return keys.any(|key| self.is_on_command_line(key.name));
        }
        keys.any(|key| self.is_typed(key.name))
    }

    fn is_on_command_line(&self, key: &str) -> bool {
        let entry = self.settings.winner(key);
        entry.is_some_and(|entry| entry.layer >= Layer::Recorded)
    }

    /// `num_workers = 4 (configs/x.toml:5:1)`.
    pub(super) fn cite(&self, key: &str) -> String {
        let value = self
            .value(key)
            .map_or_else(|| "(not set)".to_owned(), Value::to_string);
        match self.settings.winner(key) {
            Some(entry) => format!("`{key} = {value}` ({})", entry.origin),
            None => format!("`{key} = {value}` (the default)"),
        }
    }

    /// A problem with `key`, pointing at its value.
    pub(super) fn problem(&self, key: &str, what: String) -> Problem {
        match self.settings.winner(key) {
            Some(entry) => {
                Problem::new(entry.origin.clone(), entry.value_at.clone(), what).about(key)
            }
            None => Problem::new(super::Origin::Default, None, what).about(key),
        }
    }

    /// Keys that were typed where they can have no effect.
    pub(super) fn without_effect(&self) -> Vec<Problem> {
        schema::keys()
            .filter_map(|key| self.effect_problem(key))
            .collect()
    }

    /// The condition that keeps `key` from having an effect: its own, or that of the key it depends on.
    pub(super) fn broken_condition(&self, key: &'static Key) -> Option<Condition> {
        let condition = key.condition?;
        let above = schema::find(condition.selector).and_then(|above| self.broken_condition(above));
        above.or_else(|| (!self.holds(&condition)).then_some(condition))
    }

    fn effect_problem(&self, key: &'static Key) -> Option<Problem> {
        let entry = self.settings.winner(key.name)?;
        let condition = self.broken_condition(key)?;
        let selector = condition.selector;
        if self.is_refused(selector) {
            return None;
        }
        let selected = self
            .settings
            .winner(selector)
            .map_or(Layer::Default, |winner| winner.layer);
        if entry.layer < selected {
            return None; // A stronger layer changed the mode: this key is switched off.
        }
        let what = format!(
            "`{}` has no effect with {}: {}",
            key.name,
            self.cite(selector),
            condition.because
        );
        let problem = Problem::new(entry.origin.clone(), entry.key_at.clone(), what);
        Some(problem.about(key.name).hint(condition.remedy()))
    }
}

pub(super) fn check(key: &Key, entry: &Entry) -> Result<Value, Box<Problem>> {
    key.kind.check(&entry.value).map_err(|refusal| {
        let what = format!("`{}` {}", key.name, refusal.what);
        let hint = refusal
            .hint
            .or(key.advice.filter(|_| refusal.is_near).map(str::to_owned));
        let problem = Problem::new(entry.origin.clone(), entry.value_at.clone(), what);
        Box::new(problem.about(key.name).maybe_hint(hint))
    })
}

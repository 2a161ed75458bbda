//! Names that were others in earlier versions. The old ones still work, and a hint says what to write.
//!
//! May use: `value`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::value::Value;

/// Old and new names of keys.
const KEYS: [(&str, &str); 2] = [("read.mode", "read.method"), ("cache", "page_cache")];
/// A key, an old value of it, and the new one.
const VALUES: [(&str, &str, &str); 1] = [("source.kind", "idx", "mnist")];

/// Says once on standard error that `old` is now `new`.
pub fn renamed(old: &str, new: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(old.to_owned()) {
        eprintln!("note: `{old}` is now `{new}`");
    }
}

/// The name that the key `typed` has now.
pub(super) fn current_key(typed: &str) -> &str {
    let found = KEYS.iter().find(|(old, _)| *old == typed);
    found.map_or(typed, |(_, new)| new)
}

/// The same, with a hint.
pub(super) fn key(typed: &str) -> &str {
    let current = current_key(typed);
    if current != typed {
        renamed(typed, current);
    }
    current
}

/// The value that `typed` for `key` is now, with a hint.
pub(super) fn value(key: &str, typed: Value) -> Value {
    let Value::Text(text) = &typed else {
        return typed;
    };
    let mut values = VALUES.iter();
    let found = values.find(|(of, old, _)| *of == key && old == text);
    let Some((_, old, new)) = found else {
        return typed;
    };
    renamed(&format!("{key} = \"{old}\""), &format!("{key} = \"{new}\""));
    Value::Text((*new).to_owned())
}

//! "Did you mean": the known name nearest to a mistyped one.
//!
//! May use: nothing else of `config`.

use std::collections::BTreeSet;

/// Names other loaders use for what is spelled differently here.
const FOREIGN_NAMES: [(&str, &str); 14] = [
    ("batch_size", "batch.size"),
    ("batchsize", "batch.size"),
    ("lr", "model.learning_rate"),
    ("workers", "num_workers"),
    ("prefetch", "prefetch_factor"),
    ("warmup", "warmup_steps"),
    ("data", "source.path"),
    ("dataset", "source.path"),
    ("path", "source.path"),
    ("root", "source.path"),
    ("max_steps", "steps"),
    ("num_classes", "model.classes"),
    ("dtype", "model.precision"),
    ("amp", "model.precision"),
];

/// The known key that `typed` most likely stands for.
pub(super) fn key<'a>(
    typed: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    if let Some(near) = nearest(typed, known.clone()) {
        return Some(near);
    }
    let last = typed.rsplit('.').next().unwrap_or(typed);
    if let Some((_, meant)) = FOREIGN_NAMES.iter().find(|(foreign, _)| *foreign == typed) {
        return Some(meant);
    }
    // The right name in the wrong table: `learning_rate` for `model.learning_rate`.
    let mut homes = known.filter(|name| name.rsplit('.').next() == Some(last));
    match (homes.next(), homes.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// The known keys that `typed` may stand for, the likeliest first.
pub(super) fn several<'a>(
    typed: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Vec<&'a str> {
    const MOST: usize = 8;
    let typed = typed.to_lowercase();
    let mut found: Vec<&str> = key(&typed, known.clone()).into_iter().collect();
    found.extend(known.clone().filter(|name| name.contains(&typed)));
    let mut near: Vec<(usize, &str)> = known
        .map(|name| (edits(&typed, name), name))
        .filter(|(edits, name)| *edits <= (name.chars().count() / 3).max(1))
        .collect();
    near.sort_unstable();
    found.extend(near.into_iter().map(|(_, name)| name));
    let mut seen = BTreeSet::new();
    found.retain(|name| seen.insert(*name));
    found.truncate(MOST);
    found
}

/// The name within a third of its length in edits, nearest first; `None` if nothing is near.
pub(super) fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (edits(typed, name), name))
        .filter(|(edits, name)| *edits <= (name.chars().count() / 3).clamp(1, 4))
        .min()
        .map(|(_, name)| name)
}

/// Edits between two words: insert, delete, replace, or swap two neighbours, without regard to case.
fn edits(from: &str, to: &str) -> usize {
    strsim::osa_distance(&from.to_lowercase(), &to.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = [
        "decode.workers",
        "batch.size",
        "model.learning_rate",
        "steps",
        "source.path",
    ];

    #[test]
    fn counts_edits() {
        assert_eq!(edits("steps", "steps"), 0);
        assert_eq!(edits("setps", "steps"), 1);
        assert_eq!(edits("", "steps"), 5);
        assert_eq!(edits("Decode.worker", "decode.workers"), 1);
    }

    #[test]
    fn suggests_typos_foreign_names_and_misplaced_keys() {
        let suggest = |typed| key(typed, KNOWN.into_iter());
        assert_eq!(suggest("decode.wokers"), Some("decode.workers"));
        assert_eq!(suggest("batch_size"), Some("batch.size"));
        assert_eq!(suggest("lr"), Some("model.learning_rate"));
        assert_eq!(
            suggest("trainer.learning_rate"),
            Some("model.learning_rate")
        );
        assert_eq!(suggest("zebra"), None);
    }
}

//! Settings of a DataLoader that a prediction may change.

use super::replay::LoaderSettings;

/// Why a loader cannot be set so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No setting that is known.
    #[error("`{0}` is not a setting of a DataLoader that can be predicted\n  try: one of {keys}", keys = KEYS.join(", "))]
    Unknown(String),
    /// Not `key=value`.
    #[error("`{0}` sets nothing\n  try: --set num_workers=4")]
    NoValue(String),
    /// A value of another kind.
    #[error("`{key}` cannot be {value}\n  try: {key}={example}")]
    Value {
        /// The setting.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it could be.
        example: &'static str,
    },
    /// What DataLoader refuses.
    #[error("{0} needs workers, and num_workers is 0\n  try: --set num_workers=2 beside it")]
    NeedsWorkers(&'static str),
    /// What no run has measured.
    #[error(
        "batch_size={0} cannot be predicted: {1}\n  try: measure a run with it, and predict from that"
    )]
    Batches(usize, &'static str),
}

const KEYS: [&str; 6] = [
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "batch_size",
    "in_order",
    "drop_last",
];
/// More workers or batches than that are a mistake.
const MOST: usize = 1_024;

fn count(key: &'static str, value: &str, least: usize) -> Result<usize, SettingError> {
    let number = value.parse().ok();
    let number = number.filter(|number| {
        (least..=MOST.max(least)).contains(number) || key == "batch_size" && *number >= 1
    });
    number.ok_or_else(|| SettingError::Value {
        key,
        value: value.to_owned(),
        example: "4",
    })
}

fn flag(key: &'static str, value: &str) -> Result<bool, SettingError> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(SettingError::Value {
            key,
            value: value.to_owned(),
            example: "true",
        }),
    }
}

impl LoaderSettings {
    /// These with `sets` (`key=value`) on top.
    ///
    /// # Errors
    /// What is no setting, or no DataLoader can have.
    pub fn with(&self, sets: &[String]) -> Result<LoaderSettings, SettingError> {
        let mut new = self.clone();
        let mut needs_workers = None;
        for set in sets {
            let (key, value) = set
                .split_once('=')
                .ok_or_else(|| SettingError::NoValue(set.clone()))?;
            let (key, value) = (key.trim(), value.trim());
            let known = KEYS.into_iter().find(|known| *known == key);
            let known = known.ok_or_else(|| SettingError::Unknown(key.to_owned()))?;
            match known {
                "num_workers" => new.num_workers = count(known, value, 0)?,
                "prefetch_factor" => {
                    new.prefetch_factor = count(known, value, 1)?;
                    needs_workers = Some(known);
                }
                "persistent_workers" => {
                    new.persistent_workers = flag(known, value)?;
                    needs_workers = needs_workers.or(new.persistent_workers.then_some(known));
                }
                "batch_size" => new.batch_size = Some(self.batches_of(count(known, value, 1)?)?),
                "in_order" => new.in_order = flag(known, value)?,
                _ => new.drop_last = flag(known, value)?,
            }
        }
        match needs_workers.filter(|_| new.num_workers == 0) {
            Some(key) => Err(SettingError::NeedsWorkers(key)),
            None => Ok(new),
        }
    }

    fn batches_of(&self, size: usize) -> Result<usize, SettingError> {
        if self.batch_size.is_none() {
            let why = "a batch sampler or the data set decides how many samples a batch has";
            return Err(SettingError::Batches(size, why));
        }
        match self.samples.is_some_and(|samples| size as u64 > samples) {
            true => Err(SettingError::Batches(
                size,
                "the data set has fewer samples",
            )),
            false => Ok(size),
        }
    }
}

//! A change to try, as data; it becomes a sentence where it is shown.

use super::bound::Limit;
use crate::timeline::Stage;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// What a key is set to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// On or off.
    Flag(bool),
    /// A number of workers, items or batches.
    Count(usize),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Flag(flag) => flag.fmt(f),
            SettingValue::Count(count) => count.fmt(f),
        }
    }
}

/// A key of the configuration with the value to give it; `key=value` in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// As `--set` takes it.
    pub key: String,
    /// The value to give it.
    pub value: SettingValue,
    /// What it is in this run.
    pub now: SettingValue,
}

impl Setting {
    /// `value` threads, or items of room, instead of `now`.
    pub fn count(key: impl Into<String>, value: usize, now: usize) -> Setting {
        Setting {
            key: key.into(),
            value: SettingValue::Count(value),
            now: SettingValue::Count(now),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// What to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// All of them at once.
    Set(Vec<Setting>),
    /// Samples read in the order in which they are stored.
    ReadInOrder,
    /// The loss fetched from the device every few steps.
    ReadLossLessOften,
    /// Metrics that cost less, or are computed less often.
    FewerMetrics,
    /// Images stored at the size that is trained on.
    StoreAtTrainedSize,
    /// Samples stored as preprocessing leaves them.
    StorePreprocessed,
    /// Less to read, or to copy, for each sample.
    FewerBytes,
    /// Of any kind, at a stage of the user's own.
    LessWork(Stage),
    /// Arguments of a DataLoader, all of them at once.
    Arguments(Vec<Setting>),
    /// What no setting does, in words.
    Words(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Set(settings) => {
                let sets = settings.iter().map(|setting| format!("--set {setting}"));
                return f.write_str(&sets.collect::<Vec<_>>().join(" "));
            }
            Change::Arguments(settings) => {
                let set = settings
                    .iter()
                    .map(|Setting { key, value, .. }| match value {
                        SettingValue::Flag(true) => format!("{key}=True"),
                        SettingValue::Flag(false) => format!("{key}=False"),
                        SettingValue::Count(count) => format!("{key}={count}"),
                    });
                let set: Vec<String> = set.collect();
                return write!(f, "DataLoader(..., {})", set.join(", "));
            }
            Change::Words(words) => words,
            Change::LessWork(stage) => return write!(f, "less work at {stage}"),
            Change::ReadInOrder => "reading samples in the order in which they lie on the disk",
            Change::ReadLossLessOften => "reading the loss back less often",
            Change::FewerMetrics => {
                "cheaper or rarer metrics and logging (what the loop does once the device is done)"
            }
            Change::StoreAtTrainedSize => {
                "images stored at the size they are trained at, which decode faster"
            }
            Change::StorePreprocessed => "samples stored preprocessed",
            Change::FewerBytes => "fewer bytes a sample",
        })
    }
}

/// A change to try, with what it can gain. As JSON it has its sentence in `text`, too.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Suggestion {
    /// What to change.
    pub change: Change,
    /// The most it can speed up samples/s, as a factor.
    pub at_most: f64,
    /// What it is predicted to make of samples/s, as a factor over this run, and no more than `at_most`. `None`
    /// while the run is on, and where it cannot be predicted.
    pub predicted: Option<f64>,
}

/// A prediction below this promises nothing.
const SOME_GAIN: f64 = 1.01;

impl Suggestion {
    /// `change`, which nobody has predicted yet.
    pub fn new(change: Change, at_most: f64) -> Suggestion {
        Suggestion {
            change,
            at_most,
            predicted: None,
        }
    }

    /// For `--set`; none where the change is no key's.
    pub fn sets(&self) -> Vec<String> {
        match &self.change {
            Change::Set(settings) => settings.iter().map(Setting::to_string).collect(),
            _ => Vec::new(),
        }
    }

    /// Notes that a simulation gives `factor` times the samples/s. `at_most` stands: it is what the run itself
    /// leaves no doubt about.
    pub fn predict(&mut self, factor: f64) {
        self.predicted = Some(factor.min(self.at_most));
    }

    /// `try --set decode.workers=2 (predicted 1.18x, at most 1.90x)`.
    pub fn text(&self) -> String {
        let predicted = match self.predicted {
            None => String::new(),
            Some(factor @ SOME_GAIN..) => format!("predicted {factor:.2}x, "),
            Some(_) => "predicted no gain; ".to_owned(),
        };
        format!(
            "try {} ({predicted}at most {:.2}x)",
            self.change, self.at_most
        )
    }
}

impl Serialize for Suggestion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Suggestion", 4)?;
        fields.serialize_field("change", &self.change)?;
        fields.serialize_field("at_most", &self.at_most)?;
        fields.serialize_field("predicted", &self.predicted)?;
        fields.serialize_field("text", &self.text())?;
        fields.end()
    }
}

/// How much faster a resource that binds may get.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slack {
    /// The resource that binds.
    pub limit: Limit,
    /// So many times as fast until `next` binds; 1 where that is as slow.
    pub factor: f64,
    /// What binds then.
    pub next: Limit,
}

impl fmt::Display for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slack {
            limit,
            factor,
            next,
        } = self;
        write!(f, "{limit} {factor:.2}x (next limit: {next})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggestion_is_read_back_as_it_was_written() {
        let pair = vec![
            Setting::count("decode.workers", 3, 1),
            Setting {
                key: "ordered".to_owned(),
                value: SettingValue::Flag(false),
                now: SettingValue::Flag(true),
            },
        ];
        for change in [Change::Set(pair), Change::FewerBytes] {
            let suggestion = Suggestion::new(change, 1.5);
            let json = serde_json::to_value(&suggestion).unwrap();
            assert_eq!(json["text"], suggestion.text());
            assert_eq!(
                serde_json::from_value::<Suggestion>(json).unwrap(),
                suggestion
            );
        }
    }
}

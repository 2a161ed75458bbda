//! Samples left out.

use crate::timeline::Stage;

/// A sample left out, and why.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SkippedSample {
    /// Index in the data set.
    pub sample: u64,
    /// Path or record.
    pub name: String,
    /// Where it failed.
    pub stage: Stage,
    /// What that stage said.
    pub reason: String,
    /// How often: once in each epoch that came to it.
    pub times: u64,
}

/// Samples left out so far of batches that are to be delivered: not those that workers skip ahead of the next epoch.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// How many, repeats in later epochs included.
    pub count: u64,
    /// The first of them, each once.
    pub listed: Vec<SkippedSample>,
    /// Files whose samples from some place on are not counted, since they are not known, and why.
    pub broken_files: Vec<String>,
}

impl Skipped {
    fn add(&mut self, skipped: SkippedSample) {
        self.count += skipped.times;
        let known = self.listed.iter_mut();
        if let Some(known) = known
            .into_iter()
            .find(|known| known.sample == skipped.sample)
        {
            known.times += skipped.times;
        } else if self.listed.len() < SKIPPED_LISTED {
            self.listed.push(skipped);
        }
    }
}

/// Skipped samples listed by name; more are only counted.
const SKIPPED_LISTED: usize = 1000;

/// Samples left out, those of batches that are not yet to be delivered apart.
#[derive(Default)]
pub(super) struct SkipsByBatch {
    /// Of batches that are to be delivered.
    due: Skipped,
    /// Of later ones, each with its batch.
    ahead: Vec<(u64, SkippedSample)>,
}

impl SkipsByBatch {
    /// Counts those of batches before `due`.
    fn settle(&mut self, due: u64) {
        let ahead = std::mem::take(&mut self.ahead);
        for (batch, sample) in ahead {
            if batch < due {
                self.due.add(sample);
            } else {
                self.ahead.push((batch, sample));
            }
        }
    }

    /// Adds `skipped` of `batch`, where batches before `due` are to be delivered.
    pub(super) fn add(&mut self, batch: u64, skipped: SkippedSample, due: u64) {
        self.ahead.push((batch, skipped));
        self.settle(due);
    }

    /// Those of batches before `due`.
    pub(super) fn before(&mut self, due: u64) -> Skipped {
        self.settle(due);
        self.due.clone()
    }
}

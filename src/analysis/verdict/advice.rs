//! What to change: for each cause the change to try, and the most that it can buy.

use super::{Cores, Judge, MORE_WORKERS, Suggestion, WORTH_TRYING};
use crate::analysis::cause::Cause;
use crate::analysis::floors::{ASSEMBLY, Floors};
use crate::analysis::tally::share;
use crate::timeline::{HostWork, Layout, Nanos, Stage};

impl Judge<'_> {
    /// The change to try against `cause`.
    pub(super) fn suggestion(&self, cause: Cause) -> Option<Suggestion> {
        match cause {
            Cause::Capacity(stage) => match self.cores() {
                Cores::Free => self
                    .more_workers(stage)
                    .filter(|suggestion| suggestion.at_most >= WORTH_TRYING)
                    .or_else(|| self.in_order(stage))
                    .or_else(|| self.cheaper_work(Some(stage))),
                // Where cores are scarce the heaviest stage is in the way of all.
                Cores::Saturated => self.cheaper_work(None),
                Cores::Taken => None,
            },
            Cause::PrefetchDepth(stage) => Some(self.deeper(stage)),
            Cause::CpuContention => {
                let fewer = self.guard.as_ref().map(|guard| guard.suggestion.clone());
                let saturated = self.cores() == Cores::Saturated;
                fewer.or_else(|| saturated.then(|| self.cheaper_work(None)).flatten())
            }
            Cause::Host(HostWork::LossReadback) => Some(Suggestion {
                set: None,
                change: "reading the loss back less often".to_owned(),
                at_most: self.without(self.summary.cause(cause)),
                predicted: None,
            }),
            _ => None,
        }
    }

    /// The factor gained where `length` of the window goes away.
    fn without(&self, length: Nanos) -> f64 {
        let window = self.summary.window.length();
        1.0 / (1.0 - share(length, window)).max(1e-3)
    }

    fn floors(&self) -> Floors {
        Floors::of(self.summary, self.shape)
    }

    /// The most that a run with `floors` can gain over this one.
    fn at_most(&self, floors: &Floors) -> f64 {
        let period = self.summary.period().0 as f64;
        (period / floors.least().max(1.0)).max(1.0)
    }

    /// The fewest workers that reach what any number of them could.
    fn more_workers(&self, stage: Stage) -> Option<Suggestion> {
        let floors = self.floors();
        let (key, now) = match self.shape.layout {
            Layout::WholeBatch { num_workers, .. }
                if stage != Stage::Copy || self.shape.layout.is_inline() =>
            {
                ("num_workers".to_owned(), num_workers)
            }
            _ if stage == Stage::Copy => {
                return (self.shape.copy.workers == 0).then(|| self.copy_ahead());
            }
            _ => (format!("{stage}.workers"), floors.workers(stage)),
        };
        let with = |workers| self.at_most(&floors.clone().with_workers(stage, workers));
        let best = with(now + MORE_WORKERS);
        let enough = (now + 1..=now + MORE_WORKERS).find(|n| with(*n) >= 0.97 * best)?;
        Some(Suggestion {
            set: Some(format!("{key}={enough}")),
            change: format!("{enough} instead of {now}"),
            at_most: with(enough),
            predicted: None,
        })
    }

    /// Fewer seeks, where the disk has no time for anything else.
    fn in_order(&self, stage: Stage) -> Option<Suggestion> {
        let at_most = self.at_most(&self.floors().without_seeks());
        (stage == Stage::Read && at_most >= WORTH_TRYING).then(|| Suggestion {
            set: None,
            change: "reading samples in the order in which they lie on the disk".to_owned(),
            at_most,
            predicted: None,
        })
    }

    fn copy_ahead(&self) -> Suggestion {
        Suggestion {
            set: Some("copy.workers=1".to_owned()),
            change: "a thread that copies ahead".to_owned(),
            at_most: self.at_most(&self.floors().copying_ahead()),
            predicted: None,
        }
    }

    fn deeper(&self, stage: Stage) -> Suggestion {
        let hidden = self
            .summary
            .causes
            .iter()
            .filter_map(|(cause, length)| match cause {
                Cause::PrefetchDepth(_) => Some(*length),
                _ => None,
            });
        let copies_ahead = self.shape.copy.workers > 0 && !self.shape.layout.is_inline();
        let (key, depth) = match self.shape.layout {
            // Whatever assembles the batches, room behind the copy is what it lacked.
            _ if stage == Stage::Copy && copies_ahead => {
                ("copy.prefetch", self.shape.copy.prefetch)
            }
            Layout::WholeBatch { num_workers: 0, .. } => ("num_workers", 0),
            Layout::WholeBatch {
                prefetch_factor, ..
            } => ("prefetch_factor", prefetch_factor),
            // Batches are what runs ahead of the trainer, whichever stage's latency shows.
            Layout::PerStage { batch, .. } => ("batch.prefetch", batch.prefetch),
        };
        let deeper = (2 * depth).max(1);
        Suggestion {
            set: Some(format!("{key}={deeper}")),
            change: format!("{deeper} instead of {depth}"),
            at_most: self.without(hidden.sum()).min(self.at_most(&self.floors())),
            predicted: None,
        }
    }

    /// Less work at the stage that is to blame, or else at the one that works most.
    fn cheaper_work(&self, blamed: Option<Stage>) -> Option<Suggestion> {
        let floors = self.floors();
        let heaviest = ASSEMBLY
            .into_iter()
            .max_by(|a, b| floors.work(*a).total_cmp(&floors.work(*b)));
        let stage = blamed.or(heaviest)?;
        let images = [Stage::Read, Stage::Decode, Stage::Preprocess];
        // With each change, the stages it makes cheaper and what is left of their work at least.
        let (change, stages, left): (_, &[Stage], _) = match stage {
            Stage::Read | Stage::Decode => (
                "images stored at the size they are trained at, which decode faster",
                &images,
                self.trained_pixels(),
            ),
            Stage::Preprocess => (
                "samples stored preprocessed",
                &[Stage::Decode, Stage::Preprocess],
                0.0,
            ),
            _ => ("fewer bytes a sample", &[Stage::Batch, Stage::Copy], 0.0),
        };
        Some(Suggestion {
            set: None,
            change: change.to_owned(),
            at_most: self.at_most(&floors.with_less_work(stages, left)),
            predicted: None,
        })
    }

    /// Of the pixels that are decoded, the share that is left after preprocessing, which makes a float of
    /// each byte.
    fn trained_pixels(&self) -> f64 {
        let bytes = |stage| self.summary.stage(stage).map_or(0, |row| row.bytes_out) as f64;
        let floats = size_of::<f32>() as f64;
        let decoded = bytes(Stage::Decode).max(1.0);
        (bytes(Stage::Preprocess) / floats / decoded).clamp(0.0, 1.0)
    }
}

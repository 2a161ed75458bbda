//! What to change: for each cause the change to try, and the most that it can buy.

use super::{Cores, Judge, Kind, MORE_WORKERS, WORTH_TRYING};
use crate::analysis::bound::{Bound, Limit};
use crate::analysis::cause::Cause;
use crate::analysis::suggestion::{Change, Setting, SettingValue, Slack, Suggestion};
use crate::analysis::tally::share;
use crate::timeline::{HostWork, Layout, Nanos, Stage, StageKind};

/// Of what any number of threads could reach, what is worth no more threads.
const NEARLY: f64 = 0.97;

impl Judge<'_> {
    /// The change to try against `cause`, in a run that is held back as `kind` says.
    pub(super) fn suggestion(&self, kind: Kind, cause: Cause) -> Option<Suggestion> {
        match cause {
            Cause::Capacity(stage) => match self.cores() {
                Cores::Free => self
                    .more_threads(stage)
                    .filter(|suggestion| suggestion.at_most >= WORTH_TRYING)
                    .or_else(|| self.in_order(stage))
                    .or_else(|| self.cheaper_work(Some(stage))),
                // Where cores are scarce the heaviest stage is in the way of all.
                Cores::Saturated => self.cheaper_work(None),
                Cores::Taken => None,
            },
            Cause::PrefetchDepth(stage) => Some(self.deeper(stage)),
            Cause::HeadOfLine(stage) => Some(self.any_order())
                .filter(|suggestion| suggestion.at_most >= WORTH_TRYING)
                .or_else(|| self.more_threads(stage)),
            Cause::CpuContention => match (&self.guard, self.cores()) {
                (Some(guard), _) => Some(guard.suggestion.clone()),
                (None, Cores::Saturated) => self.cheaper_work(None),
                // Workers that get in each other's way now and then are held back by what they do in between.
                (None, Cores::Free) if kind == Kind::Loader => {
                    let mut causes = self.summary.causes.iter().map(|(cause, _)| *cause);
                    self.suggestion(kind, causes.find(|cause| cause.stage().is_some())?)
                }
                _ => None,
            },
            Cause::Host(HostWork::LossReadback) => Some(Suggestion::new(
                Change::ReadLossLessOften,
                self.without(self.summary.cause(cause)),
            )),
            Cause::Host(HostWork::AllReduce) => Some(Suggestion::new(
                Change::Words(
                    "`stallscope report` with the folder of all ranks, which names the one that the others wait for"
                        .to_owned(),
                ),
                self.without(self.summary.cause(cause)),
            )),
            Cause::Host(HostWork::Metrics) => Some(Suggestion::new(
                Change::FewerMetrics,
                self.without(self.summary.cause(cause)),
            )),
            _ => None,
        }
    }

    /// The factor gained where `length` of the window goes away.
    fn without(&self, length: Nanos) -> f64 {
        let window = self.summary.time();
        1.0 / (1.0 - share(length, window)).max(1e-3)
    }

    /// The most that a run with `bound` can gain over this one.
    fn at_most(&self, bound: &Bound) -> f64 {
        let period = self.summary.period().0 as f64;
        (period / bound.least().max(1.0)).max(1.0)
    }

    /// What is slowest, alone or with others that are as slow, and how much faster each may get.
    pub(super) fn slack(&self) -> Vec<Slack> {
        let mut demands = self.bound.demands();
        demands.retain(|(_, demand)| *demand > 0.0);
        let [first, second, ..] = demands[..] else {
            return Vec::new();
        };
        let as_slow = |demand: f64| demand * WORTH_TRYING > first.1;
        let slowest = demands.iter().filter(|(_, demand)| as_slow(*demand));
        let slack = slowest.map(|(limit, demand)| {
            let (next, other) = if *limit == first.0 { second } else { first };
            Slack {
                limit: *limit,
                factor: (demand / other).max(1.0),
                next,
            }
        });
        slack.collect()
    }

    /// The key that says how many threads `limit` has, and how many these are.
    fn threads(&self, limit: Limit) -> Option<(String, usize)> {
        let own = |stage| (format!("{stage}.workers"), self.bound.workers(stage));
        let is_serial = self.shape.pipeline.the(StageKind::Sample).is_serial();
        match (limit, &self.shape.layout) {
            (Limit::Workers, _) if is_serial => None,
            (Limit::Workers, Layout::WholeBatch { num_workers, .. }) => {
                Some(("num_workers".to_owned(), *num_workers))
            }
            (Limit::Trainer, _) if self.shape.copy.workers == 0 => {
                Some(("copy.workers".to_owned(), 0))
            }
            _ => limit.stage().filter(|stage| !stage.is_serial()).map(own),
        }
    }

    /// What has to do the work of `stage`.
    fn limit_of(&self, stage: Stage) -> Option<Limit> {
        match (stage.kind(), &self.shape.layout) {
            (_, Layout::WholeBatch { num_workers: 0, .. }) => Some(Limit::Workers),
            (StageKind::Copy, _) if self.shape.copy.workers == 0 => Some(Limit::Trainer),
            (StageKind::Copy, _) => Some(Limit::Copy),
            (_, Layout::WholeBatch { .. }) => Some(Limit::Workers),
            _ => Limit::workers_of(stage),
        }
    }

    /// The fewest threads that reach what any number of them could: at `stage`, and at what else is as slow.
    fn more_threads(&self, stage: Stage) -> Option<Suggestion> {
        let mut most = self.bound.clone();
        let mut limits: Vec<(Limit, String, usize)> = Vec::new();
        let mut next = self.limit_of(stage);
        while let Some(limit) = next.take()
            && let Some((key, now)) = self.threads(limit)
        {
            most = most.with_threads(limit, now + MORE_WORKERS);
            limits.push((limit, key, now));
            let limit = most.limit();
            let known = limits.iter().any(|(known, ..)| *known == limit);
            next = (!known && self.at_most(&most) < WORTH_TRYING).then_some(limit);
        }
        let least = most.least() / NEARLY;
        let mut enough = self.bound.clone();
        let mut settings = Vec::new();
        for (limit, key, now) in limits {
            let with = |threads| most.clone().with_threads(limit, threads);
            let threads = (now..=now + MORE_WORKERS).find(|n| with(*n).least() <= least)?;
            enough = enough.with_threads(limit, threads);
            if threads > now {
                settings.push(Setting::count(key, threads, now));
            }
        }
        let at_most = self.at_most(&enough);
        (!settings.is_empty()).then(|| Suggestion::new(Change::Set(settings), at_most))
    }

    /// Fewer seeks, where the disk has no time for anything else.
    fn in_order(&self, stage: Stage) -> Option<Suggestion> {
        let at_most = self.at_most(&self.bound.clone().without_seeks());
        // Of a disk that does not seek, the bound is the same without.
        let gain = at_most / self.at_most(&self.bound);
        (stage.is_first() && gain >= WORTH_TRYING)
            .then(|| Suggestion::new(Change::ReadInOrder, at_most))
    }

    /// Batches that are handed on as they become ready.
    fn any_order(&self) -> Suggestion {
        let ordered = Setting {
            key: "ordered".to_owned(),
            value: SettingValue::Flag(false),
            now: SettingValue::Flag(true),
        };
        let at_most = self.without_all(|cause| matches!(cause, Cause::HeadOfLine(_)));
        Suggestion::new(Change::Set(vec![ordered]), at_most)
    }

    /// The most that is gained where `causes` go away.
    fn without_all(&self, causes: fn(Cause) -> bool) -> f64 {
        let all = self.summary.causes.iter();
        let lengths = all.filter(|(cause, _)| causes(*cause));
        let length = lengths.map(|(_, length)| *length).sum();
        self.without(length).min(self.at_most(&self.bound))
    }

    fn deeper(&self, stage: Stage) -> Suggestion {
        let copies_ahead = self.shape.copy.workers > 0 && !self.shape.layout.is_inline();
        let (key, depth) = match &self.shape.layout {
            // Whatever assembles the batches, room behind the copy is what it lacked.
            _ if stage.kind() == StageKind::Copy && copies_ahead => {
                ("copy.prefetch", self.shape.copy.prefetch)
            }
            Layout::WholeBatch { num_workers: 0, .. } => ("num_workers", 0),
            Layout::WholeBatch {
                prefetch_factor, ..
            } => ("prefetch_factor", *prefetch_factor),
            // Batches are what runs ahead of the trainer, whichever stage's latency shows.
            Layout::PerStage { batch, .. } => ("batch.prefetch", batch.prefetch),
        };
        let deeper = Setting::count(key, (2 * depth).max(1), depth);
        let at_most = self.without_all(|cause| matches!(cause, Cause::PrefetchDepth(_)));
        Suggestion::new(Change::Set(vec![deeper]), at_most)
    }

    /// Less work at the stage that is to blame, or else at the one that works most.
    fn cheaper_work(&self, blamed: Option<Stage>) -> Option<Suggestion> {
        let pipeline = self.shape.pipeline;
        let heaviest = pipeline
            .assembly()
            .max_by(|a, b| self.bound.work(*a).total_cmp(&self.bound.work(*b)));
        let stage = blamed.or(heaviest)?;
        let own = |stage: Stage| stage.within(pipeline);
        // With each change, the stages it makes cheaper and what is left of their work at least.
        let (change, stages, left): (_, &[Stage], _) = match stage.kind() {
            StageKind::Part => (Change::LessWork(stage), &[stage], 0.0),
            StageKind::Sample if !pipeline.is_of_images() => {
                (Change::LessWork(stage), &[stage], 0.0)
            }
            StageKind::Sample if stage.finishes_samples() => (
                Change::StorePreprocessed,
                &[own(Stage::DECODE), own(Stage::PREPROCESS)],
                0.0,
            ),
            StageKind::Sample => (
                Change::StoreAtTrainedSize,
                &[own(Stage::READ), own(Stage::DECODE), own(Stage::PREPROCESS)],
                self.trained_pixels(),
            ),
            _ => (
                Change::FewerBytes,
                &[stage.other(StageKind::Batch), stage.other(StageKind::Copy)],
                0.0,
            ),
        };
        let cheaper = self.bound.clone().with_less_work(stages, left);
        Some(Suggestion::new(change, self.at_most(&cheaper)))
    }

    /// Of the pixels that are decoded, the share that is left after preprocessing.
    fn trained_pixels(&self) -> f64 {
        let pipeline = self.shape.pipeline;
        let bytes = |stage: Stage| {
            let row = self.summary.stage(stage.within(pipeline));
            row.map_or(0, |row| row.bytes_out) as f64
        };
        let values = bytes(Stage::PREPROCESS) / self.shape.value_bytes.max(1) as f64;
        (values / bytes(Stage::DECODE).max(1.0)).clamp(0.0, 1.0)
    }
}

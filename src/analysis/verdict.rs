//! The verdict: what binds, the evidence, the next change to try and the most it can buy.
//!
//! The most a change can buy follows from the floors of the time per step that it cannot remove.

use super::cause::Cause;
use super::floors::{ASSEMBLY, Floors, LoaderShape, Workers};
use super::summary::Summary;
use super::tally::{StageSummary, share};
use crate::timeline::{HostWork, Nanos, Stage};

/// How much of the step time is spent waiting for input. The thresholds, 20 % and 5 %, are those of
/// XProf's input-pipeline analyzer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InputBound {
    Highly,
    Moderately,
    Not,
}

impl InputBound {
    fn of(data_wait_share: f64) -> InputBound {
        match data_wait_share {
            0.20.. => InputBound::Highly,
            0.05..0.20 => InputBound::Moderately,
            _ => InputBound::Not,
        }
    }
}

/// A change to try.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Suggestion {
    /// For `--set`; `None` where no key alone does it.
    pub set: Option<String>,
    /// The change in words.
    pub change: String,
    /// The most it can speed up samples/s, as a factor.
    pub at_most: f64,
}

/// What binds the run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Verdict {
    pub input_bound: InputBound,
    /// Data wait / window, 0 to 1.
    pub data_wait_share: f64,
    /// In a few words: `loader-bound`, `device-bound` and so on.
    pub title: String,
    /// What was measured that says so.
    pub evidence: Vec<String>,
    pub suggestion: Option<Suggestion>,
}

impl Verdict {
    /// The verdict on `summary`.
    pub fn of(summary: &Summary, shape: &LoaderShape) -> Verdict {
        let judge = Judge { summary, shape };
        judge.verdict()
    }

    /// The verdict in one line.
    pub fn line(&self) -> String {
        let evidence = self.evidence.join("; ");
        let line = format!("{}: {evidence}", self.title);
        match &self.suggestion {
            None => line,
            Some(suggestion) => format!("{line}; {}", suggestion.text()),
        }
    }
}

impl Suggestion {
    /// `try --set decode.workers=2 (at most 1.9x)`.
    pub fn text(&self) -> String {
        let what = match &self.set {
            Some(set) => format!("--set {set}"),
            None => self.change.clone(),
        };
        format!("try {what} (at most {:.2}x)", self.at_most)
    }
}

/// Above this share of all cores' time in use the machine is saturated.
const SATURATED: f64 = 0.9;
/// A change that cannot buy this much is not worth a run.
const WORTH_TRYING: f64 = 1.05;
/// Device idle below this share of the window is not looked into.
const HARDLY_IDLE: f64 = 0.05;
/// More workers than this many on top are not considered.
const MORE_WORKERS: usize = 64;

/// How the cores stand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Cores {
    Free,
    /// This process uses nearly all of them.
    Saturated,
    /// It would, but has not got them.
    Taken,
}

/// What holds the run back, in kind.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Limit {
    Loader,
    Host,
    Device,
}

impl Limit {
    /// Where a cause belongs.
    fn of(cause: Cause) -> Limit {
        match cause {
            Cause::Host(_) => Limit::Host,
            Cause::DeviceSide => Limit::Device,
            _ => Limit::Loader,
        }
    }
}

struct Judge<'a> {
    summary: &'a Summary,
    shape: &'a LoaderShape,
}

impl Judge<'_> {
    fn verdict(&self) -> Verdict {
        let data_wait_share = self.summary.data_wait_share();
        let input_bound = InputBound::of(data_wait_share);
        let limit = self.limit(input_bound);
        let title = match (limit, input_bound) {
            _ if !self.shape.has_device => "loader alone",
            (Limit::Loader, InputBound::Highly) => "loader-bound",
            (Limit::Loader, InputBound::Moderately) => "moderately loader-bound",
            (Limit::Loader, InputBound::Not) => "not input-bound",
            (Limit::Host, _) => "host-bound",
            (Limit::Device, _) => "device-bound",
        };
        let top = self.top_cause(limit);
        let suggestion = top.filter(|_| limit != Limit::Device);
        let suggestion = suggestion
            .and_then(|cause| self.suggestion(cause))
            .filter(|suggestion| suggestion.at_most >= WORTH_TRYING);
        Verdict {
            input_bound,
            data_wait_share,
            title: title.to_owned(),
            evidence: self.evidence(limit, input_bound, top, suggestion.as_ref()),
            suggestion,
        }
    }

    /// The causes are compared in kind, not one by one: a loader may hold the device back in many ways.
    fn limit(&self, input_bound: InputBound) -> Limit {
        let idle = share(self.summary.device_idle(), self.summary.window.length());
        if input_bound == InputBound::Not && idle <= HARDLY_IDLE {
            return Limit::Device;
        }
        let total = |limit| -> Nanos {
            let causes = self.summary.causes.iter();
            let lengths = causes.filter(|(cause, _)| Limit::of(*cause) == limit);
            lengths.map(|(_, length)| *length).sum()
        };
        if total(Limit::Host) > total(Limit::Loader) {
            Limit::Host
        } else {
            Limit::Loader
        }
    }

    /// The longest cause of the kind, or of any where that kind has none.
    fn top_cause(&self, limit: Limit) -> Option<Cause> {
        let mut causes = self.summary.causes.iter().map(|(cause, _)| *cause);
        let first = causes.clone().next();
        causes.find(|cause| Limit::of(*cause) == limit).or(first)
    }

    fn evidence(
        &self,
        limit: Limit,
        input_bound: InputBound,
        top: Option<Cause>,
        suggestion: Option<&Suggestion>,
    ) -> Vec<String> {
        let mut evidence = Vec::new();
        let window = self.summary.window.length();
        let stage = top
            .and_then(Cause::stage)
            .filter(|_| limit == Limit::Loader);
        if let Some(row) = stage.and_then(|stage| self.summary.stage(stage)) {
            evidence.push(stage_evidence(row, window));
        }
        if limit != Limit::Loader || input_bound == InputBound::Not {
            let wait = 100.0 * self.summary.data_wait_share();
            let busy = 100.0 * self.summary.busy_share();
            evidence.push(format!(
                "the trainer waits for data {wait:.1} % of the time, the device is busy {busy:.1} %"
            ));
        }
        let idle = self.summary.device_idle();
        if let Some(cause) = top.filter(|_| share(idle, window) > 0.01) {
            let part = 100.0 * share(self.summary.cause(cause), idle);
            let whole = if self.shape.has_device {
                "device idle"
            } else {
                "the loader's time"
            };
            evidence.push(format!("{part:.0} % of {whole} is {cause}"));
        }
        if limit == Limit::Loader
            && suggestion.is_none_or(|s| s.set.is_none())
            && let Some(used) = self.of_cores(self.summary.process_cpu)
        {
            let (cores, percent) = (self.shape.cores, 100.0 * used);
            match self.cores() {
                Cores::Saturated => evidence.push(format!(
                    "of {cores} cores {percent:.0} % are in use, more workers cannot help"
                )),
                Cores::Taken => evidence.push(format!(
                    "this process had {percent:.0} % of {cores} cores and could have used more, other programs or a CPU quota took the rest"
                )),
                Cores::Free => {}
            }
        }
        evidence
    }

    /// `time` as a share of all cores' time.
    fn of_cores(&self, time: Option<Nanos>) -> Option<f64> {
        let available = self.summary.window.length().0 as f64 * self.shape.cores;
        Some(time?.0 as f64 / available.max(1.0))
    }

    /// Whether threads found cores to run on. Time that they were ready to run without one counts as time
    /// that another worker would not have had one either.
    fn cores(&self) -> Cores {
        let cpu = self.summary.process_cpu;
        let waited: Nanos = self.summary.workers.iter().map(|w| w.usage.run_delay).sum();
        let wanted = self.of_cores(cpu.map(|cpu| cpu + waited));
        match (self.of_cores(cpu), wanted) {
            (Some(SATURATED..), _) => Cores::Saturated,
            (_, Some(SATURATED..)) => Cores::Taken,
            _ => Cores::Free,
        }
    }

    fn suggestion(&self, cause: Cause) -> Option<Suggestion> {
        match cause {
            Cause::Capacity(stage) => match self.cores() {
                Cores::Free => self
                    .more_workers(stage)
                    .filter(|suggestion| suggestion.at_most >= WORTH_TRYING)
                    .or_else(|| self.cheaper_work(Some(stage))),
                // Where cores are scarce the heaviest stage is in the way of all.
                Cores::Saturated => self.cheaper_work(None),
                Cores::Taken => None,
            },
            Cause::PrefetchDepth(stage) => Some(self.deeper(stage)),
            Cause::CpuContention if self.cores() == Cores::Saturated => self.cheaper_work(None),
            Cause::Host(HostWork::LossReadback) => Some(Suggestion {
                set: None,
                change: "reading the loss back less often".to_owned(),
                at_most: self.without(self.summary.cause(cause)),
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
        let (key, now) = match self.shape.workers {
            Workers::WholeBatch { num_workers, .. }
                if stage != Stage::Copy || self.shape.loads_inline() =>
            {
                ("num_workers".to_owned(), num_workers)
            }
            _ if stage == Stage::Copy => {
                return self.shape.copy_in_trainer.then(|| self.copy_ahead());
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
        })
    }

    fn copy_ahead(&self) -> Suggestion {
        Suggestion {
            set: Some("copy.workers=1".to_owned()),
            change: "a thread that copies ahead".to_owned(),
            at_most: self.at_most(&self.floors().copying_ahead()),
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
        let copies_ahead = !self.shape.copy_in_trainer && !self.shape.loads_inline();
        let (key, depth) = match self.shape.workers {
            // Whatever assembles the batches, room behind the copy is what it lacked.
            _ if stage == Stage::Copy && copies_ahead => {
                ("copy.prefetch", self.shape.copy_prefetch)
            }
            Workers::WholeBatch { num_workers: 0, .. } => ("num_workers", 0),
            Workers::WholeBatch {
                prefetch_factor, ..
            } => ("prefetch_factor", prefetch_factor),
            // Batches are what runs ahead of the trainer, whichever stage's latency shows.
            Workers::PerStage => ("batch.prefetch", self.shape.batch_prefetch),
        };
        let deeper = (2 * depth).max(1);
        Suggestion {
            set: Some(format!("{key}={deeper}")),
            change: format!("{deeper} instead of {depth}"),
            at_most: self.without(hidden.sum()).min(self.at_most(&self.floors())),
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

fn stage_evidence(row: &StageSummary, window: Nanos) -> String {
    let busy = 100.0 * row.busy_share(window);
    let (stage, workers) = (row.stage, row.workers);
    match (workers, row.shared_workers) {
        (0, _) => format!("{stage} takes {busy:.1} % of the time of the trainer's thread"),
        (_, true) => {
            let threads = plural(workers, "loader thread");
            format!("{stage} takes {busy:.1} % of the time of {threads}")
        }
        (_, false) => format!(
            "{stage} has {}, busy {busy:.1} %",
            plural(workers, "worker")
        ),
    }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

#[cfg(test)]
mod tests;

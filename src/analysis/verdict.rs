//! The verdict: what binds, the evidence, the next change to try and the most it can buy.
//!
//! The most a change can buy follows from three floors of the time per step that it cannot remove: the
//! trainer's own time, each stage's work divided by its workers, and all CPU work divided by the cores.

use super::cause::Cause;
use super::summary::Summary;
use super::tally::share;
use crate::timeline::{HostWork, Nanos, Stage};

/// The two ways to spend workers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Workers {
    PerStage,
    WholeBatch {
        num_workers: usize,
        prefetch_factor: usize,
    },
}

/// What the verdict must know of the pipeline beside its records.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LoaderShape {
    pub workers: Workers,
    /// Capacity of the queues after read, decode, preprocess, batch and copy.
    pub prefetch: [usize; 5],
    /// The trainer's thread copies.
    pub copy_in_trainer: bool,
    /// CPU cores that the process may use.
    pub cores: usize,
}

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

struct Judge<'a> {
    summary: &'a Summary,
    shape: &'a LoaderShape,
}

impl Judge<'_> {
    fn verdict(&self) -> Verdict {
        let data_wait_share = self.summary.data_wait_share();
        let input_bound = InputBound::of(data_wait_share);
        let top = self.top_cause();
        let (title, suggestion) = match (input_bound, top) {
            (InputBound::Not, Some(Cause::Host(_))) if self.idle_share() > 0.05 => {
                ("host-bound", None)
            }
            (InputBound::Not, _) => ("device-bound", None),
            (_, Some(cause)) => {
                let title = match (cause, input_bound) {
                    (Cause::Host(_), _) => "host-bound",
                    (_, InputBound::Highly) => "loader-bound",
                    _ => "moderately loader-bound",
                };
                (title, self.suggestion(cause))
            }
            (_, None) => ("device-bound", None),
        };
        Verdict {
            input_bound,
            data_wait_share,
            title: title.to_owned(),
            evidence: self.evidence(input_bound, top, suggestion.as_ref()),
            suggestion,
        }
    }

    /// The longest cause.
    fn top_cause(&self) -> Option<Cause> {
        self.summary.causes.first().map(|(cause, _)| *cause)
    }

    fn idle_share(&self) -> f64 {
        share(self.summary.device_idle(), self.summary.window.length())
    }

    fn evidence(
        &self,
        input_bound: InputBound,
        top: Option<Cause>,
        suggestion: Option<&Suggestion>,
    ) -> Vec<String> {
        let mut evidence = Vec::new();
        let window = self.summary.window.length();
        let stage = top
            .and_then(Cause::stage)
            .filter(|_| input_bound != InputBound::Not);
        if let Some(row) = stage.and_then(|stage| self.summary.stage(stage)) {
            let busy = 100.0 * row.busy_share(window);
            let (stage, workers) = (row.stage, row.workers);
            evidence.push(if row.shared_workers {
                format!(
                    "{stage} takes {busy:.1} % of the time of {}",
                    plural(workers, "loader thread")
                )
            } else {
                format!(
                    "{stage} has {}, busy {busy:.1} %",
                    plural(workers, "worker")
                )
            });
        }
        if input_bound == InputBound::Not {
            let wait = 100.0 * self.summary.data_wait_share();
            let busy = 100.0 * self.summary.busy_share();
            evidence.push(format!(
                "the trainer waits for data {wait:.1} % of the time, the device is busy {busy:.1} %"
            ));
        }
        let idle = self.summary.device_idle();
        if let Some(cause) = top.filter(|_| self.idle_share() > 0.01) {
            let part = 100.0 * share(self.summary.cause(cause), idle);
            evidence.push(format!("{part:.0} % of device idle is {cause}"));
        }
        if input_bound != InputBound::Not
            && let Some(used) = self.cores_used()
            && suggestion.is_none_or(|s| s.set.is_none())
            && used > SATURATED
        {
            let cores = plural(self.shape.cores, "core");
            evidence.push(format!(
                "the {cores} are {:.0} % in use, more workers cannot help",
                100.0 * used
            ));
        }
        evidence
    }

    /// Share of all cores' time that the process used, 0 to 1.
    fn cores_used(&self) -> Option<f64> {
        let available = Nanos(self.summary.window.length().0 * self.shape.cores as u64);
        self.summary.process_cpu.map(|cpu| share(cpu, available))
    }

    fn suggestion(&self, cause: Cause) -> Option<Suggestion> {
        match cause {
            Cause::Capacity(stage) => self.more_workers(stage).or_else(|| self.cheaper_work()),
            Cause::PrefetchDepth(stage) => Some(self.deeper(stage)),
            Cause::CpuContention => self.cheaper_work(),
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

    /// The net service time of `stage` per step, without the time it waited for a core.
    fn work_per_step(&self, stage: Stage) -> f64 {
        let steps = self.summary.steps.max(1) as f64;
        self.summary.stage(stage).map_or(0.0, |row| {
            let service = row.service.mean.0 as f64 * row.items as f64;
            (service - row.run_delay.0 as f64).max(0.0) / steps
        })
    }

    fn workers(&self, stage: Stage) -> usize {
        self.summary.stage(stage).map_or(1, |row| row.workers)
    }

    /// The trainer's own time per step, with what of the loader's work its thread does.
    fn trainer_time(&self) -> f64 {
        let steps = self.summary.steps.max(1);
        let delay = self.summary.step_run_delay.0 / steps;
        let step = self.summary.step.mean.0.saturating_sub(delay) as f64;
        if self.shape.copy_in_trainer {
            step + self.work_per_step(Stage::Copy)
        } else {
            step
        }
    }

    /// CPU time per step over the cores.
    fn core_time(&self) -> f64 {
        let cpu = self.summary.process_cpu.map_or(0.0, |cpu| cpu.0 as f64);
        cpu / self.summary.steps.max(1) as f64 / self.shape.cores.max(1) as f64
    }

    /// The least time per step with `workers` for `changed`, everything else as it is.
    fn floor(&self, changed: Stage, workers: usize) -> f64 {
        let assembly = [Stage::Read, Stage::Decode, Stage::Preprocess, Stage::Batch];
        let trainer = self.trainer_time();
        let stages = match self.shape.workers {
            Workers::WholeBatch { .. } => {
                let work: f64 = assembly.map(|stage| self.work_per_step(stage)).iter().sum();
                if workers == 0 {
                    work + trainer
                } else {
                    work / workers as f64
                }
            }
            Workers::PerStage => assembly
                .into_iter()
                .map(|stage| {
                    let workers = if stage == changed {
                        workers
                    } else {
                        self.workers(stage)
                    };
                    self.work_per_step(stage) / workers.max(1) as f64
                })
                .fold(0.0, f64::max),
        };
        let copy = if self.shape.copy_in_trainer {
            0.0
        } else {
            self.work_per_step(Stage::Copy)
        };
        trainer.max(stages).max(copy).max(self.core_time())
    }

    fn at_most(&self, stage: Stage, workers: usize) -> f64 {
        let period = self.summary.period().0 as f64;
        (period / self.floor(stage, workers).max(1.0)).max(1.0)
    }

    /// The fewest workers that reach what any number of them could.
    fn more_workers(&self, stage: Stage) -> Option<Suggestion> {
        if stage == Stage::Copy {
            return self.shape.copy_in_trainer.then(|| self.copy_ahead());
        }
        let (key, now) = match self.shape.workers {
            Workers::WholeBatch { num_workers, .. } => ("num_workers".to_owned(), num_workers),
            Workers::PerStage => (format!("{stage}.workers"), self.workers(stage)),
        };
        let best = self.at_most(stage, now + 64);
        let enough = (now + 1..=now + 64).find(|n| self.at_most(stage, *n) >= 0.97 * best)?;
        let at_most = self.at_most(stage, enough);
        (at_most >= WORTH_TRYING).then(|| Suggestion {
            set: Some(format!("{key}={enough}")),
            change: format!("{enough} instead of {now}"),
            at_most,
        })
    }

    fn copy_ahead(&self) -> Suggestion {
        let period = self.summary.period().0 as f64;
        let copy = self.work_per_step(Stage::Copy);
        Suggestion {
            set: Some("copy.workers=1".to_owned()),
            change: "a thread that copies ahead".to_owned(),
            at_most: period / (period - copy).max(1.0),
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
        let at_most = self.without(hidden.sum());
        let (key, depth) = match self.shape.workers {
            Workers::WholeBatch { num_workers: 0, .. } => ("num_workers".to_owned(), 0),
            Workers::WholeBatch {
                prefetch_factor, ..
            } => ("prefetch_factor".to_owned(), prefetch_factor),
            // Batches are what runs ahead of the trainer, whichever stage's latency shows.
            Workers::PerStage if stage == Stage::Copy => {
                ("copy.prefetch".to_owned(), self.shape.prefetch[4])
            }
            Workers::PerStage => ("batch.prefetch".to_owned(), self.shape.prefetch[3]),
        };
        let deeper = (2 * depth).max(1);
        Suggestion {
            set: Some(format!("{key}={deeper}")),
            change: format!("{deeper} instead of {depth}"),
            at_most,
        }
    }

    /// Where the cores are saturated only less work helps.
    fn cheaper_work(&self) -> Option<Suggestion> {
        let stages = [Stage::Read, Stage::Decode, Stage::Preprocess, Stage::Batch];
        let (stage, work) = stages
            .map(|stage| (stage, self.work_per_step(stage)))
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        let change = match stage {
            Stage::Read => "smaller files or a faster disk",
            Stage::Decode => "images stored at the size they are trained at, which decode faster",
            Stage::Preprocess => "a smaller preprocess.size, or samples stored preprocessed",
            _ => "smaller samples",
        };
        let left = self.core_time() - work / self.shape.cores.max(1) as f64;
        let floor = left.max(self.trainer_time()).max(1.0);
        Some(Suggestion {
            set: None,
            change: change.to_owned(),
            at_most: (self.summary.period().0 as f64 / floor).max(1.0),
        })
    }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

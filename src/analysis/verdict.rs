//! The verdict: what binds, the evidence, the next change to try and the most it can buy.
//!
//! The most a change can buy follows from the floors of the time per step that it cannot remove.

mod advice;

use super::cause::Cause;
use super::floors::LoaderShape;
use super::guard::Guard;
use super::summary::Summary;
use super::tally::{StageSummary, share};
use crate::timeline::{Nanos, Place, Stage};

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
            HIGHLY.. => InputBound::Highly,
            MODERATELY..HIGHLY => InputBound::Moderately,
            _ => InputBound::Not,
        }
    }
}

/// A change to try.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Suggestion {
    /// For `--set`; `None` where no key alone does it.
    pub set: Option<String>,
    /// The change in words.
    pub change: String,
    /// The most it can speed up samples/s, as a factor.
    pub at_most: f64,
    /// What it is predicted to make of samples/s, as a factor over this run, and no more than `at_most`. `None`
    /// while the run is on, and where it cannot be predicted.
    pub predicted: Option<f64>,
}

/// What binds the run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Verdict {
    pub input_bound: InputBound,
    /// Data wait of the trainer's thread / window, 0 to 1.
    pub data_wait_share: f64,
    /// What `input_bound` is judged by, 0 to 1: the same, unless the device runs beside that thread and has
    /// work while it waits; then device idle that is due to the loader / window.
    pub input_wait_share: f64,
    /// In a few words: `loader-bound`, `device-bound` and so on.
    pub title: String,
    /// What was measured that says so.
    pub evidence: Vec<String>,
    pub suggestion: Option<Suggestion>,
}

impl Verdict {
    /// The verdict on `summary`.
    pub fn of(summary: &Summary, shape: &LoaderShape) -> Verdict {
        let guard = Guard::of(summary, shape);
        let judge = Judge {
            summary,
            shape,
            guard,
        };
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
    /// Notes that a simulation gives `factor` times the samples/s. `at_most` stands: it is what the run itself
    /// leaves no doubt about.
    pub fn predict(&mut self, factor: f64) {
        self.predicted = Some(factor.min(self.at_most));
    }

    /// `try --set decode.workers=2 (predicted 1.18x, at most 1.90x)`.
    pub fn text(&self) -> String {
        let what = match &self.set {
            Some(set) => format!("--set {set}"),
            None => self.change.clone(),
        };
        let predicted = match self.predicted {
            None => String::new(),
            Some(factor @ SOME_GAIN..) => format!("predicted {factor:.2}x, "),
            Some(_) => "predicted no gain; ".to_owned(),
        };
        format!("try {what} ({predicted}at most {:.2}x)", self.at_most)
    }
}

/// From these shares of the step time on a run is highly, or moderately, input-bound.
const HIGHLY: f64 = 0.20;
const MODERATELY: f64 = 0.05;
/// Above this share of all cores' time in use the machine is saturated.
pub(super) const SATURATED: f64 = 0.9;
/// Above this share of all cores' time other programs are worth a word.
const MANY_OTHERS: f64 = 0.25;
/// A change that cannot buy this much is not worth a run.
pub(super) const WORTH_TRYING: f64 = 1.05;
/// A prediction below this promises nothing.
const SOME_GAIN: f64 = 1.01;
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
    /// The trainer's thread has its data and waits for a core.
    Cores,
}

impl Limit {
    /// Where a cause belongs.
    fn of(cause: Cause) -> Limit {
        match cause {
            Cause::Host(_) => Limit::Host,
            Cause::DeviceSide => Limit::Device,
            // Where threads wait for cores they are the loader's, unless the trainer's alone does.
            _ => Limit::Loader,
        }
    }
}

struct Judge<'a> {
    summary: &'a Summary,
    shape: &'a LoaderShape,
    guard: Option<Guard>,
}

impl Judge<'_> {
    fn verdict(&self) -> Verdict {
        let data_wait_share = self.summary.data_wait_share();
        let input_wait_share = self.input_wait_share();
        let input_bound = InputBound::of(input_wait_share);
        let limit = self.limit(input_bound);
        let title = match (limit, input_bound) {
            _ if !self.shape.has_device => "loader alone",
            _ if self.shape.resident == Some(Place::Device) => "device-only",
            _ if self.shape.resident == Some(Place::Host) => "host-resident",
            (Limit::Loader, InputBound::Highly) => "loader-bound",
            (Limit::Loader, InputBound::Moderately) => "moderately loader-bound",
            (Limit::Loader, InputBound::Not) => "not input-bound",
            (Limit::Host, _) => "host-bound",
            (Limit::Cores, _) => "short of cores",
            (Limit::Device, _) => "device-bound",
        };
        let top = self.top_cause(limit);
        let suggestion = top.filter(|cause| self.may_change(limit, *cause));
        let suggestion = suggestion
            .and_then(|cause| self.suggestion(cause))
            .filter(|suggestion| suggestion.at_most >= WORTH_TRYING);
        Verdict {
            input_bound,
            data_wait_share,
            input_wait_share,
            title: title.to_owned(),
            evidence: self.evidence(limit, input_bound, top, suggestion.as_ref()),
            suggestion,
        }
    }

    /// Whether a change against `cause` can be told: without the loader only one to the trainer's own code, or to
    /// copies where there are any.
    fn may_change(&self, limit: Limit, cause: Cause) -> bool {
        let here = match self.shape.resident {
            None => true,
            Some(Place::Host) if cause.stage() == Some(Stage::Copy) => true,
            Some(_) => Limit::of(cause) == Limit::Host,
        };
        limit != Limit::Device && here
    }

    /// Whether batches stay on the device: then there is nothing before it.
    fn on_device(&self) -> bool {
        self.shape.resident == Some(Place::Device)
    }

    /// The share of the time that is spent waiting for input: by the trainer's thread, or by the device
    /// where that runs beside it and may have work while its thread waits.
    fn input_wait_share(&self) -> f64 {
        if self.shape.device_beside && !self.on_device() {
            share(self.total(Limit::Loader), self.summary.window.length())
        } else {
            self.summary.data_wait_share()
        }
    }

    /// Idle time of all causes of a kind.
    fn total(&self, limit: Limit) -> Nanos {
        let causes = self.summary.causes.iter();
        let lengths = causes.filter(|(cause, _)| Limit::of(*cause) == limit);
        lengths.map(|(_, length)| *length).sum()
    }

    /// The causes are compared in kind, not one by one: a loader may hold the device back in many ways.
    fn limit(&self, input_bound: InputBound) -> Limit {
        if self.leading_guard().is_some() {
            return Limit::Cores;
        }
        let idle = share(self.summary.device_idle(), self.summary.window.length());
        if input_bound == InputBound::Not && idle <= HARDLY_IDLE {
            return Limit::Device;
        }
        if self.on_device() {
            return Limit::Host;
        }
        let (host, loader) = (self.total(Limit::Host), self.total(Limit::Loader));
        let contention = self.summary.cause(Cause::CpuContention);
        let has_data = self.summary.data_wait_share() < MODERATELY;
        if host > loader {
            Limit::Host
        } else if has_data && 2 * contention.0 > loader.0 {
            Limit::Cores
        } else {
            Limit::Loader
        }
    }

    /// The guard's finding, where nothing else has cost more.
    fn leading_guard(&self) -> Option<&Guard> {
        let contention = self.summary.cause(Cause::CpuContention);
        let losses = [
            self.total(Limit::Loader) - contention,
            self.total(Limit::Host),
            self.total(Limit::Device),
        ];
        let guard = self.guard.as_ref();
        guard.filter(|guard| losses.iter().all(|loss| guard.lost > *loss))
    }

    /// The longest cause of the kind, or of any where that kind has none.
    fn top_cause(&self, limit: Limit) -> Option<Cause> {
        let mut causes = self.summary.causes.iter().map(|(cause, _)| *cause);
        let first = causes.clone().next();
        match limit {
            Limit::Cores => Some(Cause::CpuContention),
            _ if self.on_device() => first,
            _ => causes.find(|cause| Limit::of(*cause) == limit).or(first),
        }
    }

    fn evidence(
        &self,
        limit: Limit,
        input_bound: InputBound,
        top: Option<Cause>,
        suggestion: Option<&Suggestion>,
    ) -> Vec<String> {
        let mut evidence = Vec::new();
        let out_of_the_way = match self.shape.resident {
            None => None,
            Some(Place::Host) => {
                Some("the loader is out of the way, this is the rate if loading were free")
            }
            Some(Place::Device) => {
                Some("the loader is out of the way, this is the device's own rate")
            }
        };
        evidence.extend(out_of_the_way.map(str::to_owned));
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
        let known = |cause: &Cause| self.summary.cause(*cause) > Nanos::ZERO;
        if let Some(cause) = top.filter(known).filter(|_| share(idle, window) > 0.01) {
            let part = 100.0 * share(self.summary.cause(cause), idle);
            let whole = if self.shape.has_device {
                "device idle"
            } else {
                "the loader's time"
            };
            evidence.push(format!("{part:.0} % of {whole} is {cause}"));
        }
        let guard = self.guard.as_ref();
        if let Some(guard) = guard.filter(|_| top == Some(Cause::CpuContention)) {
            evidence.push(guard.message.clone());
        }
        let scarce = matches!(limit, Limit::Loader | Limit::Cores);
        if scarce && suggestion.is_none_or(|s| s.set.is_none()) {
            evidence.extend(self.scarce_cores());
        }
        evidence
    }

    /// Who has the cores, where they are all in use.
    fn scarce_cores(&self) -> Option<String> {
        let percent = 100.0 * self.of_cores(self.summary.process_cpu)?;
        let cores = self.shape.cores;
        match self.cores() {
            Cores::Saturated => Some(format!(
                "of {cores} cores {percent:.0} % are in use, more workers cannot help"
            )),
            Cores::Taken => Some(format!(
                "this process had {percent:.0} % of {cores} cores and could have used more, other programs or a CPU quota took the rest"
            )),
            Cores::Free => self.busy_others(),
        }
    }

    /// What other programs used, where that was much.
    fn busy_others(&self) -> Option<String> {
        let used = self.of_cores(self.summary.others_cpu)?;
        let (percent, cores) = (100.0 * used, self.shape.cores);
        (used > MANY_OTHERS).then(|| format!("other programs used {percent:.0} % of {cores} cores"))
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

pub(super) fn plural(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

#[cfg(test)]
mod tests;

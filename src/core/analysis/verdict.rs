//! The verdict: what binds, the evidence, the next change to try and the most it can buy.

mod advice;

use super::bound::{Bound, LoaderShape};
use super::cause::Cause;
use super::guard::Guard;
use super::suggestion::{Slack, Suggestion};
use super::summary::Summary;
use super::tally::{StageSummary, share};
use crate::timeline::{Nanos, Place, Stage, StageKind};

/// How much of the step time is spent waiting for input. The thresholds, 20 % and 5 %, are those of
/// XProf's input-pipeline analyzer.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputBound {
    /// 20 % and more.
    Highly,
    /// 5 % to 20 %.
    Moderately,
    /// Less than 5 %.
    #[default]
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

/// What binds the run.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Verdict {
    /// How much the run waits for input.
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
    /// Where the loader binds: what of it is slowest, and how much faster that may get.
    pub slack: Vec<Slack>,
    /// What to change; `None` where nothing is known to help.
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
            bound: Bound::measured(summary, shape),
        };
        let mut verdict = judge.verdict();
        let uneven = summary.over_time.uneven(summary.period());
        verdict.evidence.extend(uneven);
        verdict
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

/// From these shares of the step time on a run is highly, or moderately, input-bound.
const HIGHLY: f64 = 0.20;
const MODERATELY: f64 = 0.05;
/// Above this share of all cores' time in use the machine is saturated.
pub(super) const SATURATED: f64 = 0.9;
/// Above this share of all cores' time other programs are worth a word.
const MANY_OTHERS: f64 = 0.25;
/// A change that cannot buy this much is not worth a run.
pub const WORTH_TRYING: f64 = 1.05;
/// Device idle below this share of the window is not looked into.
const HARDLY_IDLE: f64 = 0.05;
/// More workers than this many on top are not considered.
const MORE_WORKERS: usize = 64;

/// How the cores stand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Cores {
    Free,
    /// Nearly all of their time is in use, most of it by this process.
    Saturated,
    /// And other programs use much of it.
    Taken,
}

/// What holds the run back.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Loader,
    Host,
    Device,
    WakeUps,
    /// Records were dropped.
    Unknown,
    /// The trainer's thread has its data and waits for a core.
    Cores,
}

impl Kind {
    /// Those that causes belong to.
    const OF_CAUSES: [Kind; 5] = [
        Kind::Loader,
        Kind::Host,
        Kind::Device,
        Kind::WakeUps,
        Kind::Unknown,
    ];

    /// Where a cause belongs.
    fn of(cause: Cause) -> Kind {
        match cause {
            Cause::Host(work) if work.is_of_loader() => Kind::Loader,
            Cause::Host(_) => Kind::Host,
            Cause::DeviceSide => Kind::Device,
            Cause::WakeUp => Kind::WakeUps,
            Cause::Unattributed => Kind::Unknown,
            // Where threads wait for cores they are the loader's, unless the trainer's alone does.
            _ => Kind::Loader,
        }
    }
}

struct Judge<'a> {
    summary: &'a Summary,
    shape: &'a LoaderShape,
    guard: Option<Guard>,
    bound: Bound,
}

impl Judge<'_> {
    fn verdict(&self) -> Verdict {
        let data_wait_share = self.summary.data_wait_share();
        let input_wait_share = self.input_wait_share();
        let input_bound = InputBound::of(input_wait_share);
        let kind = self.kind(input_bound);
        let title = match (kind, input_bound) {
            _ if !self.shape.has_device => "loader alone",
            _ if self.shape.resident == Some(Place::Device) => "device-only",
            _ if self.shape.resident == Some(Place::Host) => "host-resident",
            (Kind::Loader, InputBound::Highly) => "loader-bound",
            (Kind::Loader, InputBound::Moderately) => "moderately loader-bound",
            (Kind::Loader, InputBound::Not) => "not input-bound",
            (Kind::Host, _) => "host-bound",
            (Kind::Cores, _) => "short of cores",
            (Kind::Device, _) => "device-bound",
            (Kind::WakeUps, _) => "late wake-ups",
            (Kind::Unknown, _) => "not known",
        };
        let top = self.top_cause(kind);
        let suggestion = top.filter(|cause| self.may_change(kind, *cause));
        let suggestion = suggestion
            .and_then(|cause| self.suggestion(kind, cause))
            .filter(|suggestion| suggestion.at_most >= WORTH_TRYING);
        let slack = match kind {
            Kind::Loader if self.shape.resident.is_none() => self.slack(),
            _ => Vec::new(),
        };
        let evidence = self.evidence(kind, input_bound, top, &slack, suggestion.as_ref());
        Verdict {
            input_bound,
            data_wait_share,
            input_wait_share,
            title: title.to_owned(),
            evidence,
            slack,
            suggestion,
        }
    }

    /// Whether a change against `cause` can be told: without the loader only one to the trainer's own code, or to
    /// copies where there are any.
    fn may_change(&self, kind: Kind, cause: Cause) -> bool {
        let here = match self.shape.resident {
            None => true,
            Some(Place::Host) if cause.stage().map(Stage::kind) == Some(StageKind::Copy) => true,
            Some(_) => Kind::of(cause) == Kind::Host,
        };
        kind != Kind::Device && here
    }

    /// Whether batches stay on the device: then there is nothing before it.
    fn on_device(&self) -> bool {
        self.shape.resident == Some(Place::Device)
    }

    /// The share of the time that is spent waiting for input: by the trainer's thread, or by the device
    /// where that runs beside it and may have work while its thread waits.
    fn input_wait_share(&self) -> f64 {
        if self.shape.device_beside && !self.on_device() {
            share(self.total(Kind::Loader), self.summary.time())
        } else {
            self.summary.data_wait_share()
        }
    }

    /// Idle time of all causes of a kind.
    fn total(&self, kind: Kind) -> Nanos {
        let causes = self.summary.causes.iter();
        let lengths = causes.filter(|(cause, _)| Kind::of(*cause) == kind);
        lengths.map(|(_, length)| *length).sum()
    }

    /// The causes are compared in kind, not one by one: a loader may hold the device back in many ways.
    fn kind(&self, input_bound: InputBound) -> Kind {
        if self.leading_guard().is_some() {
            return Kind::Cores;
        }
        let idle = share(self.summary.device_idle(), self.summary.time());
        if input_bound == InputBound::Not && idle <= HARDLY_IDLE {
            return Kind::Device;
        }
        if self.on_device() {
            return Kind::Host;
        }
        // Of kinds that are as long the first.
        let kinds = Kind::OF_CAUSES.into_iter().rev();
        let longest = kinds.max_by_key(|kind| self.total(*kind));
        let contention = self.summary.cause(Cause::CpuContention);
        let has_data = self.summary.data_wait_share() < MODERATELY;
        match longest.unwrap_or(Kind::Unknown) {
            Kind::Loader if has_data && 2 * contention.0 > self.total(Kind::Loader).0 => {
                Kind::Cores
            }
            kind => kind,
        }
    }

    /// The guard's finding, where nothing else has cost more.
    fn leading_guard(&self) -> Option<&Guard> {
        let contention = self.summary.cause(Cause::CpuContention);
        let losses = Kind::OF_CAUSES.map(|kind| match kind {
            Kind::Loader => self.total(kind) - contention,
            _ => self.total(kind),
        });
        let guard = self.guard.as_ref();
        guard.filter(|guard| losses.iter().all(|loss| guard.lost > *loss))
    }

    /// The longest cause of the kind, or of any where that kind has none.
    fn top_cause(&self, kind: Kind) -> Option<Cause> {
        let mut causes = self.summary.causes.iter().map(|(cause, _)| *cause);
        let first = causes.clone().next();
        match kind {
            Kind::Cores => Some(Cause::CpuContention),
            _ if self.on_device() => first,
            _ => causes.find(|cause| Kind::of(*cause) == kind).or(first),
        }
    }

    fn evidence(
        &self,
        kind: Kind,
        input_bound: InputBound,
        top: Option<Cause>,
        slack: &[Slack],
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
        let window = self.summary.time();
        let stage = top.and_then(Cause::stage).filter(|_| kind == Kind::Loader);
        // As slow as that one.
        let others = slack.iter().filter_map(|slack| slack.limit.stage());
        let others = others.filter(|other| stage.is_some_and(|stage| stage.owner() != *other));
        let rows = stage.into_iter().chain(others);
        let rows = rows.filter_map(|stage| self.summary.stage(stage));
        evidence.extend(rows.map(|row| stage_evidence(row, window)));
        if kind != Kind::Loader || input_bound == InputBound::Not {
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
        let scarce = matches!(kind, Kind::Loader | Kind::Cores);
        if scarce && suggestion.is_none_or(|s| s.sets().is_empty()) {
            evidence.extend(self.scarce_cores());
        }
        evidence
    }

    /// Who has the cores, where they are all in use.
    fn scarce_cores(&self) -> Option<String> {
        let own = 100.0 * self.of_cores(self.summary.process_cpu)?;
        let others = 100.0 * self.of_cores(self.summary.others_cpu).unwrap_or(0.0);
        let cores = self.shape.cores;
        match self.cores() {
            Cores::Saturated => {
                let all = (own + others).min(100.0);
                Some(format!(
                    "of {cores} cores {all:.0} % are in use, more workers cannot help"
                ))
            }
            Cores::Taken | Cores::Free => (others > 100.0 * MANY_OTHERS).then(|| {
                format!(
                    "other programs used {others:.0} % of {cores} cores, this process {own:.0} %"
                )
            }),
        }
    }

    /// `time` as a share of all cores' time.
    fn of_cores(&self, time: Option<Nanos>) -> Option<f64> {
        let available = self.summary.time().0 as f64 * self.shape.cores;
        Some(time?.0 as f64 / available.max(1.0))
    }

    /// Whether the cores have time left, by the CPU time that was measured: threads that wait for one another's
    /// turn leave them idle in between. Others take cores only from threads that wait for one, and not for a disk.
    fn cores(&self) -> Cores {
        let own = self.of_cores(self.summary.process_cpu).unwrap_or(0.0);
        let others = self.of_cores(self.summary.others_cpu).unwrap_or(0.0);
        let waited = self.summary.workers.iter().map(|w| w.usage.run_delay).sum();
        let wanted = own + self.of_cores(Some(waited)).unwrap_or(0.0);
        match own + others {
            SATURATED.. if own >= SATURATED || others <= MANY_OTHERS => Cores::Saturated,
            SATURATED.. if wanted >= SATURATED => Cores::Taken,
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

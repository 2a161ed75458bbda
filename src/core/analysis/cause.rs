//! Why the device was idle: the causes and how much time each has.

use crate::timeline::{HostWork, Interval, Nanos, Stage, StageKind};
use std::collections::BTreeMap;
use std::fmt;

/// What held the device back at one instant.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// In service at a stage, or waiting for one of its workers.
    Capacity(Stage),
    /// A stage's latency, exposed because it could only start when a slot was freed downstream although
    /// its worker had been free before.
    PrefetchDepth(Stage),
    /// A stage's latency while a later batch was ready, or while its worker could have worked on a later one, if
    /// batches were not handed on in order.
    HeadOfLine(Stage),
    /// A worker that was started anew, as at the beginning of an epoch, up to its first work.
    StartUp,
    /// Workers that have nothing to load while others have: the data has fewer shards than there are workers.
    TooFewShards,
    /// The trainer's own code.
    Host(HostWork),
    /// The device itself, between two pieces of work it already had.
    DeviceSide,
    /// Runnable but not running: too few cores for the threads.
    CpuContention,
    /// A thread that was woken late.
    WakeUp,
    /// A record was dropped, so nobody can tell.
    Unattributed,
}

impl Cause {
    /// The stage it names, where it names one.
    pub fn stage(self) -> Option<Stage> {
        match self {
            Cause::Capacity(stage) | Cause::PrefetchDepth(stage) | Cause::HeadOfLine(stage) => {
                Some(stage)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Capacity(stage) if stage.kind() == StageKind::Copy => f.pad(stage.name()),
            Cause::Capacity(stage) => f.pad(&format!("{stage} capacity")),
            Cause::PrefetchDepth(stage) => f.pad(&format!("prefetch depth ({stage})")),
            Cause::HeadOfLine(stage) => f.pad(&format!("head-of-line blocking ({stage})")),
            Cause::StartUp => f.pad("worker start-up"),
            Cause::TooFewShards => f.pad("too few shards"),
            Cause::Host(work @ (HostWork::Validation | HostWork::ValidationStart)) => {
                f.pad(work.name())
            }
            Cause::Host(work) => f.pad(&format!("host: {}", work.name())),
            Cause::DeviceSide => f.pad("device side"),
            Cause::CpuContention => f.pad("CPU contention"),
            Cause::WakeUp => f.pad("wake-up"),
            Cause::Unattributed => f.pad("unattributed"),
        }
    }
}

/// A piece of device idle time with its cause.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct IdleSpan {
    /// When the device was idle.
    pub interval: Interval,
    /// Why it was.
    pub cause: Cause,
}

/// One cause's time, as [`CauseTotals`] are written.
#[derive(serde::Serialize, serde::Deserialize)]
struct CauseTime {
    kind: Cause,
    ns: Nanos,
}

/// Idle time by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<CauseTime>", into = "Vec<CauseTime>")]
pub struct CauseTotals {
    totals: BTreeMap<Cause, Nanos>,
}

impl From<CauseTotals> for Vec<CauseTime> {
    fn from(totals: CauseTotals) -> Vec<CauseTime> {
        let times = totals.ranked().into_iter();
        times.map(|(kind, ns)| CauseTime { kind, ns }).collect()
    }
}

impl From<Vec<CauseTime>> for CauseTotals {
    fn from(times: Vec<CauseTime>) -> CauseTotals {
        let totals = times.into_iter().map(|time| (time.kind, time.ns)).collect();
        CauseTotals { totals }
    }
}

impl CauseTotals {
    /// Adds `length` to `cause`.
    pub fn add(&mut self, cause: Cause, length: Nanos) {
        *self.totals.entry(cause).or_default() += length;
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &CauseTotals) {
        for (cause, length) in &other.totals {
            self.add(*cause, *length);
        }
    }

    /// The time of one cause.
    pub fn of(&self, cause: Cause) -> Nanos {
        self.totals.get(&cause).copied().unwrap_or_default()
    }

    /// The sum over all causes: device idle, to the nanosecond.
    pub fn total(&self) -> Nanos {
        self.totals.values().copied().sum()
    }

    /// The causes, longest first; ties in the order of the enum.
    pub fn ranked(&self) -> Vec<(Cause, Nanos)> {
        let mut ranked: Vec<(Cause, Nanos)> = self.totals.iter().map(|(c, n)| (*c, *n)).collect();
        ranked.sort_by_key(|(cause, length)| (std::cmp::Reverse(*length), *cause));
        ranked
    }
}

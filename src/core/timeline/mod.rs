//! The shared language of stallscope: time, intervals, records and the clock.
//!
//! A live run, a trace file and (later) a foreign trace all become the types of this module, so one
//! analysis serves them all. Invariants: every timestamp is integer [`Nanos`] on one monotonic clock;
//! records flow one way, from the [`Recorder`] to the analysis and the trace. Uses no other module.

mod bytes;
mod clock;
mod gpu_sample;
mod here;
mod interval;
mod layout;
mod ranges;
mod record;
mod recorder;
mod stage;
mod steps;
mod thread_usage;
mod time;
mod wakings;

#[cfg(test)]
#[path = "../../../tests/virtual_clock/mod.rs"]
mod virtual_clock;

pub use bytes::Bytes;
pub use clock::{Clock, ClockThread, MonotonicClock, Scheduler, WaitKey, join_within, spawn_on};
pub use gpu_sample::GpuSample;
pub use here::Here;
pub use interval::{Interval, IntervalSet};
pub use layout::{Layout, Place, StageKnobs};
pub use ranges::Ranges;
pub use record::{
    BusySpan, DevicePhase, HostSpan, HostWork, ItemId, Record, Service, Split, UnitRecord, UnitRef,
};
pub use recorder::{Drain, ForeignThread, LaneInfo, LaneKind, LaneRecorder, Recorder};
pub use stage::{Pipeline, Role, Stage, StageKind, StageNameError};
pub use steps::{CountedSteps, StepCounts};
pub use thread_usage::{StatFile, TICK, ThreadFiles, ThreadUsage};
pub use time::Nanos;
#[cfg(test)]
pub use virtual_clock::VirtualClock;
pub use wakings::{WakingSeen, Wakings};

//! Why the device was idle, and which stage is to blame: pure computation over records.
//!
//! [`Analysis`] takes the records of a run as they come and keeps little of them. Invariant: the causes
//! add up to device idle time to the nanosecond. May use `timeline` only.

mod bound;
mod cause;
mod differential;
mod fold;
mod gpu;
mod gpu_util;
mod guard;
mod hidden;
mod live;
mod over_time;
pub mod predict;
mod process_cpu;
mod profile;
mod run_delay;
mod suggestion;
mod summary;
mod tally;
mod totals;
mod uneven;
mod units;
mod verdict;
mod waking;

pub use bound::{Disk, Limit, LoaderShape};
pub use cause::{Cause, CauseTotals, IdleSpan};
pub use differential::{
    Attributed, Cached, Estimate, Part, SampleTimes, differential, median, median_place,
};
pub use gpu::{GpuSummary, GpuTally, Level};
pub use gpu_util::{BusyBy, UtilComparison};
pub use guard::Guard;
pub use live::{Analysis, WindowRule};
pub use over_time::{EpochPart, OverTime, PartOfWindow, QueueOverTime, Waits};
pub use process_cpu::CpuReading;
pub use profile::{Profile, ServiceProfile};
pub use suggestion::{Change, Setting, SettingValue, Slack, Suggestion};
pub use summary::Summary;
pub use tally::{LengthSummary, SlowSample, StageShares, StageSummary, WorkerSummary};
pub use totals::{StageTotals, Totals};
pub use verdict::{InputBound, Verdict, WORTH_TRYING};
pub use waking::WakingProfile;

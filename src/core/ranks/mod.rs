//! Several processes that train together: what each one's steps waited for, and which one the others waited for.
//!
//! In data-parallel training they average their gradients in a [`Ring`].
//! Each rank writes [`StepLog`] while it runs; [`Logs`] holds those of a run, from which [`Merged`] is computed. Invariant: a
//! rank's wait for others at a step is charged in full to the rank that came last. May use: `analysis`, `machine`, `timeline`.

mod clocks;
mod log;
mod merged;
mod read;
mod ring;

pub use clocks::{ClockFit, ToCommonClock};
pub use log::{CauseName, LogHeader, LogUnwritten, RankOf, STEP_LOG, StepLog};
pub use merged::{Charge, Logs, Merged, OTHER_WORK, RankTimes, Stretch, TRAINING_STEP};
pub use read::{Cut, LogError, RankLog, StepTimes};
pub use ring::{IsStopped, Ring, RingError};

#[cfg(test)]
mod tests;

//! Running totals of a run in progress, from which figures of its last second are made.

use super::tally::{WorkerSummary, share};
use crate::timeline::{Nanos, Stage};

/// Sums over the window so far, up to the end of the last step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The window's length without pauses.
    pub time: Nanos,
    /// Steps in the window.
    pub steps: u64,
    /// Samples of those steps.
    pub samples: u64,
    /// Union of the intervals in which the device was busy.
    pub device_busy: Nanos,
    /// The trainer's waits for the next device batch.
    pub data_wait: Nanos,
    /// Those that have done anything, in the order of the data's way.
    pub stages: Vec<StageTotals>,
    /// One for each thread with a lane.
    pub workers: Vec<WorkerSummary>,
}

/// Sums of one stage, all its workers together.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StageTotals {
    /// The stage.
    pub stage: Stage,
    /// In service.
    pub busy: Nanos,
    /// Units of work that ended.
    pub units: u64,
    /// Items left in the input queue when a unit was taken, summed over the units.
    pub input_depths: u64,
}

impl Totals {
    /// Samples per second over the window so far.
    pub fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.time.seconds().max(1e-9)
    }

    /// Device busy / the window's time, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        share(self.device_busy, self.time)
    }

    /// Data wait / the window's time, 0 to 1.
    pub fn data_wait_share(&self) -> f64 {
        share(self.data_wait, self.time)
    }
}

//! What the analysis found over the window: plain numbers, for the verdict and the report.

use super::cause::Cause;
use super::over_time::OverTime;
use super::profile::Profile;
use super::tally::{LengthSummary, SlowSample, StageSummary, WorkerSummary, share};
use crate::timeline::{Interval, Nanos, Stage};

/// Everything measured over the window. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Summary {
    /// From the end of the warm-up to the end of the last step so far.
    pub window: Interval,
    /// Of the window, what does not count: the trainer's thread did other things than training.
    pub paused: Nanos,
    /// Steps in the window.
    pub steps: u64,
    /// Samples of those steps.
    pub samples: u64,
    /// Union of the intervals in which the device was busy.
    pub device_busy: Nanos,
    /// How many intervals that union has.
    pub busy_intervals: u64,
    /// Device time of the steps proper in the window, without preprocessing on the device.
    pub compute: Nanos,
    /// The window's start, or the device's first step where that is later.
    pub utilized_from: Nanos,
    /// Device idle time by cause, longest first; they add up to it to the nanosecond.
    pub causes: Vec<(Cause, Nanos)>,
    /// The same in parts of the window.
    pub over_time: OverTime,
    /// The trainer's waits for the next device batch, one per step.
    pub data_wait: LengthSummary,
    /// Sum of those waits.
    pub data_wait_total: Nanos,
    /// The trainer's own time per step, without the wait.
    pub step: LengthSummary,
    /// Of that, runnable but not running, over all steps.
    pub step_run_delay: Nanos,
    /// From the start of the pipeline to the first device batch in the trainer's hands.
    pub first_batch: Option<Nanos>,
    /// Those of the loader and the copy engine that did anything, in the order of the data's way.
    pub stages: Vec<StageSummary>,
    /// The slowest samples of each stage, longest first.
    pub slowest_samples: Vec<SlowSample>,
    /// The costs, net, from which other runs are predicted.
    pub profile: Profile,
    /// One for each thread with a lane.
    pub workers: Vec<WorkerSummary>,
    /// CPU time of the whole process in the window, where it is known.
    pub process_cpu: Option<Nanos>,
    /// CPU time of other programs in the window, on the cores that the process may use, where it is known.
    pub others_cpu: Option<Nanos>,
    /// Records taken in, over the whole run.
    pub records: u64,
    /// How often threads asked the kernel for their figures, over the whole run.
    pub readings: u64,
    /// Records lost since the collector was too slow, over the whole run.
    pub dropped: u64,
    /// Every record that the critical path comes through has arrived, or is known to be lost.
    pub complete: bool,
}

impl Summary {
    /// The window's length without pauses.
    pub fn time(&self) -> Nanos {
        self.window.length() - self.paused
    }

    /// The window's time minus device busy.
    pub fn device_idle(&self) -> Nanos {
        self.time() - self.device_busy
    }

    /// Device busy / the window's time, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        share(self.device_busy, self.time())
    }

    /// Mean length of the intervals in which the device was busy; `None` where there was none.
    pub fn mean_busy_interval(&self) -> Option<Nanos> {
        let length = self.device_busy.0.checked_div(self.busy_intervals)?;
        Some(Nanos(length))
    }

    /// Accelerator utilization, 0 to 1, as MLPerf Storage defines it: time in steps / time, without the I/O
    /// of the run's first step.
    pub fn accelerator_utilization(&self) -> f64 {
        share(
            self.compute,
            self.window.end - self.utilized_from - self.paused,
        )
    }

    /// Data wait / window, 0 to 1: the share of the step time spent waiting for input.
    pub fn data_wait_share(&self) -> f64 {
        share(self.data_wait_total, self.time())
    }

    /// Samples per second over the window.
    pub fn samples_per_second(&self) -> f64 {
        if self.time() == Nanos::ZERO {
            return 0.0;
        }
        self.samples as f64 / self.time().seconds()
    }

    /// Time per step, waits included; zero where there was none.
    pub fn period(&self) -> Nanos {
        Nanos(self.time().0 / self.steps.max(1))
    }

    /// The row of one loader stage.
    pub fn stage(&self, stage: Stage) -> Option<&StageSummary> {
        self.stages.iter().find(|row| row.stage == stage)
    }

    /// Idle time of one cause.
    pub fn cause(&self, cause: Cause) -> Nanos {
        self.causes
            .iter()
            .find(|(named, _)| *named == cause)
            .map_or(Nanos::ZERO, |(_, length)| *length)
    }
}

//! What a search has tried and found.

use super::forecast::Estimate;
use super::objective::Objective;
use super::size::Size;
use super::space::Point;
use crate::analysis::Suggestion;
use crate::tune::trial::{Measured, Outcome, TrialError};
use serde::Serialize;

/// Why a trial was run.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The configuration as it is.
    Start,
    /// The best forecast of what had not been tried.
    Best,
    /// A smaller setting, forecast to be as good as the best within 2 %.
    Knee,
    /// Values that nothing could be forecast of without a run that has them.
    Unmeasured,
    /// Another run of the start, of the winner, or of what may be as good.
    Confirm,
}

/// What was expected of a trial before it ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub samples_per_second: Estimate,
    pub device_busy: Option<Estimate>,
    /// On the host, of the loader's buffers and queues when they are full.
    pub loader_memory_bytes: u64,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attempt {
    /// From 1.
    pub number: usize,
    pub purpose: Purpose,
    /// What is changed from the start, as `key=value` texts.
    pub sets: Vec<String>,
    /// Of the start there is none, and of values that no run had before: forecasts rest on their runs.
    pub predicted: Option<Prediction>,
    /// (Predicted - measured) / measured samples/s.
    pub error_share: Option<f64>,
    /// Why no forecast can rest on its report, where some should.
    pub not_learned: Option<String>,
    #[serde(flatten)]
    pub outcome: Outcome,
    #[serde(skip)]
    pub(super) point: Point,
}

/// A setting that is an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    pub sets: Vec<String>,
    pub size: Size,
    /// Measured, else as forecast; of several runs the mean.
    pub samples_per_second: f64,
    /// 0 to 1.
    pub device_busy: Option<f64>,
    pub measured: bool,
}

/// Start and winner, each run at least twice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confirmation {
    /// What the winner of the search changes.
    pub sets: Vec<String>,
    pub start: Vec<Measured>,
    /// One run where the second did not fit.
    pub winner: Vec<Measured>,
    /// Mean samples/s of the winner / of the start.
    pub ratio: f64,
    /// Every run of the winner was better than every run of the start.
    pub told_apart: bool,
    /// The later runs do not bear the first ones out: it is not better, so that the start is the answer.
    pub start_wins: bool,
}

impl Confirmation {
    /// Whether the runs differ too little to say that the winner is better, and do not say that it is not.
    pub fn is_within_noise(&self) -> bool {
        !self.told_apart && !self.start_wins
    }
}

/// What to change next, beyond what was searched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Next {
    /// What would hold the winner back, by its forecast; `None` where nothing alone does.
    pub bottleneck: Option<String>,
    /// The verdict's title in the winner's report.
    pub verdict: Option<String>,
    /// The verdict's suggestion there, unless it is among what was searched.
    pub suggestion: Option<Suggestion>,
}

/// The points that were not eligible.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// Keys that contradict each other.
    pub invalid: u64,
    /// Have values whose costs no run has measured.
    pub unforecastable: u64,
    /// Above the limit of the loader's memory.
    pub memory: u64,
    /// Need as much as a point that was out of memory.
    pub ruled_out: u64,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuning {
    pub objective: Objective,
    /// Points of the space, those that were forecast in the end, and those left out.
    pub points: u64,
    pub forecast_points: u64,
    pub excluded: Excluded,
    /// Values that nothing can be forecast of without a run, and that were never run: trials were used up.
    pub never_tried: Vec<Vec<String>>,
    /// In the order in which they ended.
    pub trials: Vec<Attempt>,
    pub start: Answer,
    pub winner: Answer,
    /// The smallest setting within 2 % of the best, of all that is forecast or measured.
    pub knee: Answer,
    /// `None` where the start is the winner, the search was stopped, or no trials were left.
    pub confirmation: Option<Confirmation>,
    /// The most by which samples/s of runs of the same setting differed: (most - least) / mean. `None` where
    /// nothing was run twice.
    pub run_spread: Option<f64>,
    pub next: Next,
    /// By the user, before it was finished.
    pub stopped: bool,
    /// Why no more trials could be run, where that ended it.
    pub cut_off: Option<String>,
}

/// Why a search has found nothing.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Without its run there is nothing to compare with.
    #[error("the configuration as it is does not run: {why}")]
    Start { why: String },
    #[error(
        "the configuration as it is does not fit the memory of its device\n  \
         try: `stallscope batch-size`, which finds a batch that fits"
    )]
    OutOfMemory,
    #[error("the run of the configuration as it is does not allow forecasts: {why}")]
    NoForecast { why: String },
    #[error("there is no device whose time could be busy; `--objective samples_per_s` needs none")]
    NoDevice,
    #[error(transparent)]
    Trial(#[from] TrialError),
}

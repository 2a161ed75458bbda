//! What is expected of a point of the search, and whoever expects it.

use super::size::Size;
pub use crate::analysis::predict::Estimate;
use crate::report::Report;
use serde::Serialize;
use thiserror::Error;

/// What is expected of a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    pub samples_per_second: Estimate,
    /// 0 to 1; `None` where no device executes steps.
    pub device_busy: Option<Estimate>,
    /// Memory of the loader on the host: its buffers and queues when they are full, and nothing else that the
    /// process has.
    pub loader_memory_bytes: u64,
    /// What the point takes of threads and room, see [`Size::of`].
    pub size: Size,
    /// What would hold the run back, in a few words; `None` where nothing alone does, or it was not looked at.
    pub next_bottleneck: Option<String>,
}

/// Why nothing is expected of a point.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoForecast {
    /// There is no such run: its keys contradict each other, or nothing was learned at all.
    #[error("{0}")]
    Invalid(String),
    /// No run has measured what its values cost; one that has them would tell.
    #[error("{0}")]
    Unforecastable(String),
}

/// Predicts runs of one start configuration with some of its keys changed.
pub trait Forecaster {
    /// What is expected of the start configuration with `sets` (`key=value` texts) on top.
    ///
    /// # Errors
    /// Why there is no such run, or why nothing can be said of it.
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast>;

    /// The same in less time: enough to tell which of many points is the best.
    ///
    /// # Errors
    /// As of [`forecast`](Self::forecast).
    fn rank(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        self.forecast(sets)
    }

    /// Takes in the `report.json` of a run with `sets`. What was forecast before may change, and what could not
    /// be forecast for want of a run with these values may be from now on.
    ///
    /// # Errors
    /// Why nothing can be forecast from a report that forecasts should rest on.
    fn learn(&mut self, sets: &[String], report: &Report) -> Result<(), String>;
}

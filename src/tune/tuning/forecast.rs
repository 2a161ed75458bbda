//! What is expected of a point of the search, and whoever expects it.

use super::size::Size;
use serde::Serialize;
use serde_json::Value;

/// A figure that is not measured, and the range it is expected in.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// A figure that is taken to be certain.
    pub fn exactly(value: f64) -> Estimate {
        Estimate {
            value,
            low: value,
            high: value,
        }
    }

    /// `factor` times as much of everything.
    pub fn times(self, factor: f64) -> Estimate {
        Estimate {
            value: self.value * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// What of it is at most `limit`.
    pub(super) fn at_most(self, limit: f64) -> Estimate {
        Estimate {
            value: self.value.min(limit),
            low: self.low.min(limit),
            high: self.high.min(limit),
        }
    }
}

/// What is expected of a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    pub samples_per_second: Estimate,
    /// 0 to 1; `None` where no device executes steps.
    pub device_busy: Option<Estimate>,
    /// Memory of the whole process on the host, at its most.
    pub host_memory_bytes: u64,
    /// What the point takes of threads and room, see [`Size::of`].
    pub size: Size,
    /// What would hold the run back, in a few words.
    pub next_bottleneck: String,
}

/// Predicts runs of one start configuration with some of its keys changed.
pub trait Forecaster {
    /// What is expected of the start configuration with `sets` (`key=value` texts) on top.
    ///
    /// # Errors
    /// Why there is no such run (its keys contradict each other), or why nothing can be said of it.
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, String>;

    /// Takes in the `report.json` of a run with `sets`. What was forecast before may change.
    fn learn(&mut self, sets: &[String], report: &Value);
}

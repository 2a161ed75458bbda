//! What a search is for, and which of two points serves it better.

use super::size::Size;
use crate::tune::noise::AS_FAST;
use serde::Serialize;

/// Points whose figures differ by less are as good as each other: runs differ by as much.
pub(super) const NOISE: f64 = 0.01;
/// The knee is the smallest setting whose figure is at most this much below the best.
pub const KNEE: f64 = 1.0 - AS_FAST;

/// What is best.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The most samples/s.
    SamplesPerSecond,
    /// The busiest device.
    DeviceBusy,
    /// The cheapest setting (fewest threads, then least prefetch, then smallest batch) whose samples/s are
    /// within 2 % of the most: the knee.
    Cost,
}

impl Objective {
    /// What is to be large.
    pub(super) fn value(self, samples_per_second: f64, device_busy: Option<f64>) -> Option<f64> {
        match self {
            Objective::SamplesPerSecond | Objective::Cost => Some(samples_per_second),
            Objective::DeviceBusy => device_busy,
        }
    }

    /// The share of the best value that a smaller setting may be short of, and win all the same.
    pub(super) fn tolerance(self) -> f64 {
        match self {
            Objective::SamplesPerSecond | Objective::DeviceBusy => NOISE,
            Objective::Cost => KNEE,
        }
    }
}

/// What decides among points that are as good: the smaller one, the one that needs less memory, the one
/// that changes less.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Price {
    pub size: Size,
    pub loader_memory_bytes: u64,
    pub changes: usize,
}

/// The cheapest of `points` (value, price and the point itself) within `tolerance` of the best value; the
/// first of equals.
pub(super) fn cheapest<'a, T>(
    points: impl Iterator<Item = (f64, Price, &'a T)> + Clone,
    tolerance: f64,
) -> Option<&'a T> {
    let best = points.clone().map(|(value, ..)| value);
    let best = best.fold(f64::NEG_INFINITY, f64::max);
    let as_good = points.filter(|(value, ..)| *value >= (1.0 - tolerance) * best);
    as_good
        .min_by_key(|(_, price, _)| *price)
        .map(|(.., point)| point)
}

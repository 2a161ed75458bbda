//! What a journal says of each point, the best of them and the knee. May use: `grid`, `journal`, `statistics`; `analysis`.

use super::grid::{Grid, Point};
use super::journal::{Figures, Record};
use super::statistics::Spread;
use crate::analysis::median;
use crate::tune::noise::{AS_FAST, is_sure_knee, run_spread};
use serde::Serialize;

/// A point and all its trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointResult {
    /// `key=value`, one an axis.
    pub settings: Vec<String>,
    #[serde(skip)]
    pub places: Vec<usize>,
    /// `None` where no trial measured anything.
    pub samples_per_second: Option<Spread>,
    /// Medians.
    pub device_busy_share: Option<f64>,
    pub data_wait_share: Option<f64>,
    pub first_batch_ns: Option<u64>,
    /// The most that the device's allocator was seen to hold.
    pub reserved_bytes: Option<u64>,
    /// Median wall-clock time of its trials.
    pub elapsed_ns: Option<u64>,
    /// Trials that measured nothing.
    pub failed: usize,
    /// As they ended.
    pub trials: Vec<Record>,
}

impl PointResult {
    fn of(point: &Point, index: usize, records: &[Record]) -> PointResult {
        let own = records.iter().filter(|record| record.place.point == index);
        let trials: Vec<Record> = own.cloned().collect();
        let figures: Vec<&Figures> = trials.iter().filter_map(|t| t.outcome.fits()).collect();
        let each = |value: &dyn Fn(&Figures) -> Option<f64>| {
            let values = figures.iter().filter_map(|figures| value(figures));
            values.collect::<Vec<f64>>()
        };
        let nanos = |nanos: f64| nanos as u64;
        let elapsed: Vec<f64> = trials.iter().map(|t| t.elapsed_ns as f64).collect();
        let reserved = figures.iter().filter_map(|figures| figures.memory);
        PointResult {
            settings: point.settings.clone(),
            places: point.places.clone(),
            samples_per_second: Spread::of(&each(&|f| Some(f.samples_per_second))),
            device_busy_share: median(&each(&|f| f.device_busy_share)),
            data_wait_share: median(&each(&|f| f.data_wait_share)),
            first_batch_ns: median(&each(&|f| Some(f.first_batch_ns? as f64))).map(nanos),
            reserved_bytes: reserved.map(|memory| memory.reserved_bytes).max(),
            elapsed_ns: median(&elapsed).map(nanos),
            failed: trials.len() - figures.len(),
            trials,
        }
    }

    /// Its samples/s, where every trial has measured some: what fits only now and then is no answer.
    fn rate(&self) -> Option<f64> {
        let spread = self.samples_per_second.filter(|_| self.failed == 0)?;
        Some(spread.median)
    }

    /// Samples/s of each of its runs.
    fn runs(&self) -> Vec<f64> {
        let runs = self.trials.iter().filter_map(|trial| trial.outcome.fits());
        runs.map(|figures| figures.samples_per_second).collect()
    }

    /// Why its trials measured nothing, where any did so: of the first that did.
    pub fn failure(&self) -> Option<&str> {
        let mut failures = self.trials.iter().filter_map(|t| t.outcome.failure());
        failures.next()
    }
}

/// Everything a sweep has found so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepResults {
    pub trials_done: usize,
    pub trials_in_all: usize,
    /// In the order of the grid.
    pub points: Vec<PointResult>,
    /// Place in `points` of the one with the most samples/s; points with a failed trial do not count.
    pub best: Option<usize>,
    /// The one with the smallest settings within 2 % of the best, the grid's first key first.
    pub knee: Option<usize>,
    /// Whether the noise of the runs leaves no doubt of that.
    pub knee_is_sure: bool,
    /// The most by which samples/s of runs of the same point differed: (most - least) / mean.
    pub run_spread: Option<f64>,
}

/// Sums up `records` of a sweep of `grid`.
pub fn summarize(grid: &Grid, repeats: usize, records: &[Record]) -> SweepResults {
    let points = grid.points();
    let points: Vec<PointResult> = points
        .iter()
        .enumerate()
        .map(|(index, point)| PointResult::of(point, index, records))
        .collect();
    let rates: Vec<Option<f64>> = points.iter().map(PointResult::rate).collect();
    let best = fastest(&rates);
    let most = best.and_then(|best| rates[best]);
    let ranks: Vec<Vec<usize>> = grid.axes.iter().map(|axis| axis.ranks()).collect();
    let size = |index: &usize| -> Vec<usize> {
        let places = points[*index].places.iter().zip(&ranks);
        places.map(|(place, ranks)| ranks[*place]).collect()
    };
    let mut by_size: Vec<usize> = (0..points.len())
        .filter(|at| rates[*at].is_some())
        .collect();
    by_size.sort_by_key(size);
    let as_fast = |at: &&usize| {
        rates[**at]
            .zip(most)
            .is_some_and(|(of, most)| of >= AS_FAST * most)
    };
    let knee = by_size.iter().find(as_fast).copied();
    let runs: Vec<Vec<f64>> = by_size.iter().map(|at| points[*at].runs()).collect();
    let place = |point: usize| by_size.iter().position(|at| *at == point);
    let places = knee.and_then(place).zip(best.and_then(place));
    SweepResults {
        trials_done: records.len(),
        trials_in_all: points.len() * repeats,
        knee_is_sure: places.is_some_and(|(knee, best)| is_sure_knee(&runs, knee, best)),
        run_spread: run_spread(&runs),
        points,
        best,
        knee,
    }
}

/// The first of those with the most.
fn fastest(rates: &[Option<f64>]) -> Option<usize> {
    let known = rates.iter().enumerate();
    let known = known.filter_map(|(index, rate)| Some((index, (*rate)?)));
    let best = known.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(index, _)| index)
}

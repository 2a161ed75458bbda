//! Predictions for combinations of settings: a table of changes, and what sliders choose from.
//!
//! May use: `analysis`.

use crate::analysis::predict::Estimate;
use serde::Serialize;
use std::time::Instant;

/// A setting and the values that it may have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What it is called.
    pub name: String,
    /// How it is typed, with `{}` for the value.
    pub flag: String,
    /// The values, the cheapest first.
    pub values: Vec<String>,
    /// The place of the one that was measured.
    pub now: usize,
    /// Whether the user can set it; otherwise it is a what-if, such as another device.
    pub is_setting: bool,
}

/// What a run would come to.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Samples per second.
    pub rate: Estimate,
    /// 0 to 1; `None` without a device.
    pub busy: Option<Estimate>,
}

/// All combinations of some settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grid {
    /// The settings.
    pub axes: Vec<Axis>,
    /// One for each combination, the last axis fastest; `None` where it cannot be, or was not simulated.
    pub points: Vec<Option<Predicted>>,
    /// Samples per second of the run itself.
    pub measured: f64,
}

/// A setting so close to the best is as good.
const AS_GOOD: f64 = 0.99;
/// What gains less is no help.
const WORTH_SHOWING: f64 = 1.02;

/// A change and what it would come to.
pub(super) struct Change {
    point: usize,
    pub(super) what: String,
    pub(super) predicted: Predicted,
}

impl Grid {
    /// Simulates the combinations of `axes` by `predict`, which gets a value's place for each axis, and whether an interval is
    /// wanted: that takes longer, and is done where one setting changes, and for the best. What is not done by `until` is
    /// left out.
    pub fn of(
        axes: Vec<Axis>,
        measured: f64,
        until: Instant,
        mut predict: impl FnMut(&[usize], bool) -> Option<Predicted>,
    ) -> Grid {
        let count = axes.iter().map(|axis| axis.values.len()).product();
        let mut grid = Grid {
            axes,
            points: vec![None; count],
            measured,
        };
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|point| grid.changed(&grid.places(*point)));
        for point in order {
            if Instant::now() > until {
                break;
            }
            let places = grid.places(point);
            grid.points[point] = predict(&places, grid.changed(&places) <= 1);
        }
        for Change { point, .. } in grid.changes() {
            if grid.changed(&grid.places(point)) > 1 {
                grid.points[point] = predict(&grid.places(point), true);
            }
        }
        grid
    }

    /// The place of each axis's value at `point`.
    fn places(&self, point: usize) -> Vec<usize> {
        let mut left = point;
        let mut places: Vec<usize> = { self.axes.iter().rev() }
            .map(|axis| {
                let place = left % axis.values.len();
                left /= axis.values.len();
                place
            })
            .collect();
        places.reverse();
        places
    }

    /// Settings that differ from those of the run.
    fn changed(&self, places: &[usize]) -> usize {
        let axes = self.axes.iter().zip(places);
        axes.filter(|(axis, place)| axis.now != **place).count()
    }

    /// The best that each setting alone, and all together, can do: the first value that is as good as the best.
    pub(super) fn changes(&self) -> Vec<Change> {
        let alone = (0..self.axes.len()).map(|own| self.best(|axis| axis == own));
        let mut changes: Vec<Change> = alone.chain([self.best(|_| true)]).flatten().collect();
        changes.sort_by(|a, b| b.predicted.rate.value.total_cmp(&a.predicted.rate.value));
        changes.dedup_by(|a, b| a.what == b.what);
        changes
    }

    /// The best where only settings that `may_change` do, and no what-if.
    fn best(&self, may_change: impl Fn(usize) -> bool) -> Option<Change> {
        let allowed = |point: usize| {
            let places = self.places(point);
            let mut axes = self.axes.iter().zip(places).enumerate();
            axes.all(|(at, (axis, place))| axis.now == place || axis.is_setting && may_change(at))
        };
        let points = self.points.iter().enumerate();
        let points = points.filter_map(|(point, predicted)| Some((point, (*predicted)?)));
        let points: Vec<(usize, Predicted)> = points.filter(|(point, _)| allowed(*point)).collect();
        let rates = points.iter().map(|(_, predicted)| predicted.rate.value);
        let best = rates.fold(0.0, f64::max);
        if best < WORTH_SHOWING * self.measured {
            return None;
        }
        let good = points
            .into_iter()
            .filter(|(_, predicted)| predicted.rate.value >= AS_GOOD * best);
        let (point, predicted) = good.min_by_key(|(point, _)| {
            let places = self.places(*point);
            (self.changed(&places), places.iter().sum::<usize>())
        })?;
        let places = self.places(point);
        let axes = self.axes.iter().zip(places);
        let flags = axes.filter(|(axis, place)| axis.now != *place);
        let flags = flags.map(|(axis, place)| axis.flag.replace("{}", &axis.values[place]));
        let what = flags.collect::<Vec<_>>().join(" ");
        (!what.is_empty()).then_some(Change {
            point,
            what,
            predicted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn axis(name: &str, values: &[usize], now: usize) -> Axis {
        Axis {
            name: name.to_owned(),
            flag: format!("--set {name}={{}}"),
            values: values.iter().map(usize::to_string).collect(),
            now,
            is_setting: true,
        }
    }

    fn in_time() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    fn rate(value: f64) -> Option<Predicted> {
        Some(Predicted {
            rate: Estimate::exactly(value),
            busy: None,
        })
    }

    /// Workers help up to 4, whatever the batch is; the batch helps by 3 %.
    fn grid(until: Instant) -> Grid {
        let (workers, sizes) = ([1, 2, 4, 8], [32, 64]);
        let axes = vec![axis("workers", &workers, 0), axis("size", &sizes, 0)];
        Grid::of(axes, 100.0, until, |places, _| {
            let workers = workers[places[0]].min(4) as f64;
            rate(100.0 * workers * [1.0, 1.03][places[1]])
        })
    }

    #[test]
    fn the_cheapest_of_the_best_is_named() {
        let changes = grid(in_time()).changes();
        let named: Vec<(&str, f64)> = changes
            .iter()
            .map(|change| (&*change.what, change.predicted.rate.value))
            .collect();
        let both = ("--set workers=4 --set size=64", 412.0);
        assert_eq!(
            named,
            [both, ("--set workers=4", 400.0), ("--set size=64", 103.0)]
        );
    }

    #[test]
    fn points_are_where_sliders_look_for_them() {
        let grid = grid(in_time());
        assert_eq!(grid.points.len(), 8);
        // workers=2, size=64
        assert_eq!(grid.points[3], rate(206.0));
        assert_eq!(grid.places(3), [1, 1]);
    }

    #[test]
    fn without_time_nothing_is_simulated() {
        let grid = grid(Instant::now() - Duration::from_secs(1));
        assert!(grid.points.iter().all(Option::is_none));
        assert!(grid.changes().is_empty());
    }
}

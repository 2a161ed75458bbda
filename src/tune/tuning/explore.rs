//! Finding the good points of a space by their forecasts: all of them where there are few, else by climbing
//! from several places.

use super::objective::KNEE;
use super::space::{Point, Space, moved};
use std::collections::BTreeMap;

/// Up to so many points all are looked at: a forecast takes milliseconds.
pub(super) const ALL: u64 = 2_000;
/// Points looked at of a larger space, about.
const MOST: usize = 2_000;
/// So many of the places that climbing leads to are looked for smaller ones.
const SHRUNK: usize = 3;
/// A step up must gain this share, so that rounding does not lead anywhere.
const GAIN: f64 = 1e-4;
/// Places of an axis that are all looked at; on longer ones, those a power of two away.
const SHORT_AXIS: usize = 16;

/// Calls `worth` for every point of `space` that matters, at most once each: what it is worth, `None` where it
/// is not eligible. Of a large space those are `seeds` and what lies on the way up from them, and down again
/// to the smallest that is worth about as much.
pub(super) fn explore(
    space: &Space,
    seeds: &[Point],
    worth: &mut dyn FnMut(&Point) -> Option<f64>,
) {
    if space.points() <= ALL {
        for point in space.all() {
            worth(&point);
        }
        return;
    }
    let mut climber = Climber {
        space,
        worth,
        known: BTreeMap::new(),
    };
    let mut tops: Vec<(f64, Point)> = Vec::new();
    for seed in seeds {
        let top = climber.climb(seed);
        tops.push((climber.of(&top), top));
    }
    tops.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    tops.dedup();
    for (_, top) in tops.iter().take(SHRUNK) {
        climber.shrink(top);
    }
}

struct Climber<'a> {
    space: &'a Space,
    worth: &'a mut dyn FnMut(&Point) -> Option<f64>,
    known: BTreeMap<Point, f64>,
}

impl Climber<'_> {
    /// What `point` is worth; nothing where it is not eligible or there is no time for more.
    fn of(&mut self, point: &Point) -> f64 {
        if let Some(known) = self.known.get(point) {
            return *known;
        }
        if self.known.len() >= MOST {
            return 0.0;
        }
        let worth = (self.worth)(point).unwrap_or(0.0);
        self.known.insert(point.clone(), worth);
        worth
    }

    /// Up from `seed`, as far as it goes.
    fn climb(&mut self, seed: &Point) -> Point {
        let mut at = seed.clone();
        loop {
            let before = self.of(&at);
            for axis in 0..self.space.axes.len() {
                let line = self.line(&at, axis);
                at = self.best_of(at, line);
            }
            if self.of(&at) <= before * (1.0 + GAIN) {
                // Where stages are as slow as each other, raising one alone gains nothing.
                let mut together = self.pairs(&at);
                together.push(self.all_raised(&at));
                at = self.best_of(at, together);
            }
            if self.of(&at) <= before * (1.0 + GAIN) || self.known.len() >= MOST {
                return at;
            }
        }
    }

    fn best_of(&mut self, mut at: Point, others: Vec<Point>) -> Point {
        for other in others {
            if self.of(&other) > self.of(&at) * (1.0 + GAIN) {
                at = other;
            }
        }
        at
    }

    /// Points that differ from `at` on `axis` alone.
    fn line(&self, at: &Point, axis: usize) -> Vec<Point> {
        let length = self.space.axes[axis].values.len();
        let from = at[axis];
        let looked_at = |place: &usize| {
            let away = place.abs_diff(from);
            length <= SHORT_AXIS || away.is_power_of_two() || *place + 1 == length
        };
        let places = (0..length).filter(|place| *place != from);
        let moved = places.filter(looked_at).map(|to| moved(at, axis, to));
        moved.collect()
    }

    /// Points that differ from `at` by one place on two axes.
    fn pairs(&self, at: &Point) -> Vec<Point> {
        let axes = &self.space.axes;
        let mut pairs = Vec::new();
        for a in 0..axes.len() {
            for b in 0..axes.len() {
                let moves: &[(isize, isize)] = if a < b {
                    &[(1, 1), (1, -1)]
                } else {
                    &[(1, -1)]
                };
                for (up, other) in moves.iter().filter(|_| a != b) {
                    let place = |axis: usize, by: isize| {
                        let place = at[axis].checked_add_signed(by)?;
                        (place < axes[axis].values.len()).then_some(place)
                    };
                    if let (Some(to_a), Some(to_b)) = (place(a, *up), place(b, *other)) {
                        let mut point = at.clone();
                        (point[a], point[b]) = (to_a, to_b);
                        pairs.push(point);
                    }
                }
            }
        }
        pairs
    }

    /// One place up on every axis that has one.
    fn all_raised(&self, at: &Point) -> Point {
        let places = at.iter().zip(&self.space.axes);
        places
            .map(|(place, axis)| (place + 1).min(axis.values.len() - 1))
            .collect()
    }

    /// Down from `top`, axis by axis, for as long as it is worth about as much.
    fn shrink(&mut self, top: &Point) {
        let enough = (1.0 - KNEE) * self.of(top);
        let mut at = top.clone();
        loop {
            let before = at.clone();
            for axis in 0..at.len() {
                while at[axis] > 0 {
                    let smaller = moved(&at, axis, at[axis] - 1);
                    if self.of(&smaller) < enough {
                        break;
                    }
                    at = smaller;
                }
            }
            if at == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::space::Axis;
    use super::*;
    use std::collections::BTreeSet;

    fn space(axes: usize, values: usize) -> Space {
        let axis = |name: usize| {
            let values = (1..=values).map(|value| value.to_string());
            Axis::new(&format!("stage{name}.workers"), "1", values)
        };
        Space {
            axes: (0..axes).map(axis).collect(),
        }
    }

    /// The slowest of stages that take `work`, each with one worker more than its place.
    fn rate(work: &[f64], point: &Point) -> f64 {
        let stages = work.iter().zip(point);
        let rates = stages.map(|(work, place)| (*place + 1) as f64 / work);
        rates.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn a_small_space_is_looked_at_whole_and_once() {
        let space = space(3, 5);
        let mut seen = Vec::new();
        explore(&space, &[], &mut |point| {
            seen.push(point.clone());
            Some(1.0)
        });
        let distinct: BTreeSet<Point> = seen.iter().cloned().collect();
        assert_eq!((seen.len(), distinct.len()), (125, 125));
    }

    #[test]
    fn climbing_finds_the_top_of_a_large_space_and_its_knee() {
        let space = space(5, 24);
        // The device takes 3.0; the smallest that reaches it is [5, 11, 8, 2, 0].
        let work = [2.0, 4.0, 3.0, 1.0, 0.2];
        let mut known = BTreeMap::new();
        explore(
            &space,
            &[space.start(), space.largest()],
            &mut |point: &Point| {
                let twice = known.insert(point.clone(), rate(&work, point).min(3.0));
                assert_eq!(twice, None, "{point:?}");
                Some(rate(&work, point).min(3.0))
            },
        );
        assert!(known.len() <= MOST, "{}", known.len());
        assert!(known.contains_key(&vec![5, 11, 8, 2, 0]), "{}", known.len());
    }

    /// From the start alone, two stages that are as slow as each other are raised together.
    #[test]
    fn equal_stages_are_no_obstacle() {
        let space = space(5, 24);
        let mut best = 0.0_f64;
        explore(&space, &[space.start()], &mut |point| {
            let rate = rate(&[2.0, 2.0, 0.1, 0.1, 0.1], point);
            best = best.max(rate);
            Some(rate)
        });
        assert!(best >= 10.0, "{best}");
    }

    #[test]
    fn what_is_not_eligible_does_not_stop_the_climb() {
        let space = space(5, 24);
        let mut best = 0.0_f64;
        let seeds = [space.largest(), space.start()];
        explore(&space, &seeds, &mut |point| {
            let threads = point.iter().sum::<usize>() + point.len();
            let rate = rate(&[2.0, 1.0, 1.0, 1.0, 1.0], point);
            (threads <= 20).then(|| {
                best = best.max(rate);
                rate
            })
        });
        assert!(best >= 3.0, "{best}");
    }
}

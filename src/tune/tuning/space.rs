//! The space of a search: keys, their values, and points in it.
//!
//! Invariant: a point has one place in each axis; the start's own value is on every axis.

use serde::Serialize;

/// A key and the values it may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    pub key: String,
    /// As `--set` takes them; of numbers, in ascending order.
    pub values: Vec<String>,
    /// The place of the start's own value.
    start: usize,
}

impl Axis {
    /// `key` from `start`, its value now, to any of `values`. Numbers are put in order.
    pub fn new(key: &str, start: &str, values: impl IntoIterator<Item = String>) -> Axis {
        let mut all = vec![start.to_owned()];
        for value in values {
            if !all.contains(&value) {
                all.push(value);
            }
        }
        if all.iter().all(|value| number(value).is_some()) {
            let of = |value: &String| number(value).unwrap_or_default();
            all.sort_by(|a, b| of(a).total_cmp(&of(b)));
        }
        let place = all.iter().position(|value| value == start);
        Axis {
            key: key.to_owned(),
            values: all,
            start: place.unwrap_or(0),
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// What a change of a prefetch counts for, against one of workers.
const PREFETCH: f64 = 0.25;

/// A place on each axis.
pub(super) type Point = Vec<usize>;

/// `from` at another `place` on `axis`.
pub(super) fn moved(from: &Point, axis: usize, place: usize) -> Point {
    let mut point = from.clone();
    point[axis] = place;
    point
}

/// The points that are searched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    pub axes: Vec<Axis>,
}

impl Space {
    /// How many points there are.
    pub fn points(&self) -> u64 {
        let lengths = self.axes.iter().map(|axis| axis.values.len() as u64);
        lengths.fold(1, u64::saturating_mul)
    }

    pub(super) fn start(&self) -> Point {
        self.axes.iter().map(|axis| axis.start).collect()
    }

    /// Every axis at its last value: of numbers, the largest.
    pub(super) fn largest(&self) -> Point {
        self.axes.iter().map(|axis| axis.values.len() - 1).collect()
    }

    /// Every point, in a fixed order.
    pub(super) fn all(&self) -> impl Iterator<Item = Point> + '_ {
        (0..self.points()).map(|number| {
            let mut rest = number;
            let places = self.axes.iter().map(|axis| {
                let length = axis.values.len() as u64;
                let place = rest % length;
                rest /= length;
                place as usize
            });
            places.collect()
        })
    }

    /// What is changed, as `key=value` texts; nothing of what is as at the start.
    pub(super) fn sets(&self, point: &[usize]) -> Vec<String> {
        self.changed(point)
            .map(|(axis, place)| format!("{}={}", axis.key, axis.values[*place]))
            .collect()
    }

    /// How many keys are changed.
    pub(super) fn changes(&self, point: &[usize]) -> usize {
        self.changed(point).count()
    }

    /// The axes on which `point` is not at the start, with its places.
    fn changed<'a>(&'a self, point: &'a [usize]) -> impl Iterator<Item = (&'a Axis, &'a usize)> {
        let places = self.axes.iter().zip(point);
        places.filter(|(axis, place)| axis.start != **place)
    }

    /// How far apart two points are: numbers by how many times one is the other, words by 1. Prefetch counts
    /// for little, as it does in a run.
    pub(super) fn squared_distance(&self, a: &[usize], b: &[usize]) -> f64 {
        let places = self.axes.iter().zip(a.iter().zip(b));
        let along = places.map(|(axis, (a, b))| {
            let (a, b) = (&axis.values[*a], &axis.values[*b]);
            match (number(a), number(b)) {
                _ if a == b => 0.0,
                (Some(a), Some(b)) => {
                    let apart = ((1.0 + a.abs()) / (1.0 + b.abs())).ln();
                    apart
                        * if axis.key.contains("prefetch") {
                            PREFETCH
                        } else {
                            1.0
                        }
                }
                _ => 1.0,
            }
        });
        along.map(|along| along * along).sum()
    }

    /// Whether two points differ in nothing but workers, prefetch and the batch's size.
    pub(super) fn differ_in_size_only(&self, a: &[usize], b: &[usize]) -> bool {
        let places = self.axes.iter().zip(a.iter().zip(b));
        let mut differing = places.filter(|(_, (a, b))| a != b);
        differing.all(|(axis, _)| is_size(&axis.key))
    }

    /// Whether the change `set` leads to points that are searched.
    pub(super) fn covers(&self, set: &str) -> bool {
        let (key, value) = set.split_once('=').unwrap_or((set, ""));
        let mut axes = self.axes.iter();
        axes.any(|axis| axis.key == key && axis.values.iter().any(|other| other == value))
    }
}

fn is_size(key: &str) -> bool {
    let last = key.rsplit('.').next();
    matches!(
        last,
        Some("workers" | "prefetch" | "num_workers" | "prefetch_factor" | "size")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn space() -> Space {
        let texts = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
        Space {
            axes: vec![
                Axis::new("num_workers", "4", texts(&["16", "0", "2", "4"])),
                Axis::new("decode.decoder", "image", texts(&["turbojpeg", "image"])),
            ],
        }
    }

    #[test]
    fn numbers_are_in_order_and_words_as_they_come() {
        let space = space();
        assert_eq!(space.axes[0].values, ["0", "2", "4", "16"]);
        assert_eq!(space.axes[1].values, ["image", "turbojpeg"]);
        assert_eq!(space.sets(&space.start()), [""; 0]);
        assert_eq!(
            space.sets(&[3, 1]),
            ["num_workers=16", "decode.decoder=turbojpeg"]
        );
    }

    #[test]
    fn every_point_comes_once() {
        let space = space();
        let all: BTreeSet<Point> = space.all().collect();
        assert_eq!((all.len(), space.points()), (8, 8));
        assert!(all.contains(&space.largest()) && all.contains(&space.start()));
    }

    #[test]
    fn distance_is_by_factors() {
        let space = space();
        let from = |a: usize, b: usize| space.squared_distance(&[a, 0], &[b, 0]);
        assert_eq!(from(1, 1), 0.0);
        assert!(from(0, 1) > from(1, 2));
        assert_eq!(space.squared_distance(&[0, 0], &[0, 1]), 1.0);
        assert!(space.differ_in_size_only(&[0, 1], &[3, 1]));
        assert!(!space.differ_in_size_only(&[0, 1], &[0, 0]));
    }

    #[test]
    fn what_is_searched_is_known() {
        let covers = ["num_workers=2", "num_workers=3", "read.workers=2"];
        assert_eq!(covers.map(|set| space().covers(set)), [true, false, false]);
    }
}

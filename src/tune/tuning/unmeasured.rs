//! Values of which nothing can be forecast before a run has had them: how the bytes are read, say, when all
//! reports are of runs that read them otherwise.
//!
//! Invariant: what is found differs from the start on such keys alone, so that its run says what every point
//! with these values costs.

use super::explore::ALL;
use super::forecast::NoForecast;
use super::space::{Point, Space, moved};
use std::collections::BTreeSet;

/// The start with each combination of values that `rank` cannot forecast for want of a run, fewest changes
/// first. `known` are points that were run for that reason: they may have brought further keys to light.
pub(super) fn unmeasured(
    space: &Space,
    known: &[Point],
    rank: &mut dyn FnMut(&Point) -> Option<NoForecast>,
) -> Vec<Point> {
    let mut lacks = |point: &Point| matches!(rank(point), Some(NoForecast::Unforecastable(_)));
    let start = space.start();
    let mut axes: BTreeSet<usize> = known
        .iter()
        .flat_map(|known| changed(&start, known))
        .collect();
    for from in known.iter().chain([&start]) {
        if lacks(from) {
            // Its run failed: it tells nothing of other keys.
            continue;
        }
        for (axis, values) in space.axes.iter().enumerate() {
            let places = (0..values.values.len()).filter(|place| *place != from[axis]);
            let mut points = places.map(|place| moved(from, axis, place));
            if !axes.contains(&axis) && points.any(|point| lacks(&point)) {
                axes.insert(axis);
            }
        }
    }
    let mut found = combinations(space, &start, &axes);
    found.retain(|point| *point != start && lacks(point));
    found.sort_by_cached_key(|point| {
        let changed = changed(&start, point);
        (changed.len(), changed, point.clone())
    });
    found
}

/// The axes on which `point` is not at the `start`.
fn changed(start: &Point, point: &Point) -> Vec<usize> {
    let axes = 0..start.len();
    axes.filter(|axis| start[*axis] != point[*axis]).collect()
}

/// Every combination of places on `axes`, everything else as in `start`; of too many some.
fn combinations(space: &Space, start: &Point, axes: &BTreeSet<usize>) -> Vec<Point> {
    let mut points = vec![start.clone()];
    for axis in axes {
        let places = 0..space.axes[*axis].values.len();
        let more = points.iter().flat_map(|point| {
            let moved = |place| moved(point, *axis, place);
            places.clone().map(moved)
        });
        points = more.take(ALL as usize).collect();
    }
    points
}

#[cfg(test)]
mod tests {
    use super::super::space::Axis;
    use super::*;

    fn axis(key: &str, values: &[&str]) -> Axis {
        Axis::new(
            key,
            values[0],
            values.iter().map(|value| (*value).to_owned()),
        )
    }

    fn space() -> Space {
        Space {
            axes: vec![
                axis("read.workers", &["1", "2", "3"]),
                axis("read.method", &["mmap", "pread"]),
                axis("shuffle", &["full", "block"]),
                axis("shuffle_block", &["8", "64"]),
            ],
        }
    }

    /// What is found once `known` have been run, where a block means nothing without `shuffle=block`.
    fn found(known: &[&[&str]]) -> Vec<String> {
        let space = space();
        let points: Vec<Point> = space
            .all()
            .filter(|point| known.iter().any(|known| space.sets(point) == *known))
            .collect();
        assert_eq!(points.len(), known.len());
        let words = |point: &Point| [point[1], point[2], point[3]];
        let mut rank = |point: &Point| {
            let of = words(point);
            let has_run = of == [0; 3] || points.iter().any(|known| words(known) == of);
            match of {
                [_, 0, 1] => Some(NoForecast::Invalid("no blocks".to_owned())),
                _ if has_run => None,
                _ => Some(NoForecast::Unforecastable("not measured".to_owned())),
            }
        };
        let found = unmeasured(&space, &points, &mut rank);
        found
            .iter()
            .map(|point| space.sets(point).join(" "))
            .collect()
    }

    #[test]
    fn combinations_come_with_the_fewest_changes_first_and_without_what_is_modelled() {
        let all = [
            "read.method=pread",
            "shuffle=block",
            "read.method=pread shuffle=block",
        ];
        assert_eq!(found(&[]), all);
        assert_eq!(found(&[&["read.method=pread"]]), all[1..]);
    }

    #[test]
    fn a_key_that_means_something_only_with_another_is_found_after_that_one_has_run() {
        let found = found(&[&["shuffle=block"]]);
        let more = [
            "read.method=pread",
            "read.method=pread shuffle=block",
            "shuffle=block shuffle_block=64",
        ];
        assert_eq!(found[..1], more[..1]);
        assert!(
            more.iter().all(|one| found.contains(&(*one).to_owned())),
            "{found:?}"
        );
        let all = "read.method=pread shuffle=block shuffle_block=64";
        assert_eq!(found.last().map(String::as_str), Some(all));
    }
}

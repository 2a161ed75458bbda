//! Half-open time intervals and sorted, disjoint sets of them.

use super::Nanos;

/// A half-open interval `[start, end)` of time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First nanosecond in it.
    pub start: Nanos,
    /// First nanosecond behind it; never before `start`.
    pub end: Nanos,
}

impl Interval {
    /// The interval from `start` to `end`; empty where `end <= start`.
    pub fn new(start: Nanos, end: Nanos) -> Interval {
        Interval {
            start,
            end: end.max(start),
        }
    }

    /// Its length in nanoseconds.
    pub fn length(self) -> Nanos {
        self.end - self.start
    }

    /// Whether it holds no time.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The part that lies inside `other`.
    pub fn clip(self, other: Interval) -> Interval {
        Interval::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// A set of time: sorted, disjoint, non-empty intervals.
///
/// Appending in order of start is O(1) amortised; anything else costs a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    parts: Vec<Interval>,
}

impl IntervalSet {
    /// The empty set.
    pub fn new() -> IntervalSet {
        IntervalSet::default()
    }

    /// Adds one interval (the union with it).
    pub fn insert(&mut self, interval: Interval) {
        if interval.is_empty() {
            return;
        }
        let first = self.parts.partition_point(|p| p.end < interval.start);
        let last = self.parts.partition_point(|p| p.start <= interval.end);
        let mut merged = interval;
        if first < last {
            merged.start = merged.start.min(self.parts[first].start);
            merged.end = merged.end.max(self.parts[last - 1].end);
        }
        self.parts.splice(first..last, [merged]);
    }

    /// The intervals, in order.
    pub fn parts(&self) -> &[Interval] {
        &self.parts
    }

    /// Total length.
    pub fn length(&self) -> Nanos {
        self.parts.iter().map(|p| p.length()).sum()
    }

    /// The parts of `window` that the set does not cover, in order.
    pub fn gaps_in(&self, window: Interval) -> Vec<Interval> {
        let pieces = self.pieces(window);
        let gaps = pieces.filter_map(|(piece, is_covered)| (!is_covered).then_some(piece));
        gaps.collect()
    }

    /// `window` in pieces that the set covers (`true`) or does not, in order.
    pub fn pieces(&self, window: Interval) -> impl Iterator<Item = (Interval, bool)> {
        let mut cursor = window.start;
        let end = Interval::new(window.end, window.end);
        let parts = self.parts_in(window).chain([end]);
        let pieces = parts.flat_map(move |part| {
            let before = Interval::new(cursor, part.start);
            cursor = part.end;
            [(before, false), (part, true)]
        });
        pieces.filter(|(piece, _)| !piece.is_empty())
    }

    /// The parts of the set that lie in `window`, in order.
    pub fn parts_in(&self, window: Interval) -> impl Iterator<Item = Interval> {
        let first = self.parts.partition_point(|p| p.end <= window.start);
        self.parts[first..]
            .iter()
            .take_while(move |p| p.start < window.end)
            .map(move |p| p.clip(window))
    }

    /// How much of `window` the set covers.
    pub fn covered_in(&self, window: Interval) -> Nanos {
        self.parts_in(window).map(Interval::length).sum()
    }

    /// Forgets every part that ends at or before `time`.
    pub fn forget_before(&mut self, time: Nanos) {
        let keep_from = self.parts.partition_point(|p| p.end <= time);
        self.parts.drain(..keep_from);
    }
}

impl FromIterator<Interval> for IntervalSet {
    /// The union of all, in whatever order they come.
    fn from_iter<I: IntoIterator<Item = Interval>>(intervals: I) -> IntervalSet {
        let mut all: Vec<Interval> = intervals.into_iter().collect();
        all.sort_unstable_by_key(|interval| interval.start);
        let mut set = IntervalSet::new();
        all.into_iter().for_each(|interval| set.insert(interval));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interval(start: u64, end: u64) -> Interval {
        Interval::new(Nanos(start), Nanos(end))
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(spans in prop::collection::vec((0u64..200, 0u64..40), 0..40),
                                window in (0u64..200, 0u64..80), forget in 0u64..240) {
            let mut set = IntervalSet::new();
            let mut bitmap = [false; 300];
            for (start, length) in spans {
                set.insert(interval(start, start + length));
                bitmap[start as usize..(start + length) as usize].fill(true);
            }
            for pair in set.parts().windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
            let window = interval(window.0, window.0 + window.1);
            let inside = window.start.0 as usize..window.end.0 as usize;
            let covered = bitmap[inside.clone()].iter().filter(|b| **b).count() as u64;
            prop_assert_eq!(set.covered_in(window), Nanos(covered));
            let gaps: Nanos = set.gaps_in(window).iter().map(|g| g.length()).sum();
            prop_assert_eq!(gaps, Nanos(inside.len() as u64 - covered));
            prop_assert_eq!(set.length().0, bitmap.iter().filter(|b| **b).count() as u64);
            set.forget_before(Nanos(forget));
            prop_assert!(set.parts().iter().all(|p| p.end.0 > forget));
        }
    }
}

//! What waking a thread takes: predictions take hand-overs between threads from it.

use crate::timeline::WakingSeen;
use serde::{Deserialize, Serialize};

/// What waking takes on the machine of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WakingProfile {
    /// How long it was waited for another thread, shortest first; how long that one took to hand an item on, and how
    /// long it was from then until the thread that waited had it.
    pub waited_ns: Vec<f64>,
    /// Of the thread that hands on, indexed as `waited_ns`.
    pub waking_by_wait_ns: Vec<f64>,
    /// Until the thread that waited has the item, indexed as `waited_ns`.
    pub latency_ns: Vec<f64>,
    /// What handing on to a thread that waits takes on average, and CPU time of the one that waits.
    pub waking_ns: f64,
    /// CPU time of the thread that waits, on average.
    pub switching_ns: f64,
}

/// Fewer wakings than this say little about what one costs.
const LEAST_WAKINGS: u64 = 50;
/// What was measured beside the run counts for waits that are so many times shorter or longer than any of the run.
const ALIKE: f64 = 2.0;

impl WakingProfile {
    /// With what waking cost as it was `seen` in the run, as far as it was seen often enough; what was measured beside
    /// the run is left for waits that were much shorter or longer.
    pub fn corrected_by(mut self, seen: &[WakingSeen]) -> WakingProfile {
        let seen = seen.iter().filter(|kind| kind.count >= LEAST_WAKINGS);
        let seen: Vec<&WakingSeen> = seen.collect();
        if seen.is_empty() {
            return self;
        }
        let known = |waited: f64| {
            let like = |kind: &&WakingSeen| {
                (kind.waited_ns / ALIKE..=kind.waited_ns * ALIKE).contains(&waited)
            };
            seen.iter().any(like)
        };
        let beside = self.waited_ns.iter().zip(&self.waking_by_wait_ns);
        let beside = beside.zip(&self.latency_ns);
        let beside = beside.map(|((waited, cost), latency)| [*waited, *cost, *latency]);
        let beside = beside.filter(|[waited, ..]| !known(*waited));
        let in_run = seen
            .iter()
            .map(|kind| [kind.waited_ns, kind.cost_ns, kind.latency_ns]);
        let mut points: Vec<[f64; 3]> = beside.chain(in_run).collect();
        points.sort_by(|one, other| one[0].total_cmp(&other[0]));
        let column = |which: usize| points.iter().map(|point| point[which]).collect();
        (self.waited_ns, self.waking_by_wait_ns, self.latency_ns) =
            (column(0), column(1), column(2));
        let count = |kind: &&WakingSeen| kind.count as f64;
        let cost: f64 = seen.iter().map(|kind| count(kind) * kind.cost_ns).sum();
        self.waking_ns = cost / seen.iter().map(count).sum::<f64>();
        self
    }
}

/// A place among values, least first: between two of them, or beyond their ends that of the end.
#[derive(Copy, Clone, Debug)]
pub(super) struct Place {
    before: usize,
    after: usize,
    /// How far from the one to the other, 0 to 1.
    part: f64,
}

impl Place {
    /// Where `x` is among `xs`.
    #[inline]
    pub(super) fn of(x: f64, xs: &[f64]) -> Place {
        // There are few of them.
        let after = xs.iter().take_while(|other| **other < x).count();
        let before = after.saturating_sub(1);
        let part = match xs.get(after) {
            Some(next) if after > 0 => (x - xs[before]) / (next - xs[before]).max(1.0),
            _ => 0.0,
        };
        Place {
            before,
            after,
            part,
        }
    }

    /// The value there on the lines through `ys`, and 0 where there are none.
    #[inline]
    pub(super) fn on(self, ys: &[f64]) -> f64 {
        let at = |place: usize| ys.get(place).or(ys.last()).copied().unwrap_or_default();
        let before = at(self.before);
        before + self.part * (at(self.after) - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waking_cost_in_the_run_corrects_what_it_costs_beside_it() {
        let beside = WakingProfile {
            waited_ns: vec![5e3, 30e3, 60e3, 1e6],
            waking_by_wait_ns: vec![2e3, 8e3, 20e3, 30e3],
            latency_ns: vec![7e3, 17e3, 18e3, 19e3],
            waking_ns: 20e3,
            ..WakingProfile::default()
        };
        assert_eq!(beside.clone().corrected_by(&[]), beside);
        let seen = |count, waited_ns, cost_ns| WakingSeen {
            count,
            waited_ns,
            cost_ns,
            latency_ns: 2.0 * cost_ns,
        };
        let few = seen(49, 1e6, 1e3);
        assert_eq!(beside.clone().corrected_by(&[few]), beside);
        let corrected = beside.corrected_by(&[seen(60, 25e3, 9e3), seen(180, 50e3, 11e3), few]);
        assert_eq!(corrected.waited_ns, [5e3, 25e3, 50e3, 1e6]);
        assert_eq!(corrected.waking_by_wait_ns, [2e3, 9e3, 11e3, 30e3]);
        assert_eq!(corrected.latency_ns, [7e3, 18e3, 22e3, 19e3]);
        assert_eq!(corrected.waking_ns, 10.5e3);
    }

    #[test]
    fn values_are_interpolated_between_their_neighbours() {
        let at = |x| Place::of(x, &[10.0, 20.0, 40.0]).on(&[1.0, 3.0, 2.0]);
        let values = [0.0, 10.0, 15.0, 20.0, 30.0, 40.0, 99.0].map(at);
        assert_eq!(values, [1.0, 1.0, 2.0, 3.0, 2.5, 2.0, 2.0]);
        assert_eq!(Place::of(1.5, &[1.0, 2.0]).on(&[]), 0.0);
        assert_eq!(Place::of(1.5, &[]).on(&[]), 0.0);
    }
}

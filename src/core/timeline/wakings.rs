//! What waking threads costs whoever does it, as the threads of a run saw it.

use super::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Waits are told apart by the powers of two of nanoseconds; longer ones than 4 s are the last kind.
const OCTAVES: usize = 32;

/// Wakings of a run, by how long those who were woken had waited. All threads write to it: an addition or three for
/// what itself takes microseconds.
#[derive(Debug, Default)]
pub struct Wakings {
    by_wait: [Kind; OCTAVES],
}

#[derive(Debug, Default)]
struct Kind {
    waited: Sum,
    cost: Sum,
    latency: Sum,
}

/// A sum and how many it is of.
#[derive(Debug, Default)]
struct Sum {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Sum {
    fn add(&self, length: Nanos) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(length.0, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// 0 of none.
    fn mean(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / self.count().max(1) as f64
    }
}

/// Wakings after waits that were about as long: means.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct WakingSeen {
    /// How often both of the figures below were seen, at least.
    pub count: u64,
    /// Nanoseconds that the other one had waited.
    pub waited_ns: f64,
    /// Time of the thread that woke the other one.
    pub cost_ns: f64,
    /// Until the other one ran.
    pub latency_ns: f64,
}

impl Wakings {
    /// What took longer was something else, a thread without a core, and is not counted.
    pub const LONGEST: Nanos = Nanos::from_micros(100);

    /// Waking somebody who had waited for `waited` took `cost`.
    pub fn woke(&self, waited: Nanos, cost: Nanos) {
        let kind = self.kind(waited);
        if cost <= Wakings::LONGEST {
            kind.waited.add(waited);
            kind.cost.add(cost);
        }
    }

    /// Somebody who had waited for `waited` ran `latency` after another thread began to wake it.
    pub fn woken(&self, waited: Nanos, latency: Nanos) {
        if latency <= Wakings::LONGEST {
            self.kind(waited).latency.add(latency);
        }
    }

    fn kind(&self, waited: Nanos) -> &Kind {
        let octave = waited.0.checked_ilog2().unwrap_or(0) as usize;
        &self.by_wait[octave.min(OCTAVES - 1)]
    }

    /// What there was so far, shortest waits first.
    pub fn seen(&self) -> Vec<WakingSeen> {
        let kinds = self.by_wait.iter().map(|kind| WakingSeen {
            count: kind.cost.count().min(kind.latency.count()),
            waited_ns: kind.waited.mean(),
            cost_ns: kind.cost.mean(),
            latency_ns: kind.latency.mean(),
        });
        kinds.filter(|kind| kind.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakings_are_told_apart_by_the_wait() {
        let wakings = Wakings::default();
        assert_eq!(wakings.seen(), []);
        for (waited, cost, latency) in [
            (40_000, 9_000, 20_000),
            (5_000, 1_000, 10_000),
            (60_000, 11_000, 24_000),
            (0, 3, 4),
            (50_000, 4_000_000, 4_000_000),
            (u64::MAX, 7, 8),
        ] {
            wakings.woke(Nanos(waited), Nanos(cost));
            wakings.woken(Nanos(waited), Nanos(latency));
        }
        wakings.woke(Nanos(1_000_000), Nanos(5));
        let seen = wakings.seen();
        let seen = seen
            .iter()
            .map(|kind| (kind.count, kind.waited_ns, kind.cost_ns, kind.latency_ns));
        let expected = [
            (1, 0.0, 3.0, 4.0),
            (1, 5e3, 1e3, 10e3),
            (2, 50e3, 10e3, 22e3),
            (1, u64::MAX as f64, 7.0, 8.0),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
}

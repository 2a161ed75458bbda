//! What services cost: measured lengths as a table of equally likely ones, and a stream that deals them out.

use crate::analysis::profile::mean_of;

/// Lengths that are equally likely, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    lengths: Vec<f32>,
}

impl Costs {
    /// Always `length` nanoseconds.
    pub fn fixed(length: f64) -> Costs {
        Costs {
            lengths: vec![length as f32],
        }
    }

    /// Any of `lengths`, in nanoseconds; none cost nothing.
    pub fn any_of(lengths: impl IntoIterator<Item = f64>) -> Costs {
        let lengths = lengths.into_iter().map(|length| length.max(0.0) as f32);
        Costs {
            lengths: lengths.collect(),
        }
    }

    /// Their mean, in nanoseconds.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.lengths.iter().map(|length| f64::from(*length)).sum();
        sum / self.lengths.len().max(1) as f64
    }

    /// Each `factor` times as long.
    pub fn scaled(&self, factor: f64) -> Costs {
        let lengths = self.lengths.iter();
        Costs::any_of(lengths.map(|length| f64::from(*length) * factor))
    }

    /// Any of these and any of `others`, one after the other: means of as many equally likely sums as there are here or
    /// there.
    pub(super) fn and(&self, others: &Costs) -> Costs {
        if self.lengths.is_empty() || others.lengths.is_empty() {
            return [self, others][usize::from(self.lengths.is_empty())].clone();
        }
        let each = self.lengths.iter().map(|length| f64::from(*length));
        let pairs = each.flat_map(|one| {
            others
                .lengths
                .iter()
                .map(move |other| one + f64::from(*other))
        });
        let mut sums: Vec<f64> = pairs.collect();
        sums.sort_unstable_by(f64::total_cmp);
        let few = self.lengths.len().min(others.lengths.len());
        Costs::any_of(sums.chunks(few).map(mean_of))
    }

    /// Whether nothing costs anything.
    pub fn is_free(&self) -> bool {
        self.lengths.iter().all(|length| *length == 0.0)
    }

    /// A stream of them that depends on `seed` only, of so many units an epoch.
    pub(super) fn deal(&self, seed: u64, epoch: usize) -> Deal {
        let few = &self.lengths;
        let length = |place: usize, units: usize| few.get(place * few.len() / units).copied();
        let units = match few[..] {
            [] | [_] => 1,
            _ => epoch.clamp(few.len(), MOST_UNITS.max(few.len())),
        };
        let dealt = (0..units).map(|place| length(place, units).unwrap_or_default());
        let mut dealt: Vec<f32> = dealt.collect();
        let sum: f64 = dealt.iter().map(|length| f64::from(*length)).sum();
        let exact = self.mean() * units as f64 / sum.max(f64::MIN_POSITIVE);
        for length in &mut dealt {
            *length *= exact as f32;
        }
        Deal {
            next: dealt.len(),
            dealt,
            random: Random(seed),
        }
    }

    /// A stream of them as factors: of mean 0, as where there are none, they are all 1.
    pub(super) fn deal_factors(&self, seed: u64) -> Deal {
        match self.mean() {
            0.0 => Costs::fixed(1.0).deal(seed, 1),
            _ => self.deal(seed, FACTORS),
        }
    }
}

/// Units of an epoch that are told apart, and factors that are dealt before they repeat.
const MOST_UNITS: usize = 1 << 14;
const FACTORS: usize = 4096;

/// Deals out lengths as a run does that visits all samples in a new order each epoch: so an epoch has the measured mean,
/// and single batches vary as much as those of the run.
#[derive(Clone, Debug)]
pub(super) struct Deal {
    dealt: Vec<f32>,
    random: Random,
    next: usize,
}

impl Deal {
    /// The next length, in nanoseconds.
    #[inline]
    pub(super) fn next(&mut self) -> f64 {
        if self.next == self.dealt.len() {
            self.next = 0;
            shuffle(&mut self.dealt, &mut self.random);
        }
        let length = self.dealt[self.next];
        self.next += 1;
        f64::from(length)
    }

    /// The sum of the next `count`.
    #[inline]
    pub(super) fn sum_of(&mut self, count: usize) -> f64 {
        if let [only] = self.dealt[..] {
            return f64::from(only) * count as f64;
        }
        (0..count).map(|_| self.next()).sum()
    }
}

/// SplitMix64: enough to shuffle with, and the same everywhere.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }
}

fn shuffle(lengths: &mut [f32], random: &mut Random) {
    for last in (1..lengths.len()).rev() {
        let other = (random.next() % (last as u64 + 1)) as usize;
        lengths.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_the_measured_mean_and_another_order_each_time() {
        let costs = Costs::any_of((1..=100).map(f64::from));
        for epoch in [1, 100, 1000] {
            let mut deal = costs.deal(7, epoch);
            let units = epoch.max(100);
            let mut all = || (0..units).map(|_| deal.next()).collect::<Vec<_>>();
            let (first, second) = (all(), all());
            assert_ne!(first, second);
            for epoch in [first, second] {
                assert!((epoch.iter().sum::<f64>() / units as f64 - 50.5).abs() < 1e-4);
                assert!(epoch.contains(&1.0) && epoch.contains(&100.0));
            }
        }
    }

    /// Batches of a quarter of a table vary as those of a run do, and not by a quarter less.
    #[test]
    fn batches_vary_as_draws_from_all_samples() {
        let costs = Costs::any_of((0..128).map(f64::from));
        let mut deal = costs.deal(3, 12_800);
        let sums: Vec<f64> = (0..4000).map(|_| deal.sum_of(32)).collect();
        let mean = sums.iter().sum::<f64>() / 4000.0;
        let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / 3999.0;
        let of_one = (128.0 * 128.0 - 1.0) / 12.0;
        let share = variance / (32.0 * of_one);
        assert!((0.9..1.1).contains(&share), "{share}");
    }

    #[test]
    fn factors_that_were_never_measured_are_one() {
        assert_eq!(Costs::default().deal_factors(1).next(), 1.0);
        assert_eq!(Costs::fixed(0.0).deal_factors(1).next(), 1.0);
        assert_eq!(Costs::fixed(2.0).deal_factors(1).next(), 2.0);
    }

    #[test]
    fn parts_that_follow_each_other_are_as_long_as_both() {
        let both = Costs::any_of([1.0, 2.0]).and(&Costs::any_of([10.0, 20.0, 30.0, 40.0]));
        assert_eq!(both.lengths, [11.5, 21.5, 31.5, 41.5]);
        assert_eq!(Costs::fixed(3.0).and(&Costs::fixed(4.0)).lengths, [7.0]);
        assert_eq!(Costs::default().and(&both), both);
        assert_eq!(both.and(&Costs::default()), both);
    }

    #[test]
    fn what_was_never_measured_costs_nothing() {
        assert_eq!(Costs::default().deal(1, 9).next(), 0.0);
        assert_eq!(Costs::default().mean(), 0.0);
        assert_eq!(Costs::fixed(5.0).deal(1, 9).sum_of(3), 15.0);
    }
}

//! What services cost: measured lengths as a table of equally likely ones, and a stream that deals them out.

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

    /// Each shorter in the same proportion, the mean by `length`.
    pub fn without(&self, length: f64) -> Costs {
        let share = length / self.mean().max(f64::MIN_POSITIVE);
        self.scaled(1.0 - share.clamp(0.0, 1.0))
    }

    /// Whether nothing costs anything.
    pub fn is_free(&self) -> bool {
        self.lengths.iter().all(|length| *length == 0.0)
    }

    /// A stream of them that depends on `seed` only.
    pub(super) fn deal(&self, seed: u64) -> Deal {
        let table = match self.lengths.is_empty() {
            true => vec![0.0],
            false => self.lengths.clone(),
        };
        Deal {
            table,
            random: Random(seed),
            dealt: Vec::new(),
            next: 0,
        }
    }

    /// A stream of them as factors: of mean 0, as where there are none, they are all 1.
    pub(super) fn deal_factors(&self, seed: u64) -> Deal {
        match self.mean() {
            0.0 => Costs::fixed(1.0).deal(seed),
            _ => self.deal(seed),
        }
    }
}

/// Lengths dealt before they repeat, about.
const DEALT: usize = 4096;

/// Deals out lengths: each of the table once, in random order, before any comes again. So a short simulation
/// has the measured mean, and not that of a few draws.
#[derive(Clone, Debug)]
pub(super) struct Deal {
    table: Vec<f32>,
    random: Random,
    /// Shuffled tables one after another, as many as were needed so far.
    dealt: Vec<f32>,
    next: usize,
}

impl Deal {
    /// The next length, in nanoseconds.
    #[inline]
    pub(super) fn next(&mut self) -> f64 {
        if self.next == self.dealt.len() {
            self.go_on();
        }
        let length = self.dealt[self.next];
        self.next += 1;
        f64::from(length)
    }

    /// One more table, or the first one again.
    #[cold]
    fn go_on(&mut self) {
        let first = self.dealt.len();
        if first > 0 && (self.table.len() == 1 || first >= DEALT) {
            self.next = 0;
            return;
        }
        self.dealt.extend_from_slice(&self.table);
        shuffle(&mut self.dealt[first..], &mut self.random);
    }

    /// The sum of the next `count`.
    #[inline]
    pub(super) fn sum_of(&mut self, count: usize) -> f64 {
        if let [only] = self.table[..] {
            return f64::from(only) * count as f64;
        }
        (0..count).map(|_| self.next()).sum()
    }
}

/// SplitMix64: enough to shuffle with, and the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// From 0 to 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
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
    fn every_length_comes_once_before_any_comes_again() {
        let costs = Costs::any_of((1..=100).map(f64::from));
        let mut deal = costs.deal(7);
        let mut first: Vec<f64> = (0..100).map(|_| deal.next()).collect();
        let second: Vec<f64> = (0..100).map(|_| deal.next()).collect();
        assert_ne!(first, second, "in another order each time");
        first.sort_by(f64::total_cmp);
        assert_eq!(first, (1..=100).map(f64::from).collect::<Vec<_>>());
        assert_eq!(deal.sum_of(100), 5050.0);
        assert_eq!(costs.mean(), 50.5);
    }

    #[test]
    fn dealt_lengths_repeat_in_the_end() {
        let costs = Costs::any_of((1..=100).map(f64::from));
        let mut deal = costs.deal(3);
        let tables = DEALT.div_ceil(100);
        let mut all = || (0..100 * tables).map(|_| deal.next()).collect::<Vec<_>>();
        let first = all();
        assert_eq!(first.iter().sum::<f64>(), 5050.0 * tables as f64);
        assert_eq!(first, all());
    }

    #[test]
    fn factors_that_were_never_measured_are_one() {
        assert_eq!(Costs::default().deal_factors(1).next(), 1.0);
        assert_eq!(Costs::fixed(0.0).deal_factors(1).next(), 1.0);
        assert_eq!(Costs::fixed(2.0).deal_factors(1).next(), 2.0);
    }

    #[test]
    fn what_was_never_measured_costs_nothing() {
        assert_eq!(Costs::default().deal(1).next(), 0.0);
        assert_eq!(Costs::default().mean(), 0.0);
        assert_eq!(Costs::fixed(5.0).deal(1).sum_of(3), 15.0);
    }
}

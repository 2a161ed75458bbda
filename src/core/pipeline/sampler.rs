//! The order in which samples are visited, the random stream each sample gets, and how an order is cut into batches.
//!
//! Invariants: everything here is a pure function of its arguments: same on every platform, independent of the number
//! of workers and of the version of `rand` (bounded draws are done here, only the generator comes from outside). An
//! epoch's order is a permutation, and its batches cover it exactly once (all but the tail with `drop_last`).
//!
//! May use: nothing.

use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Keeps the stream that shuffles apart from the streams that augment.
const SHUFFLE_DOMAIN: u64 = 0x5348_5546_464c_4521;
const SAMPLE_DOMAIN: u64 = 0x5341_4d50_4c45_5321;
/// Keeps the streams of batches apart from those of samples.
const BATCH_DOMAIN: u64 = 0x4241_5443_485f_5f21;

/// The order in which an epoch visits the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they lie.
    Sequential,
    /// Every order equally likely.
    Random,
    /// Blocks of `block` neighbours in random order; of what that gives, `window` samples at a time at random.
    /// The longer the blocks, the less a disk has to seek; a window of more than one sample mixes better and gives
    /// that up within it.
    Block {
        /// Neighbours that stay together.
        block: usize,
        /// Samples that are mixed at a time.
        window: usize,
    },
}

/// The sample indices `0..len` in the order epoch `epoch` visits them. `len` is at most `u32::MAX` (a folder that
/// opens never holds more); a longer one is cut to that.
pub fn epoch_order(len: usize, seed: u64, epoch: u64, order: Order) -> Vec<u32> {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix_all(SHUFFLE_DOMAIN, &[seed, epoch]));
    match order {
        Order::Sequential => (0..len).collect(),
        Order::Random => {
            let mut order: Vec<u32> = (0..len).collect();
            shuffle(&mut order, &mut rng);
            order
        }
        Order::Block { block, window } => {
            let block = u32::try_from(block.max(1)).unwrap_or(u32::MAX);
            let mut blocks: Vec<u32> = (0..len.div_ceil(block)).collect();
            shuffle(&mut blocks, &mut rng);
            let samples = blocks.into_iter().flat_map(|number| {
                let first = number * block;
                first..len.min(first.saturating_add(block))
            });
            let mut order: Vec<u32> = samples.collect();
            for window in order.chunks_mut(window.max(1)) {
                shuffle(window, &mut rng);
            }
            order
        }
    }
}

/// One of several processes that share each epoch's samples, as PyTorch's `DistributedSampler` deals them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which one, from zero.
    pub rank: usize,
    /// How many there are.
    pub of: usize,
}

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share { rank: 0, of: 1 };

    /// How many of an epoch's `len` samples are its own; every process has as many. What does not divide is left
    /// out with `drop_last`, else filled up with the epoch's first samples.
    pub fn samples(self, len: usize, drop_last: bool) -> usize {
        match drop_last {
            true => len / self.of,
            false => len.div_ceil(self.of),
        }
    }

    /// Its own of an epoch's `order`: every `of`th sample.
    fn of(self, order: &[u32], drop_last: bool) -> Vec<u32> {
        let places =
            (0..self.samples(order.len(), drop_last)).map(|turn| turn * self.of + self.rank);
        places.map(|place| order[place % order.len()]).collect()
    }

    /// The order in which it visits its own samples of `0..len` in `epoch`.
    pub fn order(
        self,
        len: usize,
        seed: u64,
        epoch: u64,
        order: Order,
        drop_last: bool,
    ) -> Vec<u32> {
        let whole = epoch_order(len, seed, epoch, order);
        match self {
            Share::WHOLE => whole,
            share => share.of(&whole, drop_last),
        }
    }
}

/// Fisher and Yates's shuffle.
fn shuffle(order: &mut [u32], rng: &mut impl Rng) {
    for last in (1..order.len()).rev() {
        let pick = below(rng, last as u64 + 1) as usize;
        order.swap(last, pick);
    }
}

/// The random stream of one sample in one epoch, whichever worker asks for it.
pub fn sample_rng(seed: u64, epoch: u64, index: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(mix_all(SAMPLE_DOMAIN, &[seed, epoch, index]))
}

/// The random stream of the batch that begins with the sample `first` in one epoch, whichever worker asks for it.
pub fn batch_rng(seed: u64, epoch: u64, first: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(mix_all(BATCH_DOMAIN, &[seed, epoch, first]))
}

/// Folds `parts` into one well-mixed word, order-sensitive.
pub fn mix_all(domain: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(domain, |state, part| {
        finalise((state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15))
    })
}

/// SplitMix64's finaliser: a bijection in which every input bit moves every output bit.
fn finalise(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// An unbiased draw from `0..bound` (Lemire's multiply-shift with rejection). `bound` of zero gives zero.
pub fn below(rng: &mut impl Rng, bound: u64) -> u64 {
    let reject_below = if bound == 0 {
        0
    } else {
        bound.wrapping_neg() % bound
    };
    loop {
        let wide = u128::from(rng.next_u64()) * u128::from(bound);
        if wide as u64 >= reject_below {
            return (wide >> 64) as u64;
        }
    }
}

/// Which epoch a batch belongs to and which positions of that epoch's order it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSpan {
    /// From zero.
    pub epoch: u64,
    /// Places in that epoch's order.
    pub positions: Range<usize>,
}

/// Cuts one pass after another over `len` samples into batches; a batch never spans two epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    len: usize,
    batch_size: usize,
    per_epoch: u64,
}

impl Batches {
    /// Plans the batches; `None` where the samples do not fill one.
    pub fn new(len: usize, batch_size: usize, drop_last: bool) -> Option<Batches> {
        let per_epoch = if drop_last {
            len.checked_div(batch_size)?
        } else {
            len.div_ceil(batch_size.max(1))
        };
        (per_epoch > 0 && batch_size > 0).then_some(Batches {
            len,
            batch_size,
            per_epoch: per_epoch as u64,
        })
    }

    /// Batches in one epoch, at least one.
    pub fn per_epoch(&self) -> u64 {
        self.per_epoch
    }

    /// The span of batch number `batch`, counted over all epochs.
    pub fn span(&self, batch: u64) -> BatchSpan {
        let start = (batch % self.per_epoch) as usize * self.batch_size;
        let end = start.saturating_add(self.batch_size).min(self.len);
        BatchSpan {
            epoch: batch / self.per_epoch,
            positions: start..end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn orders() -> impl Strategy<Value = Order> {
        let block = (1usize..200, 1usize..2000);
        prop_oneof![
            Just(Order::Sequential),
            Just(Order::Random),
            block.prop_map(|(block, window)| Order::Block { block, window }),
        ]
    }

    /// Without a window of more than one sample, blocks stay whole; a sample leaves its window never.
    #[test]
    fn a_block_shuffle_keeps_neighbours_together() {
        let blocks = epoch_order(
            1000,
            1,
            0,
            Order::Block {
                block: 100,
                window: 1,
            },
        );
        for block in blocks.chunks(100) {
            assert!(block[0] % 100 == 0 && block.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
        assert_ne!(blocks, epoch_order(1000, 1, 0, Order::Sequential));
        let mixed = epoch_order(
            1000,
            1,
            0,
            Order::Block {
                block: 100,
                window: 200,
            },
        );
        for (window, block) in mixed.chunks(200).zip(blocks.chunks(200)) {
            assert_ne!(window, block);
            let sorted = |samples: &[u32]| {
                let mut samples = samples.to_vec();
                samples.sort_unstable();
                samples
            };
            assert_eq!(sorted(window), sorted(block));
        }
    }

    proptest! {
        #[test]
        fn an_order_is_a_permutation(
            len in 0usize..3000, seed: u64, epoch: u64, of in orders(),
        ) {
            let order = epoch_order(len, seed, epoch, of);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..len as u32).collect::<Vec<_>>());
            prop_assert_eq!(&order, &epoch_order(len, seed, epoch, of));
            if of == Order::Random && len > 100 {
                prop_assert_ne!(&order, &epoch_order(len, seed, epoch.wrapping_add(1), of));
                prop_assert_ne!(&order, &epoch_order(len, seed.wrapping_add(1), epoch, of));
            }
        }

        #[test]
        fn batches_cover_each_epoch_once(len in 1usize..500, size in 1usize..70, drop_last: bool, epochs in 1u64..4) {
            let Some(batches) = Batches::new(len, size, drop_last) else {
                prop_assert!(drop_last && len < size);
                return Ok(());
            };
            let covered_per_epoch = if drop_last { len / size * size } else { len };
            for epoch in 0..epochs {
                let mut next = 0;
                for number in epoch * batches.per_epoch()..(epoch + 1) * batches.per_epoch() {
                    let span = batches.span(number);
                    prop_assert_eq!(span.epoch, epoch);
                    prop_assert_eq!(span.positions.start, next);
                    prop_assert!(!span.positions.is_empty() && span.positions.len() <= size);
                    prop_assert!(!drop_last || span.positions.len() == size);
                    next = span.positions.end;
                }
                prop_assert_eq!(next, covered_per_epoch);
            }
        }

        #[test]
        fn below_stays_below(seed: u64, bound in 1u64..) {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            prop_assert!(below(&mut rng, bound) < bound);
        }
    }

    /// The deal that PyTorch's documentation describes.
    #[test]
    fn ranks_share_an_epoch_and_each_has_as_many() {
        for (len, of) in [(12, 3), (13, 3), (2, 5), (1, 1)] {
            let whole = epoch_order(len, 1, 2, Order::Random);
            for drop_last in [false, true] {
                let deal = |rank| Share { rank, of }.order(len, 1, 2, Order::Random, drop_last);
                let dealt: Vec<Vec<u32>> = (0..of).map(deal).collect();
                let each = dealt[0].len();
                assert!(dealt.iter().all(|own| own.len() == each));
                let turns = (0..each).flat_map(|turn| dealt.iter().map(move |own| own[turn]));
                let expected = whole.iter().cycle().take(each * of).copied();
                assert!(turns.eq(expected), "{len} samples, {of} ranks");
                assert_eq!(each * of > len, !drop_last && len % of > 0);
            }
        }
    }

    #[test]
    fn the_order_is_pinned_across_platforms_and_releases() {
        assert_eq!(
            epoch_order(10, 42, 0, Order::Random),
            [2, 3, 6, 7, 8, 4, 0, 9, 5, 1]
        );
        assert_eq!(
            epoch_order(10, 42, 1, Order::Random),
            [0, 5, 6, 2, 9, 4, 8, 7, 3, 1]
        );
    }

    #[test]
    fn positions_are_uniform() {
        // Chi-squared over where sample 0 lands: 9 degrees of freedom, 27.9 is the 0.1 % point.
        let mut counts = [0u32; 10];
        for epoch in 0..10_000 {
            let order = epoch_order(10, 7, epoch, Order::Random);
            counts[order.iter().position(|&index| index == 0).unwrap()] += 1;
        }
        let chi2: f64 = counts
            .iter()
            .map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0)
            .sum();
        assert!(chi2 < 27.9, "{chi2} {counts:?}");
    }

    #[test]
    fn sample_streams_differ_in_every_argument() {
        let first = |seed, epoch, index| sample_rng(seed, epoch, index).next_u64();
        let mut seen = std::collections::HashSet::new();
        for seed in 0..10 {
            for epoch in 0..10 {
                for index in 0..100 {
                    assert!(seen.insert(first(seed, epoch, index)));
                }
            }
        }
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        let mean = seen
            .iter()
            .map(|&word| word as f64 / u64::MAX as f64)
            .sum::<f64>()
            / seen.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn impossible_plans_are_refused() {
        assert_eq!(Batches::new(10, 0, false), None);
        assert_eq!(Batches::new(10, 0, true), None);
        assert_eq!(Batches::new(10, 64, true), None);
        assert_eq!(Batches::new(0, 4, false), None);
    }
}

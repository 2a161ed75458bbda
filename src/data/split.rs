//! Which samples are trained on, and which are held out.
//!
//! Invariants: the parts are disjoint and together the whole data set; they are a pure function of the arguments.
//!
//! May use: `data::sampler`.

use stallscope_core::pipeline::sampler::{Order, epoch_order};
use std::sync::Arc;

/// How much is held out.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Amount {
    /// Of all samples, 0 to 1.
    Share(f64),
    Samples(usize),
}

impl Amount {
    fn of(self, samples: usize) -> usize {
        match self {
            Amount::Share(share) => (samples as f64 * share).round() as usize,
            Amount::Samples(count) => count,
        }
    }
}

/// How a data set is split.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Split {
    pub validation: Amount,
    pub test: Amount,
    /// Held-out samples are drawn at random; otherwise they are the last: training, validation, test.
    pub at_random: bool,
}

/// Indices of the samples of each part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    pub training: Arc<[u32]>,
    pub validation: Arc<[u32]>,
    pub test: Arc<[u32]>,
}

/// Drawn apart from the orders of the epochs, which begin at zero.
const SPLIT_EPOCH: u64 = u64::MAX;

impl Split {
    /// Splits `samples` samples; `None` where nothing is left to train on.
    pub fn of(&self, samples: usize, seed: u64) -> Option<Parts> {
        let (validation, test) = (self.validation.of(samples), self.test.of(samples));
        let held_out = validation.checked_add(test)?;
        let training = samples.checked_sub(held_out).filter(|left| *left > 0)?;
        let order = if self.at_random && held_out > 0 {
            Order::Random
        } else {
            Order::Sequential
        };
        let order = epoch_order(samples, seed, SPLIT_EPOCH, order);
        let part = |from: usize, count: usize| {
            let mut part = order[from..from + count].to_vec();
            part.sort_unstable();
            Arc::from(part)
        };
        Some(Parts {
            training: part(0, training),
            validation: part(training, validation),
            test: part(training + validation, test),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_are_held_out_or_any() {
        let mut split = Split {
            validation: Amount::Share(0.15),
            test: Amount::Samples(1),
            at_random: false,
        };
        let parts = split.of(20, 0).unwrap();
        assert_eq!(parts.training[..], (0..16).collect::<Vec<u32>>());
        assert_eq!(
            (&parts.validation[..], &parts.test[..]),
            (&[16, 17, 18][..], &[19][..])
        );
        split.at_random = true;
        let random = split.of(20, 0).unwrap();
        assert_ne!(random, parts);
        assert_ne!(random, split.of(20, 1).unwrap());
        assert_eq!(Amount::Share(0.15).of(60_000), 9_000);
        split.test = Amount::Samples(17);
        assert_eq!(split.of(20, 0), None);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(samples in 1usize..300, shares in (0.0..0.5f64, 0usize..200), at_random: bool, seed: u64) {
            let split = Split { validation: Amount::Share(shares.0), test: Amount::Samples(shares.1), at_random };
            if let Some(parts) = split.of(samples, seed) {
                let mut all = [&parts.training[..], &parts.validation, &parts.test].concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..samples as u32).collect::<Vec<_>>());
            }
        }
    }
}

//! The order of trials: repeat by repeat, each in an order of its own, so that a machine that slows down
//! does not do so at the same points. May use: nothing of this crate.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Which trial: a point, and the how-manieth time it is run; both count from 0.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    pub point: usize,
    pub repeat: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.point, self.repeat)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let parsed = text.split_once('-').and_then(|(point, repeat)| {
            Some(Place {
                point: point.parse().ok()?,
                repeat: repeat.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| format!("`{text}` is not POINT-REPEAT"))
    }
}

/// All trials of `points` points, each `repeats` times; the same `seed` gives the same order.
pub fn order(points: usize, repeats: usize, seed: u64) -> Vec<Place> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut places = Vec::with_capacity(points.saturating_mul(repeats));
    for repeat in 0..repeats {
        let mut round: Vec<usize> = (0..points).collect();
        for last in (1..points).rev() {
            // The bias of a remainder is of no consequence here.
            round.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
        }
        places.extend(round.into_iter().map(|point| Place { point, repeat }));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_repeat_has_each_point_once(points in 0usize..60, repeats in 0usize..6, seed: u64) {
            let places = order(points, repeats, seed);
            prop_assert_eq!(places.len(), points * repeats);
            for (repeat, round) in places.chunks(points.max(1)).enumerate() {
                let mut seen: Vec<usize> = round.iter().map(|place| place.point).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..points).collect::<Vec<_>>());
                prop_assert!(round.iter().all(|place| place.repeat == repeat));
            }
            prop_assert_eq!(places, order(points, repeats, seed));
        }
    }

    #[test]
    fn repeats_and_seeds_differ_in_order() {
        let round = |places: &[Place]| places.iter().map(|place| place.point).collect::<Vec<_>>();
        let places = order(30, 2, 0);
        assert_ne!(round(&places[..30]), round(&places[30..]));
        assert_ne!(places, order(30, 2, 1));
    }
}

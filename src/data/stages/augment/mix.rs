//! Mixing the pictures of a batch: torchvision's `MixUp` and `CutMix`. May use: `stages::preprocess` for draws.

use std::ops::Range;

use rand::Rng;
use serde::Serialize;

use super::{below, unit};

/// How the pictures of a batch are mixed. Each is mixed with the one before it, the first with the last; of two ways one is
/// drawn for each batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct BatchMix {
    /// The parameter α of the beta distribution from which `MixUp` draws a picture's own share; 0 does nothing.
    pub mixup: f32,
    /// That of `CutMix`.
    pub cutmix: f32,
}

impl BatchMix {
    /// Whether anything is mixed.
    pub fn is_on(&self) -> bool {
        self.mixup > 0.0 || self.cutmix > 0.0
    }

    /// Mixes `images`, of `shape` channels, height and width each. Returns the share of the other picture, and so of its
    /// label.
    pub fn mix(&self, images: &mut [f32], shape: [usize; 3], rng: &mut impl Rng) -> f32 {
        let values = shape.iter().product::<usize>();
        if !self.is_on() || images.len() < 2 * values {
            return 0.0;
        }
        let cuts = match (self.mixup > 0.0, self.cutmix > 0.0) {
            (true, true) => below(rng, 2) == 1,
            (_, cuts) => cuts,
        };
        let alpha = f64::from(if cuts { self.cutmix } else { self.mixup });
        let own = beta(alpha, rng);
        let share = match cuts {
            true => Share::Part(Part::draw(shape, own, rng)),
            false => Share::Of(own as f32),
        };
        let last = images[images.len() - values..].to_vec();
        // From the last on, so that each is mixed with one that is not mixed yet.
        for start in (0..images.len()).step_by(values).rev() {
            let (before, image) = images.split_at_mut(start);
            let before = match start {
                0 => &last,
                _ => &before[start - values..],
            };
            share.take(&mut image[..values], before, shape);
        }
        share.other(shape)
    }
}

/// How two pictures share one.
enum Share {
    /// The picture's own share of each pixel.
    Of(f32),
    Part(Part),
}

/// Rows and columns.
struct Part {
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Part {
    /// One of about `1 - own` of the area, anywhere; what lies outside is left out.
    fn draw([_, height, width]: [usize; 3], own: f64, rng: &mut impl Rng) -> Part {
        let half = 0.5 * (1.0 - own).sqrt();
        let mut along = |side: usize| {
            let (middle, half) = (below(rng, side), (half * side as f64) as usize);
            middle.saturating_sub(half)..(middle + half).min(side)
        };
        let columns = along(width);
        let rows = along(height);
        Part { rows, columns }
    }
}

impl Share {
    fn take(&self, image: &mut [f32], other: &[f32], [_, height, width]: [usize; 3]) {
        match self {
            Share::Of(own) => {
                for (value, other) in image.iter_mut().zip(other) {
                    *value = *value * own + other * (1.0 - own);
                }
            }
            Share::Part(Part { rows, columns }) => {
                let planes = image.chunks_exact_mut(height * width);
                for (plane, other) in planes.zip(other.chunks_exact(height * width)) {
                    for row in rows.clone() {
                        let part = row * width + columns.start..row * width + columns.end;
                        plane[part.clone()].copy_from_slice(&other[part]);
                    }
                }
            }
        }
    }

    /// The other picture's share.
    fn other(&self, [_, height, width]: [usize; 3]) -> f32 {
        match self {
            Share::Of(own) => 1.0 - own,
            Share::Part(Part { rows, columns }) => {
                (rows.len() * columns.len()) as f32 / (height * width) as f32
            }
        }
    }
}

/// A draw from the beta distribution with both parameters `alpha`, by Jöhnk's method (M. D. Jöhnk, Metrika 8, 1964), on
/// logarithms, so that small parameters do not round to nothing.
fn beta(alpha: f64, rng: &mut impl Rng) -> f64 {
    loop {
        let [one, other] = [unit(rng), unit(rng)].map(|u| (1.0 - u).ln() / alpha);
        let most = one.max(other);
        let (one, other) = ((one - most).exp(), (other - most).exp());
        if (one + other).ln() + most <= 0.0 {
            return one / (one + other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const SHAPE: [usize; 3] = [2, 8, 6];
    const VALUES: usize = 96;

    /// Three pictures of one value each.
    fn images() -> Vec<f32> {
        [1.0, 10.0, 100.0]
            .into_iter()
            .flat_map(|value| [value; VALUES])
            .collect()
    }

    #[test]
    fn pictures_and_labels_have_the_same_shares() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for (mixup, cutmix) in [(0.2, 0.0), (0.0, 1.0), (1.0, 1.0)] {
            let mix = BatchMix { mixup, cutmix };
            let mut shares = Vec::new();
            for _ in 0..200 {
                let mut mixed = images();
                let share = mix.mix(&mut mixed, SHAPE, &mut rng);
                for (i, (own, before)) in [(1.0, 100.0), (10.0, 1.0), (100.0, 10.0)]
                    .into_iter()
                    .enumerate()
                {
                    let picture = &mixed[i * VALUES..(i + 1) * VALUES];
                    let mean = picture.iter().sum::<f32>() / VALUES as f32;
                    let wanted = own * (1.0 - share) + before * share;
                    assert!(
                        (mean - wanted).abs() < 1e-3 * wanted,
                        "{mean}, not {wanted}"
                    );
                    if mixup == 0.0 {
                        assert!(picture.iter().all(|value| [own, before].contains(value)));
                    }
                }
                shares.push(share);
            }
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
            shares.sort_unstable_by(f32::total_cmp);
            assert!(shares[180] - shares[20] > 0.3, "{shares:?}");
        }
    }

    #[test]
    fn nothing_is_mixed_unless_asked_or_alone() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut mixed = images();
        assert_eq!(BatchMix::default().mix(&mut mixed, SHAPE, &mut rng), 0.0);
        assert_eq!(mixed, images());
        let mixup = BatchMix {
            mixup: 1.0,
            cutmix: 0.0,
        };
        assert_eq!(mixup.mix(&mut mixed[..VALUES], SHAPE, &mut rng), 0.0);
        assert_eq!(mixed, images());
    }

    /// Mean 1/2 and variance 1 / (4 (2 alpha + 1)).
    #[test]
    fn draws_are_of_the_beta_distribution() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for alpha in [0.01, 0.2, 1.0, 2.0] {
            let draws: Vec<f64> = (0..40_000).map(|_| beta(alpha, &mut rng)).collect();
            let count = draws.len() as f64;
            let mean = draws.iter().sum::<f64>() / count;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let wanted = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.015, "alpha {alpha}: mean {mean}");
            assert!(
                (variance / wanted - 1.0).abs() < 0.03,
                "alpha {alpha}: {variance}, not {wanted}"
            );
        }
    }
}

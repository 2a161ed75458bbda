//! torchvision's `RandomCrop(side, padding)` and `RandomHorizontalFlip` on small images, which lie in memory plane by
//! plane. May use: `stages::preprocess` for draws.

use rand::Rng;

use super::below;
use crate::stages::preprocess::happens;

/// What is changed at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmallCrop {
    /// Black pixels on each side, from which a part of the image's own size is cut.
    pub pad: usize,
    /// Probability of mirroring the part left to right.
    pub flip_probability: f32,
}

impl SmallCrop {
    /// Writes a part of the image `pixels`, of `shape` channels, height and width, to `out`, which is as long. Draws the
    /// flip, then the part's top, then its left.
    pub fn cut(&self, pixels: &[u8], shape: [usize; 3], rng: &mut impl Rng, out: &mut [u8]) {
        let flip = happens(self.flip_probability, rng);
        let mut draw = || match self.pad {
            0 => 0,
            pad => below(rng, 2 * pad + 1),
        };
        let (top, left) = (draw(), draw());
        self.cut_at(pixels, shape, (top, left, flip), out);
    }

    fn cut_at(
        &self,
        pixels: &[u8],
        [_, height, width]: [usize; 3],
        (top, left, flip): (usize, usize, bool),
        out: &mut [u8],
    ) {
        out.fill(0);
        // Columns of the part that the image has, and where they begin in it.
        let to = self.pad.saturating_sub(left).min(width);
        let from = left.saturating_sub(self.pad).min(width);
        let count = (width - to).min(width - from);
        let planes = pixels.chunks_exact(height * width);
        for (plane, out) in planes.zip(out.chunks_exact_mut(height * width)) {
            for (y, out) in out.chunks_exact_mut(width).enumerate() {
                let row = (y + top).checked_sub(self.pad).filter(|row| *row < height);
                if let Some(row) = row {
                    let row = &plane[row * width..(row + 1) * width];
                    out[to..to + count].copy_from_slice(&row[from..from + count]);
                }
                if flip {
                    out.reverse();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Beside a slower way to say the same: look up each pixel in a padded copy.
    #[test]
    fn each_pixel_is_that_of_the_padded_image() {
        let shape = [2, 4, 5];
        let [channels, height, width] = shape;
        let pixels: Vec<u8> = (1..=(channels * height * width) as u8).collect();
        for pad in [0, 1, 3, 7] {
            let crop = SmallCrop {
                pad,
                flip_probability: 0.5,
            };
            for (top, left) in
                (0..=2 * pad).flat_map(|top| (0..=2 * pad).map(move |left| (top, left)))
            {
                for flip in [false, true] {
                    let mut out = vec![9; pixels.len()];
                    crop.cut_at(&pixels, shape, (top, left, flip), &mut out);
                    for (i, found) in out.iter().enumerate() {
                        let (plane, y, x) = (i / (height * width), i / width % height, i % width);
                        let x = if flip { width - 1 - x } else { x };
                        let inside = |at: usize, end: usize| at >= pad && at < pad + end;
                        let wanted = match inside(y + top, height) && inside(x + left, width) {
                            true => {
                                pixels[(plane * height + y + top - pad) * width + x + left - pad]
                            }
                            false => 0,
                        };
                        assert_eq!(*found, wanted, "pad {pad}, {top} {left} {flip}, pixel {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn parts_and_flips_are_equally_likely() {
        let crop = SmallCrop {
            pad: 1,
            flip_probability: 0.5,
        };
        let pixels = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut counts = std::collections::BTreeMap::new();
        let draws = 18_000;
        for _ in 0..draws {
            let mut out = [0; 9];
            crop.cut(&pixels, [1, 3, 3], &mut rng, &mut out);
            *counts.entry(out).or_insert(0) += 1;
        }
        // 3 x 3 places, each way round.
        assert_eq!(counts.len(), 18);
        // Within six standard deviations of a thousand each.
        assert!(
            counts.values().all(|count| (815..=1185).contains(count)),
            "{counts:?}"
        );
    }
}

//! 1/f noise, built coarse to fine.
//!
//! May use: nothing else of this crate.

use rand::Rng;

const COARSEST_CELL_LOG2: u32 = 7;
/// Amplitude of each octave over that of the octave twice as coarse: 1/f noise.
const OCTAVE_FALLOFF: f32 = 0.70;

/// A plane of f32 whose rows may be longer than the image.
#[derive(Default)]
pub(super) struct Plane {
    values: Vec<f32>,
    width: usize,
    height: usize,
}

impl Plane {
    /// Takes a new size; what the values are is up to the caller.
    fn reset(&mut self, width: usize, height: usize) {
        self.values.resize(width * height, 0.0);
        (self.width, self.height) = (width, height);
    }

    pub(super) fn row(&self, y: usize) -> &[f32] {
        &self.values[y * self.width..(y + 1) * self.width]
    }

    pub(super) fn row_mut(&mut self, y: usize) -> &mut [f32] {
        &mut self.values[y * self.width..(y + 1) * self.width]
    }
}

/// Builds 1/f noise coarse to fine: each level doubles the one before and adds finer noise, so all octaves together
/// cost little more than the last one. Values lie in -1..1, mostly near zero.
pub(super) fn fill_noise(
    plane: &mut Plane,
    spare: &mut Plane,
    size: (usize, usize),
    finest_log2: u32,
    rng: &mut impl Rng,
) {
    let points = |cell_log2: u32| {
        let along = |pixels: usize| pixels.div_ceil(1 << cell_log2) + 1;
        (along(size.0), along(size.1))
    };
    let (columns, rows) = points(COARSEST_CELL_LOG2);
    plane.reset(columns, rows);
    plane.values.fill(0.0);
    let octaves = (COARSEST_CELL_LOG2 - finest_log2 + 1) as i32;
    let mut amplitude = (1.0 - OCTAVE_FALLOFF) / (1.0 - power(OCTAVE_FALLOFF, octaves));
    add_white_noise(&mut plane.values, amplitude, rng);
    for cell_log2 in (0..COARSEST_CELL_LOG2).rev() {
        std::mem::swap(plane, spare);
        double(spare, plane, points(cell_log2));
        if cell_log2 >= finest_log2 {
            amplitude *= OCTAVE_FALLOFF;
            add_white_noise(&mut plane.values, amplitude, rng);
        }
    }
}

/// `powi` may round differently from platform to platform; repeated multiplication does not.
fn power(base: f32, exponent: i32) -> f32 {
    (0..exponent).fold(1.0, |product, _| product * base)
}

/// Adds uniform noise in -amplitude..amplitude, four values from each 64-bit draw.
fn add_white_noise(values: &mut [f32], amplitude: f32, rng: &mut impl Rng) {
    let scale = amplitude / 32768.0;
    for quad in values.chunks_mut(4) {
        let word = rng.next_u64();
        for (lane, value) in quad.iter_mut().enumerate() {
            *value += f32::from((word >> (16 * lane)) as i16) * scale;
        }
    }
}

/// Bilinear upsampling by two into a plane of `points` (columns, rows), at most twice the points of `from` less one.
fn double(from: &Plane, to: &mut Plane, points: (usize, usize)) {
    to.reset(points.0, points.1);
    let mut blended = vec![0.0f32; from.width];
    for y in 0..to.height {
        blended.copy_from_slice(from.row(y / 2));
        if y % 2 == 1 {
            for (out, below) in blended.iter_mut().zip(from.row(y / 2 + 1)) {
                *out = 0.5 * (*out + below);
            }
        }
        let mut pairs = to.row_mut(y).chunks_exact_mut(2);
        for ((pair, a), b) in (&mut pairs).zip(&blended).zip(&blended[1..]) {
            pair[0] = *a;
            pair[1] = 0.5 * (a + b);
        }
        if let [last] = pairs.into_remainder() {
            *last = blended[points.0 / 2];
        }
    }
}

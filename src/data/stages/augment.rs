//! Random changes to a picture of the size that is trained on: torchvision's `ColorJitter` and `RandAugment`, with the
//! arithmetic that Pillow does for them.
//!
//! Invariants: pixels have four bytes, of which the last means nothing; pictures are square. What is drawn comes from the
//! sample's own random stream, so that it does not depend on the worker. Scratch memory is kept between pictures.
//!
//! May use: `core::part` for the time of each, `stages::preprocess` for draws.

use rand::Rng;
use serde::Serialize;
use stallscope_core::part;
use stallscope_core::timeline::Pipeline;

use super::preprocess::unit;

mod colour;
mod geometry;
mod mix;
mod small;

pub use mix::BatchMix;
pub use small::SmallCrop;

/// The name of `ColorJitter` as a part of the preprocess stage.
pub const COLOR_JITTER: &str = Pipeline::PARTS_OF_IMAGES[0];
/// The name of `RandAugment` as a part of the preprocess stage.
pub const RANDAUGMENT: &str = Pipeline::PARTS_OF_IMAGES[1];

/// The name of `RandomCrop` with padding as a part of the preprocess stage.
pub const RANDOM_CROP: &str = Pipeline::PARTS_OF_IMAGES[2];

/// Magnitudes that `RandAugment` knows: torchvision's default.
pub const MAGNITUDES: u32 = 31;
/// Rotations reach this many degrees.
const MOST_DEGREES: f64 = 30.0;
/// Shears reach this slope.
const MOST_SHEAR: f64 = 0.3;
/// Translations reach this share of the side.
const MOST_TRANSLATION: f64 = 150.0 / 331.0;
/// Colours, contrast and so on change by this factor from 1.
const MOST_ENHANCEMENT: f64 = 0.9;

/// What is changed at random, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Augmentation {
    pub color_jitter: Option<ColorJitter>,
    pub randaugment: Option<RandAugment>,
}

impl Augmentation {
    /// The names of what is changed.
    pub fn parts(&self) -> Vec<&'static str> {
        let jitter = self.color_jitter.map(|_| COLOR_JITTER);
        let randaugment = self.randaugment.map(|_| RANDAUGMENT);
        jitter.into_iter().chain(randaugment).collect()
    }
}

/// torchvision's `ColorJitter`: factors are drawn from 1 ± each value and at least 0, the hue's shift from ± its value of a
/// full turn, at most 0.5; in a random order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ColorJitter {
    pub brightness: f32,
    pub contrast: f32,
    pub saturation: f32,
    pub hue: f32,
}

/// torchvision's `RandAugment`: `operations` of 14, drawn one after another with repetition, each of this magnitude, below
/// [`MAGNITUDES`], in a random direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RandAugment {
    pub operations: u32,
    pub magnitude: u32,
}

/// One change, as it was drawn. Factors are 1 where nothing changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    Identity,
    /// Slope.
    ShearX(f64),
    ShearY(f64),
    /// Pixels.
    TranslateX(i32),
    TranslateY(i32),
    /// Degrees, against the clock.
    Rotate(f64),
    Brightness(f32),
    /// Saturation.
    Color(f32),
    Contrast(f32),
    Sharpness(f32),
    /// Bits that are kept of each channel.
    Posterize(u32),
    /// Values from this one on are inverted.
    Solarize(f32),
    AutoContrast,
    Equalize,
    /// Of a full turn.
    Hue(f32),
}

impl RandAugment {
    /// One of the 14 operations, on a picture with sides of `side` pixels.
    fn draw(self, side: u32, rng: &mut impl Rng) -> Change {
        let strength = f64::from(self.magnitude) / f64::from(MAGNITUDES - 1);
        let operation = below(rng, 14);
        // Only what has a direction draws one.
        let is_directed = (1..=9).contains(&operation);
        let sign = match is_directed && below(rng, 2) == 1 {
            true => -1.0,
            false => 1.0,
        };
        let pixels = (sign * strength * MOST_TRANSLATION * f64::from(side)) as i32;
        let factor = (1.0 + sign * strength * MOST_ENHANCEMENT) as f32;
        match operation {
            1 => Change::ShearX(sign * strength * MOST_SHEAR),
            2 => Change::ShearY(sign * strength * MOST_SHEAR),
            3 => Change::TranslateX(pixels),
            4 => Change::TranslateY(pixels),
            5 => Change::Rotate(sign * strength * MOST_DEGREES),
            6 => Change::Brightness(factor),
            7 => Change::Color(factor),
            8 => Change::Contrast(factor),
            9 => Change::Sharpness(factor),
            10 => Change::Posterize(8 - (strength * 4.0).round_ties_even() as u32),
            11 => Change::Solarize((255.0 * (1.0 - strength)) as f32),
            12 => Change::AutoContrast,
            13 => Change::Equalize,
            _ => Change::Identity,
        }
    }
}

impl ColorJitter {
    /// The changes, in the order in which they are made.
    fn draw(self, rng: &mut impl Rng) -> [Change; 4] {
        let factor = |strength: f32, rng: &mut _| {
            let least = (1.0 - strength).max(0.0);
            least + (1.0 + strength - least) * unit(rng) as f32
        };
        // Nothing is done where nothing may change: turning the hue by nothing would round all colours.
        let unless = |strength: f32, change| match strength > 0.0 {
            true => change,
            false => Change::Identity,
        };
        let brightness = Change::Brightness(factor(self.brightness, rng));
        let contrast = Change::Contrast(factor(self.contrast, rng));
        let saturation = Change::Color(factor(self.saturation, rng));
        let hue = Change::Hue(self.hue * (2.0 * unit(rng) as f32 - 1.0));
        let mut changes = [
            unless(self.brightness, brightness),
            unless(self.contrast, contrast),
            unless(self.saturation, saturation),
            unless(self.hue, hue),
        ];
        for last in (1..changes.len()).rev() {
            changes.swap(last, below(rng, last + 1));
        }
        changes
    }
}

/// A whole number below `end`.
fn below(rng: &mut impl Rng, end: usize) -> usize {
    (unit(rng) * end as f64) as usize
}

/// Makes changes; each worker has its own.
#[derive(Default)]
pub struct Augmenter {
    before: Vec<u8>,
}

impl Augmenter {
    /// Changes the `side` x `side` pixels at random.
    pub fn augment(
        &mut self,
        augmentation: &Augmentation,
        pixels: &mut Vec<u8>,
        side: u32,
        rng: &mut impl Rng,
    ) {
        if let Some(jitter) = augmentation.color_jitter {
            let _part = part(COLOR_JITTER);
            for change in jitter.draw(rng) {
                self.make(change, pixels, side);
            }
        }
        if let Some(randaugment) = augmentation.randaugment {
            let _part = part(RANDAUGMENT);
            for _ in 0..randaugment.operations {
                let change = randaugment.draw(side, rng);
                self.make(change, pixels, side);
            }
        }
    }

    /// Makes one change to the `side` x `side` pixels.
    pub fn make(&mut self, change: Change, pixels: &mut Vec<u8>, side: u32) {
        let middle = f64::from(side) / 2.0;
        match change {
            Change::Identity => {}
            Change::ShearX(slope) => self.transform(pixels, side, [1.0, slope, 0.0, 0.0, 1.0, 0.0]),
            Change::ShearY(slope) => self.transform(pixels, side, [1.0, 0.0, 0.0, slope, 1.0, 0.0]),
            Change::TranslateX(by) => {
                self.transform(pixels, side, [1.0, 0.0, -f64::from(by), 0.0, 1.0, 0.0]);
            }
            Change::TranslateY(by) => {
                self.transform(pixels, side, [1.0, 0.0, 0.0, 0.0, 1.0, -f64::from(by)]);
            }
            Change::Rotate(0.0) => {}
            Change::Rotate(degrees) => {
                let (sin, cos) = (-degrees.to_radians()).sin_cos();
                let about = |along: f64, across: f64| middle - along * middle - across * middle;
                let matrix = [cos, sin, about(cos, sin), -sin, cos, about(-sin, cos)];
                self.transform(pixels, side, matrix);
            }
            Change::Brightness(factor) => colour::brightness(pixels, factor),
            Change::Color(factor) => colour::saturation(pixels, factor),
            Change::Contrast(factor) => colour::contrast(pixels, factor),
            Change::Sharpness(factor) => {
                self.keep(pixels);
                colour::sharpness(&self.before, side as usize, factor, pixels);
            }
            Change::Posterize(bits) => colour::posterize(pixels, bits),
            Change::Solarize(from) => colour::solarize(pixels, from),
            Change::AutoContrast => colour::auto_contrast(pixels),
            Change::Equalize => colour::equalize(pixels),
            Change::Hue(turn) => colour::hue(pixels, turn),
        }
    }

    fn keep(&mut self, pixels: &[u8]) {
        self.before.clear();
        self.before.extend_from_slice(pixels);
    }

    fn transform(&mut self, pixels: &mut Vec<u8>, side: u32, inverse: [f64; 6]) {
        std::mem::swap(&mut self.before, pixels);
        geometry::transform(&self.before, side as usize, inverse, pixels);
    }
}

#[cfg(test)]
mod tests;

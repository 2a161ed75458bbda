//! Which part of an image is kept: torchvision's crops, drawn and rounded as torchvision does.
//!
//! May use: `stages::decode` for what an image is a part of.

use crate::stages::decode::{Region, View};
use rand::Rng;

/// How often `RandomResizedCrop` draws before it falls back to a central crop.
const CROP_TRIES: u32 = 10;
/// The part of the resized shorter side that an evaluation keeps: torchvision's reference scripts keep 224 of 256.
const KEPT_IN_EVALUATION: f64 = 0.875;

/// Which part of an image is kept, at which size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spatial {
    /// A random part of `scale` times the area and an aspect `ratio` (both low..high), resized to `size`.
    RandomResizedCrop {
        size: u32,
        scale: (f32, f32),
        ratio: (f32, f32),
    },
    /// The shorter side resized to `resize`, then the central `size`.
    ResizeCenterCrop { resize: u32, size: u32 },
}

/// A part of the source image, in source pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CropBox {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    /// True when the image is cropped before it is resized, so that the filter must not see outside the box
    /// (`RandomResizedCrop`); false when it is resized first (`Resize` + `CenterCrop`). Isolated boxes are integral.
    pub isolated: bool,
}

impl CropBox {
    /// The same box in the pixels that `view` says are there.
    pub(super) fn stored(&self, view: &View) -> CropBox {
        let stored = (view.image_width.into(), view.image_height.into());
        let upright = [self.left, self.top, self.width, self.height];
        let [left, top, width, height] = view.orientation.stored_box(stored, upright);
        let shrink = f64::from(view.shrink);
        CropBox {
            left: (left / shrink - f64::from(view.left)).max(0.0),
            top: (top / shrink - f64::from(view.top)).max(0.0),
            width: width / shrink,
            height: height / shrink,
            isolated: self.isolated,
        }
    }

    /// How many times smaller the image may be decoded so that the box still need not be enlarged to `side`.
    fn shrink(&self, side: u32) -> u32 {
        let shorter = self.width.min(self.height);
        let enough = |times: &u32| shorter >= f64::from(side) * f64::from(*times);
        [8, 4, 2].into_iter().find(enough).unwrap_or(1)
    }

    /// The pixels of an image of this width and height that resizing the box to `side` takes in; none where the box
    /// lies outside.
    pub(super) fn region(&self, (width, height): (u32, u32), side: u32) -> Region {
        let margin = |length: f64| {
            let reach = (length / f64::from(side)).max(1.0).ceil() + 1.0;
            if self.isolated { 0.0 } else { reach }
        };
        let (beside, above) = (margin(self.width), margin(self.height));
        let from = |start: f64, margin: f64| (start - margin).floor().max(0.0) as u32;
        let to = |end: f64, margin: f64, most: u32| most.min((end + margin).ceil() as u32);
        let (left, top) = (from(self.left, beside), from(self.top, above));
        Region {
            left,
            top,
            width: to(self.left + self.width, beside, width).saturating_sub(left),
            height: to(self.top + self.height, above, height).saturating_sub(top),
            shrink: self.shrink(side),
        }
    }
}

impl Spatial {
    /// Side of the square output, in pixels.
    pub fn output_side(&self) -> u32 {
        match *self {
            Spatial::RandomResizedCrop { size, .. } | Spatial::ResizeCenterCrop { size, .. } => {
                size
            }
        }
    }

    /// The crop of an evaluation with the same output: a random one becomes a resize and its centre.
    pub fn for_evaluation(self) -> Spatial {
        match self {
            Spatial::RandomResizedCrop { size, .. } => Spatial::ResizeCenterCrop {
                resize: (f64::from(size) / KEPT_IN_EVALUATION).round() as u32,
                size,
            },
            centre => centre,
        }
    }

    /// The part of a `width` x `height` image to keep. Draws from `rng` only for a random crop.
    pub fn crop_box(&self, width: u32, height: u32, rng: &mut impl Rng) -> CropBox {
        match *self {
            Spatial::RandomResizedCrop { scale, ratio, .. } => {
                random_crop(width, height, scale, ratio, rng)
            }
            Spatial::ResizeCenterCrop { resize, size } => centre_crop(width, height, resize, size),
        }
    }
}

/// torchvision's `RandomResizedCrop.get_params`: area uniform, logarithm of the aspect ratio uniform, ten tries.
fn random_crop(
    width: u32,
    height: u32,
    scale: (f32, f32),
    ratio: (f32, f32),
    rng: &mut impl Rng,
) -> CropBox {
    let area = f64::from(width) * f64::from(height);
    let ratio = (f64::from(ratio.0), f64::from(ratio.1));
    for _ in 0..CROP_TRIES {
        let target_area = area * between(rng, f64::from(scale.0), f64::from(scale.1));
        let aspect = between(rng, ratio.0.ln(), ratio.1.ln()).exp();
        let crop_width = (target_area * aspect).sqrt().round_ties_even();
        let crop_height = (target_area / aspect).sqrt().round_ties_even();
        if (1.0..=f64::from(width)).contains(&crop_width)
            && (1.0..=f64::from(height)).contains(&crop_height)
        {
            let top = (unit(rng) * (f64::from(height) - crop_height + 1.0)).floor();
            let left = (unit(rng) * (f64::from(width) - crop_width + 1.0)).floor();
            return CropBox {
                left,
                top,
                width: crop_width,
                height: crop_height,
                isolated: true,
            };
        }
    }
    central_fallback(f64::from(width), f64::from(height), ratio)
}

/// The largest central crop whose aspect lies within `ratio`.
fn central_fallback(width: f64, height: f64, ratio: (f64, f64)) -> CropBox {
    let aspect = width / height;
    let (crop_width, crop_height) = if aspect < ratio.0 {
        (width, (width / ratio.0).round_ties_even())
    } else if aspect > ratio.1 {
        ((height * ratio.1).round_ties_even(), height)
    } else {
        (width, height)
    };
    // Where torchvision would round down to an empty crop, one pixel is kept.
    let (crop_width, crop_height) = (
        crop_width.min(width).max(1.0),
        crop_height.min(height).max(1.0),
    );
    CropBox {
        left: ((width - crop_width) / 2.0).floor(),
        top: ((height - crop_height) / 2.0).floor(),
        width: crop_width,
        height: crop_height,
        isolated: true,
    }
}

/// torchvision's `Resize(resize)` and `CenterCrop(size)`, as the box of source pixels they keep together.
fn centre_crop(width: u32, height: u32, resize: u32, size: u32) -> CropBox {
    let shorter = u64::from(width.min(height)).max(1);
    // The shorter side becomes `resize`, the longer is rounded down.
    let resized = |side: u32| u64::from(side) * u64::from(resize) / shorter;
    let (left, crop_width) = centre_of(width, resized(width), size);
    let (top, crop_height) = centre_of(height, resized(height), size);
    CropBox {
        left,
        top,
        width: crop_width,
        height: crop_height,
        isolated: false,
    }
}

/// The central `size` of a side of `resized` pixels: where it starts and how long it is in source pixels.
fn centre_of(side: u32, resized: u64, size: u32) -> (f64, f64) {
    let (side, resized, size) = (f64::from(side), resized as f64, f64::from(size));
    let offset = ((resized - size) / 2.0).round_ties_even();
    let start = offset * side / resized;
    let mut len = (size * side / resized).min(side - start);
    // Rounding may put the end a hair past the edge, which the resizer refuses.
    while start + len > side {
        len = len.next_down();
    }
    (start, len)
}

/// A draw from 0 (included) to 1 (excluded).
pub(in crate::stages) fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Draws whether something of this probability happens; of what never does nothing is drawn.
pub(in crate::stages) fn happens(probability: f32, rng: &mut impl Rng) -> bool {
    probability > 0.0 && unit(rng) < f64::from(probability)
}

fn between(rng: &mut impl Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * unit(rng)
}

//! The preprocess kernel: crop, resize, flip and normalise one RGB image into its place in a batch.
//!
//! Draws and rounds as torchvision does on a PIL image: `RandomResizedCrop` + `RandomHorizontalFlip` for training,
//! `Resize` + `CenterCrop` for evaluation, then `ToTensor` and `Normalize`. The resize is antialiased bilinear as
//! Pillow's is. Resize and centre crop are one operation: only what the crop keeps is computed.
//!
//! Invariants: output is `3 x size x size`, channel first; all scratch memory is kept between images; the same random
//! stream always gives the same output, whichever worker runs it.
//!
//! May use: `stages::decode` for the buffer it reads.

use fast_image_resize as resize;
use rand::Rng;
use resize::images::{CroppedImage, Image, ImageRef};
use resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::decode::RgbBuffer;
use crop::unit;

mod crop;

pub use crop::{CropBox, Spatial};

/// What is done to every image.
#[derive(Debug, Clone, PartialEq)]
pub struct PreprocessPlan {
    pub spatial: Spatial,
    /// Probability of mirroring left to right.
    pub flip_probability: f32,
    /// Per channel, on the scale where 255 is 1: `(value / 255 - mean) / std`.
    pub mean: [f32; 3],
    pub std: [f32; 3],
}

/// A plan that makes no sense, or an image it cannot be applied to.
#[derive(Debug, thiserror::Error)]
pub enum PreprocessError {
    #[error("preprocess {option} = {value} makes no sense: {want}")]
    BadPlan {
        option: &'static str,
        value: String,
        want: &'static str,
    },
    #[error(
        "the image buffer says {width}x{height} but holds {bytes} bytes; decode an image into it first"
    )]
    BadImage {
        width: u32,
        height: u32,
        bytes: usize,
    },
    #[error("the output has room for {found} values, the plan makes {wanted}; use `output_len()`")]
    OutputLength { found: usize, wanted: usize },
    #[error("cannot resize {crop:?} of a {width}x{height} image: {reason}")]
    Resize {
        crop: CropBox,
        width: u32,
        height: u32,
        reason: String,
    },
}

/// A plan with the scratch memory to carry it out; one per worker.
pub struct Preprocessor {
    plan: PreprocessPlan,
    resizer: Resizer,
    resized: Vec<u8>,
    levels: [[f32; 256]; 3],
}

impl Preprocessor {
    /// Checks the plan and prepares its tables.
    pub fn new(plan: &PreprocessPlan) -> Result<Preprocessor, PreprocessError> {
        check(plan)?;
        let level = |c: usize| {
            std::array::from_fn(|value| (value as f32 / 255.0 - plan.mean[c]) / plan.std[c])
        };
        Ok(Preprocessor {
            plan: plan.clone(),
            resizer: Resizer::new(),
            resized: Vec::new(),
            levels: [level(0), level(1), level(2)],
        })
    }

    /// The plan this was made from.
    pub fn plan(&self) -> &PreprocessPlan {
        &self.plan
    }

    /// Values one image gives: `3 * size * size`.
    pub fn output_len(&self) -> usize {
        let side = self.plan.spatial.output_side() as usize;
        3 * side * side
    }

    /// Preprocesses `image` into `out`, drawing first the crop, then the flip.
    pub fn apply(
        &mut self,
        image: &RgbBuffer,
        rng: &mut impl Rng,
        out: &mut [f32],
    ) -> Result<(), PreprocessError> {
        if out.len() != self.output_len() {
            return Err(PreprocessError::OutputLength {
                found: out.len(),
                wanted: self.output_len(),
            });
        }
        check_image(image)?;
        let side = self.plan.spatial.output_side();
        let crop = self.plan.spatial.crop_box(image.width, image.height, rng);
        let flip =
            self.plan.flip_probability > 0.0 && unit(rng) < f64::from(self.plan.flip_probability);
        self.resize_crop_to_rgb(image, &crop, side)?;
        if flip {
            normalise::<true>(&self.resized, side as usize, &self.levels, out);
        } else {
            normalise::<false>(&self.resized, side as usize, &self.levels, out);
        }
        Ok(())
    }

    /// The resize alone: `crop` of `image` as `side` x `side` interleaved RGB, valid until the next call.
    pub fn resize_crop_to_rgb(
        &mut self,
        image: &RgbBuffer,
        crop: &CropBox,
        side: u32,
    ) -> Result<&[u8], PreprocessError> {
        let RgbBuffer {
            width,
            height,
            ref pixels,
        } = *image;
        check_image(image)?;
        let failed = |reason: String| PreprocessError::Resize {
            crop: *crop,
            width,
            height,
            reason,
        };
        self.resized.resize(side as usize * side as usize * 3, 0);
        let source = ImageRef::new(width, height, pixels, PixelType::U8x3)
            .map_err(|e| failed(e.to_string()))?;
        let mut target = Image::from_slice_u8(side, side, &mut self.resized, PixelType::U8x3)
            .map_err(|e| failed(e.to_string()))?;
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false);
        let resized = if crop.isolated {
            let [left, top, width, height] =
                [crop.left, crop.top, crop.width, crop.height].map(|side| side as u32);
            let part = CroppedImage::new(&source, left, top, width, height)
                .map_err(|e| failed(e.to_string()))?;
            self.resizer.resize(&part, &mut target, &options)
        } else {
            let options = options.crop(crop.left, crop.top, crop.width, crop.height);
            self.resizer.resize(&source, &mut target, &options)
        };
        resized.map_err(|e| failed(e.to_string()))?;
        Ok(&self.resized)
    }
}

fn check_image(image: &RgbBuffer) -> Result<(), PreprocessError> {
    let RgbBuffer {
        width,
        height,
        ref pixels,
    } = *image;
    if pixels.is_empty() || pixels.len() != width as usize * height as usize * 3 {
        return Err(PreprocessError::BadImage {
            width,
            height,
            bytes: pixels.len(),
        });
    }
    Ok(())
}

fn bad_plan<T: std::fmt::Debug>(
    option: &'static str,
    value: T,
    want: &'static str,
) -> Result<(), PreprocessError> {
    let value = format!("{value:?}");
    Err(PreprocessError::BadPlan {
        option,
        value,
        want,
    })
}

fn check(plan: &PreprocessPlan) -> Result<(), PreprocessError> {
    check_spatial(&plan.spatial)?;
    if !(0.0..=1.0).contains(&plan.flip_probability) {
        return bad_plan(
            "flip_probability",
            plan.flip_probability,
            "a probability between 0 and 1",
        );
    }
    if plan.mean.iter().any(|mean| !mean.is_finite()) {
        return bad_plan("mean", plan.mean, "finite values, 1 being white");
    }
    if plan.std.iter().any(|std| !(std.is_finite() && *std > 0.0)) {
        return bad_plan("std", plan.std, "values above zero, 1 being white");
    }
    Ok(())
}

fn check_spatial(spatial: &Spatial) -> Result<(), PreprocessError> {
    match *spatial {
        Spatial::RandomResizedCrop { scale, ratio, .. } => {
            let ordered = |(low, high): (f32, f32)| low > 0.0 && low <= high && high.is_finite();
            if !ordered(scale) || scale.1 > 1.0 {
                return bad_plan("scale", scale, "shares of the area, 0 < low <= high <= 1");
            }
            if !ordered(ratio) {
                return bad_plan("ratio", ratio, "aspect ratios, 0 < low <= high");
            }
        }
        Spatial::ResizeCenterCrop { resize, size } => {
            if resize < size {
                return bad_plan(
                    "resize",
                    resize,
                    "at least the size that is cropped from it",
                );
            }
        }
    }
    let side = spatial.output_side();
    if !(1..=16_384).contains(&side) {
        return bad_plan("size", side, "a side from 1 to 16384 pixels");
    }
    Ok(())
}

/// Interleaved bytes to normalised planes, row by row, mirrored when `FLIP`. A row stays in the first-level cache while
/// its three planes are filled, each as one stream: measured faster than filling the three together.
fn normalise<const FLIP: bool>(
    pixels: &[u8],
    side: usize,
    levels: &[[f32; 256]; 3],
    out: &mut [f32],
) {
    let (red, rest) = out.split_at_mut(side * side);
    let (green, blue) = rest.split_at_mut(side * side);
    let planes = red
        .chunks_exact_mut(side)
        .zip(green.chunks_exact_mut(side))
        .zip(blue.chunks_exact_mut(side));
    for (row, ((red, green), blue)) in pixels.chunks_exact(side * 3).zip(planes) {
        normalise_row::<FLIP, 0>(row, &levels[0], red);
        normalise_row::<FLIP, 1>(row, &levels[1], green);
        normalise_row::<FLIP, 2>(row, &levels[2], blue);
    }
}

/// Channel `C` of one row: four pixels at a time, so that they leave in one 16-byte store, then what is left over.
fn normalise_row<const FLIP: bool, const C: usize>(
    row: &[u8],
    levels: &[f32; 256],
    plane: &mut [f32],
) {
    let (fours, rest) = row.as_chunks::<12>();
    let look_up = |four: &[u8; 12]| [0, 3, 6, 9].map(|at| levels[usize::from(four[at + C])]);
    let left_over = rest
        .chunks_exact(3)
        .map(|pixel| levels[usize::from(pixel[C])]);
    if FLIP {
        // What is left over at the end of the row comes out at its start.
        let (start, groups) = plane.as_rchunks_mut::<4>();
        for (group, four) in groups.iter_mut().zip(fours.iter().rev()) {
            let [a, b, c, d] = look_up(four);
            *group = [d, c, b, a];
        }
        start
            .iter_mut()
            .rev()
            .zip(left_over)
            .for_each(|(value, level)| *value = level);
    } else {
        let (groups, end) = plane.as_chunks_mut::<4>();
        for (group, four) in groups.iter_mut().zip(fours) {
            *group = look_up(four);
        }
        end.iter_mut()
            .zip(left_over)
            .for_each(|(value, level)| *value = level);
    }
}

#[cfg(test)]
mod tests;

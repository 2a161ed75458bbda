//! The preprocess kernel: crop, resize, flip and normalise one RGB image into its place in a batch.
//!
//! Draws and rounds as torchvision does on a PIL image: `RandomResizedCrop` + `RandomHorizontalFlip` for training,
//! `Resize` + `CenterCrop` for evaluation, then `ToTensor` and `Normalize`. The resize is antialiased bilinear as
//! Pillow's is. Resize and centre crop are one operation: only what the crop keeps is computed.
//!
//! Invariants: output is `3 x size x size`, channel first; all scratch memory is kept between images; the same random
//! stream always gives the same output, whichever worker runs it.
//!
//! May use: `stages::augment` for what is changed at random, `stages::decode` for the buffer it reads, `stages::spare` for its
//! own.

use fast_image_resize as resize;
use multiversion::multiversion;
use rand::Rng;
use resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use resize::pixels::U8x4;
use resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use super::augment::{Augmentation, Augmenter};
use super::decode::{Region, Rgb, drop_fourth_bytes};
use super::spare::Scratch;

mod crop;

pub use crop::{CropBox, Spatial};
pub(super) use crop::{happens, unit};

/// What is done to every image.
#[derive(Debug, Clone, PartialEq)]
pub struct PreprocessPlan {
    pub spatial: Spatial,
    /// Probability of mirroring left to right.
    pub flip_probability: f32,
    /// Changes to the cropped picture, before it is mirrored and normalised.
    pub augmentation: Augmentation,
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
    /// What is resized of an image whose pixels have three bytes, with four.
    widened: Scratch,
    /// Pixels of four bytes, of which the last means nothing.
    resized: Vec<u8>,
    /// Of an image that had to be turned.
    upright: Vec<u8>,
    augmenter: Augmenter,
    /// `value * scale + offset` for each channel.
    scale: [f32; 3],
    offset: [f32; 3],
}

impl Preprocessor {
    /// Checks the plan and prepares its tables.
    pub fn new(plan: &PreprocessPlan) -> Result<Preprocessor, PreprocessError> {
        check(plan)?;
        Ok(Preprocessor {
            plan: plan.clone(),
            resizer: Resizer::new(),
            widened: Scratch::default(),
            resized: Vec::new(),
            upright: Vec::new(),
            augmenter: Augmenter::default(),
            scale: plan.std.map(|std| 1.0 / (255.0 * std)),
            offset: std::array::from_fn(|c| -plan.mean[c] / plan.std[c]),
        })
    }

    /// Values one image gives: `3 * size * size`.
    pub fn output_len(&self) -> usize {
        let side = self.plan.spatial.output_side() as usize;
        3 * side * side
    }

    /// Preprocesses `image` into `out`, drawing first the flip, then the crop, then the other changes.
    pub fn apply(
        &mut self,
        image: Rgb<'_>,
        rng: &mut impl Rng,
        out: &mut [f32],
    ) -> Result<(), PreprocessError> {
        let flip = self.draw_and_crop(image, rng, out.len())?;
        let (scale, offset) = (self.scale, self.offset);
        let side = self.plan.spatial.output_side() as usize;
        normalise(&self.resized, side, flip, scale, offset, out);
        Ok(())
    }

    /// Crops, resizes and augments `image` into `out`, interleaved 8-bit RGB; flip and normalisation are the device's.
    pub fn apply_crop(
        &mut self,
        image: Rgb<'_>,
        rng: &mut impl Rng,
        out: &mut [u8],
    ) -> Result<(), PreprocessError> {
        self.draw_and_crop(image, rng, out.len())?;
        out.copy_from_slice(self.as_rgb());
        Ok(())
    }

    /// Draws what happens to `image` and crops and resizes it into `self.resized`; returns whether it is mirrored.
    fn draw_and_crop(
        &mut self,
        image: Rgb<'_>,
        rng: &mut impl Rng,
        found: usize,
    ) -> Result<bool, PreprocessError> {
        let wanted = self.output_len();
        if found != wanted {
            return Err(PreprocessError::OutputLength { found, wanted });
        }
        let drawn = self.plan.draw(image.view.upright(), rng);
        let side = self.plan.spatial.output_side();
        self.resize_crop(image, &drawn.crop, side)?;
        let (augmenter, augmentation) = (&mut self.augmenter, &self.plan.augmentation);
        augmenter.augment(augmentation, &mut self.resized, side, rng);
        Ok(drawn.flip)
    }

    /// `self.resized` without every fourth byte.
    fn as_rgb(&mut self) -> &[u8] {
        drop_fourth_bytes(&mut self.resized);
        &self.resized
    }

    /// The resize alone: `crop` of the upright `image` as `side` x `side` interleaved RGB, valid until the next
    /// call.
    pub fn resize_crop_to_rgb(
        &mut self,
        image: Rgb<'_>,
        crop: &CropBox,
        side: u32,
    ) -> Result<&[u8], PreprocessError> {
        self.resize_crop(image, crop, side)?;
        Ok(self.as_rgb())
    }

    /// `crop` of the upright `image` as `side` x `side` pixels of four bytes, into `self.resized`.
    fn resize_crop(
        &mut self,
        image: Rgb<'_>,
        crop: &CropBox,
        side: u32,
    ) -> Result<(), PreprocessError> {
        check_image(image)?;
        self.resized.resize(side as usize * side as usize * 4, 0);
        let resized = self.resize(image, &crop.stored(&image.view), side);
        resized.map_err(|reason| PreprocessError::Resize {
            crop: *crop,
            width: image.width,
            height: image.height,
            reason,
        })?;
        let orientation = image.view.orientation;
        if !orientation.is_upright() {
            orientation.turn(&self.resized, 4, (side, side), &mut self.upright);
            std::mem::swap(&mut self.resized, &mut self.upright);
        }
        Ok(())
    }

    /// `crop`, in pixels of `image`, into `self.resized`.
    fn resize(&mut self, image: Rgb<'_>, crop: &CropBox, side: u32) -> Result<(), String> {
        // What the filter sees. Of an image that was decoded smaller a box need not begin and end with a pixel.
        let seen = crop.region((image.width, image.height), side);
        let beside = crop.left - f64::from(seen.left);
        let above = crop.top - f64::from(seen.top);
        let wide = crop.width.min(f64::from(seen.width) - beside);
        let high = crop.height.min(f64::from(seen.height) - above);
        if !(wide > 0.0 && high > 0.0) {
            return Err("the box is empty or lies outside the pixels".to_owned());
        }
        let (size, pixels, [x, y]) = match image.view.pixel_bytes {
            4 => (
                [image.width, image.height],
                image.pixels,
                [seen.left, seen.top],
            ),
            _ => {
                let bytes = seen.width as usize * seen.height as usize * 4;
                widen(image, &seen, self.widened.for_use(bytes));
                ([seen.width, seen.height], &self.widened.bytes[..], [0, 0])
            }
        };
        let source = TypedImageRef::<U8x4>::from_buffer(size[0], size[1], pixels);
        let source = source.map_err(|error| error.to_string())?;
        let seen_of_source = TypedCroppedImage::from_ref(&source, x, y, seen.width, seen.height)
            .map_err(|error| error.to_string())?;
        let target = TypedImage::<U8x4>::from_buffer(side, side, &mut self.resized);
        let mut target = target.map_err(|error| error.to_string())?;
        let options = antialiased().crop(beside, above, wide, high);
        // Typed: `resize` would build every type of pixel there is into the caller.
        let resized = (self.resizer).resize_typed(&seen_of_source, &mut target, &options);
        resized.map_err(|error| error.to_string())
    }
}

/// How pictures are resized: as Pillow's antialiased bilinear filter does.
pub(super) fn antialiased() -> ResizeOptions {
    ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .use_alpha(false)
}

impl PreprocessPlan {
    /// The plan of an evaluation with the same output, which draws nothing at random.
    pub fn for_evaluation(&self) -> PreprocessPlan {
        PreprocessPlan {
            spatial: self.spatial.for_evaluation(),
            flip_probability: 0.0,
            augmentation: Augmentation::default(),
            ..self.clone()
        }
    }

    /// Draws what happens to an image of this width and height, first the flip, then the crop: the flip does not
    /// depend on the size, so that whoever does not know it can draw it too.
    pub fn draw(&self, (width, height): (u32, u32), rng: &mut impl Rng) -> Drawn {
        let flip = self.draw_flip(rng);
        let crop = self.spatial.crop_box(width, height, rng);
        Drawn { flip, crop }
    }

    /// Draws whether an image is mirrored.
    pub fn draw_flip(&self, rng: &mut impl Rng) -> bool {
        happens(self.flip_probability, rng)
    }

    /// The part of an image of this width and height that the crop needs, drawn from the same stream as
    /// [`draw`](Self::draw) draws from; with what the filter sees around it.
    pub fn region(&self, size: (u32, u32), rng: &mut impl Rng) -> Region {
        self.draw(size, rng)
            .crop
            .region(size, self.spatial.output_side())
    }
}

/// What was drawn for one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// Mirrored left to right.
    pub flip: bool,
    pub crop: CropBox,
}

fn check_image(image: Rgb<'_>) -> Result<(), PreprocessError> {
    let Rgb {
        width,
        height,
        pixels,
        view,
    } = image;
    let wanted = width as usize * height as usize * view.pixel_bytes as usize;
    if pixels.is_empty() || pixels.len() != wanted {
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

/// The pixels of three bytes in `part` of `image` with a fourth, which makes resizing faster.
#[multiversion(targets = "simd")]
fn widen(image: Rgb<'_>, part: &Region, out: &mut Vec<u8>) {
    let [left, top, width, height] =
        [part.left, part.top, part.width, part.height].map(|n| n as usize);
    out.resize(width * height * 4, 0);
    let rows = image.pixels.chunks_exact(image.width as usize * 3);
    for (row, out) in rows.skip(top).zip(out.chunks_exact_mut(width * 4)) {
        let (row, _) = row[left * 3..(left + width) * 3].as_chunks::<3>();
        let (out, _) = out.as_chunks_mut::<4>();
        for (&[red, green, blue], out) in row.iter().zip(out) {
            *out = [red, green, blue, 0];
        }
    }
}

/// Interleaved pixels of four bytes to normalised planes, row by row, mirrored where `flip`.
#[multiversion(targets = "simd")]
fn normalise(
    pixels: &[u8],
    side: usize,
    flip: bool,
    scale: [f32; 3],
    offset: [f32; 3],
    out: &mut [f32],
) {
    let (red, rest) = out.split_at_mut(side * side);
    let (green, blue) = rest.split_at_mut(side * side);
    let planes = red
        .chunks_exact_mut(side)
        .zip(green.chunks_exact_mut(side))
        .zip(blue.chunks_exact_mut(side));
    for (row, ((red, green), blue)) in pixels.chunks_exact(side * 4).zip(planes) {
        let (row, _) = row.as_chunks::<4>();
        let values = red.iter_mut().zip(green.iter_mut()).zip(blue.iter_mut());
        for (pixel, ((red, green), blue)) in row.iter().zip(values) {
            // Shifts of whole pixels are what compilers make vectors of.
            let pixel = u32::from_le_bytes(*pixel);
            let [r, g, b] = [0, 8, 16].map(|bits| (pixel >> bits & 0xff) as f32);
            *red = r * scale[0] + offset[0];
            *green = g * scale[1] + offset[1];
            *blue = b * scale[2] + offset[2];
        }
        if flip {
            red.reverse();
            green.reverse();
            blue.reverse();
        }
    }
}

#[cfg(test)]
mod tests;

//! Preprocessing on the device: 8-bit pixels in, normalised floats out, by tensor operations.
//!
//! A crop, its resize and its flip are two matrix products: each row of a matrix holds the weights with which
//! one output pixel takes in the pixels of a row (or column) of the source. The weights are those of Pillow's
//! antialiased bilinear filter, a triangle as wide as the scale; without the rounding to 8 bits between the
//! two passes that Pillow does.

use super::{Crop, PixelLayout, PixelPlan};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

/// Numbers that describe a sample's crop.
pub(super) const NUMBERS: usize = 9;

/// 8-bit images on the device that are not preprocessed yet.
#[derive(Clone)]
pub(super) struct Pixels<B: Backend> {
    /// `[batch, height, width, channels]`, or planar `[batch, channels, height, width]`.
    pixels: Tensor<B, 4, Int>,
    /// Left, top, width, height, what is seen, whether mirrored: `[batch, 9]`.
    crops: Tensor<B, 2>,
    plan: PixelPlan,
}

impl<B: Backend> Pixels<B> {
    /// Copies `pixels` and what is to be done with each image.
    pub(super) fn new(
        plan: &PixelPlan,
        pixels: &[u8],
        crops: &[Crop],
        device: &B::Device,
    ) -> Pixels<B> {
        let pixels = TensorData::new(pixels.to_vec(), shape(plan, crops.len()));
        let numbers = TensorData::new(numbers(crops), [crops.len(), NUMBERS]);
        Pixels::on_device(
            plan,
            Tensor::from_data(pixels, (device, DType::U8)),
            Tensor::from_data(numbers, device),
        )
    }

    /// `pixels` of the plan's [`shape`], and the [`numbers`] of each image's crop, which lie on the device.
    pub(super) fn on_device(
        plan: &PixelPlan,
        pixels: Tensor<B, 4, Int>,
        crops: Tensor<B, 2>,
    ) -> Pixels<B> {
        Pixels {
            pixels,
            crops,
            plan: plan.clone(),
        }
    }

    /// Crops, resizes, flips and normalises: `[batch, channels, side, side]`, or of the source's own size.
    pub(super) fn finish(self) -> Tensor<B, 4> {
        let images = self.pixels.float();
        let images = match self.plan.layout {
            PixelLayout::Interleaved => images.permute([0, 3, 1, 2]),
            PixelLayout::Planar => images,
        };
        let images = match self.plan.side {
            Some(side) => resize(images, &self.crops, side),
            None => mirror(images, &self.crops),
        };
        normalise(images, &self.plan)
    }
}

/// Of the pixels of `batch` images.
pub(super) fn shape(plan: &PixelPlan, batch: usize) -> [usize; 4] {
    let (height, width, channels) = (plan.height, plan.width, plan.mean.len());
    match plan.layout {
        PixelLayout::Interleaved => [batch, height, width, channels],
        PixelLayout::Planar => [batch, channels, height, width],
    }
}

/// What is to be done with each image: [`NUMBERS`] of each.
pub(super) fn numbers(crops: &[Crop]) -> Vec<f32> {
    let numbers = crops.iter().flat_map(|crop| {
        let [left, top, right, bottom] = crop.seen;
        let flip = f32::from(u8::from(crop.flip));
        let Crop { width, height, .. } = *crop;
        [
            crop.left, crop.top, width, height, left, top, right, bottom, flip,
        ]
    });
    numbers.collect()
}

/// Column `at` of the crops, as `[batch, 1, 1]`.
fn column<B: Backend>(crops: &Tensor<B, 2>, at: usize) -> Tensor<B, 3> {
    let batch = crops.dims()[0];
    crops.clone().narrow(1, at, 1).reshape([batch, 1, 1])
}

fn resize<B: Backend>(images: Tensor<B, 4>, crops: &Tensor<B, 2>, side: usize) -> Tensor<B, 4> {
    let [_, _, height, width] = images.dims();
    let flip = column(crops, 8);
    let across = Axis {
        start: column(crops, 0),
        length: column(crops, 2),
        seen: [column(crops, 4), column(crops, 6)],
        flip: flip.clone(),
    };
    let down = Axis {
        start: column(crops, 1),
        length: column(crops, 3),
        seen: [column(crops, 5), column(crops, 7)],
        flip: flip.zeros_like(),
    };
    let across = across.weights(width, side).unsqueeze_dim::<4>(1);
    let down = down.weights(height, side).unsqueeze_dim::<4>(1);
    down.matmul(images.matmul(across.transpose()))
}

/// The crops along one axis, each `[batch, 1, 1]`.
struct Axis<B: Backend> {
    start: Tensor<B, 3>,
    length: Tensor<B, 3>,
    /// From where to where pixels count.
    seen: [Tensor<B, 3>; 2],
    flip: Tensor<B, 3>,
}

impl<B: Backend> Axis<B> {
    /// With which weight each of `side` output pixels takes in each of `pixels`: `[batch, side, pixels]`.
    fn weights(self, pixels: usize, side: usize) -> Tensor<B, 3> {
        let device = self.start.device();
        let count = |n: usize| Tensor::<B, 1, Int>::arange(0..n as i64, &device).float();
        let centre = count(pixels).reshape([1, 1, pixels]) + 0.5;
        let output = count(side).reshape([1, side, 1]);
        // Mirrored, the first output pixel is the last.
        let mirrored = output.clone().neg() + (side - 1) as f32;
        let output = output.clone() + self.flip * (mirrored - output);
        let scale = self.length / side as f32;
        let aim = self.start + (output + 0.5) * scale.clone();
        let reach = scale.clamp_min(1.0);
        let [first, last] = self.seen;
        let from_the_first = centre.clone().sub(first).sign().clamp_min(0.0);
        let to_the_last = last.sub(centre.clone()).sign().clamp_min(0.0);
        let weights = ((centre - aim).abs() / reach).neg() + 1.0;
        let weights = weights.clamp_min(0.0) * from_the_first * to_the_last;
        let sum = weights.clone().sum_dim(2);
        weights / sum
    }
}

fn mirror<B: Backend>(images: Tensor<B, 4>, crops: &Tensor<B, 2>) -> Tensor<B, 4> {
    let flip = column(crops, 8).unsqueeze_dim::<4>(1);
    let mirrored = images.clone().flip([3]);
    images.clone() + flip * (mirrored - images)
}

fn normalise<B: Backend>(images: Tensor<B, 4>, plan: &PixelPlan) -> Tensor<B, 4> {
    let device = images.device();
    let channels = plan.mean.len();
    let per_channel = |values: Vec<f32>| {
        let data = TensorData::new(values, [1, channels, 1, 1]);
        Tensor::<B, 4>::from_data(data, &device)
    };
    let both = plan.mean.iter().zip(&plan.std);
    let scale = plan.std.iter().map(|std| 1.0 / (255.0 * std));
    let offset = both.map(|(mean, std)| -mean / std);
    images * per_channel(scale.collect()) + per_channel(offset.collect())
}

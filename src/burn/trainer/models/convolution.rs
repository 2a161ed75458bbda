//! Small networks of convolutions.

use super::layers::Layers;
use burn::module::{Initializer, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

/// How torchvision draws a convolution that a rectifier follows: normally, with a variance of 2 over the
/// outputs that one input has a part in (He et al. 2015, "Delving Deep into Rectifiers").
pub(super) const RECTIFIED: Initializer = Initializer::KaimingNormal {
    gain: std::f64::consts::SQRT_2,
    fan_out_only: true,
};

/// Three strided convolutions, a mean over the image and a linear layer.
#[derive(Module, Debug)]
pub(super) struct SmallCnn<B: Backend> {
    patches: Conv2d<B>,
    middle: Conv2d<B>,
    deep: Conv2d<B>,
    head: Linear<B>,
}

/// Channels after each convolution.
const CHANNELS: [usize; 3] = [16, 32, 64];

impl<B: Backend> SmallCnn<B> {
    /// A model of images `[channels, height, width]`, with `classes` outputs and random weights.
    pub(super) fn new(input: [usize; 3], classes: usize, device: &B::Device) -> SmallCnn<B> {
        let strided = |from, to| {
            Conv2dConfig::new([from, to], [3, 3])
                .with_stride([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(device)
        };
        let [first, second, third] = CHANNELS;
        SmallCnn {
            // Patches of 4 x 4 pixels, as vision transformers begin: most of the cost of a small
            // network on photos is in its first layer.
            patches: Conv2dConfig::new([input[0], first], [4, 4])
                .with_stride([4, 4])
                .init(device),
            middle: strided(first, second),
            deep: strided(second, third),
            head: LinearConfig::new(third, classes).init(device),
        }
    }
}

impl<B: Layers> SmallCnn<B> {
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let features = relu(B::convolve(&self.patches, images));
        let features = relu(B::convolve(&self.middle, features));
        let features = relu(B::convolve(&self.deep, features));
        B::project(&self.head, mean_over_image(features))
    }
}

/// From `[batch, channels, height, width]` to `[batch, channels]`, summed in f32.
pub(super) fn mean_over_image<B: Backend>(features: Tensor<B, 4>) -> Tensor<B, 2> {
    let computed_in = features.dtype();
    let [batch, channels, height, width] = features.dims();
    let pixels = features.reshape([batch, channels, height * width]);
    let mean = pixels.cast(FloatDType::F32).mean_dim(2);
    mean.reshape([batch, channels]).cast(computed_in)
}

/// LeNet-5 with rectifiers and max pooling, as it is taught today (LeCun et al. 1998 had tanh and
/// trainable averages): 5x5 convolutions of 6 and 16 channels, then 120 and 84 units.
#[derive(Module, Debug)]
pub(super) struct LeNet<B: Backend> {
    first: Conv2d<B>,
    second: Conv2d<B>,
    pool: MaxPool2d,
    wide: Linear<B>,
    narrow: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> LeNet<B> {
    pub(super) fn new(input: [usize; 3], classes: usize, device: &B::Device) -> LeNet<B> {
        let [channels, height, width] = input;
        // The first convolution keeps the size, the second takes 4 off; each pooling halves it.
        let after = |side: usize| (side / 2 - 4) / 2;
        LeNet {
            first: Conv2dConfig::new([channels, 6], [5, 5])
                .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
                .init(device),
            second: Conv2dConfig::new([6, 16], [5, 5]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            wide: LinearConfig::new(16 * after(height) * after(width), 120).init(device),
            narrow: LinearConfig::new(120, 84).init(device),
            head: LinearConfig::new(84, classes).init(device),
        }
    }
}

impl<B: Layers> LeNet<B> {
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let features = self.pool.forward(relu(B::convolve(&self.first, images)));
        let features = self.pool.forward(relu(B::convolve(&self.second, features)));
        let features = relu(B::project(&self.wide, features.flatten(1, 3)));
        B::project(&self.head, relu(B::project(&self.narrow, features)))
    }
}

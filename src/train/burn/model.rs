//! The models that can be trained.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

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
    /// A model with `classes` outputs and random weights.
    pub(super) fn new(classes: usize, device: &B::Device) -> SmallCnn<B> {
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
            patches: Conv2dConfig::new([3, first], [4, 4])
                .with_stride([4, 4])
                .init(device),
            middle: strided(first, second),
            deep: strided(second, third),
            head: LinearConfig::new(third, classes).init(device),
        }
    }

    /// From images `[batch, 3, height, width]` to logits `[batch, classes]`.
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let features = relu(self.patches.forward(images));
        let features = relu(self.middle.forward(features));
        let features = relu(self.deep.forward(features));
        let [batch, channels, height, width] = features.dims();
        let pixels = features.reshape([batch, channels, height * width]);
        self.head
            .forward(pixels.mean_dim(2).reshape([batch, channels]))
    }
}

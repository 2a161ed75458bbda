//! ResNet-18 (He et al. 2015, "Deep Residual Learning for Image Recognition", table 1), as torchvision
//! builds it.

use super::convolution::mean_over_image;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

/// A convolution without bias and its batch normalisation.
#[derive(Module, Debug)]
struct Normed<B: Backend> {
    convolution: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> Normed<B> {
    /// `from` to `to` channels, `side` x `side` pixels, padded so that stride 1 keeps the size.
    fn new(from: usize, to: usize, side: usize, stride: usize, device: &B::Device) -> Normed<B> {
        let edge = side / 2;
        Normed {
            convolution: Conv2dConfig::new([from, to], [side, side])
                .with_stride([stride, stride])
                .with_padding(PaddingConfig2d::Explicit(edge, edge, edge, edge))
                .with_bias(false)
                .init(device),
            norm: BatchNormConfig::new(to).init(device),
        }
    }

    fn forward(&self, features: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.convolution.forward(features))
    }
}

/// Two convolutions and a way around them.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    first: Normed<B>,
    second: Normed<B>,
    /// Where size or channels change.
    around: Option<Normed<B>>,
}

impl<B: Backend> Block<B> {
    fn new(from: usize, to: usize, stride: usize, device: &B::Device) -> Block<B> {
        let changes = stride != 1 || from != to;
        Block {
            first: Normed::new(from, to, 3, stride, device),
            second: Normed::new(to, to, 3, 1, device),
            around: changes.then(|| Normed::new(from, to, 1, stride, device)),
        }
    }

    fn forward(&self, features: Tensor<B, 4>) -> Tensor<B, 4> {
        let through = relu(self.first.forward(features.clone()));
        let through = self.second.forward(through);
        let around = match &self.around {
            Some(around) => around.forward(features),
            None => features,
        };
        relu(through + around)
    }
}

#[derive(Module, Debug)]
pub(super) struct ResNet18<B: Backend> {
    stem: Normed<B>,
    pool: MaxPool2d,
    blocks: Vec<Block<B>>,
    head: Linear<B>,
}

/// Channels of the four groups of two blocks.
const GROUPS: [usize; 4] = [64, 128, 256, 512];

impl<B: Backend> ResNet18<B> {
    /// A model of images `[channels, height, width]`, with `classes` outputs and random weights.
    pub(super) fn new(input: [usize; 3], classes: usize, device: &B::Device) -> ResNet18<B> {
        let mut from = GROUPS[0];
        let mut blocks = Vec::new();
        for (group, to) in GROUPS.into_iter().enumerate() {
            let stride = if group == 0 { 1 } else { 2 };
            blocks.push(Block::new(from, to, stride, device));
            blocks.push(Block::new(to, to, 1, device));
            from = to;
        }
        ResNet18 {
            stem: Normed::new(input[0], GROUPS[0], 7, 2, device),
            pool: MaxPool2dConfig::new([3, 3])
                .with_strides([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(),
            blocks,
            head: LinearConfig::new(from, classes).init(device),
        }
    }

    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let mut features = self.pool.forward(relu(self.stem.forward(images)));
        for block in &self.blocks {
            features = block.forward(features);
        }
        self.head.forward(mean_over_image(features))
    }
}

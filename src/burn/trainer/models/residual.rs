//! ResNet-18 and ResNet-50 (He et al. 2015, "Deep Residual Learning for Image Recognition", table 1), as
//! torchvision builds them.
//!
//! Weights are drawn as torchvision draws them: convolutions as [`RECTIFIED`] says, normalisations to the
//! identity, the last layer uniformly within one over the square root of its inputs. Batch normalisation has
//! PyTorch's momentum (0.1) and epsilon (1e-5). One thing differs, in burn itself: the running variance, which
//! only evaluation uses, averages the biased variances of the batches and not the unbiased ones, which are
//! larger by n / (n - 1) for n values of a channel in a batch.

use super::convolution::{RECTIFIED, mean_over_image};
use super::layers::Layers;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

/// A convolution without bias and its batch normalisation.
#[derive(Module, Debug)]
pub(super) struct Normed<B: Backend> {
    convolution: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> Normed<B> {
    /// `from` to `to` channels, `side` x `side` pixels.
    pub(super) fn new(
        from: usize,
        to: usize,
        side: usize,
        stride: usize,
        device: &B::Device,
    ) -> Normed<B> {
        Normed {
            convolution: convolution(from, to, side, stride, device),
            norm: BatchNormConfig::new(to).init(device),
        }
    }
}

impl<B: Layers> Normed<B> {
    pub(super) fn forward(&self, features: Tensor<B, 4>) -> Tensor<B, 4> {
        normed(&self.norm, B::convolve(&self.convolution, features))
    }
}

/// A convolution without bias, padded so that stride 1 keeps the size.
pub(super) fn convolution<B: Backend>(
    from: usize,
    to: usize,
    side: usize,
    stride: usize,
    device: &B::Device,
) -> Conv2d<B> {
    let edge = side / 2;
    Conv2dConfig::new([from, to], [side, side])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(edge, edge, edge, edge))
        .with_bias(false)
        .with_initializer(RECTIFIED)
        .init(device)
}

/// The normalisation and its statistics are computed in f32, whatever the type of `features`.
pub(super) fn normed<B: Backend>(norm: &BatchNorm<B>, features: Tensor<B, 4>) -> Tensor<B, 4> {
    let computed_in = features.dtype();
    norm.forward(features.cast(FloatDType::F32))
        .cast(computed_in)
}

/// The pooling after the first convolution.
pub(super) fn stem_pool() -> MaxPool2d {
    MaxPool2dConfig::new([3, 3])
        .with_strides([2, 2])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .init()
}

/// Convolutions with rectifiers between, and a way around them.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    through: Vec<Normed<B>>,
    /// Where size or channels change.
    around: Option<Normed<B>>,
}

impl<B: Backend> Block<B> {
    /// Two convolutions of 3x3 pixels.
    fn basic(from: usize, to: usize, stride: usize, device: &B::Device) -> Block<B> {
        Block {
            through: vec![
                Normed::new(from, to, 3, stride, device),
                Normed::new(to, to, 3, 1, device),
            ],
            around: Block::around(from, to, stride, device),
        }
    }

    /// A convolution of 3x3 pixels on a quarter of the channels, between two of 1x1. The stride is the middle
    /// one's, and not the first one's as in the paper: torchvision's "v1.5".
    fn bottleneck(from: usize, to: usize, stride: usize, device: &B::Device) -> Block<B> {
        let narrow = to / EXPANSION;
        Block {
            through: vec![
                Normed::new(from, narrow, 1, 1, device),
                Normed::new(narrow, narrow, 3, stride, device),
                Normed::new(narrow, to, 1, 1, device),
            ],
            around: Block::around(from, to, stride, device),
        }
    }

    fn around(from: usize, to: usize, stride: usize, device: &B::Device) -> Option<Normed<B>> {
        let changes = stride != 1 || from != to;
        changes.then(|| Normed::new(from, to, 1, stride, device))
    }
}

impl<B: Layers> Block<B> {
    fn forward(&self, features: Tensor<B, 4>) -> Tensor<B, 4> {
        let mut through = features.clone();
        for (number, layer) in self.through.iter().enumerate() {
            if number > 0 {
                through = relu(through);
            }
            through = layer.forward(through);
        }
        let around = match &self.around {
            Some(around) => around.forward(features),
            None => features,
        };
        relu(through + around)
    }
}

/// A network of residual blocks.
#[derive(Module, Debug)]
pub(super) struct ResNet<B: Backend> {
    stem: Normed<B>,
    pool: MaxPool2d,
    blocks: Vec<Block<B>>,
    head: Linear<B>,
}

/// Channels of the stem and of the four groups of blocks.
pub(super) const CHANNELS: [usize; 4] = [64, 128, 256, 512];

/// How many times the channels of its group a bottleneck block puts out.
pub(super) const EXPANSION: usize = 4;

impl<B: Backend> ResNet<B> {
    /// ResNet-18 for images `[channels, height, width]`, with `classes` outputs.
    pub(super) fn resnet18(input: [usize; 3], classes: usize, device: &B::Device) -> ResNet<B> {
        let groups = [2; 4].into_iter().zip(CHANNELS);
        let block = |from, to, stride| Block::basic(from, to, stride, device);
        ResNet::new(input, classes, groups, block, device)
    }

    /// ResNet-50 for images `[channels, height, width]`, with `classes` outputs.
    pub(super) fn resnet50(input: [usize; 3], classes: usize, device: &B::Device) -> ResNet<B> {
        let channels = CHANNELS.map(|channels| EXPANSION * channels);
        let groups = [3, 4, 6, 3].into_iter().zip(channels);
        let block = |from, to, stride| Block::bottleneck(from, to, stride, device);
        ResNet::new(input, classes, groups, block, device)
    }

    /// Of the [`blocks`] that `block` makes for `groups`.
    fn new(
        input: [usize; 3],
        classes: usize,
        groups: impl Iterator<Item = (usize, usize)>,
        block: impl Fn(usize, usize, usize) -> Block<B>,
        device: &B::Device,
    ) -> ResNet<B> {
        let (blocks, channels) = blocks(groups, block);
        ResNet {
            stem: Normed::new(input[0], CHANNELS[0], 7, 2, device),
            pool: stem_pool(),
            blocks,
            head: LinearConfig::new(channels, classes).init(device),
        }
    }
}

/// The blocks of `groups`, which say how many there are and with how many channels, and the channels after the last.
/// `block` makes one from its channels before and after and its stride, by which each group but the first halves the
/// image.
pub(super) fn blocks<T>(
    groups: impl IntoIterator<Item = (usize, usize)>,
    mut block: impl FnMut(usize, usize, usize) -> T,
) -> (Vec<T>, usize) {
    let mut from = CHANNELS[0];
    let mut blocks = Vec::new();
    for (group, (count, to)) in groups.into_iter().enumerate() {
        for number in 0..count {
            let stride = if group > 0 && number == 0 { 2 } else { 1 };
            blocks.push(block(from, to, stride));
            from = to;
        }
    }
    (blocks, from)
}

impl<B: Layers> ResNet<B> {
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let mut features = self.pool.forward(relu(self.stem.forward(images)));
        for block in &self.blocks {
            features = block.forward(features);
        }
        B::project(&self.head, mean_over_image(features))
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use burn::backend::Flex;
    use burn::backend::flex::FlexDevice;

    #[test]
    fn convolutions_are_drawn_for_the_rectifiers_after_them() {
        let layer = Normed::<Flex>::new(16, 64, 3, 1, &FlexDevice);
        let weights = layer.convolution.weight.val();
        let variance = weights.powf_scalar(2.0).mean().into_scalar();
        let expected = 2.0 / (64.0 * 3.0 * 3.0);
        assert!((variance / expected - 1.0).abs() < 0.1, "{variance}");
    }

    #[test]
    fn the_stride_of_a_bottleneck_is_the_middle_ones() {
        let block = Block::<Flex>::bottleneck(64, 128, 2, &FlexDevice);
        let strides = block.through.iter().map(|layer| layer.convolution.stride);
        assert_eq!(strides.collect::<Vec<_>>(), [[1, 1], [2, 2], [1, 1]]);
        let features = Tensor::ones([1, 64, 8, 8], &FlexDevice);
        assert_eq!(block.forward(features).dims(), [1, 128, 4, 4]);
    }
}

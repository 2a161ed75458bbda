//! ResNet-200 (He et al. 2016, "Identity Mappings in Deep Residual Networks", table 3): blocks that normalise and
//! rectify before each convolution, so that what goes around them is never touched.
//!
//! As the paper's section 3.2 has it: the activation after the first convolution of all is the first block's own, and
//! there is one more after the last block. Where size or channels change, what goes around is the activated
//! features, through a convolution without normalisation.

use super::convolution::mean_over_image;
use super::layers::Layers;
use super::residual::{CHANNELS, EXPANSION, Normed, blocks, convolution, normed, stem_pool};
use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::nn::pool::MaxPool2d;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

/// Blocks in each group.
const RESNET200: [usize; 4] = [3, 24, 36, 3];

/// A bottleneck: 3x3 pixels on a quarter of the channels, between two convolutions of 1x1.
#[derive(Module, Debug)]
struct PreactBlock<B: Backend> {
    /// `None` in the first block, whose features come activated.
    before: Option<BatchNorm<B>>,
    /// The first two convolutions, each with the normalisation before the next one.
    through: Vec<Normed<B>>,
    widen: Conv2d<B>,
    /// Where size or channels change.
    around: Option<Conv2d<B>>,
}

impl<B: Backend> PreactBlock<B> {
    fn new(from: usize, to: usize, stride: usize, first: bool, device: &B::Device) -> Self {
        let narrow = to / EXPANSION;
        let changes = stride != 1 || from != to;
        PreactBlock {
            before: (!first).then(|| BatchNormConfig::new(from).init(device)),
            through: vec![
                Normed::new(from, narrow, 1, 1, device),
                Normed::new(narrow, narrow, 3, stride, device),
            ],
            widen: convolution(narrow, to, 1, 1, device),
            around: changes.then(|| convolution(from, to, 1, stride, device)),
        }
    }
}

impl<B: Layers> PreactBlock<B> {
    fn forward(&self, features: Tensor<B, 4>) -> Tensor<B, 4> {
        let activated = match &self.before {
            Some(norm) => relu(normed(norm, features.clone())),
            None => features.clone(),
        };
        let around = match &self.around {
            Some(around) => B::convolve(around, activated.clone()),
            None => features,
        };
        let mut through = activated;
        for layer in &self.through {
            through = relu(layer.forward(through));
        }
        B::convolve(&self.widen, through) + around
    }
}

/// A network of such blocks.
#[derive(Module, Debug)]
pub(super) struct PreactResNet<B: Backend> {
    stem: Normed<B>,
    pool: MaxPool2d,
    blocks: Vec<PreactBlock<B>>,
    after: BatchNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> PreactResNet<B> {
    /// ResNet-200 for images `[channels, height, width]`, with `classes` outputs and random weights.
    pub(super) fn resnet200(
        input: [usize; 3],
        classes: usize,
        device: &B::Device,
    ) -> PreactResNet<B> {
        PreactResNet::new(input, classes, RESNET200, device)
    }

    fn new(input: [usize; 3], classes: usize, groups: [usize; 4], device: &B::Device) -> Self {
        let channels = CHANNELS.map(|channels| EXPANSION * channels);
        let mut first = true;
        let (blocks, channels) = blocks(groups.into_iter().zip(channels), |from, to, stride| {
            let first = std::mem::take(&mut first);
            PreactBlock::new(from, to, stride, first, device)
        });
        PreactResNet {
            stem: Normed::new(input[0], CHANNELS[0], 7, 2, device),
            pool: stem_pool(),
            blocks,
            after: BatchNormConfig::new(channels).init(device),
            head: LinearConfig::new(channels, classes).init(device),
        }
    }
}

impl<B: Layers> PreactResNet<B> {
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let mut features = self.pool.forward(relu(self.stem.forward(images)));
        for block in &self.blocks {
            features = block.forward(features);
        }
        let features = relu(normed(&self.after, features));
        B::project(&self.head, mean_over_image(features))
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::super::model::trainable;
    use super::*;
    use burn::backend::flex::FlexDevice;
    use burn::backend::{Autodiff, Flex};
    use burn::tensor::Distribution;

    type Tested = Autodiff<Flex>;

    #[test]
    fn resnet200_has_the_published_size() {
        let model = PreactResNet::<Tested>::resnet200([3, 224, 224], 1000, &FlexDevice);
        assert_eq!(model.blocks.len(), (200 - 2) / 3);
        assert_eq!(trainable(&model), 64_666_152);
    }

    #[test]
    fn what_goes_around_is_not_touched() {
        let block = PreactBlock::<Flex>::new(64, 64, 1, false, &FlexDevice);
        let none = block.widen.weight.val().zeros_like();
        let mut silent = block.clone();
        silent.widen.weight = burn::module::Param::from_tensor(none);
        let features = Tensor::random([1, 64, 4, 4], Distribution::Default, &FlexDevice);
        let data = |tensor: Tensor<Flex, 4>| tensor.into_data();
        assert_eq!(
            data(silent.forward(features.clone())),
            data(features.clone())
        );
        assert_ne!(data(block.forward(features.clone())), data(features));
    }

    #[test]
    fn groups_halve_the_image_and_widen_it() {
        let model = PreactResNet::<Tested>::new([3, 64, 64], 10, [1, 2, 1, 1], &FlexDevice);
        let images = Tensor::random([2, 3, 64, 64], Distribution::Default, &FlexDevice);
        let mut features = model.pool.forward(relu(model.stem.forward(images.clone())));
        let mut dims = Vec::new();
        for block in &model.blocks {
            features = block.forward(features);
            dims.push(features.dims());
        }
        let expected = [[256, 16], [512, 8], [512, 8], [1024, 4], [2048, 2]];
        assert_eq!(
            dims,
            expected.map(|[channels, side]| [2, channels, side, side])
        );
        assert_eq!(model.forward(images).dims(), [2, 10]);
    }
}

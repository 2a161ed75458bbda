//! VGG-16 and VGG-19 (Simonyan and Zisserman 2014, "Very Deep Convolutional Networks for Large-Scale Image
//! Recognition", table 1, D and E), as torchvision builds them, without batch normalisation.
//!
//! Weights are drawn as torchvision draws them: convolutions as [`RECTIFIED`] says, linear layers normally with
//! a standard deviation of 0.01, biases 0.

use super::convolution::RECTIFIED;
use super::layers::Layers;
use burn::module::{Initializer, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

/// Channels of the convolutions of each group; a pooling that halves the sides ends the group.
const CHANNELS: [usize; 5] = [64, 128, 256, 512, 512];

/// Convolutions in each group.
const VGG16: [usize; 5] = [2, 2, 3, 3, 3];
const VGG19: [usize; 5] = [2, 2, 4, 4, 4];

/// Height and width to which the features are averaged before the linear layers.
const POOLED: usize = 7;

/// Units of the two hidden linear layers.
const UNITS: usize = 4096;

#[derive(Module, Debug)]
pub(super) struct Vgg<B: Backend> {
    groups: Vec<Vec<Conv2d<B>>>,
    halve: MaxPool2d,
    average: AdaptiveAvgPool2d,
    hidden: Vec<Linear<B>>,
    dropout: Dropout,
    head: Linear<B>,
}

impl<B: Backend> Vgg<B> {
    /// VGG-16 for images `[channels, height, width]`, with `classes` outputs and random weights.
    pub(super) fn vgg16(input: [usize; 3], classes: usize, device: &B::Device) -> Vgg<B> {
        Vgg::new(input, classes, VGG16, UNITS, device)
    }

    /// VGG-19 for the same.
    pub(super) fn vgg19(input: [usize; 3], classes: usize, device: &B::Device) -> Vgg<B> {
        Vgg::new(input, classes, VGG19, UNITS, device)
    }

    fn new(
        input: [usize; 3],
        classes: usize,
        groups: [usize; 5],
        units: usize,
        device: &B::Device,
    ) -> Vgg<B> {
        let mut from = input[0];
        let group = |(count, to): (usize, usize)| {
            let layers =
                (0..count).map(|_| convolution(std::mem::replace(&mut from, to), to, device));
            layers.collect()
        };
        let groups = groups.into_iter().zip(CHANNELS).map(group).collect();
        Vgg {
            groups,
            halve: MaxPool2dConfig::new([2, 2]).init(),
            average: AdaptiveAvgPool2dConfig::new([POOLED, POOLED]).init(),
            hidden: vec![
                linear(from * POOLED * POOLED, units, device),
                linear(units, units, device),
            ],
            dropout: DropoutConfig::new(0.5).init(),
            head: linear(units, classes, device),
        }
    }
}

impl<B: Layers> Vgg<B> {
    /// Drops half of the hidden units where gradients are tracked, none otherwise.
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let mut features = images;
        for group in &self.groups {
            for layer in group {
                features = relu(B::convolve(layer, features));
            }
            features = self.halve.forward(features);
        }
        let mut values = self.average.forward(features).flatten(1, 3);
        for layer in &self.hidden {
            values = self.dropout.forward(relu(B::project(layer, values)));
        }
        B::project(&self.head, values)
    }
}

/// 3x3 pixels, padded so that the size stays.
fn convolution<B: Backend>(from: usize, to: usize, device: &B::Device) -> Conv2d<B> {
    let mut layer: Conv2d<B> = Conv2dConfig::new([from, to], [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_initializer(RECTIFIED)
        .init(device);
    layer.bias = Some(Initializer::Zeros.init([to], device));
    layer
}

fn linear<B: Backend>(from: usize, to: usize, device: &B::Device) -> Linear<B> {
    let weights = Initializer::Normal {
        mean: 0.0,
        std: 0.01,
    };
    let mut layer: Linear<B> = LinearConfig::new(from, to)
        .with_initializer(weights)
        .init(device);
    layer.bias = Some(Initializer::Zeros.init([to], device));
    layer
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::super::model::trainable;
    use super::*;
    use burn::backend::flex::FlexDevice;
    use burn::backend::{Autodiff, Flex};

    #[test]
    fn as_many_parameters_as_torchvisions() {
        let vgg16 = Vgg::<Flex>::vgg16([3, 224, 224], 1000, &FlexDevice);
        assert_eq!(trainable(&vgg16), 138_357_544);
        let vgg19 = Vgg::<Flex>::vgg19([3, 224, 224], 1000, &FlexDevice);
        assert_eq!(trainable(&vgg19), 143_667_240);
    }

    #[test]
    fn an_output_for_each_class_and_dropout_only_in_training() {
        let model = Vgg::<Autodiff<Flex>>::new([3, 32, 32], 10, VGG16, 64, &FlexDevice);
        let images = Tensor::random(
            [2, 3, 32, 32],
            burn::tensor::Distribution::Default,
            &FlexDevice,
        );
        let both = |of: &dyn Fn() -> Vec<f32>| [of(), of()];
        let [first, second] = both(&|| model.forward(images.clone()).into_data().to_vec().unwrap());
        assert_eq!(first.len(), 2 * 10);
        assert_ne!(first, second, "other units are dropped each time");
        let valid = burn::module::AutodiffModule::valid(&model);
        let [first, second] = both(&|| {
            valid
                .forward(images.clone().inner())
                .into_data()
                .to_vec()
                .unwrap()
        });
        assert_eq!(first, second);
    }
}

//! The models that can be trained, as one type.

use super::convolution::{LeNet, SmallCnn};
use super::residual::ResNet18;
use super::{Architecture, ModelSpec};
use burn::module::{Initializer, Module};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

/// A model of any architecture.
#[derive(Module, Debug)]
pub(super) enum Model<B: Backend> {
    Dense(Dense<B>),
    SmallCnn(SmallCnn<B>),
    LeNet(LeNet<B>),
    ResNet18(ResNet18<B>),
}

impl<B: Backend> Model<B> {
    /// A model with random weights.
    pub(super) fn new(spec: &ModelSpec, device: &B::Device) -> Model<B> {
        let (input, classes) = (spec.input, spec.classes);
        match &spec.architecture {
            Architecture::Linear => Model::Dense(Dense::linear(input, classes, device)),
            Architecture::Dense(hidden) => Model::Dense(Dense::new(input, hidden, classes, device)),
            Architecture::SmallCnn => Model::SmallCnn(SmallCnn::new(input, classes, device)),
            Architecture::LeNet => Model::LeNet(LeNet::new(input, classes, device)),
            Architecture::ResNet18 => Model::ResNet18(ResNet18::new(input, classes, device)),
        }
    }

    /// From images `[batch, channels, height, width]` to logits `[batch, classes]`.
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        match self {
            Model::Dense(model) => model.forward(images.flatten(1, 3)),
            Model::SmallCnn(model) => model.forward(images),
            Model::LeNet(model) => model.forward(images),
            Model::ResNet18(model) => model.forward(images),
        }
    }
}

/// Linear layers, each but the last followed by a rectifier.
#[derive(Module, Debug)]
pub(super) struct Dense<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Dense<B> {
    /// One linear layer, with weights as PyTorch draws them.
    fn linear(input: [usize; 3], classes: usize, device: &B::Device) -> Dense<B> {
        let layer = LinearConfig::new(input.iter().product(), classes).init(device);
        Dense {
            layers: vec![layer],
        }
    }

    /// Hidden layers of these sizes, with weights as Keras draws them (Glorot, uniform; biases of zero).
    fn new(input: [usize; 3], hidden: &[usize], classes: usize, device: &B::Device) -> Dense<B> {
        let first = input.iter().product();
        let sizes: Vec<usize> = [&[first][..], hidden, &[classes]].concat();
        let layer = |pair: &[usize]| {
            let weights = Initializer::XavierUniform { gain: 1.0 };
            let mut layer: Linear<B> = LinearConfig::new(pair[0], pair[1])
                .with_initializer(weights)
                .init(device);
            layer.bias = Some(Initializer::Zeros.init([pair[1]], device));
            layer
        };
        Dense {
            layers: sizes.windows(2).map(layer).collect(),
        }
    }

    /// From `[batch, inputs]` to logits.
    fn forward(&self, mut values: Tensor<B, 2>) -> Tensor<B, 2> {
        for (number, layer) in self.layers.iter().enumerate() {
            if number > 0 {
                values = relu(values);
            }
            values = layer.forward(values);
        }
        values
    }
}

//! The models that can be trained, as one type.

use super::convolution::{LeNet, SmallCnn};
use super::layers::Layers;
use super::preactivation::PreactResNet;
use super::residual::ResNet;
use super::vgg::Vgg;
use super::{Architecture, ModelSpec};
use burn::module::{Initializer, Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use std::collections::VecDeque;

/// A model of any architecture.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one in a run")]
pub(super) enum Model<B: Backend> {
    Dense(Dense<B>),
    SmallCnn(SmallCnn<B>),
    LeNet(LeNet<B>),
    ResNet(ResNet<B>),
    PreactResNet(PreactResNet<B>),
    Vgg(Vgg<B>),
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
            Architecture::ResNet18 => Model::ResNet(ResNet::resnet18(input, classes, device)),
            Architecture::ResNet50 => Model::ResNet(ResNet::resnet50(input, classes, device)),
            Architecture::ResNet200 => {
                Model::PreactResNet(PreactResNet::resnet200(input, classes, device))
            }
            Architecture::Vgg16 => Model::Vgg(Vgg::vgg16(input, classes, device)),
            Architecture::Vgg19 => Model::Vgg(Vgg::vgg19(input, classes, device)),
        }
    }

    /// As [`new`](Self::new), with weights that are the same on every device: each backend draws other numbers from
    /// the same seed, so they are drawn on the CPU. A build without the CPU's backend draws them on `device`, whose
    /// seed is set.
    pub(super) fn drawn(spec: &ModelSpec, device: &B::Device) -> Model<B> {
        #[cfg(feature = "cpu")]
        let mut weights = Weights::on_cpu(spec);
        #[cfg(not(feature = "cpu"))]
        let mut weights = Weights::default();
        Model::new(spec, device).map(&mut weights)
    }
}

impl<B: Layers> Model<B> {
    /// From images `[batch, channels, height, width]` to logits `[batch, classes]`.
    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        match self {
            Model::Dense(model) => model.forward(images.flatten(1, 3)),
            Model::SmallCnn(model) => model.forward(images),
            Model::LeNet(model) => model.forward(images),
            Model::ResNet(model) => model.forward(images),
            Model::PreactResNet(model) => model.forward(images),
            Model::Vgg(model) => model.forward(images),
        }
    }
}

/// The numbers of a model, in the order in which it is visited.
#[derive(Default)]
struct Weights(VecDeque<TensorData>);

#[cfg(feature = "cpu")]
impl Weights {
    fn on_cpu(spec: &ModelSpec) -> Weights {
        use burn::backend::{Flex, flex::FlexDevice};
        Flex::seed(&FlexDevice, spec.seed);
        let mut weights = Weights::default();
        Model::<Flex>::new(spec, &FlexDevice).visit(&mut weights);
        weights
    }
}

impl<B: Backend> ModuleVisitor<B> for Weights {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push_back(param.val().into_data());
    }
}

impl<B: Backend> ModuleMapper<B> for Weights {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, drawn, mapper) = param.consume();
        let weights = match self.0.pop_front() {
            Some(data) => {
                let weights = Tensor::from_data(data, &drawn.device());
                weights.set_require_grad(drawn.is_require_grad())
            }
            None => drawn,
        };
        Param::from_mapped_value(id, weights, mapper)
    }
}

/// Numbers of `model` that training changes by gradients, which running statistics are not among.
pub(super) fn trainable<B: Backend>(model: &impl Module<B>) -> usize {
    let mut count = Trainable { numbers: 0 };
    model.visit(&mut count);
    count.numbers
}

struct Trainable {
    numbers: usize,
}

impl<B: Backend> ModuleVisitor<B> for Trainable {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        // What is not drawn yet is a weight; it need not be drawn to be counted.
        if !param.is_initialized() || param.is_require_grad() {
            self.numbers += param.lazy_shape().num_elements();
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
}

impl<B: Layers> Dense<B> {
    /// From `[batch, inputs]` to logits.
    fn forward(&self, mut values: Tensor<B, 2>) -> Tensor<B, 2> {
        for (number, layer) in self.layers.iter().enumerate() {
            if number > 0 {
                values = relu(values);
            }
            values = B::project(layer, values);
        }
        values
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::super::{OptimizerSpec, Precision};
    use super::*;
    use burn::backend::flex::FlexDevice;
    use burn::backend::{Autodiff, Flex};
    use burn::tensor::Distribution;

    fn spec(architecture: Architecture, seed: u64) -> ModelSpec {
        ModelSpec {
            architecture,
            input: [3, 32, 32],
            classes: 10,
            optimizer: OptimizerSpec::Adam,
            learning_rate: 0.1,
            precision: Precision::F32,
            seed,
        }
    }

    /// A model of 3 x 224 x 224 pixels and 1000 classes.
    fn of_imagenet(of: fn([usize; 3], usize, &FlexDevice) -> ResNet<Autodiff<Flex>>) -> usize {
        trainable(&of([3, 224, 224], 1000, &FlexDevice))
    }

    #[test]
    fn resnets_have_as_many_parameters_as_torchvisions() {
        assert_eq!(of_imagenet(ResNet::resnet18), 11_689_512);
        assert_eq!(of_imagenet(ResNet::resnet50), 25_557_032);
    }

    #[test]
    fn drawing_changes_no_count_and_counts_no_statistics() {
        let spec = spec(Architecture::ResNet18, 0);
        let model = Model::<Autodiff<Flex>>::drawn(&spec, &FlexDevice);
        assert_eq!(trainable(&model), 11_689_512 - 990 * 513);
        // Burn's own count takes the running statistics in: a mean and a variance for each channel.
        assert_eq!(model.num_params(), trainable(&model) + 2 * 4_800);
    }

    #[test]
    fn a_resnet_has_an_output_for_each_class() {
        let images = Tensor::random([2, 3, 32, 32], Distribution::Default, &FlexDevice);
        let model = ResNet::<Autodiff<Flex>>::resnet50([3, 32, 32], 10, &FlexDevice);
        let logits = model.forward(images);
        assert_eq!(logits.dims(), [2, 10]);
        let logits: Vec<f32> = logits.into_data().to_vec().unwrap();
        assert!(logits.iter().all(|logit| logit.is_finite()), "{logits:?}");
    }
}

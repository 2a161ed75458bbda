//! A model's passes and matrix products, timed on any backend.

use super::engine::{targets, wait};
use super::layers::Layers;
use super::model::Model;
use super::precision::{self, forward};
use super::{ModelSpec, PassTimes, Times};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Int, Tensor};
use std::time::Instant;

pub(super) fn passes<B: AutodiffBackend + Layers>(
    device: B::Device,
    spec: &ModelSpec,
    batch: usize,
    times: Times,
) -> Result<Vec<PassTimes>, String> {
    precision::require::<B>(spec.precision, &device)?;
    let timed = Timed::<B>::new(spec, batch, device);
    timed.wait()?;
    for _ in 0..times.warmup {
        timed.pass()?;
    }
    (0..times.measured)
        .map(|_| timed.pass().map(|(times, _)| times))
        .collect()
}

/// A model and a batch on the device.
struct Timed<B: Backend> {
    model: Model<B>,
    loss: CrossEntropyLoss<B>,
    images: Tensor<B, 4>,
    targets: Tensor<B, 1, Int>,
    spec: ModelSpec,
    device: B::Device,
}

impl<B: AutodiffBackend + Layers> Timed<B> {
    fn new(spec: &ModelSpec, batch: usize, device: B::Device) -> Timed<B> {
        B::seed(&device, spec.seed);
        let [channels, height, width] = spec.input;
        let shape = [batch, channels, height, width];
        let labels: Vec<u32> = (0..batch)
            .map(|image| (image % spec.classes) as u32)
            .collect();
        Timed {
            model: Model::drawn(spec, &device),
            loss: CrossEntropyLossConfig::new().init(&device),
            images: Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device),
            targets: targets(&labels, &device),
            spec: spec.clone(),
            device,
        }
    }

    fn pass(&self) -> Result<(PassTimes, B::Gradients), String> {
        let began = Instant::now();
        let logits = forward(&self.model, self.images.clone(), self.spec.precision);
        let loss = self.loss.forward(logits, self.targets.clone());
        self.wait()?;
        let forward_ns = nanos_since(began);
        let began = Instant::now();
        let gradients = precision::scaled(&loss, self.spec.precision);
        self.wait()?;
        let backward_ns = nanos_since(began);
        let times = PassTimes {
            forward_ns,
            backward_ns,
        };
        Ok((times, gradients))
    }

    fn wait(&self) -> Result<(), String> {
        wait::<B>(&self.device)
    }
}

pub(super) fn products<B: Backend>(
    device: B::Device,
    side: usize,
    times: Times,
    multiply: impl Fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>,
) -> Result<Vec<u64>, String> {
    let matrix = || Tensor::random([side, side], Distribution::Normal(0.0, 1.0), &device);
    let (left, right) = (matrix(), matrix());
    wait::<B>(&device)?;
    let product = || {
        let began = Instant::now();
        let product = multiply(left.clone(), right.clone());
        wait::<B>(&device)?;
        let took = nanos_since(began);
        drop(product);
        Ok(took)
    };
    for _ in 0..times.warmup {
        product()?;
    }
    (0..times.measured).map(|_| product()).collect()
}

fn nanos_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use crate::{Architecture, OptimizerSpec, Precision, TimedDevice, time_model, time_products};
    use burn::backend::flex::FlexDevice;
    use burn::backend::{Autodiff, Flex};
    use burn::optim::GradientsParams;

    const TIMES: Times = Times {
        warmup: 1,
        measured: 2,
    };

    fn spec(architecture: Architecture, classes: usize) -> ModelSpec {
        ModelSpec {
            architecture,
            input: [3, 32, 32],
            classes,
            optimizer: OptimizerSpec::Sgd { momentum: 0.0 },
            learning_rate: 0.1,
            precision: Precision::F32,
            seed: 3,
        }
    }

    #[test]
    fn each_measured_pass_took_time_both_ways() {
        let spec = spec(Architecture::ResNet18, 10);
        let passes = time_model(TimedDevice::Cpu, &spec, 2, TIMES).unwrap();
        assert_eq!(passes.len(), TIMES.measured);
        for pass in passes {
            assert!(pass.forward_ns > 0 && pass.backward_ns > 0, "{pass:?}");
        }
    }

    #[test]
    fn a_pass_leaves_a_gradient_for_every_weight() {
        // Tensors of weights: a convolution of ResNet-18 has one and its normalisation two, the last layer two.
        for (architecture, weights) in [
            (Architecture::LeNet, 2 * 5),
            (Architecture::ResNet18, 20 * 3 + 2),
        ] {
            let timed = Timed::<Autodiff<Flex>>::new(&spec(architecture, 10), 4, FlexDevice);
            let (_, gradients) = timed.pass().unwrap();
            let gradients = GradientsParams::from_grads(gradients, &timed.model);
            assert_eq!(gradients.len(), weights);
        }
    }

    #[test]
    fn more_work_takes_longer() {
        let best = |side| {
            let times = time_products(TimedDevice::Cpu, side, TIMES).unwrap();
            assert_eq!(times.len(), TIMES.measured);
            times.into_iter().min().unwrap()
        };
        // 4096 times the arithmetic.
        assert!(best(512) > 10 * best(32));
    }
}

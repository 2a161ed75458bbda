//! The copy and the optimizer step, generic over burn's backends.

use super::model::SmallCnn;
use super::{Copier, DeviceBatch, ModelSpec, Phase, Trainer};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Int, Tensor, TensorData};

/// Images `[batch, 3, height, width]` and their classes `[batch]`.
struct Tensors<B: Backend> {
    images: Tensor<B, 4>,
    targets: Tensor<B, 1, Int>,
}

pub(super) struct Copying<B: Backend> {
    spec: ModelSpec,
    device: B::Device,
}

impl<B: Backend> Copying<B> {
    pub(super) fn new(spec: ModelSpec, device: B::Device) -> Copying<B> {
        Copying { spec, device }
    }
}

impl<B: Backend> Copier for Copying<B> {
    fn copy(&mut self, images: &[f32], labels: &[u32]) -> DeviceBatch {
        let side = self.spec.image_size;
        let shape = [labels.len(), 3, side, side];
        let targets: Vec<i32> = labels.iter().map(|label| *label as i32).collect();
        let targets = TensorData::new(targets, [labels.len()]);
        DeviceBatch(Box::new(Tensors::<B> {
            images: Tensor::from_data(TensorData::new(images.to_vec(), shape), &self.device),
            targets: Tensor::from_data(targets, &self.device),
        }))
    }
}

/// Plain stochastic gradient descent on the cross-entropy loss.
pub(super) struct Training<B: AutodiffBackend> {
    device: B::Device,
    /// `None` after a failed step.
    model: Option<SmallCnn<B>>,
    optimizer: OptimizerAdaptor<Sgd<B::InnerBackend>, SmallCnn<B>, B>,
    loss: CrossEntropyLoss<B>,
    learning_rate: f64,
}

impl<B: AutodiffBackend> Training<B> {
    pub(super) fn new(spec: ModelSpec, device: B::Device) -> Training<B> {
        B::seed(&device, spec.seed);
        Training {
            model: Some(SmallCnn::new(spec.classes, &device)),
            optimizer: SgdConfig::new().init(),
            loss: CrossEntropyLossConfig::new().init(&device),
            learning_rate: spec.learning_rate,
            device,
        }
    }

    /// Waits until the device has done all that was asked of it.
    fn sync(&self) -> Result<(), String> {
        B::sync(&self.device).map_err(|error| format!("{error:?}"))
    }
}

impl<B: AutodiffBackend> Trainer for Training<B> {
    fn step(&mut self, batch: DeviceBatch, ended: &mut dyn FnMut(Phase)) -> Result<f64, String> {
        let batch = batch.0.downcast::<Tensors<B>>();
        let Tensors { images, targets } = *batch.map_err(|_| "a batch of another device")?;
        let model = self.model.take().ok_or("an earlier step failed")?;
        let loss = self.loss.forward(model.forward(images), targets);
        self.sync()?;
        ended(Phase::Forward);
        let gradients = loss.backward();
        self.sync()?;
        ended(Phase::Backward);
        let gradients = GradientsParams::from_grads(gradients, &model);
        self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
        self.sync()?;
        ended(Phase::Optimizer);
        let value: f64 = loss.into_scalar().elem();
        ended(Phase::LossReadback);
        Ok(value)
    }
}

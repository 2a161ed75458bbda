//! Training with burn: the copy to the device and the optimizer step, on any of its backends.

use super::model::SmallCnn;
use super::step::{TrainError, TrainStep};
use crate::pipeline::{Delivered, HostBatch, HostToDevice, Logbook, SampleError};
use crate::timeline::{DevicePhase, HostWork};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Int, Tensor, TensorData};

/// What to train.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Width and height of the images, in pixels.
    pub image_size: usize,
    /// Outputs of the model; every label must be below.
    pub classes: usize,
    pub learning_rate: f64,
    /// Seed of the initial weights.
    pub seed: u64,
}

/// A batch in the device's memory.
pub struct DeviceBatch<B: Backend> {
    /// `[batch, 3, height, width]`, normalised.
    images: Tensor<B, 4>,
    /// `[batch]`.
    targets: Tensor<B, 1, Int>,
}

/// Copies host batches to a burn device.
pub struct BurnCopy<B: Backend> {
    device: B::Device,
    spec: ModelSpec,
}

impl<B: Backend> BurnCopy<B> {
    pub(super) fn new(spec: ModelSpec, device: B::Device) -> BurnCopy<B> {
        BurnCopy { device, spec }
    }
}

/// A label that the model has no output for.
#[derive(Debug, thiserror::Error)]
#[error(
    "sample {sample} has class {label}, but the model has {classes} outputs; leave model.classes unset or raise it"
)]
struct LabelOutOfRange {
    sample: u32,
    label: u32,
    classes: usize,
}

impl<B: AutodiffBackend> HostToDevice for BurnCopy<B> {
    type Batch = DeviceBatch<B>;

    fn copy(&mut self, batch: &HostBatch) -> Result<DeviceBatch<B>, SampleError> {
        let ModelSpec {
            image_size,
            classes,
            ..
        } = self.spec;
        let mut targets = Vec::with_capacity(batch.len());
        for (&label, &sample) in batch.labels.iter().zip(&batch.samples) {
            if label as usize >= classes {
                return Err(Box::new(LabelOutOfRange {
                    sample,
                    label,
                    classes,
                }));
            }
            targets.push(label as i32);
        }
        let floats = batch.floats().map_err(|error| error.to_string())?.to_vec();
        let shape = [batch.len(), 3, image_size, image_size];
        Ok(DeviceBatch {
            images: Tensor::from_data(TensorData::new(floats, shape), &self.device),
            targets: Tensor::from_data(TensorData::new(targets, [batch.len()]), &self.device),
        })
    }
}

/// Trains a [`SmallCnn`] by plain stochastic gradient descent on the cross-entropy loss.
pub struct BurnTrainer<B: AutodiffBackend> {
    device: B::Device,
    /// `None` only while the optimizer holds it.
    model: Option<SmallCnn<B>>,
    optimizer: OptimizerAdaptor<Sgd<B::InnerBackend>, SmallCnn<B>, B>,
    loss: CrossEntropyLoss<B>,
    learning_rate: f64,
    steps: u64,
}

impl<B: AutodiffBackend> BurnTrainer<B> {
    pub(super) fn new(spec: ModelSpec, device: B::Device) -> BurnTrainer<B> {
        B::seed(&device, spec.seed);
        BurnTrainer {
            model: Some(SmallCnn::new(spec.classes, &device)),
            optimizer: SgdConfig::new().init(),
            loss: CrossEntropyLossConfig::new().init(&device),
            learning_rate: spec.learning_rate,
            steps: 0,
            device,
        }
    }

    fn failed(&self, reason: impl std::fmt::Display) -> TrainError {
        TrainError::Step {
            step: self.steps,
            reason: reason.to_string(),
        }
    }

    /// Waits until the device has done all that was asked of it.
    fn sync(&self) -> Result<(), TrainError> {
        B::sync(&self.device).map_err(|error| self.failed(format!("{error:?}")))
    }
}

impl<B: AutodiffBackend> TrainStep for BurnTrainer<B> {
    type Batch = DeviceBatch<B>;

    fn step(
        &mut self,
        batch: Delivered<DeviceBatch<B>>,
        logbook: &mut Logbook,
    ) -> Result<Option<f64>, TrainError> {
        let number = batch.number;
        let DeviceBatch { images, targets } = batch.batch;
        let Some(model) = self.model.take() else {
            return Err(self.failed("an earlier step failed"));
        };
        let began = logbook.now();
        let loss = self.loss.forward(model.forward(images), targets);
        self.sync()?;
        let forward = logbook.now();
        logbook.busy(DevicePhase::Forward, number, began, forward);
        let gradients = loss.backward();
        self.sync()?;
        let backward = logbook.now();
        logbook.busy(DevicePhase::Backward, number, forward, backward);
        let gradients = GradientsParams::from_grads(gradients, &model);
        self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
        self.sync()?;
        let optimized = logbook.now();
        logbook.busy(DevicePhase::Optimizer, number, backward, optimized);
        let value: f64 = loss.into_scalar().elem();
        logbook.host(HostWork::LossReadback, number, optimized, logbook.now());
        if !value.is_finite() {
            return Err(self.failed(format!(
                "the loss is {value}; lower model.learning_rate or look at the data of batch {number}"
            )));
        }
        self.steps += 1;
        Ok(Some(value))
    }
}

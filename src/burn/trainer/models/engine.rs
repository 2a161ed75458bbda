//! The copy, the optimizer step and the evaluation, generic over burn's backends.

use super::averaging;
use super::layers::Learns;
use super::model::{Model, trainable};
use super::precision::{self, forward};
use super::preprocess::Pixels;
use super::{
    AllReduce, Copier, Crop, DeviceBatch, DeviceMemory, Learned, ModelSpec, OptimizerSpec, Pending,
    Phase, PixelPlan, Trainer,
};
use burn::module::AutodiffModule;
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use std::any::Any;
use std::sync::Arc;

/// Images and their classes `[batch]`.
#[derive(Clone)]
pub(super) struct Tensors<B: Backend> {
    pub(super) images: Images<B>,
    pub(super) targets: Tensor<B, 1, Int>,
    /// Keeps the device's memory from being given out again while work that reads it is under way; nothing where the
    /// backend sees to that.
    pub(super) memory: Vec<Held>,
}

/// A handle of device memory.
pub(super) type Held = Arc<dyn Any + Send + Sync>;

#[derive(Clone)]
pub(super) enum Images<B: Backend> {
    /// `[batch, channels, height, width]`.
    Finished(Tensor<B, 4>),
    Pixels(Pixels<B>),
}

impl<B: Backend> Images<B> {
    /// Preprocesses what is not preprocessed yet.
    fn finish(self) -> Tensor<B, 4> {
        match self {
            Images::Finished(images) => images,
            Images::Pixels(pixels) => pixels.finish(),
        }
    }
}

/// The numbers of `tensor`, once the device has them.
pub(super) fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Result<TensorData, String> {
    tensor.try_into_data().map_err(|error| error.to_string())
}

pub(super) struct Copying<B: Backend> {
    input: [usize; 3],
    device: B::Device,
}

impl<B: Backend> Copying<B> {
    pub(super) fn new(input: [usize; 3], device: B::Device) -> Copying<B> {
        Copying { input, device }
    }
}

/// `labels` on `device`.
pub(super) fn targets<B: Backend>(labels: &[u32], device: &B::Device) -> Tensor<B, 1, Int> {
    let targets: Vec<i32> = labels.iter().map(|label| *label as i32).collect();
    Tensor::from_data(TensorData::new(targets, [labels.len()]), device)
}

impl<B: Backend> Copier for Copying<B> {
    fn copy(&mut self, images: &[f32], labels: &[u32]) -> Result<DeviceBatch, String> {
        let [channels, height, width] = self.input;
        let shape = [labels.len(), channels, height, width];
        let images = TensorData::new(images.to_vec(), shape);
        Ok(DeviceBatch::new(Tensors::<B> {
            images: Images::Finished(Tensor::from_data(images, &self.device)),
            targets: targets(labels, &self.device),
            memory: Vec::new(),
        }))
    }

    fn copy_pixels(
        &mut self,
        plan: &PixelPlan,
        pixels: &[u8],
        crops: &[Crop],
        labels: &[u32],
    ) -> Result<DeviceBatch, String> {
        Ok(DeviceBatch::new(Tensors::<B> {
            images: Images::Pixels(Pixels::new(plan, pixels, crops, &self.device)),
            targets: targets(labels, &self.device),
            memory: Vec::new(),
        }))
    }
}

/// One of burn's optimizers.
enum AnyOptimizer<B: AutodiffBackend> {
    Sgd(OptimizerAdaptor<Sgd<B::InnerBackend>, Model<B>, B>),
    Adam(OptimizerAdaptor<Adam, Model<B>, B>),
}

impl<B: AutodiffBackend> AnyOptimizer<B> {
    fn new(spec: OptimizerSpec) -> AnyOptimizer<B> {
        match spec {
            OptimizerSpec::Sgd { momentum } => {
                // As PyTorch: the first gradient counts in full, and no dampening after it.
                let momentum = (momentum > 0.0).then(|| {
                    MomentumConfig::new()
                        .with_momentum(momentum)
                        .with_dampening(0.0)
                });
                AnyOptimizer::Sgd(SgdConfig::new().with_momentum(momentum).init())
            }
            OptimizerSpec::Adam => {
                let config = AdamConfig::new().with_epsilon(1e-8);
                AnyOptimizer::Adam(config.init())
            }
        }
    }

    fn step(&mut self, rate: f64, model: Model<B>, gradients: GradientsParams) -> Model<B> {
        match self {
            AnyOptimizer::Sgd(optimizer) => optimizer.step(rate, model, gradients),
            AnyOptimizer::Adam(optimizer) => optimizer.step(rate, model, gradients),
        }
    }
}

/// Trains a model on the cross-entropy loss.
pub(super) struct Training<B: Learns> {
    device: B::Device,
    spec: ModelSpec,
    /// `None` after a failed step.
    model: Option<Model<B>>,
    optimizer: AnyOptimizer<B>,
    loss: CrossEntropyLoss<B>,
    /// Who trains the same model.
    ranks: Option<Box<dyn AllReduce>>,
}

impl<B: Learns> Training<B> {
    /// On a device that computes in the precision of `spec`.
    pub(super) fn new(spec: &ModelSpec, device: B::Device) -> Training<B> {
        B::seed(&device, spec.seed);
        Training {
            model: Some(Model::drawn(spec, &device)),
            spec: spec.clone(),
            optimizer: AnyOptimizer::new(spec.optimizer),
            loss: CrossEntropyLossConfig::new().init(&device),
            device,
            ranks: None,
        }
    }

    /// Launches an update, and calls `launched` once all of a phase is; returns the loss and the number of right
    /// answers, `[2]`, which nobody has read yet.
    pub(super) fn update(
        &mut self,
        batch: DeviceBatch,
        mut launched: impl FnMut(Phase) -> Result<(), String>,
    ) -> Result<Tensor<B::InnerBackend, 1>, String> {
        let mixed_in = batch.mixed_in;
        let Tensors {
            images, targets, ..
        } = tensors::<B>(batch)?;
        let model = self.model.take().ok_or("an earlier step failed")?;
        let precision = self.spec.precision;
        let images = match images {
            Images::Finished(images) => images,
            Images::Pixels(pixels) => {
                let images = pixels.finish();
                launched(Phase::Preprocess)?;
                images
            }
        };
        let logits = forward(&model, images, precision);
        let mut loss = self.loss.forward(logits.clone(), targets.clone());
        if mixed_in > 0.0 {
            let others = before_each(targets.clone());
            let other = self.loss.forward(logits.clone(), others);
            loss = loss * (1.0 - mixed_in) + other * mixed_in;
        }
        launched(Phase::Forward)?;
        let gradients = precision::scaled(&loss, precision);
        launched(Phase::Backward)?;
        let gradients = GradientsParams::from_grads(gradients, &model);
        let mut gradients = precision::unscaled(gradients, &model, precision);
        if let Some(ranks) = &mut self.ranks {
            averaging::average(&mut gradients, &model, ranks.as_mut())?;
            launched(Phase::AllReduce)?;
        }
        let rate = self.spec.learning_rate;
        self.model = Some(self.optimizer.step(rate, model, gradients));
        launched(Phase::Optimizer)?;
        Ok(outcome(loss.inner(), logits.inner(), targets.inner()))
    }
}

/// The class before each in `targets`, `[batch]`; for the first, the last.
fn before_each<B: Backend>(targets: Tensor<B, 1, Int>) -> Tensor<B, 1, Int> {
    let others = targets.dims()[0] - 1;
    match others {
        0 => targets,
        _ => Tensor::cat(
            vec![
                targets.clone().narrow(0, others, 1),
                targets.narrow(0, 0, others),
            ],
            0,
        ),
    }
}

/// Waits until `device` has done all that was asked of it.
pub(super) fn wait<B: Backend>(device: &B::Device) -> Result<(), String> {
    B::sync(device).map_err(|error| format!("{error:?}"))
}

fn tensors<B: Backend>(batch: DeviceBatch) -> Result<Tensors<B>, String> {
    let tensors = batch.tensors.downcast::<Tensors<B>>();
    let tensors = tensors.map_err(|_| "a batch of another device")?;
    Ok(Arc::unwrap_or_clone(tensors))
}

/// The mean loss and the number of right answers, `[2]`: one transfer for both.
fn outcome<B: Backend>(
    loss: Tensor<B, 1>,
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
) -> Tensor<B, 1> {
    let right = logits.argmax(1).flatten::<1>(0, 1).equal(targets);
    Tensor::cat(vec![loss, right.float().sum()], 0)
}

/// What [`outcome`] says, once it has been read.
pub(super) fn learned(outcome: TensorData) -> Result<Learned, String> {
    let both: Vec<f32> = outcome
        .convert::<f32>()
        .to_vec()
        .map_err(|error| format!("{error:?}"))?;
    match both[..] {
        [loss, right] => Ok(Learned {
            loss: f64::from(loss),
            correct: right as u64,
        }),
        _ => Err("the loss is not one number".to_owned()),
    }
}

/// A step that was over when it was launched: on the CPU.
struct Done(Learned);

impl Pending for Done {
    fn wait(self: Box<Self>) -> Result<Learned, String> {
        Ok(self.0)
    }
}

impl<B: Learns> Trainer for Training<B> {
    fn step(
        &mut self,
        batch: DeviceBatch,
        ended: &mut dyn FnMut(Phase),
    ) -> Result<Learned, String> {
        let device = self.device.clone();
        let outcome = self.update(batch, |phase| {
            wait::<B>(&device)?;
            ended(phase);
            Ok(())
        })?;
        let learned = learned(read(outcome)?);
        ended(Phase::LossReadback);
        learned
    }

    fn launch(&mut self, batch: DeviceBatch) -> Result<Box<dyn Pending>, String> {
        let outcome = read(self.update(batch, |_| Ok(()))?)?;
        Ok(Box::new(Done(learned(outcome)?)))
    }

    fn average_by(&mut self, ranks: Box<dyn AllReduce>) -> Result<(), String> {
        self.ranks = Some(ranks);
        Ok(())
    }

    fn reset(&mut self) {
        let fresh = Training::new(&self.spec, self.device.clone());
        let ranks = self.ranks.take();
        *self = Training { ranks, ..fresh };
    }

    fn memory(&self) -> Option<DeviceMemory> {
        None
    }

    fn evaluate(&mut self, batch: DeviceBatch) -> Result<Learned, String> {
        let Tensors {
            images, targets, ..
        } = tensors::<B>(batch)?;
        let model = self.model.as_ref().ok_or("an earlier step failed")?.valid();
        let logits = forward(&model, images.finish().inner(), self.spec.precision);
        let targets = targets.inner();
        let loss = CrossEntropyLossConfig::new().init(&self.device);
        let loss = loss.forward(logits.clone(), targets.clone());
        learned(read(outcome(loss, logits, targets))?)
    }

    fn images(&self, batch: DeviceBatch) -> Result<Vec<f32>, String> {
        let images = read(tensors::<B>(batch)?.images.finish())?;
        let images = images.convert::<f32>().to_vec();
        images.map_err(|error| format!("{error:?}"))
    }

    fn copier(&self, _: usize) -> Box<dyn Copier> {
        Box::new(Copying::<B>::new(self.spec.input, self.device.clone()))
    }

    fn parameters(&self) -> usize {
        self.model.as_ref().map_or(0, trainable)
    }
}

//! The copy, the optimizer step and the evaluation, generic over burn's backends.

use super::model::{Model, trainable};
use super::precision::{self, forward};
use super::preprocess::Pixels;
use super::{
    Copier, Crop, DeviceBatch, Learned, ModelSpec, OptimizerSpec, Phase, PixelPlan, Precision,
    Trainer,
};
use burn::module::AutodiffModule;
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};

/// Images and their classes `[batch]`.
struct Tensors<B: Backend> {
    images: Images<B>,
    targets: Tensor<B, 1, Int>,
}

enum Images<B: Backend> {
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

pub(super) struct Copying<B: Backend> {
    input: [usize; 3],
    device: B::Device,
}

impl<B: Backend> Copying<B> {
    pub(super) fn new(input: [usize; 3], device: B::Device) -> Copying<B> {
        Copying { input, device }
    }

    fn targets(&self, labels: &[u32]) -> Tensor<B, 1, Int> {
        let targets: Vec<i32> = labels.iter().map(|label| *label as i32).collect();
        Tensor::from_data(TensorData::new(targets, [labels.len()]), &self.device)
    }
}

impl<B: Backend> Copier for Copying<B> {
    fn copy(&mut self, images: &[f32], labels: &[u32]) -> DeviceBatch {
        let [channels, height, width] = self.input;
        let shape = [labels.len(), channels, height, width];
        let images = TensorData::new(images.to_vec(), shape);
        DeviceBatch(Box::new(Tensors::<B> {
            images: Images::Finished(Tensor::from_data(images, &self.device)),
            targets: self.targets(labels),
        }))
    }

    fn copy_pixels(
        &mut self,
        plan: &PixelPlan,
        pixels: &[u8],
        crops: &[Crop],
        labels: &[u32],
    ) -> DeviceBatch {
        DeviceBatch(Box::new(Tensors::<B> {
            images: Images::Pixels(Pixels::new(plan, pixels, crops, &self.device)),
            targets: self.targets(labels),
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
pub(super) struct Training<B: AutodiffBackend> {
    device: B::Device,
    input: [usize; 3],
    /// `None` after a failed step.
    model: Option<Model<B>>,
    optimizer: AnyOptimizer<B>,
    loss: CrossEntropyLoss<B>,
    learning_rate: f64,
    precision: Precision,
}

impl<B: AutodiffBackend> Training<B> {
    /// On a device that computes in the precision of `spec`.
    pub(super) fn new(spec: &ModelSpec, device: B::Device) -> Training<B> {
        B::seed(&device, spec.seed);
        Training {
            model: Some(Model::new(spec, &device).drawn()),
            input: spec.input,
            optimizer: AnyOptimizer::new(spec.optimizer),
            loss: CrossEntropyLossConfig::new().init(&device),
            learning_rate: spec.learning_rate,
            precision: spec.precision,
            device,
        }
    }

    /// Waits until the device has done all that was asked of it.
    fn sync(&self) -> Result<(), String> {
        B::sync(&self.device).map_err(|error| format!("{error:?}"))
    }
}

fn tensors<B: Backend>(batch: DeviceBatch) -> Result<Tensors<B>, String> {
    let tensors = batch.0.downcast::<Tensors<B>>();
    tensors
        .map(|tensors| *tensors)
        .map_err(|_| "a batch of another device".to_owned())
}

/// Reads the mean loss and the number of right answers, in one transfer.
fn read<B: Backend>(
    loss: Tensor<B, 1>,
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
) -> Result<Learned, String> {
    let right = logits.argmax(1).flatten::<1>(0, 1).equal(targets);
    let right = right.float().sum();
    let both = Tensor::cat(vec![loss, right], 0).into_data();
    let both: Vec<f32> = both
        .convert::<f32>()
        .to_vec()
        .map_err(|e| format!("{e:?}"))?;
    match both[..] {
        [loss, right] => Ok(Learned {
            loss: f64::from(loss),
            correct: right as u64,
        }),
        _ => Err("the loss is not one number".to_owned()),
    }
}

impl<B: AutodiffBackend> Trainer for Training<B> {
    fn step(
        &mut self,
        batch: DeviceBatch,
        ended: &mut dyn FnMut(Phase),
    ) -> Result<Learned, String> {
        let Tensors { images, targets } = tensors::<B>(batch)?;
        let model = self.model.take().ok_or("an earlier step failed")?;
        let images = match images {
            Images::Finished(images) => images,
            Images::Pixels(pixels) => {
                let images = pixels.finish();
                self.sync()?;
                ended(Phase::Preprocess);
                images
            }
        };
        let logits = forward(&model, images, self.precision);
        let loss = self.loss.forward(logits.clone(), targets.clone());
        self.sync()?;
        ended(Phase::Forward);
        let gradients = precision::scaled(&loss, self.precision);
        self.sync()?;
        ended(Phase::Backward);
        let gradients = GradientsParams::from_grads(gradients, &model);
        let gradients = precision::unscaled(gradients, &model, self.precision);
        self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
        self.sync()?;
        ended(Phase::Optimizer);
        let learned = read(loss.inner(), logits.inner(), targets.inner());
        ended(Phase::LossReadback);
        learned
    }

    fn evaluate(&mut self, batch: DeviceBatch) -> Result<Learned, String> {
        let Tensors { images, targets } = tensors::<B>(batch)?;
        let model = self.model.as_ref().ok_or("an earlier step failed")?.valid();
        let logits = forward(&model, images.finish().inner(), self.precision);
        let targets = targets.inner();
        let loss = CrossEntropyLossConfig::new().init(&self.device);
        let loss = loss.forward(logits.clone(), targets.clone());
        read(loss, logits, targets)
    }

    fn images(&self, batch: DeviceBatch) -> Result<Vec<f32>, String> {
        let images = tensors::<B>(batch)?.images.finish().into_data();
        let images = images.convert::<f32>().to_vec();
        images.map_err(|error| format!("{error:?}"))
    }

    fn copier(&self) -> Box<dyn Copier> {
        Box::new(Copying::<B>::new(self.input, self.device.clone()))
    }

    fn parameters(&self) -> usize {
        self.model.as_ref().map_or(0, trainable)
    }
}

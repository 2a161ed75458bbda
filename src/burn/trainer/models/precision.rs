//! Mixed precision: a model whose weights, loss and optimizer stay in f32 computes in a shorter type.
//!
//! As PyTorch's `autocast` does it. Weights and images are cast before the forward pass, so that convolutions
//! and matrix products run in the shorter type, forward and backward; a cast's own backward pass casts the
//! gradients, which arrive at the weights in f32. Batch normalisation keeps its weights and statistics in f32
//! and computes in it, and so do means over an image. Logits are cast back before the loss.

use super::Precision;
use super::layers::Layers;
use super::model::Model;
use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Tensor};
use std::marker::PhantomData;

/// What the loss is multiplied by before the backward pass in f16, and the gradients divided by after it.
///
/// f16 has no number between 0 and 6e-8, and small gradients vanish. NVIDIA's published training of ResNet-50
/// uses the same constant. PyTorch's `GradScaler` tries larger factors as it goes, and skips the steps whose
/// gradients overflow; here none is skipped, so a loss that becomes NaN wants bf16, which has f32's range.
const F16_LOSS_SCALE: f32 = 128.0;

impl Precision {
    fn float(self) -> FloatDType {
        match self {
            Precision::F32 => FloatDType::F32,
            Precision::Bf16 => FloatDType::BF16,
            Precision::F16 => FloatDType::F16,
        }
    }

    /// As the configuration spells it.
    fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }

    fn loss_scale(self) -> Option<f32> {
        (self == Precision::F16).then_some(F16_LOSS_SCALE)
    }
}

/// Whether `device` computes in `precision`.
///
/// # Errors
/// That it does not, and what to try.
pub(super) fn require<B: Backend>(precision: Precision, device: &B::Device) -> Result<(), String> {
    if B::supports_dtype(device, DType::from(precision.float())) {
        return Ok(());
    }
    Err(format!(
        "the device does not compute in {}; set model.precision = \"f32\"",
        precision.name()
    ))
}

/// From images `[batch, channels, height, width]` to logits `[batch, classes]` in f32, computed in `precision`.
/// The weights must be drawn: a copy of a weight that is not drawn yet would draw another.
pub(super) fn forward<B: Layers>(
    model: &Model<B>,
    images: Tensor<B, 4>,
    precision: Precision,
) -> Tensor<B, 2> {
    if precision == Precision::F32 {
        return model.forward(images);
    }
    let float = precision.float();
    let mut lower = Lower {
        float,
        in_norm: false,
    };
    let lowered = model.clone().map(&mut lower);
    lowered.forward(images.cast(float)).cast(FloatDType::F32)
}

/// Casts weights. They stay in the graph, so that the gradients of the casts reach the weights that were cast.
struct Lower {
    float: FloatDType,
    in_norm: bool,
}

/// What a mapper is told when it enters a batch normalisation. Its running statistics are shared with the model
/// that was cloned and must stay as they are.
const NORM: &str = "Struct:BatchNorm";

impl<B: Backend> ModuleMapper<B> for Lower {
    fn enter_module(&mut self, _: &str, container: &str) {
        self.in_norm |= container == NORM;
    }

    fn exit_module(&mut self, _: &str, container: &str) {
        self.in_norm &= container != NORM;
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if self.in_norm {
            return param;
        }
        let (id, weight, mapper) = param.consume();
        Param::from_mapped_value(id, weight.cast(self.float), mapper)
    }
}

/// The gradients of `loss` for the weights of `model`, in f32 and of the loss as it is, whatever the scale that
/// `precision` needs on the way.
pub(super) fn scaled<B: AutodiffBackend>(
    loss: &Tensor<B, 1>,
    precision: Precision,
) -> B::Gradients {
    match precision.loss_scale() {
        Some(scale) => loss.clone().mul_scalar(scale).backward(),
        None => loss.backward(),
    }
}

/// Undoes the scale of [`scaled`].
pub(super) fn unscaled<B: AutodiffBackend, M: AutodiffModule<B>>(
    mut gradients: GradientsParams,
    model: &M,
    precision: Precision,
) -> GradientsParams {
    if let Some(scale) = precision.loss_scale() {
        model.visit(&mut Unscale::<B> {
            gradients: &mut gradients,
            scale,
            backend: PhantomData,
        });
    }
    gradients
}

struct Unscale<'a, B> {
    gradients: &'a mut GradientsParams,
    scale: f32,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Unscale<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            let gradient = gradient.div_scalar(self.scale);
            self.gradients.register(param.id, gradient);
        }
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use crate::{Architecture, ModelSpec, OptimizerSpec, cpu};
    use burn::backend::flex::FlexDevice;
    use burn::backend::{Autodiff, Flex};
    use burn::nn::loss::CrossEntropyLossConfig;
    use burn::optim::{Optimizer, SgdConfig};
    use burn::tensor::{Int, TensorData};

    type Tested = Autodiff<Flex>;

    const SIDE: usize = 32;
    const BATCH: usize = 8;
    const CLASSES: usize = 4;
    const LOWER: [Precision; 2] = [Precision::Bf16, Precision::F16];

    fn spec(architecture: Architecture, precision: Precision) -> ModelSpec {
        ModelSpec {
            architecture,
            input: [3, SIDE, SIDE],
            classes: CLASSES,
            optimizer: OptimizerSpec::Sgd { momentum: 0.0 },
            learning_rate: 0.1,
            precision,
            seed: 7,
        }
    }

    /// The generator is the process's, so that a second model would not be the same: tests clone one.
    fn model(architecture: Architecture) -> Model<Tested> {
        Model::drawn(&spec(architecture, Precision::F32), &FlexDevice)
    }

    /// Stripes whose distance is the class, in a phase of the image's own.
    fn batch() -> (Vec<f32>, Vec<u32>) {
        let value = |at: usize| {
            let (image, column) = (at / (3 * SIDE * SIDE), at % SIDE);
            let frequency = (1 + image % CLASSES) as f32;
            (column as f32 * frequency / 5.0 + image as f32).sin()
        };
        let images = (0..BATCH * 3 * SIDE * SIDE).map(value).collect();
        let labels = (0..BATCH).map(|image| (image % CLASSES) as u32);
        (images, labels.collect())
    }

    /// The loss on [`batch`] and its gradients.
    fn learn(model: &Model<Tested>, precision: Precision) -> (f32, GradientsParams) {
        let (images, labels) = batch();
        let images = TensorData::new(images, [BATCH, 3, SIDE, SIDE]);
        let logits = forward(model, Tensor::from_data(images, &FlexDevice), precision);
        assert_eq!(logits.dtype(), DType::F32);
        let labels: Vec<i32> = labels.into_iter().map(|label| label as i32).collect();
        let labels = TensorData::new(labels, [BATCH]);
        let labels = Tensor::<Tested, 1, Int>::from_data(labels, &FlexDevice);
        let loss = CrossEntropyLossConfig::new().init(&FlexDevice);
        let loss = loss.forward(logits, labels);
        let gradients = GradientsParams::from_grads(scaled(&loss, precision), model);
        let gradients = unscaled(gradients, model, precision);
        (loss.into_scalar(), gradients)
    }

    #[test]
    fn a_small_model_learns_alike_in_every_precision() {
        let start = model(Architecture::SmallCnn);
        let losses = |precision| {
            let mut model = start.clone();
            let mut optimizer = SgdConfig::new().init();
            let steps = (0..60).map(|_| {
                let (loss, gradients) = learn(&model, precision);
                model = optimizer.step(0.1, model.clone(), gradients);
                loss
            });
            steps.collect::<Vec<f32>>()
        };
        let full = losses(Precision::F32);
        assert!(full[59] < 0.7 * full[0], "{full:?}");
        for precision in LOWER {
            let lower = losses(precision);
            assert_ne!(lower, full, "computed in f32");
            for (lower, full) in lower.iter().zip(&full) {
                assert!((lower - full).abs() < 0.05 * full, "{lower} for {full}");
            }
        }
    }

    /// What a model's gradients are, weight by weight.
    struct Gradients<'a> {
        gradients: &'a GradientsParams,
        lengths: Vec<f32>,
        statistics: Vec<f32>,
    }

    impl ModuleVisitor<Tested> for Gradients<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Tested, D>>) {
            assert_eq!(param.dtype(), DType::F32);
            if !param.is_require_grad() {
                self.statistics.push(param.val().mean().into_scalar());
                return;
            }
            let gradient = self.gradients.get::<Flex, D>(param.id);
            let gradient = gradient.expect("a gradient for each weight");
            assert_eq!(gradient.dtype(), DType::F32);
            let length = gradient.powf_scalar(2.0).sum().sqrt();
            self.lengths.push(length.into_scalar());
        }
    }

    #[test]
    fn every_weight_gets_its_gradient_in_f32() {
        let model = model(Architecture::ResNet18);
        let of = |precision| {
            let (loss, gradients) = learn(&model, precision);
            let mut seen = Gradients {
                gradients: &gradients,
                lengths: Vec::new(),
                statistics: Vec::new(),
            };
            model.visit(&mut seen);
            assert_eq!(seen.statistics.len(), 2 * 20);
            assert_eq!(seen.lengths.len(), 3 * 20 + 2, "20 layers and the last");
            (loss, seen.lengths)
        };
        let (full_loss, full) = of(Precision::F32);
        // Eight values a channel are normalised at the end, which magnifies what rounding to 8 bits leaves.
        for (precision, share) in [(Precision::Bf16, 0.4), (Precision::F16, 0.1)] {
            let (loss, lower) = of(precision);
            assert!(
                (loss - full_loss).abs() < share * full_loss,
                "{loss} for {full_loss}"
            );
            for (lower, full) in lower.into_iter().zip(&full) {
                assert!(
                    (lower - full).abs() < share * full,
                    "{precision:?}: {lower} for {full}"
                );
            }
        }
    }

    #[test]
    fn running_statistics_are_the_models_own() {
        let model = model(Architecture::ResNet18);
        let statistics = || {
            let mut seen = Gradients {
                gradients: &learn(&model, Precision::Bf16).1,
                lengths: Vec::new(),
                statistics: Vec::new(),
            };
            model.visit(&mut seen);
            seen.statistics
        };
        // What a step has left is seen once the next begins.
        let (first, second) = (statistics(), statistics());
        assert!(
            first
                .iter()
                .zip(&second)
                .all(|(first, second)| first != second)
        );
    }

    #[test]
    fn a_trainer_learns_and_evaluates_in_a_lower_precision() {
        for precision in LOWER {
            let mut trainer = cpu(&spec(Architecture::LeNet, precision)).unwrap();
            let (images, labels) = batch();
            let mut copier = trainer.copier(0);
            let mut losses = (0..40).map(|_| {
                let batch = copier.copy(&images, &labels).unwrap();
                trainer.step(batch, &mut |_| {}).unwrap().loss
            });
            let first = losses.next().unwrap();
            let last = losses.last().unwrap();
            assert!(last < 0.5 * first, "{first} to {last}");
            let evaluated = trainer
                .evaluate(copier.copy(&images, &labels).unwrap())
                .unwrap();
            assert!(
                (evaluated.loss - last).abs() < 0.2,
                "{evaluated:?} for {last}"
            );
        }
    }
}

//! stallscope's models and optimizer steps on burn's backends, behind plain types.
//!
//! A package of its own, because burn's generic code takes minutes to compile for each backend: here
//! that happens once, and not with every change of the profiler. Nothing of burn is visible outside.
//!
//! The features `cpu` and `cuda` are burn's backends. Without one its device is refused, with what to do; without
//! both there is no burn.

#[cfg(any(feature = "cpu", feature = "cuda"))]
mod models;
mod timing;

#[cfg(not(feature = "cpu"))]
#[path = "absent_cpu.rs"]
mod cpu;
// Unit tests need no GPU; without this, burn's generic code would be compiled for CUDA once more, for them.
#[cfg(any(not(feature = "cuda"), test))]
#[path = "absent_cuda.rs"]
mod cuda;
#[cfg(feature = "cpu")]
use models::cpu;
#[cfg(all(feature = "cuda", not(test)))]
use models::cuda;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use timing::{Kernels, PassTimes, TimedDevice, Times, time_model, time_products};

/// What to train.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    pub architecture: Architecture,
    /// Channels, height and width of an image.
    pub input: [usize; 3],
    /// Outputs of the model; every label must be below.
    pub classes: usize,
    pub optimizer: OptimizerSpec,
    pub learning_rate: f64,
    pub precision: Precision,
    /// Seed of the initial weights.
    pub seed: u64,
}

/// The models there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// One linear layer: softmax regression.
    Linear,
    /// Hidden layers of these sizes with rectifiers between.
    Dense(Vec<usize>),
    /// Three strided convolutions and a linear layer.
    SmallCnn,
    LeNet,
    ResNet18,
    ResNet50,
    ResNet200,
    Vgg16,
    Vgg19,
}

/// Least height and width of an image that something is left of after LeNet's second pooling.
const LENET_LEAST_SIDE: usize = 12;
/// The same of VGG, which halves the sides five times.
const VGG_LEAST_SIDE: usize = 32;

impl Architecture {
    /// Least height and width of an image, in pixels.
    pub fn least_side(&self) -> usize {
        match self {
            Architecture::Linear | Architecture::Dense(_) => 1,
            Architecture::ResNet18 | Architecture::ResNet50 | Architecture::ResNet200 => 1,
            Architecture::SmallCnn => 4,
            Architecture::LeNet => LENET_LEAST_SIDE,
            Architecture::Vgg16 | Architecture::Vgg19 => VGG_LEAST_SIDE,
        }
    }
}

/// In which type a model computes. Its weights, loss and optimizer are f32 in any case.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    #[default]
    F32,
    /// The range of f32 with 8 bits of precision.
    Bf16,
    /// 11 bits of precision in a narrow range; the loss is scaled on its way back.
    F16,
}

/// The optimizers there are.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum OptimizerSpec {
    /// Stochastic gradient descent; 0 is no momentum.
    Sgd { momentum: f64 },
    /// Adam with betas 0.9 and 0.999.
    Adam,
}

/// What one batch says of the model.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Learned {
    /// Mean cross-entropy over the batch, in nats.
    pub loss: f64,
    /// Samples whose largest output is their class.
    pub correct: u64,
}

/// A batch in the device's memory: tensors of some backend. A clone shares it.
#[derive(Clone)]
#[cfg_attr(
    not(any(feature = "cpu", feature = "cuda")),
    expect(dead_code, reason = "no backend makes one")
)]
pub struct DeviceBatch {
    tensors: Arc<dyn Any + Send + Sync>,
    mixed_in: f32,
}

impl DeviceBatch {
    #[cfg_attr(
        not(any(feature = "cpu", feature = "cuda")),
        expect(dead_code, reason = "no backend makes one")
    )]
    fn new(tensors: impl Any + Send + Sync) -> DeviceBatch {
        DeviceBatch {
            tensors: Arc::new(tensors),
            mixed_in: 0.0,
        }
    }

    /// The same, of which each image has this share, from 0 to 1, of the one before it, the first of the last: the loss is
    /// that share of the loss with the other's label, and the rest with its own.
    pub fn mixed(self, mixed_in: f32) -> DeviceBatch {
        DeviceBatch { mixed_in, ..self }
    }
}

/// A step that the device has been given: everything of it is launched, and it may still run.
pub trait Pending: Send {
    /// Blocks until the device has done it, and says what was learned.
    ///
    /// # Errors
    /// What the device failed with.
    fn wait(self: Box<Self>) -> Result<Learned, String>;
}

/// What a device's allocator holds for the thread that trains; the batches that are copied lie beside it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that tensors lie in.
    pub in_use: u64,
    /// Bytes taken from the device for them.
    pub reserved: u64,
}

/// What the device does with the 8-bit images that are copied to it.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelPlan {
    /// Of the images that are copied, in pixels.
    pub height: usize,
    pub width: usize,
    pub layout: PixelLayout,
    /// Crop and resize to this height and width; `None` leaves the images at their size.
    pub side: Option<usize>,
    /// Per channel, on the scale where 255 is 1: `(value / 255 - mean) / std`.
    pub mean: Vec<f32>,
    pub std: Vec<f32>,
}

/// How the channels of 8-bit images lie.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PixelLayout {
    /// Channel by channel within a pixel.
    Interleaved,
    /// One plane after another.
    Planar,
}

/// The part of an image that is kept, in source pixels.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Crop {
    pub left: f32,
    pub top: f32,
    pub width: f32,
    pub height: f32,
    /// Left, top, right and bottom of what the resize may see: the crop alone, or the image around it too.
    pub seen: [f32; 4],
    /// Mirrored left to right.
    pub flip: bool,
}

/// A part of a step that has just ended on the device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Preprocessing of images that were copied as pixels.
    Preprocess,
    Forward,
    Backward,
    /// Averaging gradients over the ranks, waiting for them included.
    AllReduce,
    Optimizer,
    /// The loss has been read back to the host.
    LossReadback,
}

/// Copies batches to a device.
pub trait Copier: Send {
    /// Copies `images`, `[batch, channels, height, width]`, and their `labels`, `[batch]`. They are on the
    /// device when it returns.
    ///
    /// # Errors
    /// What the device refused.
    fn copy(&mut self, images: &[f32], labels: &[u32]) -> Result<DeviceBatch, String>;

    /// Copies 8-bit `pixels` of as many images as there are `crops` and `labels`; they are preprocessed as
    /// `plan` says when the batch is used. Without a side in `plan` only the flips of `crops` matter.
    ///
    /// # Errors
    /// What the device refused.
    fn copy_pixels(
        &mut self,
        plan: &PixelPlan,
        pixels: &[u8],
        crops: &[Crop],
        labels: &[u32],
    ) -> Result<DeviceBatch, String>;

    /// Whether batches would be copied faster from `buffer` if it were [locked](Self::lock).
    fn wants_locked(&self, _buffer: &[u8]) -> bool {
        false
    }

    /// Locks the pages of `buffer`, from which batches are copied again and again, for as long as this lives. `keeper` must
    /// keep the buffer's memory where it is.
    fn lock(&mut self, _buffer: &[u8], _keeper: Box<dyn Any + Send>) {}
}

/// Averages numbers over the ranks of a data-parallel training.
pub trait AllReduce: Send {
    /// Replaces `values` by their means over all ranks, the same for each. Blocks until all have come.
    ///
    /// # Errors
    /// A rank that is gone.
    fn mean(&mut self, values: &mut [f32]) -> Result<(), String>;
}

/// Trains on a device.
pub trait Trainer {
    /// One optimizer update; calls `ended` as each phase ends. What it returns is of the weights before
    /// the update.
    ///
    /// # Errors
    /// What the backend says, or a batch of another device.
    fn step(&mut self, batch: DeviceBatch, ended: &mut dyn FnMut(Phase))
    -> Result<Learned, String>;

    /// Launches one optimizer update and returns once all of it is launched, without waiting for the device
    /// where that runs beside the host. Of the weights before the update, as [`step`](Self::step).
    ///
    /// # Errors
    /// What the backend says, or a batch of another device.
    fn launch(&mut self, batch: DeviceBatch) -> Result<Box<dyn Pending>, String>;

    /// From now on the gradients of each update are averaged by `ranks`, so that all ranks train one model.
    ///
    /// # Errors
    /// A device that cannot.
    fn average_by(&mut self, _ranks: Box<dyn AllReduce>) -> Result<(), String> {
        Err("gradients are averaged over ranks on the CPU only".to_owned())
    }

    /// Forgets what was learned: weights as at the start.
    fn reset(&mut self);

    /// What the device's memory holds; `None` where that is the host's.
    fn memory(&self) -> Option<DeviceMemory>;

    /// The images of a batch as the model sees them, one after another: channels, height, width.
    ///
    /// # Errors
    /// What the backend says, or a batch of another device.
    fn images(&self, batch: DeviceBatch) -> Result<Vec<f32>, String>;

    /// How well the model does on a batch, which it does not learn from.
    ///
    /// # Errors
    /// What the backend says, or a batch of another device.
    fn evaluate(&mut self, batch: DeviceBatch) -> Result<Learned, String>;

    /// Copies batches to this trainer's device, from any thread. Where the device has memory of its own, the first copy takes
    /// as much of it as `at_once` batches of its size need, so that a batch too large fails there and not some time later; 0
    /// takes what each batch needs.
    fn copier(&self, at_once: usize) -> Box<dyn Copier>;

    /// Trainable numbers of the model.
    fn parameters(&self) -> usize;
}

/// How batches are copied to the device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Through pinned memory, which the copy engine reads itself; pageable memory the driver stages.
    pub pinned: bool,
    /// Beside kernels; otherwise a copy waits until the device has done everything it was given.
    pub overlap: bool,
}

const NO_CPU: &str = "this build has no CPU backend (feature \"cpu\")\n  \
     try: cargo build --release --features cpu, or --set device=emulated:resnet50-a100";
const NO_CUDA: &str =
    "this build has no CUDA (feature \"cuda\")\n  try: cargo build --release --features cuda";

/// That this build has burn's CPU backend.
///
/// # Errors
/// It was left out, and what to do.
pub fn require_cpu() -> Result<(), String> {
    built(cfg!(feature = "cpu"), NO_CPU)
}

/// That this build has CUDA.
///
/// # Errors
/// It was left out, and what to do.
pub fn require_cuda() -> Result<(), String> {
    built(cfg!(feature = "cuda"), NO_CUDA)
}

fn built(has: bool, or_else: &str) -> Result<(), String> {
    has.then_some(()).ok_or_else(|| or_else.to_owned())
}

/// A trainer on the CPU.
///
/// # Errors
/// As [`require_cpu`], or a precision that the CPU does not compute in.
pub fn cpu(spec: &ModelSpec) -> Result<Box<dyn Trainer>, String> {
    cpu::trainer(spec)
}

/// Has burn's CUDA backend keep the kernels that it compiles and what it tunes in `folder`, which is made. Says the
/// folder; `None` where the user has said by a `cubecl.toml` or `burn.toml` where, or where the backend is up already.
/// Kernels of one GPU's model and of one compiler are no use to another: each needs a folder of its own.
///
/// # Errors
/// As [`require_cuda`], or a folder that cannot be written. The backend then has its own defaults.
pub fn keep_kernels(folder: &Path) -> Result<Option<PathBuf>, String> {
    #[cfg(feature = "cuda")]
    return models::kernel_cache::keep(folder);
    #[cfg(not(feature = "cuda"))]
    Err(format!("{}: {NO_CUDA}", folder.display()))
}

/// A trainer on the CUDA device `ordinal`, whose batches are copied as `copies` says. Panics deep inside where a
/// part of CUDA is missing: probe first.
///
/// # Errors
/// As [`require_cuda`], or a precision that the device does not compute in.
pub fn cuda(
    ordinal: usize,
    spec: &ModelSpec,
    copies: CopyOptions,
) -> Result<Box<dyn Trainer>, String> {
    cuda::trainer(ordinal, spec, copies)
}

/// What the driver says of the CUDA device that this process trains on, where an earlier failure has lost its context
/// ("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, ...)"): CubeCL does not name what its own copies fail with.
pub fn lost_cuda() -> Option<String> {
    cuda::lost()
}

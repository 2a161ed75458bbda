//! stallscope's models and optimizer steps on burn's backends, behind plain types.
//!
//! A package of its own, because burn's generic code takes minutes to compile for each backend: here
//! that happens once, and not with every change of the profiler. Nothing of burn is visible outside.

mod engine;
mod model;

use burn::backend::flex::FlexDevice;
use burn::backend::{Autodiff, Flex};
use burn_cuda::{Cuda, CudaDevice};
use engine::{Copying, Training};
use std::any::Any;

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
pub struct DeviceBatch(Box<dyn Any + Send>);

/// A part of a step that has just ended on the device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Forward,
    Backward,
    Optimizer,
    /// The loss has been read back to the host.
    LossReadback,
}

/// Copies batches to a device.
pub trait Copier: Send {
    /// Copies `images`, `[batch, 3, height, width]`, and their `labels`, `[batch]`.
    fn copy(&mut self, images: &[f32], labels: &[u32]) -> DeviceBatch;
}

/// Trains on a device.
pub trait Trainer {
    /// One optimizer update; calls `ended` as each phase ends. Returns the loss.
    ///
    /// # Errors
    /// What the backend says, or a batch of another device.
    fn step(&mut self, batch: DeviceBatch, ended: &mut dyn FnMut(Phase)) -> Result<f64, String>;
}

/// A device's two ends: they may be used in different threads.
pub type Ends = (Box<dyn Copier>, Box<dyn Trainer>);

/// The CPU.
pub fn cpu(spec: ModelSpec) -> Ends {
    let copier = Copying::<Autodiff<Flex>>::new(spec, FlexDevice);
    let trainer = Training::<Autodiff<Flex>>::new(spec, FlexDevice);
    (Box::new(copier), Box::new(trainer))
}

/// The CUDA device `ordinal`. Panics deep inside where a part of CUDA is missing: probe first.
pub fn cuda(ordinal: usize, spec: ModelSpec) -> Ends {
    let device = CudaDevice::new(ordinal);
    let copier = Copying::<Autodiff<Cuda>>::new(spec, device.clone());
    let trainer = Training::<Autodiff<Cuda>>::new(spec, device);
    (Box::new(copier), Box::new(trainer))
}

//! How long a device takes for a model's passes and for matrix products: no data is loaded, nothing is learned.
//!
//! Invariant: each time ends when the device has done the work, and includes its launch.

use super::{ModelSpec, cpu, cuda};

/// What is timed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TimedDevice {
    Cpu,
    Cuda { ordinal: usize, kernels: Kernels },
}

/// By which kernels a GPU computes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Fused, and of those for the same operation the fastest: as models are trained.
    #[default]
    Optimised,
    /// One after another, convolutions and matrix products by those that burn takes where it is built without
    /// autotuning.
    Plain,
}

/// How often something is done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before the first that counts: kernels are compiled and tuned, and memory is reserved.
    pub warmup: usize,
    pub measured: usize,
}

/// How long the passes of one batch took, in nanoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PassTimes {
    /// From the images to the loss, in training: what the backward pass needs is kept.
    pub forward_ns: u64,
    /// From the loss to the gradients of all weights; the images have none.
    pub backward_ns: u64,
}

/// Times the passes of `batch` images, which lie on the device, through the model of `spec`. Panics deep inside where
/// a part of CUDA is missing or the device's memory runs out: probe first, and catch.
///
/// # Errors
/// A precision that the device does not compute in, a device that this build does not have, or what it failed with.
pub fn time_model(
    device: TimedDevice,
    spec: &ModelSpec,
    batch: usize,
    times: Times,
) -> Result<Vec<PassTimes>, String> {
    match device {
        TimedDevice::Cpu => cpu::passes(spec, batch, times),
        TimedDevice::Cuda { ordinal, kernels } => {
            cuda::passes(ordinal, kernels, spec, batch, times)
        }
    }
}

/// Times products of two `side` x `side` matrices of f32, in nanoseconds each. Panics as [`time_model`].
///
/// # Errors
/// A device that this build does not have, or what it failed with.
pub fn time_products(device: TimedDevice, side: usize, times: Times) -> Result<Vec<u64>, String> {
    match device {
        TimedDevice::Cpu => cpu::products(side, times),
        TimedDevice::Cuda { ordinal, kernels } => cuda::products(ordinal, kernels, side, times),
    }
}

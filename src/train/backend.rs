//! Which burn backend executes the steps.

use super::burning::{BurnCopy, BurnTrainer, ModelSpec};
use super::step::{TrainError, TrainStep};
use crate::device::probe::CudaProbe;
use crate::pipeline::HostToDevice;
use burn::backend::flex::FlexDevice;
use burn::backend::{Autodiff, Flex};
use burn_cuda::{Cuda, CudaDevice};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a caller does with a device once it is there; generic, since each backend has its own types.
pub trait OnDevice {
    type Output;

    /// Called once, with the copy stage and the trainer of the chosen device.
    fn run<H, T>(self, copy: H, trainer: T) -> Self::Output
    where
        H: HostToDevice,
        T: TrainStep<Batch = H::Batch>;
}

/// Trains on the CPU.
pub fn on_cpu<V: OnDevice>(spec: ModelSpec, visitor: V) -> V::Output {
    type B = Autodiff<Flex>;
    let copy = BurnCopy::<B>::new(spec, FlexDevice);
    visitor.run(copy, BurnTrainer::<B>::new(spec, FlexDevice))
}

/// Trains on the CUDA device `ordinal` that `probe` found.
///
/// # Errors
/// What is missing on this machine, or why the device does not come up.
pub fn on_cuda<V: OnDevice>(
    ordinal: usize,
    probe: &CudaProbe,
    spec: ModelSpec,
    visitor: V,
) -> Result<V::Output, TrainError> {
    type B = Autodiff<Cuda>;
    let refuse = |reason: String| TrainError::Device {
        device: format!("cuda:{ordinal}"),
        reason,
    };
    // burn panics deep inside where a part of CUDA is missing, so each is looked for first.
    probe.require(ordinal).map_err(|missing| {
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        refuse(missing.join("; "))
    })?;
    let device = CudaDevice::new(ordinal);
    let (copy, trainer) = catch_unwind(AssertUnwindSafe(|| {
        let copy = BurnCopy::<B>::new(spec, device.clone());
        (copy, BurnTrainer::<B>::new(spec, device))
    }))
    .map_err(|_| refuse("the CUDA runtime did not come up; run `stallscope doctor`".to_owned()))?;
    Ok(visitor.run(copy, trainer))
}

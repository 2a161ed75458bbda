//! Training: the only place that names burn.
//!
//! The loop ([`train`]) is generic over a [`TrainStep`]; [`BurnTrainer`] is one, [`EmulatedTrainer`] another.
//! burn itself is behind the package in `src/burn`. May use `pipeline`, `device`, `ranks` and `timeline`.

mod burning;
mod emulated;
mod gpu;
mod kernel_cache;
mod memory;
mod panics;
mod step;
mod timing;
mod together;

pub use burning::{
    Architecture, BurnCopy, BurnTrainer, CopyOptions, Crop, DeviceBatch, DevicePreprocess, Learned,
    ModelSpec, OptimizerSpec, PixelLayout, PixelPlan, Precision, on_cpu, on_cuda,
};
pub use emulated::{EmulatedBatch, EmulatedCopy, EmulatedTrainer};
pub use gpu::{DeviceWait, GpuTrainer, Launch};
pub use kernel_cache::keep_kernels;
pub use memory::{DeviceMemory, NoRoomFor, OutOfMemory, TimedWork};
pub use panics::{FIRST_PANIC, serves_device};
pub use step::{Awaited, Outcome, StepDone, TrainError, TrainStep, backends, train};
pub use timing::{Kernels, PassTimes, Timed, TimedDevice, Times, time_passes, time_products};
pub use together::Together;

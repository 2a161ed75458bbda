//! Training: the only place that names burn.
//!
//! The loop ([`train`]) is generic over a [`TrainStep`]; burn's models implement it. A caller gets a
//! device's copy stage and trainer through [`OnDevice`]. May use `pipeline`, `device` and `timeline`.

mod backend;
mod burning;
mod model;
mod step;

pub use backend::{OnDevice, on_cpu, on_cuda};
pub use burning::{BurnCopy, BurnTrainer, DeviceBatch, ModelSpec};
pub use step::{StepDone, TrainError, TrainStep, train};

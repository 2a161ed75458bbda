//! Training: the only place that names burn.
//!
//! The loop ([`train`]) is generic over a [`TrainStep`]; burn's models implement it. May use
//! `pipeline`, `device` and `timeline`.

mod step;

pub use step::{StepDone, TrainError, TrainStep, train};

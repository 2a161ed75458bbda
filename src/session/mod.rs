//! Wires one run: configuration, data, pipeline, device, trainer, recorder, trace and report.
//!
//! Invariant: however the run ends, its trace and its report are on disk. May use `train`, `pipeline`,
//! `device`, `trace`, `analysis`, `report`, `data` and `config`.

mod cache;
mod calibration;
mod catalog;
mod collector;
mod error;
mod evaluation;
mod gpu;
mod gpu_decoding;
mod gpu_watch;
mod host_loader;
mod images;
mod memory;
mod packing;
mod plan;
mod predict;
mod run;
mod service_threads;
mod small;
mod source;
#[cfg(test)]
#[path = "../../tests/trace_files/mod.rs"]
mod test_files;
mod trainee;

pub use calibration::cache_folder;
pub use catalog::Catalog;
pub use collector::{OnProgress, Progress};
pub use error::SessionError;
pub use host_loader::{HostLoader, ReadyBatch};
pub use images::ImageWork;
pub use packing::{PackRequest, Packed};
pub use plan::{plan as loader_plan, shape as loader_shape};
pub use predict::{
    Binds, FreeStages, ManyRanks, MeasuredRun, PredictError, Prediction, Predictor,
    RanksPrediction, WhatIf, gain_without,
};
pub use run::{OnHang, Outcome, RunOptions, Session};
pub use source::{fits_in_memory, training_samples};

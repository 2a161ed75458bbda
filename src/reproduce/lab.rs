//! What measuring a table needs of the world: runs, data, predictions. May use: `analysis`, `config`, `report`, `tune`.

use super::outcome::{DataOrigin, DataUsed};
use crate::analysis::predict::Estimate;
use crate::config::Rung;
use crate::report::Report;
use crate::tune::TrialError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// One run of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Run<'a> {
    /// Of the run's folder, and for progress.
    pub name: &'a str,
    /// One of [`EXPERIMENTS`](super::EXPERIMENTS).
    pub experiment: &'a str,
    /// `key=value` texts on top of the file; the user's own come last.
    pub sets: &'a [String],
    /// Whether held-out samples are evaluated after the training.
    pub evaluate: bool,
}

/// Data that a table measures with.
#[derive(Clone, Debug, PartialEq)]
pub enum DataNeed {
    /// MNIST's four files.
    Mnist,
    /// MNIST's training images as an image folder of PNG files.
    MnistPng,
    /// CIFAR-100's two files.
    Cifar100,
    /// The pictures that an experiment's own keys make.
    Images { experiment: &'static str },
    /// The same, packed into shards: as pixels with at most so many on the longer side, or as they are.
    Packed {
        experiment: &'static str,
        raw: Option<u32>,
    },
    /// The same number of pictures as PNG files.
    Png { experiment: &'static str },
}

/// Data that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct DataPlace {
    pub path: PathBuf,
    pub origin: DataOrigin,
    /// What a sample takes on disk on average, where that is known.
    pub bytes_per_sample: Option<f64>,
}

impl DataPlace {
    /// As `source.path=...`.
    pub fn set(&self) -> String {
        format!("source.path={}", self.path.display())
    }

    /// As results name it.
    pub fn used(&self, name: &str) -> DataUsed {
        DataUsed {
            name: name.to_owned(),
            path: self.path.display().to_string(),
            origin: self.origin,
        }
    }
}

/// What is asked of a prediction: the run of a report with `sets` on top.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    pub sets: Vec<String>,
    /// Whether decode and preprocess would cost the host nothing: pixels are stored, and the device preprocesses.
    pub free_loader: bool,
    /// What a sample would take on disk, where the data is another.
    pub bytes_per_sample: Option<f64>,
}

/// What a prediction says.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub samples_per_second: Estimate,
    /// Of the window, 0 to 1.
    pub device_busy: Option<Estimate>,
    pub assumptions: Vec<String>,
}

/// What `stallscope time-kernels` prints: the passes of a model, or matrix products.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelTimes {
    pub device: String,
    /// Those of a GPU.
    pub kernels: Option<String>,
    pub warmup: usize,
    /// Threads that computed.
    pub threads: Option<usize>,
    pub model: Option<String>,
    /// Images of a batch, and their side.
    pub batch: Option<usize>,
    pub size: Option<usize>,
    pub passes: Vec<PassTimes>,
    pub matmul: Vec<ProductTimes>,
}

/// A batch through a model and back.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassTimes {
    pub forward_ns: u64,
    pub backward_ns: u64,
}

/// Products of matrices of `n` rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProductTimes {
    pub n: usize,
    pub ns: Vec<u64>,
}

/// Why a table cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The device's or the machine's memory is too small for a run.
    #[error("the run {run} needs more memory than there is\n  try: {remedy}")]
    Memory { run: String, remedy: &'static str },
    /// Anything that the world refused, in its own words.
    #[error("{0}")]
    Refused(String),
}

/// What measuring a table needs of the world.
pub trait Lab {
    /// Runs an experiment in a process of its own and returns its report.
    ///
    /// # Errors
    /// A run that failed, or was stopped.
    fn run(&mut self, run: &Run<'_>) -> Result<Arc<Report>, LabError>;

    /// Predicts a run from the report of another.
    ///
    /// # Errors
    /// What cannot be predicted, and why.
    fn predict(&self, report: &Report, question: &Question) -> Result<Answer, LabError>;

    /// The rungs of an experiment's file.
    ///
    /// # Errors
    /// A file that cannot be used.
    fn rungs(&self, experiment: &str) -> Result<Vec<Rung>, LabError>;

    /// Keeps `value` in the folder of the results, before anything else is done.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    fn keep(&mut self, name: &str, value: &Value) -> Result<(), LabError>;

    /// Data of the kind, made or found.
    ///
    /// # Errors
    /// Data that cannot be made or read.
    fn data(&mut self, need: &DataNeed) -> Result<DataPlace, LabError>;

    /// Times passes of a model or matrix products in a process of its own: `stallscope time-kernels` with these
    /// arguments; `None` where the memory does not suffice.
    ///
    /// # Errors
    /// A process that failed, or was stopped.
    fn time_kernels(&mut self, arguments: &[String]) -> Result<Option<KernelTimes>, LabError>;

    /// Why there is no such device (`cuda:0`), where there is none.
    fn lacks(&self, device: &str) -> Option<String>;

    /// Tells the user what comes next.
    fn say(&mut self, what: &str);
}

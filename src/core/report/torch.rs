//! What a report says of a PyTorch training.

use crate::analysis::predict::torch::{LoaderSettings, Replay};
use crate::timeline::Nanos;
use serde::{Deserialize, Serialize};

/// A training by PyTorch, whose data a DataLoader loads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TorchReport {
    /// How the loader was set, and what it cost: from that other runs are predicted.
    pub costs: Replay,
    /// What was trained, and with what.
    #[serde(default)]
    pub session: TorchSession,
    /// The loaders that were iterated, in order.
    #[serde(default)]
    pub loaders: Vec<TorchLoader>,
}

/// What the hooks say of a training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TorchSession {
    /// Version of PyTorch.
    pub torch: String,
    /// Version of Python.
    pub python: String,
    /// The script and its arguments.
    pub command: Vec<String>,
    /// The process that trains.
    pub pid: u32,
    /// Which of several it is.
    pub rank: Option<u32>,
    /// How many there are.
    pub world_size: u32,
    /// Threads that PyTorch computes with.
    pub threads: u32,
    /// What could not be measured.
    pub missing: Vec<String>,
}

/// A DataLoader over the whole training. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TorchLoader {
    /// As its user has set it.
    pub settings: LoaderSettings,
    /// It trains nothing; its batches are no steps.
    pub validates: bool,
    /// Passes over it.
    pub passes: u64,
    /// Batches taken.
    pub batches: u64,
    /// Samples of those.
    pub samples: u64,
    /// In `next()`; of a loader that validates without the first of each pass.
    pub waited_ns: Nanos,
    /// Of a loader that validates: from the start of each pass to its first batch.
    pub start_ns: Nanos,
}

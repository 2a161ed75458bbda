//! What a test reads of the stand-in's: the truth of a run.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the device did, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Truth {
    /// When at least one kernel ran, by device.
    pub busy: Vec<Vec<(u64, u64)>>,
    /// Copies to the devices.
    pub copies_in: Vec<Copied>,
    /// Copies to the host.
    pub copies_out: Vec<Copied>,
    /// Kernels by name.
    pub kernels: BTreeMap<String, u64>,
    /// Calls by name.
    pub calls: BTreeMap<String, u64>,
    /// Modules that were loaded.
    pub modules: u64,
    pub violations: u64,
    /// What was not given back.
    pub left: Left,
}

/// One copy.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
pub struct Copied {
    pub start: u64,
    pub end: u64,
    pub bytes: u64,
    pub pinned: bool,
}

/// What was not given back when the process ended, and the most that was taken at once.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pub events: usize,
    pub streams: usize,
    pub allocations: usize,
    pub bytes: u64,
    pub most_bytes: u64,
    pub pinned: usize,
    pub pinned_bytes: u64,
}

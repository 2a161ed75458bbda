//! Device timelines, and what is known about a device before a run touches it.
//!
//! May use: `timeline`.

pub mod cgroup;
pub mod cupti;
pub mod emulated;
pub mod gpu_steps;
pub mod nvml;
pub mod planted;
pub mod probe;

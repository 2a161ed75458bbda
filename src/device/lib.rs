//! Device timelines, and what is known about a device before a run touches it.
//!
//! May use: the core.

pub mod cupti;
pub mod emulated;
pub mod gpu_steps;
pub mod nvml;
pub mod nvtx;
pub mod planted;
pub mod probe;

//! Device timelines, and what is known about a device before a run touches it.
//!
//! May use: the core.

pub mod collected;
pub mod cupti;
pub mod emulated;
mod gpu_lanes;
pub mod gpu_steps;
#[cfg(feature = "cuda")]
pub mod nvjpeg;
pub mod nvml;
pub mod nvtx;
mod other_gpus;
pub mod planted;
pub mod probe;

//! Device timelines, and what is known about a device before a run touches it.
//!
//! May use: `timeline`.

pub mod cgroup;
pub mod emulated;
pub mod nvml;
pub mod probe;

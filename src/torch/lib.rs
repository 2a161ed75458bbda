//! A PyTorch training that hooks in its processes record: what they write ([`event`]), the shared memory that it goes
//! through, and the process beside them that makes records of it, analyses them and reports.
//!
//! What PyTorch's own profiler wrote of a training is analysed here, too ([`kineto`]).
//!
//! The hooks themselves are Python (`python/`). Everything is stamped with CLOCK_MONOTONIC, which all processes of a
//! machine share.

#![warn(missing_docs)]

mod advice;
pub mod clock;
pub mod collector;
pub mod event;
pub mod gpu;
pub mod kineto;
mod measuring;
mod pages;
mod proc;
pub mod recording;
pub mod ring;
pub mod translation;

pub use stallscope_device::probe as device;

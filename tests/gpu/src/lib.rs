//! Stands in for an NVIDIA GPU: `libcuda.so.1`, `libcupti.so.12`, `libnvidia-ml.so.1` and `libnvjpeg.so.12` in one library, whose
//! functions speak for one timeline.
//!
//! Device memory is host memory. Streams are threads with queues of their own, so that calls are as asynchronous as
//! they are on a GPU. Copies are executed. Kernels are not: each takes the time that the [`settings`] plant. Every
//! call is checked: context, handles, pointers, life times, the order of accesses between streams, and host memory
//! that changes while a copy from it is queued. What is found goes to a file, one line each. Errors and delays can be
//! planted by call.
//!
//! A test puts links to this library into an empty folder, under these names, and names the folder in
//! `LD_LIBRARY_PATH`; [`settings::VARIABLE`] names the settings.
//!
//! Where a thing has a documented answer by NVIDIA's driver it is given here; where the program does what the driver
//! would let pass but must not be done, that is a violation.

#![allow(non_snake_case)]
// The functions are C's, with C's contracts: what pointers must point to stands in NVIDIA's documentation.
#![allow(clippy::missing_safety_doc)]

pub mod check;
mod clock;
mod copies;
mod cupti;
pub mod driver;
pub mod install;
mod memory;
pub mod nvjpeg;
mod nvml;
mod order;
mod ptx;
mod results;
pub mod settings;
mod stream;
mod tensor_map;
mod world;

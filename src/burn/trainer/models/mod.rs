//! Models, their training and its timing, generic over burn's backends; and the backends that this build has.

#![cfg_attr(
    any(test, not(all(feature = "cpu", feature = "cuda"))),
    allow(dead_code, reason = "some of it only one backend needs")
)]

mod averaging;
mod convolution;
#[cfg(feature = "cpu")]
pub(super) mod cpu;
#[cfg(all(feature = "cuda", not(test)))]
pub(super) mod cuda;
mod engine;
#[cfg(feature = "cuda")]
pub(super) mod kernel_cache;
mod layers;
mod model;
#[cfg(feature = "cuda")]
mod plain;
mod preactivation;
mod precision;
mod preprocess;
mod residual;
mod timing;
mod vgg;

use super::*;

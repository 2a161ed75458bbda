//! Stands for the driver where CUDA was left out of the build; `measure` refuses before it comes here.
//!
//! May use: `planted` (its types), `timeline`.

use super::{Planter, Stamp};
use stallscope_core::timeline::Nanos;

pub(super) const KERNEL_NAME: &str = "stallscope_planted";

/// What the driver refused: nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this build has no CUDA")]
pub struct DriverError;

impl DriverError {
    /// What to try.
    pub fn advice(&self) -> &'static str {
        "cargo build --release --features cuda"
    }
}

/// There is none.
pub(super) enum Device {}

impl Device {
    pub(super) fn open(_: usize, _: usize) -> Result<Device, DriverError> {
        Err(DriverError)
    }
}

impl Planter for Device {
    fn run(&mut self, _: usize, _: Nanos) -> Result<(), DriverError> {
        match *self {}
    }

    fn stamps(&mut self) -> Result<Vec<Stamp>, DriverError> {
        match *self {}
    }
}

//! The ranks that train one model with this one.

use super::burning::AllReduce;
use crate::ranks::Ring;
use std::sync::{Arc, Mutex, PoisonError};

/// A ring that the model and an emulated device may share.
#[derive(Clone)]
pub struct Together(Arc<Mutex<Ring>>);

impl Together {
    pub fn new(ring: Ring) -> Together {
        Together(Arc::new(Mutex::new(ring)))
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// A rank that is gone.
    pub(super) fn meet(&mut self) -> Result<(), String> {
        self.mean(&mut [0.0])
    }
}

impl AllReduce for Together {
    fn mean(&mut self, values: &mut [f32]) -> Result<(), String> {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.mean(values).map_err(|error| error.to_string())
    }
}

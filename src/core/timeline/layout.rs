//! How a loader spends its workers: what the engine builds, the verdict judges and the simulation simulates.

/// Worker threads of a stage and the capacity of its output queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StageKnobs {
    /// Threads that serve the stage.
    pub workers: usize,
    /// In the engine samples for stages of samples (behind the last there is always room for one batch), in the
    /// simulation claims; batches for batch and copy.
    pub prefetch: usize,
}

/// The two ways to spend workers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Each stage has workers of its own and a queue to the next.
    PerStage {
        /// Of the stages of samples, in their order.
        samples: Vec<StageKnobs>,
        /// Of the batch stage.
        batch: StageKnobs,
    },
    /// As PyTorch's DataLoader: each worker assembles whole batches, from the first stage to collate, and at most
    /// `num_workers * prefetch_factor` batches are outstanding. With 0 workers batches are assembled
    /// in the trainer's thread.
    WholeBatch {
        /// Threads in all, each of which serves every stage up to batch.
        num_workers: usize,
        /// Outstanding batches per worker, at most.
        prefetch_factor: usize,
    },
}

impl Layout {
    /// Whether the trainer's thread loads for itself.
    pub fn is_inline(&self) -> bool {
        self.num_workers() == Some(0)
    }

    /// Workers that assemble whole batches; `None` where each stage has its own.
    pub fn num_workers(&self) -> Option<usize> {
        match self {
            Layout::PerStage { .. } => None,
            Layout::WholeBatch { num_workers, .. } => Some(*num_workers),
        }
    }
}

/// Where batches stay that are trained on again and again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In host memory: they are copied to the device for every step.
    Host,
    /// On the device.
    Device,
}

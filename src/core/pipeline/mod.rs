//! The pipeline engine: stages on bounded queues that feed a trainer.
//!
//! Data flows one way, sampler -> stages of samples -> batch -> copy -> trainer. Every wait
//! goes through a [`Clock`](crate::timeline::Clock), every unit of work is recorded with its binding
//! predecessor. Invariants: nothing is lost or delivered twice; delivery in order does not depend on
//! the number of workers; no lock is held across a wait. May use `machine`, `timeline`.

mod admission;
mod assembly;
mod beside;
mod buffers;
mod build;
mod claim;
mod error;
mod feed;
mod item;
mod itinerary;
mod logbook;
mod nesting;
mod parts;
mod plan;
mod queue;
mod recording_cost;
mod resident;
pub mod sampler;
mod service;
mod skipped;
mod sleeper;
mod usage;
mod waking_cost;
mod work;
mod worker;

pub use crate::timeline::{Layout, Place, StageKnobs};
pub use beside::{DeviceQueues, Submitted, Work};
pub use buffers::{HeldBuffer, KeptBuffer};
pub use build::start;
pub use error::{
    EndOfData, PipelineError, SampleError, Skips, StageFailed, StopSignal, error_chain,
    panic_message,
};
pub use feed::{Delivered, Feed};
pub use item::HostBatch;
pub use logbook::Logbook;
pub use nesting::{Ended, Nesting};
pub use parts::{Part, PartDesk, UndeclaredParts, part};
pub use plan::{Keep, OnError, Plan};
pub use recording_cost::RecordingCost;
pub use skipped::{Skipped, SkippedSample};
pub use usage::UsageMeter;
pub use waking_cost::WakingCost;
pub use work::{Claim, Discard, HostToDevice, Made, SampleKey, SampleWork, StagedWork, ToDevice};

#[cfg(test)]
mod tests;

//! How a run stands, as its collector tells it.

use super::rooms::Room;
use crate::analysis::{Guard, Totals, Verdict};
use crate::report::{IdleCause, Report};

/// How a run stands.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The run's name.
    pub name: String,
    /// What executes the steps, in words; `None` where the loader runs alone.
    pub device: Option<&'static str>,
    /// Steps done, warm-up included.
    pub steps: u64,
    /// Steps to do in all; `None` where it is not known.
    pub steps_in_all: Option<u64>,
    /// `None` before the first measured step.
    pub totals: Option<Totals>,
    /// The queues' room.
    pub rooms: Vec<Room>,
    /// Of the last step.
    pub loss: Option<f64>,
    /// Why the device was idle, longest first.
    pub causes: Vec<IdleCause>,
    /// What the verdict would be.
    pub verdict: Option<Verdict>,
    /// Whether there are too many workers.
    pub guard: Option<Guard>,
}

impl Snapshot {
    /// The same with what was `found` so far.
    pub fn with_findings(self, found: &Report) -> Snapshot {
        Snapshot {
            name: found.name.clone(),
            causes: found.idle_causes.clone(),
            verdict: found.verdict.clone(),
            guard: found.guard.clone(),
            ..self
        }
    }
}

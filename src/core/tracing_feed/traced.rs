//! The traced part of the run, for what is written into the trace beside the batches.

use super::{TRAINER, TracingFeed};
use crate::timeline::Interval;
use crate::trace::TraceWriter;

/// The traced part of a run, as far as it is known. Before its first step is written it is empty, where the
/// earliest traced step may yet begin.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TracedPart {
    /// From the beginning of its first step to the end of the last one written.
    pub interval: Interval,
    /// No step will be added to it.
    pub whole: bool,
}

impl TracingFeed {
    /// The traced part of the run, as far as its steps are written.
    pub fn traced_part(&self) -> TracedPart {
        // The record of a step may be here long before the step is written.
        let waiting = self.ended.front().map(|ended| ended.since);
        let begins = match self.device_beside {
            true => self.device_free_at,
            false => waiting.unwrap_or(self.previous_step_end),
        };
        let ended = self.past && self.ended.is_empty();
        TracedPart {
            interval: self.traced.unwrap_or(Interval::new(begins, begins)),
            whole: ended || self.steps_written >= self.steps.count,
        }
    }

    /// Writes into the trace, into the process of the trainer and its device.
    pub fn with_trace(&self, write: impl FnOnce(&mut TraceWriter, u32)) {
        self.trace.with(|trace| write(trace, TRAINER));
    }
}

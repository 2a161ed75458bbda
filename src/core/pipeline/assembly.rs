//! Where samples become batches: the samples of each batch are gathered, and batches leave in order.

use super::item::{HostBatch, Job};
use super::logbook::Logbook;
use super::queue::{Closed, Envelope, Handoff, Sender, Sent};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// Gathers the samples of the batches in progress.
#[derive(Default)]
pub(super) struct Assembly {
    partial: Mutex<HashMap<u64, Partial>>,
}

/// A batch some of whose samples are there.
struct Partial {
    parts: Vec<Job<()>>,
    samples: usize,
}

impl Assembly {
    /// Adds samples; returns all of their batch once they are there.
    pub(super) fn add(&self, job: Job<()>) -> Option<Vec<Job<()>>> {
        let mut batches = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        let (batch, expected) = (job.item.batch, job.batch_samples as usize);
        let partial = batches.entry(batch).or_insert_with(|| Partial {
            parts: Vec::with_capacity(expected),
            samples: 0,
        });
        partial.samples += job.claim.indices().len();
        partial.parts.push(job);
        if partial.samples == expected {
            batches.remove(&batch).map(|partial| partial.parts)
        } else {
            None
        }
    }
}

/// Hands finished batches to the next queue, in order where asked.
pub(super) struct Outlet {
    ordered: bool,
    state: Mutex<OutletState>,
}

#[derive(Default)]
struct OutletState {
    next: u64,
    early: BTreeMap<u64, Envelope<HostBatch>>,
    /// One worker at a time hands on; the others leave their batches and go on working.
    handing_on: bool,
}

impl Outlet {
    pub(super) fn new(ordered: bool) -> Outlet {
        Outlet {
            ordered,
            state: Mutex::default(),
        }
    }

    /// Hands on `batch` and every later one that was waiting for it. What was only waiting becomes
    /// available thanks to the unit in progress of `logbook`.
    pub(super) fn deliver(
        &self,
        batch: HostBatch,
        handoff: Handoff,
        output: &Sender<HostBatch>,
        logbook: &Logbook,
    ) -> Result<Sent, Closed> {
        let own = batch.number;
        let envelope = Envelope {
            handoff,
            value: batch,
        };
        if !self.ordered {
            return output.send(envelope);
        }
        let mut result = Sent {
            blocked: None,
            depth: 0,
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.early.insert(own, envelope);
        if state.handing_on {
            return Ok(result);
        }
        state.handing_on = true;
        while let Some(mut next) = {
            let number = state.next;
            state.early.remove(&number)
        } {
            state.next += 1;
            drop(state);
            if next.value.number != own {
                next.handoff.cause = logbook.current();
                next.handoff.ready_at = logbook.ended();
            }
            let sent = output.send(next);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match sent {
                Ok(sent) => {
                    result = Sent {
                        blocked: sent.blocked.or(result.blocked),
                        depth: sent.depth,
                    };
                }
                Err(closed) => {
                    state.handing_on = false;
                    return Err(closed);
                }
            }
        }
        state.handing_on = false;
        Ok(result)
    }
}

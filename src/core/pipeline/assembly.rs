//! Where samples become batches: the samples of each batch are gathered, and batches leave in order.

use super::item::{Collated, Job};
use super::logbook::Logbook;
use super::queue::{Closed, Envelope, Handoff, Sender, Sent};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// Gathers the samples of the batches in progress.
pub(super) struct Assembly<P> {
    partial: Mutex<HashMap<u64, Partial<P>>>,
}

impl<P> Default for Assembly<P> {
    fn default() -> Assembly<P> {
        Assembly {
            partial: Mutex::default(),
        }
    }
}

/// A batch some of whose samples are there.
struct Partial<P> {
    parts: Vec<Job<P>>,
    samples: usize,
}

impl<P> Assembly<P> {
    /// Adds samples; returns all of their batch once they are there.
    pub(super) fn add(&self, job: Job<P>) -> Option<Vec<Job<P>>> {
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
pub(super) struct Outlet<C> {
    ordered: bool,
    state: Mutex<OutletState<C>>,
}

struct OutletState<C> {
    next: u64,
    early: BTreeMap<u64, Envelope<Collated<C>>>,
    /// One worker at a time hands on; the others leave their batches and go on working.
    handing_on: bool,
}

impl<C: Send> Outlet<C> {
    pub(super) fn new(ordered: bool) -> Outlet<C> {
        Outlet {
            ordered,
            state: Mutex::new(OutletState {
                next: 0,
                early: BTreeMap::new(),
                handing_on: false,
            }),
        }
    }

    /// Hands on `batch` and every later one that was waiting for it. What was only waiting becomes
    /// available thanks to the unit in progress of `logbook`.
    pub(super) fn deliver(
        &self,
        batch: Collated<C>,
        handoff: Handoff,
        output: &Sender<Collated<C>>,
        logbook: &Logbook,
    ) -> Result<Sent, Closed> {
        let own = batch.host.number;
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
            if next.value.host.number != own {
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

//! Admission: which batch may be started, and into which buffer it is written.
//!
//! Batches are admitted in the sampler's order, each with a host buffer of its own, whenever one is
//! credited: at the start, and then each time a slot is freed downstream. The sample that is earliest in
//! order therefore always has its buffer, so that out-of-order workers cannot deadlock.

use super::item::{BatchJob, Job};
use super::plan::{BatchPlan, BatchPlanner};
use super::queue::{Envelope, Handoff, Sender};
use super::work::Claim;
use crate::timeline::ItemId;
use bytes::BytesMut;
use std::sync::{Mutex, PoisonError};

/// Where admitted work is put.
pub(super) enum Tickets {
    /// A ticket for each claim.
    Claims(Sender<Job<()>>),
    /// A ticket for each batch.
    Batches(Sender<BatchJob>),
}

pub(super) struct Admission {
    inner: Mutex<Inner>,
}

struct Inner {
    planner: BatchPlanner,
    /// `None` once everything has been admitted: the tickets' queue closes.
    tickets: Option<Tickets>,
    free: Vec<BytesMut>,
    unallocated: usize,
    slab_bytes: usize,
    sample_bytes: usize,
    claim_size: usize,
    seed: u64,
    credits: usize,
    /// The last sample issued.
    last: Option<u32>,
}

impl Admission {
    /// Admits batches from `planner` into `slabs` buffers of `batch_size` samples.
    pub(super) fn new(
        planner: BatchPlanner,
        tickets: Tickets,
        slabs: usize,
        batch_size: usize,
        sample_bytes: usize,
        claim_size: usize,
        seed: u64,
    ) -> Admission {
        let inner = Inner {
            planner,
            tickets: Some(tickets),
            free: Vec::with_capacity(slabs),
            unallocated: slabs,
            slab_bytes: batch_size * sample_bytes,
            sample_bytes,
            claim_size,
            seed,
            credits: 0,
            last: None,
        };
        Admission {
            inner: Mutex::new(inner),
        }
    }

    /// Lets `batches` more batches start; `handoff` says since when and thanks to whom.
    pub(super) fn credit(&self, batches: usize, handoff: Handoff) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.credits += batches;
        inner.admit(handoff);
    }

    /// Takes a buffer back.
    pub(super) fn release(&self, slab: BytesMut, handoff: Handoff) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // The last batch of an epoch may have used only the front of its buffer, and the rest is gone.
        if slab.len() == inner.slab_bytes {
            inner.free.push(slab);
        } else {
            inner.unallocated += 1;
        }
        inner.admit(handoff);
    }
}

impl Inner {
    fn admit(&mut self, handoff: Handoff) {
        while self.credits > 0 && self.tickets.is_some() {
            let slab = match self.free.pop() {
                Some(slab) => slab,
                None if self.unallocated > 0 => {
                    self.unallocated -= 1;
                    BytesMut::zeroed(self.slab_bytes)
                }
                None => return,
            };
            let Some(batch) = self.planner.next() else {
                self.tickets = None;
                return;
            };
            self.credits -= 1;
            self.issue(batch, slab, handoff);
        }
    }

    fn issue(&mut self, batch: BatchPlan, mut slab: BytesMut, handoff: Handoff) {
        let BatchPlan {
            number,
            epoch,
            samples,
        } = batch;
        let batch_samples = samples.len();
        let Inner {
            seed,
            sample_bytes,
            claim_size,
            last,
            ..
        } = *self;
        self.last = samples.last().copied().or(last);
        let mut jobs = (0..batch_samples).step_by(claim_size).map(|first| {
            let places = first..batch_samples.min(first + claim_size);
            Job {
                item: ItemId {
                    batch: number,
                    slot: first as u32,
                },
                batch_samples: batch_samples as u32,
                slot: slab.split_to(places.len() * sample_bytes),
                claim: Claim::new(epoch, seed, last, samples.clone(), places),
                payload: Some(()),
            }
        });
        // The queues hold everything that can be admitted, so sending fails only after a stop.
        match self.tickets.as_ref() {
            Some(Tickets::Claims(sender)) => {
                jobs.all(|value| sender.send(Envelope { handoff, value }).is_ok());
            }
            Some(Tickets::Batches(sender)) => {
                let value = BatchJob {
                    jobs: jobs.collect(),
                    number,
                };
                sender.send(Envelope { handoff, value }).ok();
            }
            None => {}
        }
    }
}

//! Admission: which batch may be started.
//!
//! Batches are admitted in the sampler's order, each with the promise of a host buffer, whenever one is
//! credited: at the start, and then each time a slot is freed downstream. The sample that is earliest in
//! order therefore always has its buffer, so that out-of-order workers cannot deadlock.

use super::buffers::Buffers;
use super::item::{BatchJob, Job};
use super::itinerary::Itinerary;
use super::plan::BatchPlanner;
use super::queue::{Envelope, Handoff, Sender};
use bytes::BytesMut;
use std::sync::{Arc, Mutex, PoisonError};

/// Where admitted work is put.
pub(super) enum Tickets {
    /// A ticket for each claim.
    Claims(Sender<Job<()>>),
    /// A ticket for each batch.
    Batches(Sender<BatchJob>),
}

pub(super) struct Admission {
    buffers: Arc<Buffers>,
    inner: Mutex<Inner>,
}

struct Inner {
    itinerary: Arc<Itinerary>,
    /// `None` once everything has been admitted: the tickets' queue closes.
    tickets: Option<Tickets>,
    /// Buffers that no admitted batch will need.
    unpromised: usize,
    claim_size: usize,
    seed: u64,
    credits: usize,
    /// The last sample issued.
    last: Option<u32>,
}

impl Admission {
    /// Admits batches from `planner`, of which at most `slabs` have one of `buffers` at a time.
    pub(super) fn new(
        planner: BatchPlanner,
        tickets: Tickets,
        buffers: Arc<Buffers>,
        slabs: usize,
        claim_size: usize,
        seed: u64,
    ) -> Admission {
        let inner = Inner {
            itinerary: Itinerary::new(planner),
            tickets: Some(tickets),
            unpromised: slabs,
            claim_size,
            seed,
            credits: 0,
            last: None,
        };
        Admission {
            buffers,
            inner: Mutex::new(inner),
        }
    }

    /// Lets `batches` more batches start; `handoff` says since when and thanks to whom.
    pub(super) fn credit(&self, batches: usize, handoff: Handoff) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.credits += batches;
        inner.admit(&self.buffers, handoff);
    }

    /// Takes a buffer back.
    pub(super) fn release(&self, slab: BytesMut, handoff: Handoff) {
        self.buffers.give_back(slab);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.unpromised += 1;
        inner.admit(&self.buffers, handoff);
    }
}

impl Inner {
    fn admit(&mut self, buffers: &Arc<Buffers>, handoff: Handoff) {
        while self.credits > 0 && self.unpromised > 0 && self.tickets.is_some() {
            let Some(batch) = self.itinerary.next() else {
                self.tickets = None;
                return;
            };
            self.credits -= 1;
            self.unpromised -= 1;
            let job = BatchJob {
                before: self.last,
                claim_size: self.claim_size,
                seed: self.seed,
                batch,
            };
            self.last = job.batch.samples.last().copied().or(self.last);
            self.issue(job, buffers, handoff);
        }
    }

    /// The queues hold everything that can be admitted, so sending fails only after a stop.
    fn issue(&self, job: BatchJob, buffers: &Arc<Buffers>, handoff: Handoff) {
        match self.tickets.as_ref() {
            Some(Tickets::Claims(sender)) => {
                job.into_shared_jobs(buffers)
                    .all(|value| sender.send(Envelope { handoff, value }).is_ok());
            }
            Some(Tickets::Batches(sender)) => {
                let value = job;
                sender.send(Envelope { handoff, value }).ok();
            }
            None => {}
        }
    }
}

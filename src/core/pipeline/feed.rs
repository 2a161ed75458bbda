//! The trainer's end of the pipeline: device batches, one at a time.

use super::claim::Tools;
use super::error::{Control, PipelineError, Skips, caught};
use super::item::{BatchJob, Collated};
use super::logbook::{Logbook, Opening, Subject};
use super::queue::{Envelope, Receiver, Sent};
use super::resident::Resident;
use super::skipped::Skipped;
use super::work::{StagedWork, ToDevice};
use super::worker::{Copied, CopyPost, Post, batch_subject, take_batch};
use crate::timeline::{ClockThread, ItemId, Nanos, Stage, UnitRef};
use std::sync::Arc;

/// A batch on the device.
#[derive(Debug)]
pub struct Delivered<B> {
    /// Number of the batch in the run, from zero.
    pub number: u64,
    /// The epoch it belongs to, from zero.
    pub epoch: u64,
    /// Samples in it; skipped ones are not.
    pub samples: usize,
    /// What the copy made.
    pub batch: B,
}

/// Where host batches come from.
pub(super) enum HostSource<W: StagedWork> {
    Queue(Receiver<Collated<W::Batch>>),
    /// No workers: they are assembled here, in the trainer's thread.
    Inline {
        tickets: Receiver<BatchJob>,
        post: Post<W>,
        tools: Tools<W>,
    },
}

/// Where device batches come from.
pub(super) enum Supply<W: StagedWork, H: ToDevice<W::Batch>> {
    /// A thread of its own copies ahead.
    Copied(Receiver<Copied<H::Batch>>),
    /// The trainer's thread copies.
    Here {
        source: HostSource<W>,
        copy: CopyPost<H, W::Batch>,
    },
}

/// A running pipeline, as its trainer sees it. Dropping it stops the pipeline.
pub struct Feed<W: StagedWork, H: ToDevice<W::Batch>> {
    pub(super) supply: Option<Supply<W, H>>,
    pub(super) control: Arc<Control>,
    pub(super) threads: Vec<ClockThread<()>>,
    pub(super) logbook: Option<Logbook>,
    pub(super) step: Option<(Opening, Subject)>,
    /// The stage of steps.
    pub(super) trains: Stage,
    /// Where batches stay on the device.
    pub(super) resident: Option<Resident<Copied<H::Batch>>>,
    /// Batches in one epoch.
    pub(super) per_epoch: u64,
    /// Batches to deliver in all, and those that came so far.
    pub(super) planned: u64,
    pub(super) received: u64,
    /// Batches without a sample since the last that had one.
    pub(super) empty: u64,
}

impl<W: StagedWork, H: ToDevice<W::Batch>> Feed<W, H> {
    /// The next batch on the device, in order; `None` at the end of the run or after a stop. After a failure the batches
    /// that were finished come first.
    /// Closes the step in progress, so that the wait is not part of it.
    ///
    /// # Errors
    /// The first failure of any stage.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Delivered<H::Batch>>, PipelineError> {
        self.finish_step();
        self.control.deliver_until(self.planned);
        loop {
            let more = self.received < self.planned;
            let Some(copied) = more.then(|| self.receive()).flatten() else {
                return self.ended();
            };
            let Copied {
                number,
                epoch,
                samples,
                batch,
            } = copied;
            self.received += 1;
            if let Some(batch) = batch {
                self.empty = 0;
                if let Some(logbook) = &self.logbook {
                    logbook.works_on(number, self.trains);
                }
                return Ok(Some(Delivered {
                    number,
                    epoch,
                    samples,
                    batch,
                }));
            }
            // A batch whose samples were all skipped is taken, and trained on by nobody.
            self.finish_step();
            self.empty += 1;
            if self.empty >= self.per_epoch {
                return Err(self.control.nothing_left(self.empty));
            }
        }
    }

    /// Nothing more comes: at the end of the run, after a stop or a failure.
    fn ended(&mut self) -> Result<Option<Delivered<H::Batch>>, PipelineError> {
        let (planned, delivered) = (self.planned, self.received);
        // What fails in loading ahead is no failure of what was delivered.
        if delivered >= planned && self.empty < delivered {
            return Ok(None);
        }
        if let Some(failure) = self.control.failure() {
            return Err(failure);
        }
        if self.control.stop.is_stopped() {
            return Ok(None);
        }
        if self.empty > 0 && self.empty == delivered {
            return Err(self.control.nothing_left(self.empty));
        }
        if self.control.is_over() {
            self.planned = delivered;
            return Ok(None);
        }
        match delivered < planned {
            true => Err(PipelineError::Lost { planned, delivered }),
            false => Ok(None),
        }
    }

    fn receive(&mut self) -> Option<Copied<H::Batch>> {
        let loaded = self.load();
        let Some(resident) = &mut self.resident else {
            return loaded;
        };
        if let Some(copied) = loaded {
            resident.keep(copied.clone());
            return Some(copied);
        }
        if self.control.stop.is_stopped() {
            return None;
        }
        // All is loaded: the loader's threads have ended or are about to.
        self.supply = None;
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
        let logbook = self.logbook.as_mut()?;
        let copied = resident.take()?;
        resident.keep(copied.clone());
        let opening = logbook.continue_with(UnitRef::NONE);
        self.step = Some((opening, step_subject(self.trains, &copied)));
        Some(copied)
    }

    /// The next batch from the loader.
    fn load(&mut self) -> Option<Copied<H::Batch>> {
        let logbook = self.logbook.as_mut()?;
        match self.supply.as_mut()? {
            Supply::Copied(receiver) => {
                let has_failed = || self.control.failure().is_some();
                let received = receiver.recv_finished(logbook.current(), has_failed).ok()?;
                let Envelope {
                    handoff,
                    value: copied,
                } = received.envelope;
                let opening = logbook.open(handoff, received.waited, received.depth);
                self.step = Some((opening, step_subject(self.trains, &copied)));
                Some(copied)
            }
            Supply::Here { source, copy } => {
                let has_failed = || self.control.failure().is_some();
                let loaded = host_batch(source, logbook, has_failed);
                let (batch, opening) = loaded.or_else(|| copy.again(logbook))?;
                let unit = logbook.current();
                let (copied, subject, end) = copy.copy(batch, &opening, logbook)?;
                logbook.close(subject, &opening, end, None);
                self.step = Some((
                    logbook.continue_with(unit),
                    step_subject(self.trains, &copied),
                ));
                Some(copied)
            }
        }
    }

    /// Closes the step in progress, at now.
    pub fn finish_step(&mut self) {
        self.finish_step_when(|_| None);
    }

    /// Closes the step in progress: its work ends now, and its thread is free once `room` returns. That
    /// says when the device took another step after all and which of its units of work made the room;
    /// `None` where there was room.
    pub fn finish_step_when(&mut self, room: impl FnOnce(&Logbook) -> Option<(Nanos, UnitRef)>) {
        if let (Some((opening, subject)), Some(logbook)) = (self.step.take(), self.logbook.as_mut())
        {
            let end = logbook.ended();
            let sent = Sent {
                blocked: room(logbook),
                depth: 0,
            };
            logbook.close(subject, &opening, end, Some(sent));
            logbook.rests();
        }
    }

    /// The trainer's logbook, for its spans.
    pub fn logbook(&mut self) -> Option<&mut Logbook> {
        self.logbook.as_mut()
    }

    /// What has failed so far, also where batches from before are still to come.
    pub fn failure(&self) -> Option<PipelineError> {
        self.control.failure()
    }

    /// Has a wait for a batch ask `give_up` now and then, whether to stop the pipeline.
    pub fn give_up_when(&mut self, give_up: impl Fn() -> bool + Send + Sync + 'static) {
        let give_up = Arc::new(give_up);
        match &mut self.supply {
            Some(Supply::Copied(receiver)) => receiver.give_up_when(give_up),
            Some(Supply::Here {
                source: HostSource::Queue(receiver),
                ..
            }) => receiver.give_up_when(give_up),
            _ => {}
        }
    }

    /// Ends after `batches` in all; the pipeline keeps the plan's later ones ready.
    pub fn deliver_until(&mut self, batches: u64) {
        self.planned = batches;
    }

    /// Whether all batches that were to be delivered came.
    pub fn is_complete(&self) -> bool {
        self.received >= self.planned
    }

    /// Samples skipped so far.
    pub fn skipped(&self) -> Skipped {
        self.control.skipped()
    }

    /// The same for others, also while the trainer's thread is busy.
    pub fn skips(&self) -> Skips {
        Skips(self.control.clone())
    }

    /// Stops the pipeline and waits for its threads.
    pub fn shut_down(&mut self) {
        self.finish_step();
        self.control.stop.stop();
        self.supply = None;
        self.logbook = None;
        for thread in self.threads.drain(..) {
            // A worker's panic has been reported with its sample.
            thread.join().ok();
        }
    }
}

impl<W: StagedWork, H: ToDevice<W::Batch>> Drop for Feed<W, H> {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn step_subject<B>(stage: Stage, copied: &Copied<B>) -> Subject {
    Subject {
        stage,
        split: None,
        item: ItemId {
            batch: copied.number,
            slot: 0,
        },
        sample: 0,
        samples: copied.samples as u32,
        skipped: copied.samples == 0,
        bytes_in: 0,
        bytes_out: 0,
    }
}

/// The next host batch and the opening of its copy.
fn host_batch<W: StagedWork>(
    source: &mut HostSource<W>,
    logbook: &mut Logbook,
    has_failed: impl FnOnce() -> bool,
) -> Option<(Collated<W::Batch>, Opening)> {
    match source {
        HostSource::Queue(receiver) => {
            let received = receiver.recv_finished(logbook.current(), has_failed);
            take_batch(received, logbook)
        }
        HostSource::Inline {
            tickets,
            post,
            tools,
        } => {
            let received = tickets.recv(logbook.current()).ok()?;
            let Envelope {
                handoff,
                value: job,
            } = received.envelope;
            let opening = logbook.open(handoff, received.waited, received.depth);
            let computed = logbook.cpu();
            let assembled = caught(post.batch, "loading in the trainer's thread", || {
                post.assemble(logbook, job, opening, tools)
            });
            let assembled = assembled.map_err(|panicked| post.control.fail(panicked));
            let (batch, opening, last) = assembled.ok()??;
            let subject = batch_subject(post.batch, &batch.host, last);
            let unit = logbook.current();
            let end = logbook.ended();
            logbook.close(subject, &opening, end, None);
            logbook.loaded(computed);
            Some((batch, logbook.continue_with(unit)))
        }
    }
}

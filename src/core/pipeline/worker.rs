//! The loops that worker threads run: one for the sample stages, one for the batch stage, one that
//! assembles whole batches, one that copies.

use super::admission::Admission;
use super::assembly::{Assembly, Outlet};
use super::buffers::Buffers;
use super::claim::{Tools, record_parts};
use super::error::{
    Control, EndOfData, PipelineError, SampleError, caught, error_chain, panic_message,
};
use super::item::{BatchJob, Collated, HostBatch, Job, join};
use super::logbook::{Logbook, Opening, Subject};
use super::queue::{Closed, Envelope, Handoff, Received, Receiver, Sender};
use super::resident::Resident;
use super::service::{Served, serve};
use super::work::{Claim, StagedWork, ToDevice};
use crate::timeline::{ItemId, Nanos, Pipeline, Stage, StageKind, UnitRef};
use bytes::BytesMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What every worker of the loader has.
pub(super) struct Post<W> {
    pub(super) work: Arc<W>,
    pub(super) buffers: Arc<Buffers>,
    pub(super) control: Arc<Control>,
    pub(super) pipeline: &'static Pipeline,
    /// The stage that puts batches together.
    pub(super) batch: Stage,
    /// What fills no batch at the end is left out.
    pub(super) drop_last: bool,
}

impl<W: StagedWork> Post<W> {
    /// Runs one service with the worker's `tools`, turning its error or panic into what the error policy says.
    pub(super) fn guarded<T, O>(
        &self,
        stage: Stage,
        (batch, claim): (u64, &Claim),
        (tools, new_tools): (&mut T, impl Fn(&W) -> T),
        service: impl FnOnce(&W, &mut T) -> Result<Served<O>, SampleError>,
    ) -> Option<Served<O>> {
        let error = match catch_unwind(AssertUnwindSafe(|| service(&self.work, tools))) {
            Ok(Ok(served)) => return Some(served),
            Ok(Err(error)) if error.is::<EndOfData>() => {
                self.control.end();
                return None;
            }
            Ok(Err(error)) => error,
            Err(payload) => {
                // The panic may have left them half changed.
                *tools = new_tools(&self.work);
                let message = panic_message(payload.as_ref());
                match self.pipeline.is_of_images() {
                    true => format!(
                        "its code panicked: {message} (a bug; please report it with this sample)"
                    ),
                    false => format!("it panicked: {message}"),
                }
                .into()
            }
        };
        self.control.await_turn(batch);
        for &index in claim.indices() {
            let name = self.work.name(index);
            self.control
                .sample_failed(batch, stage, u64::from(index), name, &error);
        }
        None
    }

    /// Serves samples at `stage` until the input ends or the pipeline stops. What came in is turned to the stage's
    /// input by `begin`, and what it makes to what goes on by `end`.
    pub(super) fn serve_samples<I: Send, O: Send>(
        &self,
        logbook: &mut Logbook,
        stage: Stage,
        (input, begin): (&Receiver<Job<I>>, impl Fn(I) -> Option<W::Item>),
        (output, end): (&Sender<Job<O>>, impl Fn(Option<W::Item>) -> Option<O>),
    ) {
        let mut scratch = self.work.scratch(stage);
        let is_first = stage == self.pipeline.the(StageKind::Sample);
        while let Ok(received) = input.recv(logbook.current()) {
            let Envelope {
                handoff,
                value: job,
            } = received.envelope;
            let opening = logbook.open(handoff, received.waited, received.depth);
            let (payload, mut job) = job.split();
            logbook.works_on(job.item.batch, stage);
            let is_served = payload.is_some();
            let served = payload.and_then(|payload| {
                let renew = |work: &W| work.scratch(stage);
                let (tools, input) = ((&mut scratch, renew), begin(payload));
                self.guarded(
                    stage,
                    (job.item.batch, &job.claim),
                    tools,
                    |work, scratch| serve(work, stage, &job.claim, input, scratch, &mut job.slot),
                )
            });
            let is_over = is_first && self.control.is_over();
            if is_over {
                if job.item.slot == 0 || self.drop_last {
                    return;
                }
                // What is missing of the last batch goes on as if it were skipped.
                job.claim.take_the_rest();
            }
            let bytes = served.as_ref().map(|s| (s.bytes_in, s.bytes_out));
            let subject = claim_subject(stage, &job, bytes);
            let ended = logbook.ended();
            let parts = match is_served {
                true => self.work.parts(&scratch),
                false => &[],
            };
            let rest = record_parts(logbook, &job, opening, parts, ended);
            let value = job.with(served.and_then(|served| end(served.output)));
            let sent = output.send(Envelope {
                handoff: logbook.handoff(ended),
                value,
            });
            match rest {
                None => logbook.close(subject, &opening, ended, sent.ok()),
                Some((opening, delay)) => {
                    logbook.close_with(subject, &opening, ended, sent.ok(), delay);
                }
            }
            if sent.is_err() || is_over {
                return;
            }
        }
    }

    /// Finishes batch `parts`: joins them, lets the loader collate. `None` where that failed.
    fn finish_batch(
        &self,
        number: u64,
        parts: Vec<Job<Option<W::Item>>>,
    ) -> Option<Collated<W::Batch>> {
        let what = format!("batch {number}");
        let finished = caught(self.batch, &what, || {
            let label = |index| self.work.label(index);
            let (mut host, items) = join(number, parts, self.work.sample_bytes(), label);
            host.home = Arc::downgrade(&self.buffers);
            let content = self.work.collate(&mut host, items);
            content.map(|content| Collated { host, content })
        });
        let failure = match finished {
            Ok(Ok(batch)) => return Some(batch),
            Ok(Err(error)) => PipelineError::Batch {
                stage: self.batch,
                batch: number,
                reason: error_chain(error.as_ref()),
            },
            Err(panicked) => panicked,
        };
        self.control.fail(failure);
        None
    }

    /// The batch stage: gathers samples, hands batches on.
    pub(super) fn serve_batches(
        &self,
        logbook: &mut Logbook,
        input: &Receiver<Job<Option<W::Item>>>,
        assembly: &Assembly<Option<W::Item>>,
        outlet: &Outlet<W::Batch>,
        output: &Sender<Collated<W::Batch>>,
    ) {
        // The last sample that this worker had to wait for since its last batch: what it did after
        // that was work, so that sample is what bound the batch's start.
        let mut bound: Option<Opening> = None;
        // Taking a sample costs nothing, so room in the queue is made by whatever let this worker take
        // it: the sample it last waited for, or else the end of its last batch.
        while let Ok(received) =
            input.recv(bound.map_or_else(|| logbook.previous(), |opening| opening.handoff.cause))
        {
            let Envelope {
                handoff,
                value: job,
            } = received.envelope;
            let opening = logbook.open(handoff, received.waited, received.depth);
            if opening.waited {
                bound = Some(opening);
            }
            let (number, last) = (job.item.batch, job.claim.first().index);
            let Some(parts) = assembly.add(job) else {
                continue;
            };
            let opening = bound.take().map_or(opening, |waited_for| Opening {
                handoff: Handoff {
                    lineage: handoff.lineage,
                    ..waited_for.handoff
                },
                ..waited_for
            });
            logbook.works_on(number, self.batch);
            let handed_on = self
                .finish_batch(number, parts)
                .is_some_and(|batch| self.hand_on(logbook, batch, &opening, last, outlet, output));
            if !handed_on {
                return;
            }
        }
    }

    /// Hands a finished batch on and records it; false once the pipeline has stopped.
    fn hand_on(
        &self,
        logbook: &mut Logbook,
        batch: Collated<W::Batch>,
        opening: &Opening,
        last_sample: u32,
        outlet: &Outlet<W::Batch>,
        output: &Sender<Collated<W::Batch>>,
    ) -> bool {
        let subject = batch_subject(self.batch, &batch.host, last_sample);
        let end = logbook.ended();
        let handoff = logbook.handoff(end);
        let sent = outlet.deliver(batch, handoff, output, logbook);
        logbook.close(subject, opening, end, sent.ok());
        sent.is_ok()
    }

    /// The whole-batch worker: all stages, one batch after another.
    pub(super) fn serve_whole_batches(
        &self,
        logbook: &mut Logbook,
        input: &Receiver<BatchJob>,
        outlet: &Outlet<W::Batch>,
        output: &Sender<Collated<W::Batch>>,
    ) {
        let mut tools = Tools::new(&*self.work, self.batch);
        while let Ok(received) = input.recv(logbook.current()) {
            let Envelope {
                handoff,
                value: job,
            } = received.envelope;
            let opening = logbook.open(handoff, received.waited, received.depth);
            let assembled = self.assemble(logbook, job, opening, &mut tools);
            let handed_on = assembled.is_some_and(|(batch, opening, last)| {
                self.hand_on(logbook, batch, &opening, last, outlet, output)
            });
            if !handed_on {
                return;
            }
        }
    }

    /// Assembles one batch; returns it with the opening of its batch unit and its last sample. `None` where it failed,
    /// a stop has cut it short, or there is no more data.
    pub(super) fn assemble(
        &self,
        logbook: &mut Logbook,
        job: BatchJob,
        mut opening: Opening,
        tools: &mut Tools<W>,
    ) -> Option<(Collated<W::Batch>, Opening, u32)> {
        let number = job.batch.number;
        let mut jobs = Vec::with_capacity(job.claims());
        for job in job.into_jobs(&self.buffers) {
            if self.control.stop.is_stopped() {
                return None;
            }
            let (loaded, next) = self.load(logbook, job, opening, tools);
            opening = next;
            if self.control.is_over() {
                if jobs.is_empty() || self.drop_last {
                    return None;
                }
                break;
            }
            jobs.push(loaded);
        }
        let last = jobs.last().map_or(0, |job| job.claim.first().index);
        logbook.works_on(number, self.batch);
        let batch = self.finish_batch(number, jobs)?;
        (!self.control.stop.is_stopped()).then_some((batch, opening, last))
    }
}

/// What the unit of a sample stage worked on.
pub(super) fn claim_subject(stage: Stage, job: &Job<()>, bytes: Option<(u64, u64)>) -> Subject {
    let (bytes_in, bytes_out) = bytes.unwrap_or_default();
    Subject {
        stage,
        split: None,
        item: job.item,
        sample: job.claim.first().index,
        samples: job.claim.indices().len() as u32,
        skipped: bytes.is_none(),
        bytes_in,
        bytes_out,
    }
}

/// What a batch's unit worked on.
pub(super) fn batch_subject(stage: Stage, batch: &HostBatch, sample: u32) -> Subject {
    let bytes = (batch.len() * batch.sample_bytes) as u64;
    Subject {
        stage,
        split: None,
        item: ItemId {
            batch: batch.number,
            slot: 0,
        },
        sample,
        samples: batch.len() as u32,
        skipped: false,
        bytes_in: bytes,
        bytes_out: bytes,
    }
}

/// A batch on the device, on its way to the trainer.
#[derive(Clone)]
pub(super) struct Copied<B> {
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) samples: usize,
    /// `None` where every sample was skipped.
    pub(super) batch: Option<B>,
}

/// When a batch's successor may start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    /// When its consumer takes it out of the queue, as PyTorch's DataLoader.
    OnTake,
    /// When it has been copied and its buffer is free.
    AfterCopy,
}

/// The copy stage, on a thread of its own or in the trainer's.
pub(super) struct CopyPost<H, C> {
    pub(super) device: H,
    pub(super) admission: Arc<Admission>,
    pub(super) control: Arc<Control>,
    pub(super) credit: Credit,
    /// Where batches stay in host memory.
    pub(super) resident: Option<Resident<Collated<C>>>,
    pub(super) stage: Stage,
}

impl<C: Send, H: ToDevice<C>> CopyPost<H, C> {
    /// Copies until the input ends or the pipeline stops.
    pub(super) fn serve(
        mut self,
        logbook: &mut Logbook,
        input: &Receiver<Collated<C>>,
        output: &Sender<Copied<H::Batch>>,
    ) {
        while let Some((batch, opening)) =
            take_batch(input.recv(logbook.current()), logbook).or_else(|| self.again(logbook))
        {
            let Some((copied, subject, end)) = self.copy(batch, &opening, logbook) else {
                return;
            };
            let sent = output.send(Envelope {
                handoff: logbook.handoff(end),
                value: copied,
            });
            logbook.close(subject, &opening, end, sent.ok());
            if sent.is_err() {
                return;
            }
        }
    }

    /// Of the batches that stay in host memory the one whose turn it is, once no more are loaded.
    pub(super) fn again(&mut self, logbook: &Logbook) -> Option<(Collated<C>, Opening)> {
        if self.control.stop.is_stopped() {
            return None;
        }
        let batch = self.resident.as_mut()?.take()?;
        Some((batch, logbook.continue_with(UnitRef::NONE)))
    }

    /// Copies one batch and gives its buffer back, or keeps it; `None` where the device refused it.
    pub(super) fn copy(
        &mut self,
        mut batch: Collated<C>,
        opening: &Opening,
        logbook: &Logbook,
    ) -> Option<(Copied<H::Batch>, Subject, Nanos)> {
        let unit = logbook.current();
        logbook.works_on(batch.host.number, self.stage);
        if self.credit == Credit::OnTake {
            let taken = freed(opening.start.max(opening.handoff.ready_at), unit);
            self.admission.credit(1, taken);
        }
        let Collated { host, content } = &mut batch;
        let copy = || (!host.is_empty()).then(|| self.device.copy(host, content, unit));
        let copied = catch_unwind(AssertUnwindSafe(copy))
            .unwrap_or_else(|payload| Some(Err(panic_message(payload.as_ref()).into())));
        let on_device = match copied.transpose() {
            Ok(on_device) => on_device,
            Err(error) => {
                let reason = error_chain(error.as_ref());
                self.control.fail(PipelineError::Copy {
                    batch: batch.host.number,
                    reason,
                });
                return None;
            }
        };
        let subject = batch_subject(self.stage, &batch.host, 0);
        let copied = Copied {
            number: batch.host.number,
            epoch: batch.host.epoch,
            samples: batch.host.len(),
            batch: on_device,
        };
        let data = match &mut self.resident {
            None => batch.host.data,
            // Another buffer is made in its place, for as long as there is anything to load.
            Some(resident) => {
                resident.keep(batch);
                BytesMut::new()
            }
        };
        let end = logbook.ended();
        self.admission.release(data, freed(end, unit));
        if self.credit == Credit::AfterCopy {
            self.admission.credit(1, freed(end, unit));
        }
        Some((copied, subject, end))
    }
}

/// The batch that was received and the opening of its copy; `None` at the end of the input, or after a stop.
pub(super) fn take_batch<C: Send>(
    received: Result<Received<Collated<C>>, Closed>,
    logbook: &mut Logbook,
) -> Option<(Collated<C>, Opening)> {
    let received = received.ok()?;
    let Envelope {
        handoff,
        value: batch,
    } = received.envelope;
    let opening = logbook.open(handoff, received.waited, received.depth);
    Some((batch, opening))
}

/// A slot freed by `unit` at `at`.
fn freed(at: Nanos, unit: UnitRef) -> Handoff {
    Handoff {
        ready_at: at,
        cause: unit,
        lineage: unit,
        admitted: true,
    }
}

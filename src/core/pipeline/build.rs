//! Builds a running pipeline from a plan: queues, threads, and the trainer's end.

use super::admission::{Admission, Tickets};
use super::assembly::{Assembly, Outlet};
use super::buffers::{Buffers, Slot};
use super::error::{Control, PipelineError, SampleError, StopSignal, caught};
use super::feed::{Feed, HostSource, Supply};
use super::item::{HostBatch, Job};
use super::logbook::Logbook;
use super::plan::{BatchPlanner, Plan};
use super::queue::{Handoff, Receiver, Sender, queue};
use super::resident::{Again, Resident};
use super::service::{self, Served};
use super::work::{Claim, HostToDevice, SampleWork};
use super::worker::{CopyPost, Credit, Post};
use crate::timeline::{
    Clock, ClockThread, LaneKind, Layout, Place, Recorder, Stage, UnitRef, spawn_on,
};
use std::sync::Arc;

/// Starts a pipeline: `work` loads samples as `plan` says, `device` takes the batches. The calling
/// thread is the trainer's. `stop` may be given from anywhere, and is not given when the pipeline ends.
///
/// # Errors
/// A plan that cannot run, a data set that cannot fill a batch, or a system that gives no threads.
pub fn start<W: SampleWork, H: HostToDevice>(
    plan: &Plan,
    work: Arc<W>,
    device: H,
    clock: &Arc<dyn Clock>,
    recorder: &Recorder,
    stop: &StopSignal,
) -> Result<Feed<W, H>, PipelineError> {
    plan.check(work.samples())?;
    let planner = BatchPlanner::new(work.samples(), plan)?;
    let control = Arc::new(Control::new(stop.child(), plan.on_error));
    let part_bytes = plan.claim_size * work.sample_bytes();
    let buffers = Buffers::new(plan.batch_size * work.sample_bytes(), part_bytes);
    let builder = Builder {
        plan,
        work,
        buffers: Arc::new(buffers),
        control,
        clock,
        recorder,
        threads: Vec::new(),
    };
    builder.build(planner, device)
}

/// Room for the batches that stay at `place`, where any do.
fn resident<T: Again>(plan: &Plan, place: Place) -> Option<Resident<T>> {
    let stay = plan.keeps_at(place);
    stay.then(|| Resident::new(plan.batches))
}

struct Builder<'a, W> {
    plan: &'a Plan,
    work: Arc<W>,
    buffers: Arc<Buffers>,
    control: Arc<Control>,
    clock: &'a Arc<dyn Clock>,
    recorder: &'a Recorder,
    threads: Vec<ClockThread<()>>,
}

impl<W: SampleWork> Builder<'_, W> {
    fn build<H: HostToDevice>(
        mut self,
        planner: BatchPlanner,
        device: H,
    ) -> Result<Feed<W, H>, PipelineError> {
        let (tickets, source) = self.host_stages()?;
        let plan = self.plan;
        let per_epoch = planner.per_epoch();
        let admission = Arc::new(Admission::new(
            planner,
            tickets,
            self.buffers.clone(),
            plan.slabs(),
            plan.claim_size,
            plan.seed,
        ));
        let credit = match plan.layout {
            Layout::WholeBatch {
                num_workers: 1.., ..
            } => Credit::OnTake,
            _ => Credit::AfterCopy,
        };
        let control = self.control.clone();
        let copy = CopyPost {
            device,
            admission: admission.clone(),
            control,
            credit,
            resident: resident(plan, Place::Host),
        };
        let supply = self.copy_stage(source, copy)?;
        let handoff = Handoff {
            ready_at: self.clock.now(),
            cause: UnitRef::NONE,
            lineage: UnitRef::NONE,
            admitted: false,
        };
        admission.credit(plan.outstanding(), handoff);
        let lane = self.recorder.lane("trainer", LaneKind::Trainer);
        Ok(Feed {
            supply: Some(supply),
            control: self.control,
            threads: self.threads,
            logbook: Some(Logbook::new(self.clock.clone(), lane)),
            step: None,
            resident: resident(plan, Place::Device),
            per_epoch,
            planned: plan.batches,
            received: 0,
            empty: 0,
        })
    }

    /// A queue of batches.
    fn queue<T: Send>(&self, capacity: usize) -> (Sender<T>, Receiver<T>) {
        self.queue_of(capacity, 1)
    }

    /// A queue of claims with room for `samples` samples.
    fn sample_queue<T: Send>(&self, samples: usize) -> (Sender<T>, Receiver<T>) {
        let size = self.plan.claim_size;
        self.queue_of(samples.div_ceil(size), size)
    }

    fn queue_of<T: Send>(&self, capacity: usize, weight: usize) -> (Sender<T>, Receiver<T>) {
        let (stop, wakings) = (&self.control.stop, self.recorder.wakings());
        queue(capacity, weight, self.clock, stop, wakings)
    }

    fn post(&self) -> Post<W> {
        Post {
            work: self.work.clone(),
            buffers: self.buffers.clone(),
            control: self.control.clone(),
        }
    }

    /// Spawns one worker thread with a lane of its own.
    fn spawn(
        &mut self,
        stage: Stage,
        name: String,
        kind: LaneKind,
        body: impl FnOnce(&mut Logbook) + Send + 'static,
    ) -> Result<(), PipelineError> {
        let lane = self.recorder.lane(name.clone(), kind);
        let (clock, control) = (self.clock.clone(), self.control.clone());
        let what = format!("thread {name}");
        let thread = spawn_on(self.clock, &name, move || {
            let mut logbook = Logbook::new(clock, lane);
            // One thread less may leave the others waiting for what it had.
            if let Err(panicked) = caught(stage, &what, || body(&mut logbook)) {
                control.fail(panicked);
            }
        });
        match thread {
            Ok(thread) => {
                self.threads.push(thread);
                Ok(())
            }
            Err(error) => {
                self.control.stop.stop();
                Err(PipelineError::Spawn {
                    stage,
                    reason: error.to_string(),
                })
            }
        }
    }

    /// The stages up to batch; returns where tickets go in and host batches come out.
    fn host_stages(&mut self) -> Result<(Tickets, HostSource<W>), PipelineError> {
        match self.plan.layout {
            Layout::PerStage {
                read,
                decode,
                preprocess,
                batch,
            } => {
                let plan = self.plan;
                let a_batch = plan.batch_size.next_multiple_of(plan.claim_size);
                let (tickets, to_read) = self.sample_queue::<Job<()>>(plan.slabs() * a_batch);
                let (encoded, to_decode) = self.sample_queue(read.prefetch);
                let (decoded, to_preprocess) = self.sample_queue(decode.prefetch);
                let (finished, to_batch) = self.sample_queue(plan.finished_samples(preprocess));
                let (batches, host) = self.queue(batch.prefetch);
                self.read_stage(read.workers, &to_read, &encoded)?;
                self.decode_stage(decode.workers, &to_decode, &decoded)?;
                self.preprocess_stage(preprocess.workers, &to_preprocess, &finished)?;
                self.batch_stage(batch.workers, &to_batch, &batches)?;
                Ok((Tickets::Claims(tickets), HostSource::Queue(host)))
            }
            Layout::WholeBatch { num_workers: 0, .. } => {
                let (sender, tickets) = self.queue(self.plan.outstanding());
                let scratch = caught(Stage::Batch, "making its tools", || self.work.scratch())?;
                let source = HostSource::Inline {
                    tickets,
                    post: self.post(),
                    scratch,
                };
                Ok((Tickets::Batches(sender), source))
            }
            Layout::WholeBatch { num_workers, .. } => {
                let outstanding = self.plan.outstanding();
                let (sender, tickets) = self.queue(outstanding);
                let (batches, host) = self.queue(outstanding);
                let outlet = Arc::new(Outlet::new(self.plan.ordered));
                for number in 0..num_workers {
                    let (post, outlet) = (self.post(), outlet.clone());
                    let (tickets, batches) = (tickets.clone(), batches.clone());
                    let name = format!("worker {number}");
                    self.spawn(Stage::Batch, name, LaneKind::BatchWorker, move |logbook| {
                        post.serve_whole_batches(logbook, &tickets, &outlet, &batches);
                    })?;
                }
                Ok((Tickets::Batches(sender), HostSource::Queue(host)))
            }
        }
    }

    fn read_stage(
        &mut self,
        workers: usize,
        input: &Receiver<Job<()>>,
        output: &Sender<Job<W::Encoded>>,
    ) -> Result<(), PipelineError> {
        self.sample_stage(Stage::Read, workers, input, output, |_| {
            |work: &W, claim: &Claim, (), _: &mut Slot| service::read(work, claim)
        })
    }

    fn decode_stage(
        &mut self,
        workers: usize,
        input: &Receiver<Job<W::Encoded>>,
        output: &Sender<Job<W::Decoded>>,
    ) -> Result<(), PipelineError> {
        self.sample_stage(Stage::Decode, workers, input, output, |work: &W| {
            let mut scratch = work.scratch();
            move |work: &W, claim: &Claim, encoded, _: &mut Slot| {
                service::decode(work, claim, encoded, &mut scratch)
            }
        })
    }

    fn preprocess_stage(
        &mut self,
        workers: usize,
        input: &Receiver<Job<W::Decoded>>,
        output: &Sender<Job<()>>,
    ) -> Result<(), PipelineError> {
        self.sample_stage(Stage::Preprocess, workers, input, output, |work: &W| {
            let mut scratch = work.scratch();
            move |work: &W, claim: &Claim, decoded, slot: &mut Slot| {
                service::preprocess(work, claim, decoded, &mut scratch, slot.bytes())
            }
        })
    }

    /// The workers of one sample stage; `new_service` makes what each runs, in its own thread.
    fn sample_stage<I, O, S>(
        &mut self,
        stage: Stage,
        workers: usize,
        input: &Receiver<Job<I>>,
        output: &Sender<Job<O>>,
        new_service: impl Fn(&W) -> S + Copy + Send + 'static,
    ) -> Result<(), PipelineError>
    where
        I: Send + 'static,
        O: Send + 'static,
        S: FnMut(&W, &Claim, I, &mut Slot) -> Result<Served<O>, SampleError>,
    {
        for number in 0..workers {
            let (post, input, output) = (self.post(), input.clone(), output.clone());
            let name = format!("{stage} {number}");
            self.spawn(stage, name, LaneKind::Worker(stage), move |logbook| {
                post.serve_samples(logbook, stage, &input, &output, new_service);
            })?;
        }
        Ok(())
    }

    fn batch_stage(
        &mut self,
        workers: usize,
        input: &Receiver<Job<()>>,
        output: &Sender<HostBatch>,
    ) -> Result<(), PipelineError> {
        let assembly = Arc::new(Assembly::default());
        let outlet = Arc::new(Outlet::new(self.plan.ordered));
        for number in 0..workers {
            let (post, input, output) = (self.post(), input.clone(), output.clone());
            let (assembly, outlet) = (assembly.clone(), outlet.clone());
            let (stage, name) = (Stage::Batch, format!("batch {number}"));
            self.spawn(stage, name, LaneKind::Worker(stage), move |logbook| {
                post.serve_batches(logbook, &input, &assembly, &outlet, &output);
            })?;
        }
        Ok(())
    }

    fn copy_stage<H: HostToDevice>(
        &mut self,
        source: HostSource<W>,
        copy: CopyPost<H>,
    ) -> Result<Supply<W, H>, PipelineError> {
        match source {
            HostSource::Queue(host) if self.plan.copy.workers > 0 => {
                let (copied, device) = self.queue(self.plan.copy.prefetch);
                let kind = LaneKind::Worker(Stage::Copy);
                self.spawn(Stage::Copy, "copy 0".to_owned(), kind, move |logbook| {
                    copy.serve(logbook, &host, &copied);
                })?;
                Ok(Supply::Copied(device))
            }
            source => Ok(Supply::Here { source, copy }),
        }
    }
}

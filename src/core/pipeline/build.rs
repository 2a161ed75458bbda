//! Builds a running pipeline from a plan: queues, threads, and the trainer's end.

use super::admission::{Admission, Tickets};
use super::assembly::{Assembly, Outlet};
use super::buffers::Buffers;
use super::claim::Tools;
use super::error::{Control, PipelineError, StopSignal, caught};
use super::feed::{Feed, HostSource, Supply};
use super::item::{Collated, Job};
use super::logbook::Logbook;
use super::plan::{BatchPlanner, Plan};
use super::queue::{Handoff, Receiver, Sender, queue};
use super::resident::{Again, Resident};
use super::work::{StagedWork, ToDevice};
use super::worker::{CopyPost, Credit, Post};
use crate::timeline::{
    Clock, ClockThread, LaneKind, Layout, Pipeline, Place, Recorder, Stage, StageKind, StageKnobs,
    UnitRef, spawn_on,
};
use std::sync::Arc;

/// Starts a pipeline: `work` loads samples as `plan` says, `device` takes the batches. The calling
/// thread is the trainer's. `stop` may be given from anywhere, and is not given when the pipeline ends.
///
/// # Errors
/// A plan that cannot run, a data set that cannot fill a batch, or a system that gives no threads.
pub fn start<W: StagedWork, H: ToDevice<W::Batch>>(
    plan: &Plan,
    work: Arc<W>,
    device: H,
    clock: &Arc<dyn Clock>,
    recorder: &Recorder,
    stop: &StopSignal,
) -> Result<Feed<W, H>, PipelineError> {
    plan.check(work.pipeline(), work.samples())?;
    if work.pipeline() != recorder.pipeline() {
        let (own, others) = (work.pipeline(), recorder.pipeline());
        let what = format!("its stages are {own:?}, and those of the recorder {others:?}");
        return Err(PipelineError::Plan(what));
    }
    let planner = BatchPlanner::new(work.samples(), plan)?;
    let control = Arc::new(Control::new(stop.child(), plan.on_error));
    let part_bytes = plan.claim_size * work.sample_bytes();
    let buffers = Buffers::new(plan.batch_size * work.sample_bytes(), part_bytes);
    let builder = Builder {
        plan,
        pipeline: work.pipeline(),
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
    pipeline: &'static Pipeline,
    work: Arc<W>,
    buffers: Arc<Buffers>,
    control: Arc<Control>,
    clock: &'a Arc<dyn Clock>,
    recorder: &'a Recorder,
    threads: Vec<ClockThread<()>>,
}

impl<W: StagedWork> Builder<'_, W> {
    fn build<H: ToDevice<W::Batch>>(
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
            stage: self.pipeline.the(StageKind::Copy),
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
            trains: self.pipeline.the(StageKind::Step),
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
            pipeline: self.pipeline,
            batch: self.pipeline.the(StageKind::Batch),
            drop_last: self.plan.drop_last,
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
        let batch_stage = self.pipeline.the(StageKind::Batch);
        match &self.plan.layout {
            Layout::PerStage { samples, batch } => {
                let plan = self.plan;
                let a_batch = plan.batch_size.next_multiple_of(plan.claim_size);
                let (tickets, to_first) = self.sample_queue::<Job<()>>(plan.slabs() * a_batch);
                let last = samples.last().map_or(0, |last| last.prefetch);
                let (finished, to_batch) = self.sample_queue(plan.finished_samples(last));
                let (batches, host) = self.queue(batch.prefetch);
                self.sample_stages(samples, to_first, finished)?;
                self.batch_stage(batch_stage, batch.workers, &to_batch, &batches)?;
                Ok((Tickets::Claims(tickets), HostSource::Queue(host)))
            }
            Layout::WholeBatch { num_workers: 0, .. } => {
                let (sender, tickets) = self.queue(self.plan.outstanding());
                let tools = caught(batch_stage, "making its tools", || {
                    Tools::new(&*self.work, batch_stage)
                })?;
                let source = HostSource::Inline {
                    tickets,
                    post: self.post(),
                    tools,
                };
                Ok((Tickets::Batches(sender), source))
            }
            Layout::WholeBatch { num_workers, .. } => {
                let outstanding = self.plan.outstanding();
                let (sender, tickets) = self.queue(outstanding);
                let (batches, host) = self.queue(outstanding);
                let outlet = Arc::new(Outlet::new(self.plan.ordered));
                for number in 0..*num_workers {
                    let (post, outlet) = (self.post(), outlet.clone());
                    let (tickets, batches) = (tickets.clone(), batches.clone());
                    let name = format!("worker {number}");
                    self.spawn(batch_stage, name, LaneKind::BatchWorker, move |logbook| {
                        post.serve_whole_batches(logbook, &tickets, &outlet, &batches);
                    })?;
                }
                Ok((Tickets::Batches(sender), HostSource::Queue(host)))
            }
        }
    }

    /// The workers of all sample stages, from claims without anything to claims whose samples are written.
    fn sample_stages(
        &mut self,
        knobs: &[StageKnobs],
        tickets: Receiver<Job<()>>,
        finished: Sender<Job<Option<W::Item>>>,
    ) -> Result<(), PipelineError> {
        let nothing = |()| None;
        let item = |item| item;
        let mut before: Option<Receiver<Job<W::Item>>> = None;
        for (stage, knobs) in self.pipeline.samples().zip(knobs) {
            let last = stage.finishes_samples();
            let next = (!last).then(|| self.sample_queue(knobs.prefetch));
            let (after, input) = next.unzip();
            let workers = knobs.workers;
            match (before.take(), after) {
                (None, None) => {
                    self.workers_of(stage, workers, (&tickets, nothing), (&finished, Some))?;
                }
                (None, Some(after)) => {
                    self.workers_of(stage, workers, (&tickets, nothing), (&after, item))?;
                }
                (Some(before), None) => {
                    self.workers_of(stage, workers, (&before, Some), (&finished, Some))?;
                }
                (Some(before), Some(after)) => {
                    self.workers_of(stage, workers, (&before, Some), (&after, item))?;
                }
            }
            before = input;
        }
        Ok(())
    }

    /// The workers of one sample stage.
    fn workers_of<I: Send + 'static, O: Send + 'static>(
        &mut self,
        stage: Stage,
        workers: usize,
        (input, begin): (
            &Receiver<Job<I>>,
            impl Fn(I) -> Option<W::Item> + Copy + Send + 'static,
        ),
        (output, end): (
            &Sender<Job<O>>,
            impl Fn(Option<W::Item>) -> Option<O> + Copy + Send + 'static,
        ),
    ) -> Result<(), PipelineError> {
        for number in 0..workers {
            let (post, input, output) = (self.post(), input.clone(), output.clone());
            let name = format!("{stage} {number}");
            self.spawn(stage, name, LaneKind::Worker(stage), move |logbook| {
                post.serve_samples(logbook, stage, (&input, begin), (&output, end));
            })?;
        }
        Ok(())
    }

    fn batch_stage(
        &mut self,
        stage: Stage,
        workers: usize,
        input: &Receiver<Job<Option<W::Item>>>,
        output: &Sender<Collated<W::Batch>>,
    ) -> Result<(), PipelineError> {
        let assembly = Arc::new(Assembly::default());
        let outlet = Arc::new(Outlet::new(self.plan.ordered));
        for number in 0..workers {
            let (post, input, output) = (self.post(), input.clone(), output.clone());
            let (assembly, outlet) = (assembly.clone(), outlet.clone());
            let name = format!("{stage} {number}");
            self.spawn(stage, name, LaneKind::Worker(stage), move |logbook| {
                post.serve_batches(logbook, &input, &assembly, &outlet, &output);
            })?;
        }
        Ok(())
    }

    fn copy_stage<H: ToDevice<W::Batch>>(
        &mut self,
        source: HostSource<W>,
        copy: CopyPost<H, W::Batch>,
    ) -> Result<Supply<W, H>, PipelineError> {
        match source {
            HostSource::Queue(host) if self.plan.copy.workers > 0 => {
                let (copied, device) = self.queue(self.plan.copy.prefetch);
                let stage = copy.stage;
                let (name, kind) = (format!("{stage} 0"), LaneKind::Worker(stage));
                self.spawn(stage, name, kind, move |logbook| {
                    copy.serve(logbook, &host, &copied);
                })?;
                Ok(Supply::Copied(device))
            }
            source => Ok(Supply::Here { source, copy }),
        }
    }
}

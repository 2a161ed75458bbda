//! A pipeline that runs, as the loop that trains on its batches sees it.

use super::builder::LoaderError;
use super::measurement::{Measurement, MeasurementError, MeasurementOptions, Standing};
use super::settings::Settings;
use super::work::{CopyWith, OwnWork};
use crate::analysis::LoaderShape;
use crate::pipeline::{
    DeviceQueues, Feed, PipelineError, Plan, StopSignal, Submitted, UndeclaredParts, Work, start,
};
use crate::report::{Report, Status};
use crate::timeline::{DevicePhase, LaneKind, Nanos, Pipeline, StageKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A running pipeline of the user's own. It yields batches, in a `for` loop or with [`next`](Iterator::next); what happens
/// between two of them is a step. All of it keeps the device busy, or, where [`step`](Self::step) is called, what that is
/// given: it borrows the loader, so use it in `while let Some(batch) = loader.next()`. Where it was built with a
/// [`device`](super::LoaderBuilder::device) that one says when it was busy, by what [`submit`](Self::submit) returns. Once a sample has failed, batches
/// that were finished are delivered, then the error, and no others. Dropping it stops the pipeline and waits for what its threads are doing.
pub struct Loader<B: Send + 'static, D: Send + 'static = B> {
    feed: Feed<OwnWork<B>, CopyWith<B, D>>,
    measurement: Measurement,
    settings: Settings,
    at_most: usize,
    /// Samples that a stream has given.
    given: Option<Arc<AtomicUsize>>,
    pipeline: &'static Pipeline,
    undeclared: UndeclaredParts,
    /// Those that run beside the caller's thread, where there are any.
    device: Option<DeviceQueues>,
    submitted: bool,
    /// How many steps they did not tell of, once that is known.
    lost: Option<usize>,
    /// The batch that is trained on.
    held: Option<Held>,
    /// The caller has been told of a failure.
    failed: bool,
    stopped: bool,
    /// Whether the caller says what keeps the device busy.
    uses_step: bool,
}

/// A batch in the caller's hands.
struct Held {
    number: u64,
    samples: u32,
    since: Nanos,
}

impl<B: Send + 'static, D: Send + 'static> Loader<B, D> {
    pub(super) fn start(
        (settings, given): (Settings, Option<Arc<AtomicUsize>>),
        plan: Plan,
        shape: LoaderShape,
        mut work: OwnWork<B>,
        copy: CopyWith<B, D>,
    ) -> Result<Loader<B, D>, LoaderError> {
        let pipeline = shape.pipeline;
        let spawned = pipeline.the(StageKind::Step);
        let to_deliver = plan.batches;
        // When a stream ends is not known before.
        let endless = settings.first_pass.is_some() || given.is_some() && settings.steps.is_none();
        let plan = Plan {
            batches: if endless { u64::MAX } else { to_deliver },
            ..plan
        };
        let options = MeasurementOptions {
            warmup_steps: settings.warmup_steps,
            steps: (!endless).then_some(to_deliver.saturating_sub(settings.warmup_steps)),
            batches_per_epoch: plan
                .batches_per_epoch(settings.samples)
                .filter(|_| given.is_none()),
            in_flight: plan.in_flight(),
            trace: settings.traced(),
        };
        let measurement = Measurement::start(shape, &options).map_err(|error| match error {
            MeasurementError::Trace(error) => LoaderError::Trace(error),
            MeasurementError::Thread(error) => LoaderError::Pipeline(PipelineError::Spawn {
                stage: spawned,
                reason: error.to_string(),
            }),
        })?;
        let clock = measurement.clock();
        work.clock = clock.clone();
        let undeclared = work.undeclared.clone();
        let stop = StopSignal::new(clock.clone());
        let recorder = measurement.recorder();
        let names = settings.devices.iter();
        let lanes: Vec<_> = names
            .map(|name| recorder.lane(name, LaneKind::Device))
            .collect();
        let beside = !lanes.is_empty();
        let device = beside.then(|| DeviceQueues::new(clock.clone(), lanes, true));
        let mut feed = start(&plan, Arc::new(work), copy, clock, recorder, &stop)?;
        feed.deliver_until(to_deliver);
        Ok(Loader {
            feed,
            measurement,
            settings,
            at_most: plan.in_flight(),
            given,
            pipeline,
            undeclared,
            device,
            submitted: false,
            lost: None,
            held: None,
            failed: false,
            stopped: false,
            uses_step: false,
        })
    }

    /// Does what keeps the device busy in this step, and returns what comes of it. What else happens until the next batch
    /// is asked for is the caller's own time, from the first call on also of batches for which this is not called. Work
    /// that is only launched must be waited for in it; beside a [`device`](super::LoaderBuilder::device) all of it is the
    /// caller's own time.
    pub fn step<T>(&mut self, train: impl FnOnce() -> T) -> T {
        self.uses_step = true;
        let began = self.measurement.clock().now();
        let result = train();
        self.busy(began);
        result
    }

    /// The device was busy since `began`.
    fn busy(&mut self, began: Nanos) {
        if self.device.is_none()
            && let (Some(held), Some(logbook)) = (&self.held, self.feed.logbook())
        {
            let now = logbook.now();
            logbook.busy(DevicePhase::Step, held.number, began, now);
        }
    }

    /// Notes that work of this step is now with the `device` of that name, and returns what tells when that was done: from
    /// any thread, in any order. The step is over with the last of what is submitted in it; a batch for which nothing is
    /// submitted is no step. A device does one thing after another.
    ///
    /// # Errors
    /// A device that there is not, or no batch in the caller's hands.
    pub fn submit(&mut self, device: &str) -> Result<Submitted, LoaderError> {
        let devices = &self.settings.devices;
        let queue = devices.iter().position(|name| name == device);
        let (Some(queue), Some(device)) = (queue, &self.device) else {
            return Err(LoaderError::UnknownDevice {
                name: device.to_owned(),
                devices: match devices.is_empty() {
                    true => "none".to_owned(),
                    false => devices.join(", "),
                },
            });
        };
        let (Some(held), Some(logbook)) = (&self.held, self.feed.logbook()) else {
            return Err(LoaderError::NoStep);
        };
        self.submitted = true;
        let host = logbook.current();
        let work = Work {
            batch: held.number,
            samples: held.samples,
            at: logbook.now(),
            cause: host,
            host,
        };
        Ok(device.submit(queue, work))
    }

    /// Ends the step in progress and waits until the devices have at most `left` of the submitted steps to do. Another
    /// thread must tell them done. With 0 before [`finish`](Self::finish) the last steps are measured, too.
    pub fn wait_for_room(&mut self, left: usize) {
        let Some(device) = &self.device else { return };
        match self.held.take() {
            Some(_) => {
                self.settings.run_ahead = self.settings.run_ahead.max(Some(left));
                self.feed.finish_step_when(|_| device.wait_for_room(left));
            }
            None => drop(device.wait_for_room(left)),
        }
        device.step_closed();
    }

    /// Ends the step in progress, as asking for the next batch does.
    pub fn end_step(&mut self) {
        let since = self.held.as_ref().map(|held| held.since);
        if let Some(since) = since.filter(|_| !self.uses_step) {
            self.busy(since);
        }
        self.held = None;
        self.feed.finish_step();
        if let Some(device) = &self.device {
            device.step_closed();
        }
    }

    /// Begins the next of its [passes](super::LoaderBuilder::passes) in the calling thread. The time since the last step is
    /// not measured. Returns false, and does nothing, after [`stop`](Self::stop), before the pass is delivered, and where
    /// there are no passes.
    pub fn resume(&mut self) -> bool {
        if self.stopped || self.settings.first_pass.is_none() || !self.is_complete() {
            return false;
        }
        self.end_step();
        self.settings.epochs += 1;
        let plan = self.settings.plan(self.pipeline);
        self.feed.deliver_until(plan.batches);
        if let Some(logbook) = self.feed.logbook() {
            logbook.resume();
        }
        true
    }

    /// How many samples it holds at once at most, from when they are fetched until their batch is handed out, however many
    /// there are in all.
    pub fn samples_at_most(&self) -> usize {
        self.at_most
    }

    /// Whether all batches of the run, or of the pass in progress, were delivered.
    pub fn is_complete(&self) -> bool {
        self.feed.is_complete()
    }

    /// Why the report has fewer steps than expected.
    fn problem(&self, samples: usize) -> Option<String> {
        let Settings {
            batch_size,
            drop_last,
            ..
        } = self.settings;
        if self.given.is_some() && self.is_complete() && drop_last && samples < batch_size {
            return Some(format!(
                "the stream ended after {samples} samples, which fill no batch of {batch_size}\n  try: .drop_last(false)"
            ));
        }
        let problem = match self.lost? {
            0 if self.submitted => return None,
            0 => "no step was given to the device, so none is measured\n  try: loader.submit in each step".to_owned(),
            1 => "a step was submitted and never said to be done: it is left out\n  try: wait_for_room(0) before finish".to_owned(),
            lost => format!("{lost} steps were submitted and never said to be done: they are left out\n  try: wait_for_room(0) before finish"),
        };
        Some(problem)
    }

    /// What was measured so far: the verdict, where idle time comes from, and what each stage takes.
    pub fn report(&self) -> Report {
        let error = self.feed.failure();
        let error = error.filter(|_| self.failed || !self.is_complete());
        let mut settings = self.settings.clone();
        if let Some(given) = &self.given {
            settings.samples = given.load(Ordering::Relaxed);
        }
        let mut report = self.measurement.report(Standing {
            status: match &error {
                Some(_) => Status::Failed,
                None if self.is_complete() => Status::Complete,
                None if self.stopped => Status::Interrupted,
                None => Status::Running,
            },
            error: error
                .map(|error| error.to_string())
                .or_else(|| self.problem(settings.samples)),
            skipped: self.feed.skipped(),
            samples: settings.samples,
            device: match &self.device {
                Some(_) => self.settings.devices.join(", "),
                None => "your loop".to_owned(),
            },
            config: serde_json::to_value(&settings).unwrap_or_default(),
        });
        report.undeclared_parts = self.undeclared.so_far();
        report
    }

    /// Stops the pipeline where it has not ended, and reports on all of it.
    pub fn finish(mut self) -> Report {
        self.stop();
        self.report()
    }

    /// Stops the pipeline's threads and closes the trace. `next` returns `None` from then on.
    pub fn stop(&mut self) {
        self.end_step();
        self.stopped = true;
        self.feed.shut_down();
        let lost = || self.device.as_ref().map(DeviceQueues::finish);
        self.lost = self.lost.or_else(lost);
        self.measurement.finish();
    }
}

impl<B: Send + 'static, D: Send + 'static> Iterator for Loader<B, D> {
    type Item = Result<D, PipelineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.end_step();
        if self.failed {
            return None;
        }
        let batch = match self.feed.next() {
            Ok(batch) => batch?,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        self.held = Some(Held {
            number: batch.number,
            samples: batch.samples as u32,
            since: self.measurement.clock().now(),
        });
        batch.batch.take().map(Ok)
    }
}

//! A pipeline that runs, as the loop that trains on its batches sees it.

use super::builder::LoaderError;
use super::collector::Collecting;
use super::measured::{cpu_of, note_trace, recorder_report, this_machine, waking_profile};
use super::settings::Settings;
use super::work::{CopyWith, OwnWork};
use crate::analysis::{Analysis, Guard, LoaderShape, Verdict, WindowRule};
use crate::pipeline::{Feed, PipelineError, Plan, RecordingCost, StopSignal, WakingCost, start};
use crate::report::{DataReport, DeviceReport, Report, Status, TraceReport};
use crate::timeline::{Clock, DevicePhase, MonotonicClock, Nanos, Recorder, StageKind};
use crate::trace::{SharedTrace, TraceOptions, TraceWriter};
use crate::tracing_feed::{TracedSteps, TracingFeed};
use nix::sys::resource::UsageWho;
use std::sync::{Arc, OnceLock};

/// A running pipeline of the user's own. It yields batches, in a `for` loop or with [`next`](Iterator::next); what happens
/// between two of them is a step. All of it keeps the device busy, or, where [`step`](Self::step) is called, what that is
/// given: it borrows the loader, so use it in `while let Some(batch) = loader.next()`. Once a sample has failed, batches
/// that were not finished are not delivered. Dropping it stops the pipeline and waits for what its threads are doing.
pub struct Loader<B: Send + 'static, D: Send + 'static = B> {
    feed: Feed<OwnWork<B>, CopyWith<B, D>>,
    collecting: Collecting,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    settings: Settings,
    shape: LoaderShape,
    costs: &'static (WakingCost, RecordingCost),
    /// CPU time of the process before.
    cpu_before: Nanos,
    /// The batch that is trained on, and since when.
    held: Option<(u64, Nanos)>,
    /// The caller has been told of a failure.
    failed: bool,
    /// Whether the caller says what keeps the device busy.
    uses_step: bool,
    trace: Option<SharedTrace>,
    traced: Option<TraceReport>,
}

/// A trace may become as large.
const MOST_TRACE_BYTES: u64 = 256 << 20;

impl<B: Send + 'static, D: Send + 'static> Loader<B, D> {
    pub(super) fn start(
        settings: Settings,
        plan: Plan,
        shape: LoaderShape,
        work: OwnWork<B>,
        copy: CopyWith<B, D>,
    ) -> Result<Loader<B, D>, LoaderError> {
        let warmup_steps = settings.warmup_steps;
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        // What waking and recording cost is measured once in a process.
        static COSTS: OnceLock<(WakingCost, RecordingCost)> = OnceLock::new();
        let measure = || (WakingCost::measure(&clock), RecordingCost::measure(&clock));
        let costs = COSTS.get_or_init(measure);
        let cpu_before = cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default();
        let recorder = Recorder::new()
            .counting_after(warmup_steps)
            .of_pipeline(shape.pipeline);
        let stop = StopSignal::new(clock.clone());
        let rule = WindowRule {
            warmup_steps,
            steps: Some(plan.batches.saturating_sub(warmup_steps)),
            run_start: clock.now(),
            device_beside: false,
        };
        let samples = settings.samples;
        let trace = settings.trace.as_ref().map(|path| {
            let options = TraceOptions {
                base: clock.now(),
                max_bytes: MOST_TRACE_BYTES,
                compress: false,
            };
            TraceWriter::create(path, options).map(SharedTrace::new)
        });
        let trace = trace.transpose()?;
        let traced = TracedSteps {
            first: settings.trace_start_step,
            count: settings.trace_steps,
        };
        let tracing = trace.clone();
        let tracing = tracing.map(|trace| TracingFeed::new(trace, traced, &rule, None));
        let feed = start(&plan, Arc::new(work), copy, &clock, &recorder, &stop)?;
        let analysis =
            Analysis::new(rule, plan.in_flight()).with_epochs(plan.batches_per_epoch(samples));
        let collecting = Collecting::start(recorder.clone(), clock.clone(), analysis, tracing);
        let collecting = collecting.map_err(|error| PipelineError::Spawn {
            stage: shape.pipeline.the(StageKind::Step),
            reason: error.to_string(),
        })?;
        Ok(Loader {
            feed,
            collecting,
            recorder,
            clock,
            settings,
            shape,
            costs,
            cpu_before,
            held: None,
            failed: false,
            uses_step: false,
            trace,
            traced: None,
        })
    }

    /// Does what keeps the device busy in this step, and returns what comes of it. What else happens until the next batch
    /// is asked for is the caller's own time, from the first call on also of batches for which this is not called. Work
    /// that is only launched must be waited for in it.
    pub fn step<T>(&mut self, train: impl FnOnce() -> T) -> T {
        self.uses_step = true;
        let began = self.clock.now();
        let result = train();
        self.busy(began);
        result
    }

    /// The device was busy since `began`.
    fn busy(&mut self, began: Nanos) {
        if let (Some((number, _)), Some(logbook)) = (self.held, self.feed.logbook()) {
            let now = logbook.now();
            logbook.busy(DevicePhase::Step, number, began, now);
        }
    }

    /// Ends the step in progress.
    fn end_step(&mut self) {
        if let Some((_, since)) = self.held.filter(|_| !self.uses_step) {
            self.busy(since);
        }
        self.held = None;
    }

    /// What was measured so far: the verdict, where idle time comes from, and what each stage takes.
    pub fn report(&self) -> Report {
        let machine = this_machine(self.shape.cores);
        let config = serde_json::to_value(&self.settings).unwrap_or_default();
        let mut report = Report::new("loader".to_owned(), machine, config);
        let error = self.feed.failure();
        report.status = match (&error, self.feed.is_complete()) {
            (Some(_), _) => Status::Failed,
            (None, true) => Status::Complete,
            (None, false) => Status::Running,
        };
        report.error = error.map(|error| error.to_string());
        report.data = DataReport {
            samples: self.settings.samples,
            sample_bytes: 0,
            claim_samples: 1,
        };
        report.pipeline = self.shape.pipeline;
        report.skipped = self.feed.skipped();
        report.trace.clone_from(&self.traced);
        let Some(summary) = self.collecting.summary() else {
            return report;
        };
        let device = DeviceReport {
            name: "your loop".to_owned(),
            busy_ns: summary.device_busy,
            idle_ns: summary.device_idle(),
            busy_share: summary.busy_share(),
            ..DeviceReport::default()
        };
        report.measured(&summary, Some(device));
        if let Some(profile) = &mut report.profile {
            profile.waking = waking_profile(&self.costs.0, self.recorder.wakings());
        }
        report.verdict = Some(Verdict::of(&summary, &self.shape));
        report.guard = Guard::of(&summary, &self.shape);
        let process = cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default() - self.cpu_before;
        let own = self.collecting.cpu();
        report.recorder = recorder_report(&summary, &self.costs.1, own, process);
        report
    }

    /// Stops the pipeline where it has not ended, and reports on all of it.
    pub fn finish(mut self) -> Report {
        self.end_step();
        self.feed.shut_down();
        self.collecting.finish();
        if let Some(summary) = self.trace.take().and_then(|trace| trace.finish()) {
            note_trace(self.traced.get_or_insert_default(), &summary);
        }
        let mut report = self.report();
        if report.status == Status::Running {
            report.status = Status::Interrupted;
        }
        report
    }
}

impl<B: Send + 'static, D: Send + 'static> Iterator for Loader<B, D> {
    type Item = Result<D, PipelineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.end_step();
        let batch = match self.feed.next() {
            Ok(batch) => batch?,
            Err(error) => {
                let told = std::mem::replace(&mut self.failed, true);
                return (!told).then_some(Err(error));
            }
        };
        self.held = Some((batch.number, self.clock.now()));
        batch.batch.take().map(Ok)
    }
}

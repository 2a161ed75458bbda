//! What measures a run: the recorder that threads write to, the thread that analyses what they wrote, the trace.

use super::collector::Collecting;
use super::measured::{cpu_of, note_trace, recorder_report, this_machine, waking_profile};
use crate::analysis::{Analysis, Guard, LoaderShape, Summary, Verdict, WindowRule};
use crate::pipeline::{RecordingCost, Skipped, WakingCost};
use crate::report::{DataReport, DeviceReport, Report, Status, TraceReport};
use crate::timeline::{Clock, MonotonicClock, Nanos, Recorder};
use crate::trace::{HostSpans, SharedTrace, TraceError, TraceOptions, TraceWriter};
use crate::tracing_feed::{TracedSteps, TracingFeed};
use nix::sys::resource::UsageWho;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A trace may become as large.
const MOST_TRACE_BYTES: u64 = 256 << 20;

/// Which part of a run is measured, and where the trace is written.
#[derive(Clone, Debug, Default)]
pub struct MeasurementOptions {
    /// First steps that are not measured.
    pub warmup_steps: u64,
    /// Steps after the warm-up, where it is known how many there are.
    pub steps: Option<u64>,
    /// Batches of an epoch, where that is known.
    pub batches_per_epoch: Option<u64>,
    /// Units of work between a batch's first sample and its step, at most.
    pub in_flight: usize,
    /// Where a trace for Perfetto is written, and the steps that are in it, counted from 0 with the warm-up.
    pub trace: Option<(PathBuf, Range<u64>)>,
}

/// Why a run cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementError {
    /// The trace cannot be started.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The system gives no thread.
    #[error("cannot start the thread that takes records: {0}")]
    Thread(#[from] io::Error),
}

/// How a run stands, for its report.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Whether it is over, and how it ended.
    pub status: Status,
    /// Why it failed.
    pub error: Option<String>,
    /// Samples that were left out.
    pub skipped: Skipped,
    /// Samples of the data.
    pub samples: usize,
    /// What keeps the device busy, as the report names it.
    pub device: String,
    /// Settings, for the report and for predictions.
    pub config: serde_json::Value,
}

/// A run that is measured while it goes on.
pub struct Measurement {
    collecting: Collecting,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    shape: LoaderShape,
    costs: &'static (WakingCost, RecordingCost),
    /// CPU time of the process before.
    cpu_before: Nanos,
    trace: Option<SharedTrace>,
    /// Spans of the user's own code, where their subscriber has our layer.
    spans: Option<HostSpans>,
    traced: Option<TraceReport>,
}

impl Measurement {
    /// Begins to measure a run of the `shape`.
    ///
    /// # Errors
    /// A trace that cannot be written, or a system that gives no thread.
    pub fn start(
        shape: LoaderShape,
        options: &MeasurementOptions,
    ) -> Result<Measurement, MeasurementError> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        // What waking and recording cost is measured once in a process.
        static COSTS: OnceLock<(WakingCost, RecordingCost)> = OnceLock::new();
        let measure = || (WakingCost::measure(&clock), RecordingCost::measure(&clock));
        let costs = COSTS.get_or_init(measure);
        let cpu_before = cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default();
        let recorder = Recorder::new()
            .counting_after(options.warmup_steps)
            .of_pipeline(shape.pipeline);
        let rule = WindowRule {
            warmup_steps: options.warmup_steps,
            steps: options.steps,
            run_start: clock.now(),
            device_beside: shape.device_beside,
        };
        let trace = options.trace.as_ref().map(|(path, _)| {
            let options = TraceOptions {
                base: clock.now(),
                max_bytes: MOST_TRACE_BYTES,
                compress: false,
            };
            TraceWriter::create(path, options).map(SharedTrace::new)
        });
        let trace = trace.transpose()?;
        let spans = trace.clone().zip(options.trace.clone());
        let spans = spans.and_then(|(trace, (_, steps))| {
            HostSpans::record(trace, recorder.clone(), clock.clone(), steps).ok()
        });
        let feed = trace.clone().zip(options.trace.as_ref());
        let feed = feed.map(|(trace, (_, steps))| {
            let traced = TracedSteps {
                first: steps.start,
                count: steps.end.saturating_sub(steps.start),
            };
            TracingFeed::new(trace, traced, &rule, None)
        });
        let analysis =
            Analysis::new(rule, options.in_flight).with_epochs(options.batches_per_epoch);
        let collecting = Collecting::start(recorder.clone(), clock.clone(), analysis, feed)?;
        Ok(Measurement {
            collecting,
            recorder,
            clock,
            shape,
            costs,
            cpu_before,
            trace,
            spans,
            traced: None,
        })
    }

    /// Gives lanes to the threads that are to be measured.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The clock that everything is measured on.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// What the verdict knows of the loader; may be corrected as more is known.
    pub fn shape(&mut self) -> &mut LoaderShape {
        &mut self.shape
    }

    /// What was found so far; `None` before the first measured step.
    pub fn summary(&self) -> Option<Summary> {
        self.collecting.summary()
    }

    /// What was measured so far: the verdict, where idle time comes from, and what each stage takes.
    pub fn report(&self, standing: Standing) -> Report {
        let machine = this_machine(self.shape.cores);
        let mut report = Report::new("loader".to_owned(), machine, standing.config);
        report.status = standing.status;
        report.error = standing.error;
        report.data = DataReport {
            samples: standing.samples,
            sample_bytes: 0,
            claim_samples: 1,
            ..DataReport::default()
        };
        report.pipeline = self.shape.pipeline;
        report.skipped = standing.skipped;
        report.trace.clone_from(&self.traced);
        let Some(summary) = self.summary() else {
            return report;
        };
        let device = DeviceReport {
            name: standing.device,
            ..DeviceReport::of(&summary)
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

    /// Analyses the rest and closes the trace, once nothing is recorded any more.
    pub fn finish(&mut self) {
        self.collecting.finish();
        self.spans = None;
        if let Some(summary) = self.trace.take().and_then(|trace| trace.finish()) {
            note_trace(self.traced.get_or_insert_default(), &summary);
        }
    }
}

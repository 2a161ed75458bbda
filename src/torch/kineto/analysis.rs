//! The report on a trace.

use super::breakdown::{Categories, steps_of, union};
use super::reader::ReadError;
use super::steps::{Loop, Rows};
use super::trace::{Trace, Work, WorkWhat};
use serde_json::json;
use stallscope_core::analysis::{
    Analysis, Cause, Change, LoaderShape, Suggestion, Summary, Verdict, WORTH_TRYING, WindowRule,
};
use stallscope_core::loader::note_trace;
use stallscope_core::report::{
    DeviceReport, ProfilerTrace, Report, Status, StepTime, TimelineReport, TimelineSource,
    TraceReport,
};
use stallscope_core::timeline::{
    ForeignThread, Interval, LaneInfo, LaneKind, Layout, Nanos, StageKind, StageKnobs,
    StageNameError,
};
use stallscope_core::trace::{SharedTrace, TraceError, TraceOptions, TraceWriter};
use stallscope_core::tracing_feed::{TracedSteps, TracingFeed};
use stallscope_device::collected::CollectedSteps;
use stallscope_device::cupti::{Activity, ApiCall, DeviceWork, RecordCount, WorkKind};
use stallscope_device::gpu_steps::{GpuLanes, GpuSteps};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A trace may become as large.
const MOST_TRACE_BYTES: u64 = 256 << 20;
/// Claims of a batch, about, for what must be remembered.
const CLAIMS: usize = 64;
const DEVICE: u16 = 1;
const COPY_ENGINE: u16 = 2;

/// What is to be analysed, and how.
#[derive(Clone, Debug, Default)]
pub struct AnalyzeOptions {
    /// The trace.
    pub trace: PathBuf,
    /// The range that begins each step; by default `ProfilerStep#N`, and what asks a DataLoader.
    pub step: Option<String>,
    /// The number of the GPU; by default the one that computed longest.
    pub device: Option<u32>,
    /// First steps that are not measured.
    pub warmup_steps: u64,
    /// Where a trace with idle causes is written, if anywhere, and how many steps are in it.
    pub out: Option<(PathBuf, u64)>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The file.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Nobody can tell where a step begins.
    #[error(
        "{path} has no steps: no `ProfilerStep#` and no `enumerate(DataLoader)#`{ranges}\n  \
         try: profiler.step() in the training loop, or --step with the name of a range around each step"
    )]
    NoSteps {
        /// Which.
        path: String,
        /// The ranges that it has.
        ranges: String,
    },
    /// A GPU that did nothing.
    #[error(
        "GPU {device} did nothing in {path}: it has work of {known}\n  try: --device with one of these"
    )]
    NoDevice {
        /// The trace.
        path: String,
        /// As asked for.
        device: u32,
        /// Those with work.
        known: String,
    },
    /// More steps are left out than there are.
    #[error(
        "{path} has {steps} steps, and the first {warmup} are left out\n  try: a smaller --warmup-steps"
    )]
    TooFewSteps {
        /// The trace.
        path: String,
        /// It has so many.
        steps: usize,
        /// As asked for.
        warmup: u64,
    },
    /// The trace cannot be started.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Never, as long as the rows have names that can be.
    #[error(transparent)]
    Rows(#[from] StageNameError),
}

/// What the trace says.
///
/// # Errors
/// A file that is no trace of PyTorch's profiler, or has no steps.
pub fn analyze(options: &AnalyzeOptions) -> Result<Report, AnalyzeError> {
    let mut trace = Trace::read(&options.trace, options.step.as_deref())?;
    let zero = trace.zero();
    let (operators, calls) = trace.host(zero);
    let path = options.trace.display().to_string();
    let device = device_of(&trace, options.device).map_err(|known| AnalyzeError::NoDevice {
        path: path.clone(),
        device: options.device.unwrap_or(0),
        known,
    })?;
    let host = union([&operators, &calls].into_iter());
    let launches = launches(&trace, device, zero);
    let training = Loop::of(&trace, zero, &host, &launches, device.is_some());
    let training = training.ok_or_else(|| AnalyzeError::NoSteps {
        path: path.clone(),
        ranges: ranges_of(&trace),
    })?;
    let steps = training.batches.len();
    if steps as u64 <= options.warmup_steps {
        return Err(AnalyzeError::TooFewSteps {
            path,
            steps,
            warmup: options.warmup_steps,
        });
    }
    let mut run = Run::begin(options, &training, device)?;
    run.steps(&trace, zero, &training, device)?;
    let mut report = run.report(&trace, options, device);
    let categories = Categories::of(&trace, device, zero, (&operators, &calls));
    report.profiler_trace = Some(profiler_trace(&trace, path, zero, device, &categories));
    Ok(report)
}

/// What the trace at `path` is called, up to its first dot.
pub fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split('.').next() {
        None | Some("") => "trace".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// The names of ranges that steps may be told by.
fn ranges_of(trace: &Trace) -> String {
    let mut ranges: Vec<(&String, &u64)> = trace.ranges.iter().collect();
    ranges.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let ranges = ranges
        .iter()
        .take(5)
        .map(|(name, count)| format!("{name:?} ({count} times)"));
    let ranges: Vec<String> = ranges.collect();
    match ranges[..] {
        [] => String::new(),
        _ => format!("; it has {}", ranges.join(", ")),
    }
}

/// The GPU that is looked at: as asked for, or the one whose kernels took longest; none where no GPU did anything. The
/// error names those that did.
fn device_of(trace: &Trace, asked: Option<u32>) -> Result<Option<u32>, String> {
    let mut times: HashMap<u32, i64> = HashMap::new();
    for work in &trace.works {
        let time = match work.what {
            WorkWhat::Kernel { .. } => work.span.end - work.span.start,
            _ => 0,
        };
        *times.entry(work.device).or_default() += time;
    }
    match asked {
        Some(asked) if !times.contains_key(&asked) => {
            let mut known: Vec<String> = times.keys().map(|own| format!("GPU {own}")).collect();
            known.sort();
            Err(match known[..] {
                [] => "no GPU".to_owned(),
                _ => known.join(", "),
            })
        }
        Some(asked) => Ok(Some(asked)),
        None => {
            let longest = times
                .into_iter()
                .max_by_key(|(own, time)| (*time, u32::MAX - own));
            Ok(longest.map(|(own, _)| own))
        }
    }
}

/// When something was put on `device`, in order.
fn launches(trace: &Trace, device: Option<u32>, zero: i64) -> Vec<Nanos> {
    let launched = launched(trace, device);
    let calls = trace
        .calls
        .iter()
        .filter(|call| launched.contains(&call.correlation));
    calls.map(|call| call.span.since(zero).start).collect()
}

/// The numbers of the calls that put work on `device`.
fn launched(trace: &Trace, device: Option<u32>) -> HashSet<u32> {
    let works = trace
        .works
        .iter()
        .filter(|work| Some(work.device) == device);
    works.map(|work| work.correlation).collect()
}

fn profiler_trace(
    trace: &Trace,
    path: String,
    zero: i64,
    device: Option<u32>,
    categories: &Categories,
) -> ProfilerTrace {
    let steps = steps_of(trace, zero);
    let named: Vec<(String, Interval)> = { steps.iter() }
        .map(|(step, until)| (trace.texts[step.name as usize].to_string(), *until))
        .collect();
    let own = trace
        .works
        .iter()
        .filter(|work| Some(work.device) == device);
    let kernels = own.filter(|work| matches!(work.what, WorkWhat::Kernel { .. }));
    let lengths = kernels.map(|work| work.span.since(zero).length());
    let (kernels, kernel_ns) = lengths.fold((0, Nanos::ZERO), |(count, sum), length| {
        (count + 1, sum + length)
    });
    let mut others: Vec<u32> = trace.works.iter().map(|work| work.device).collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|own| Some(*own) != device);
    let (first, last) = (named.first(), named.last());
    let window = first
        .zip(last)
        .map(|((_, first), (_, last))| Interval::new(first.start, last.end));
    let busy = window.map(|window| categories.device().covered_in(window));
    ProfilerTrace {
        path,
        bytes: trace.bytes,
        events: trace.events,
        losses: trace.losses.clone(),
        device,
        other_devices: others,
        rank: trace.world.map(|(rank, _)| rank),
        world_size: trace.world.map(|(_, size)| size),
        kernels,
        kernel_ns,
        window_ns: window.map_or(Nanos::ZERO, Interval::length),
        device_ns: busy.unwrap_or_default(),
        mean: StepTime::mean(&categories.steps(&named)),
        steps: categories.steps(&named),
    }
}

/// An analysis on its way through the steps.
struct Run {
    rows: Rows,
    rule: WindowRule,
    analysis: Analysis,
    feed: Option<(TracingFeed, SharedTrace)>,
    gpu: Option<CollectedSteps>,
    lanes: Vec<LaneInfo>,
}

impl Run {
    fn begin(
        options: &AnalyzeOptions,
        training: &Loop<'_>,
        device: Option<u32>,
    ) -> Result<Run, AnalyzeError> {
        let first = training.batches.first();
        let rule = WindowRule {
            warmup_steps: options.warmup_steps,
            steps: Some(training.batches.len() as u64 - options.warmup_steps),
            run_start: first.map_or(Nanos::ZERO, |first| first.waited.start),
            device_beside: device.is_some(),
        };
        let feed = match &options.out {
            Some((path, steps)) => {
                let own = TraceOptions {
                    base: rule.run_start,
                    max_bytes: MOST_TRACE_BYTES,
                    compress: false,
                };
                // Whether that went well shows at once.
                path.parent().map(fs::create_dir_all);
                let trace = SharedTrace::new(TraceWriter::create(path.clone(), own)?);
                let steps = TracedSteps {
                    first: 0,
                    count: *steps,
                };
                Some((TracingFeed::new(trace.clone(), steps, &rule, None), trace))
            }
            None => None,
        };
        let lane = |name: &str, kind| LaneInfo {
            name: name.to_owned(),
            kind,
            thread: None,
        };
        let main = LaneInfo {
            thread: Some(ForeignThread {
                process: 1,
                process_name: "main process".to_owned(),
                thread: 1,
            }),
            ..lane("main", LaneKind::Trainer)
        };
        let mut lanes = vec![main];
        if device.is_some() {
            lanes.push(lane("device", LaneKind::Device));
            lanes.push(lane("copy engine", LaneKind::CopyEngine));
        }
        let gpu = device.map(|_| {
            let lanes = GpuLanes {
                device: DEVICE,
                copy_engine: COPY_ENGINE,
            };
            CollectedSteps::new(GpuSteps::foreign(lanes), rule, TimelineReport::default())
        });
        Ok(Run {
            rows: Rows::new()?,
            rule,
            analysis: Analysis::new(rule, CLAIMS),
            feed,
            gpu,
            lanes,
        })
    }

    /// Takes all steps, in order, each with what was put on the device until its end.
    fn steps(
        &mut self,
        trace: &Trace,
        zero: i64,
        training: &Loop<'_>,
        device: Option<u32>,
    ) -> Result<(), AnalyzeError> {
        let names = &trace.texts;
        let launched = launched(trace, device);
        let calls = trace
            .calls
            .iter()
            .filter(|call| launched.contains(&call.correlation));
        let mut calls = calls.peekable();
        let works = trace
            .works
            .iter()
            .filter(|work| Some(work.device) == device);
        let mut works = works.peekable();
        let last = training.batches.len() - 1;
        for (number, batch) in training.batches.iter().enumerate() {
            let is_last = number == last;
            let mut records = training.records(number, &self.rows);
            if let Some(gpu) = &mut self.gpu {
                gpu.steps.host(&records);
                gpu.steps.host_known_until(batch.until);
                let until = |start: Nanos| is_last || start < batch.until;
                while let Some(call) = calls.next_if(|call| until(call.span.since(zero).start)) {
                    gpu.steps.take(Activity::Call(ApiCall {
                        api: call.api,
                        function: call.name,
                        interval: call.span.since(zero),
                        thread: call.thread,
                        correlation: call.correlation,
                    }));
                }
                while let Some(work) = works.next_if(|work| until(work.span.since(zero).start)) {
                    gpu.steps
                        .take(Activity::Work(device_work(work, names, zero)));
                }
                gpu.steps.calls_known_until(batch.until);
                if is_last {
                    gpu.steps.host_is_over();
                }
                let count = RecordCount {
                    read: (trace.works.len() + trace.calls.len()) as u64,
                    unusable: trace.losses.of_events(),
                    ..RecordCount::default()
                };
                let name_of = |call: &ApiCall| names[call.function as usize].clone();
                let feed = self.feed.as_ref().map(|(feed, _)| feed);
                let analysis = &mut self.analysis;
                gpu.settle(is_last, count, name_of, &mut records, analysis, feed);
            }
            self.analysis.absorb(&records, 0, None, || {});
            let spans = self.analysis.settle();
            if let Some((feed, _)) = &mut self.feed {
                feed.absorb(&records, &self.lanes, batch.until);
                feed.idle(&spans);
            }
        }
        let spans = self.analysis.finish();
        if let Some((feed, _)) = &mut self.feed {
            feed.finish();
            feed.idle(&spans);
            if let Some(summary) = self.analysis.summary(&self.lanes) {
                feed.over_time(&summary);
            }
        }
        Ok(())
    }

    fn report(self, trace: &Trace, options: &AnalyzeOptions, device: Option<u32>) -> Report {
        let name = name_of(&options.trace);
        let config = json!({
            "trace": options.trace.display().to_string(),
            "step": options.step,
            "warmup_steps": options.warmup_steps,
        });
        let mut report = Report::new(name, Default::default(), config);
        report.pipeline = self.rows.pipeline;
        report.status = Status::Complete;
        let Some(summary) = self.analysis.summary(&self.lanes) else {
            return report;
        };
        let gpu = device.map(|device| match trace.gpus.get(&device) {
            Some(name) => format!("GPU {device}, {name}"),
            None => format!("GPU {device}"),
        });
        let timeline = self.gpu.map(|gpu| TimelineReport {
            source: TimelineSource::Trace,
            ..gpu.report
        });
        let device = DeviceReport {
            name: gpu.unwrap_or_else(|| "your training on the CPU".to_owned()),
            timeline,
            busy_ns: summary.device_busy,
            idle_ns: summary.device_idle(),
            busy_share: summary.busy_share(),
            ..DeviceReport::default()
        };
        report.measured(&summary, Some(device));
        report.verdict = Some(verdict(&summary, &self.rows, self.rule.device_beside));
        if let Some((_, trace)) = self.feed
            && let Some(closed) = trace.finish()
        {
            note_trace(report.trace.insert(TraceReport::default()), &closed);
        }
        report
    }
}

fn device_work(work: &Work, names: &[Arc<str>], zero: i64) -> DeviceWork {
    let kind = match work.what {
        WorkWhat::Kernel { .. } => WorkKind::Kernel {
            name: names[work.name as usize].clone(),
        },
        WorkWhat::Copy(direction, host) => WorkKind::Copy {
            direction,
            bytes: work.bytes,
            host,
        },
        WorkWhat::Set => WorkKind::Set { bytes: work.bytes },
    };
    DeviceWork {
        kind,
        interval: work.span.since(zero),
        device: work.device,
        stream: work.stream,
        correlation: work.correlation,
    }
}

/// The verdict; where the loader binds, what shows more of it.
fn verdict(summary: &Summary, rows: &Rows, device_beside: bool) -> Verdict {
    let shape = LoaderShape {
        pipeline: rows.pipeline,
        layout: Layout::WholeBatch {
            num_workers: 0,
            prefetch_factor: 1,
        },
        copy: StageKnobs {
            workers: 0,
            prefetch: 1,
        },
        has_device: true,
        resident: None,
        device_beside,
        disk: None,
        copy_latency: Nanos::ZERO,
        value_bytes: 1,
        cores: 1.0,
    };
    let mut verdict = Verdict::of(summary, &shape);
    verdict.slack.clear();
    verdict.suggestion = summary.causes.first().and_then(|(cause, length)| {
        let is_loader = cause.stage().map(|stage| stage.kind()) == Some(StageKind::Sample);
        let words = match cause {
            Cause::Capacity(_) if is_loader => {
                "`stallscope torch` with the same script: a profiler's trace has nothing of the loader's workers"
            }
            _ => return None,
        };
        let rest = summary.time().0.saturating_sub(length.0).max(1);
        let at_most = summary.time().0 as f64 / rest as f64;
        let own = Suggestion::new(Change::Words(words.to_owned()), at_most);
        (own.at_most >= WORTH_TRYING).then_some(own)
    });
    verdict
}

//! The report on a trace.

use super::breakdown::{Categories, steps_of, union};
use super::device::{Activities, Device, count, doubt};
use super::error::AnalyzeError;
use super::reader::ReadError;
use super::steps::{Loop, Rows};
use super::trace::{Trace, WorkWhat};
use crate::advice::shape;
use crate::collector::CLAIMS;
use crate::measuring::{Measuring, Traced, device_steps};
use crate::translation::lanes::Lanes;
use serde_json::json;
use stallscope_core::analysis::predict::LoopCosts;
use stallscope_core::analysis::{
    Analysis, Cause, Change, Suggestion, Summary, Verdict, WORTH_TRYING, WindowRule,
};
use stallscope_core::ranks::{LogHeader, LogUnwritten, RankOf, StepLog};
use stallscope_core::report::{
    DeviceReport, ProfilerTrace, Report, Status, StepTime, TimelineReport, TimelineSource,
};
use stallscope_core::timeline::{Interval, Nanos, StageKind};
use stallscope_core::tracing_feed::TracedSteps;
use stallscope_device::collected::CollectedSteps;
use stallscope_device::cupti::ApiCall;
use stallscope_device::gpu_steps::GpuSteps;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

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
    /// Where a trace with idle causes is written, if anywhere.
    pub out: Option<PathBuf>,
    /// Steps that are in it.
    pub traced_steps: u64,
    /// It is one of so many, as its number and how many there are; what the trace says itself comes first. The rank's log and trace
    /// then go to a folder of its own in `out`.
    pub rank: Option<(u32, u32)>,
}

impl AnalyzeOptions {
    /// What the trace is called in errors.
    pub(super) fn name(&self) -> String {
        self.trace.display().to_string()
    }

    /// The trace in `source`; where steps are told by a range, it has that.
    pub(super) fn read(&self, source: &mut dyn Read) -> Result<Trace, AnalyzeError> {
        let trace = Trace::read(source, &self.name(), self.step.as_deref())?;
        match &self.step {
            Some(step) if trace.steps.is_empty() => Err(AnalyzeError::NoRange {
                path: self.name(),
                step: step.clone(),
                ranges: ranges_of(&trace),
            }),
            _ => Ok(trace),
        }
    }

    pub(super) fn open(&self) -> Result<File, ReadError> {
        File::open(&self.trace).map_err(|source| ReadError::Open {
            path: self.name(),
            source,
        })
    }

    pub(super) fn device_of(&self, trace: &Trace) -> Result<Option<Device>, AnalyzeError> {
        Device::of(trace, self.device).map_err(|known| AnalyzeError::NoDevice {
            path: self.name(),
            device: self.device.unwrap_or(0),
            known,
        })
    }

    /// Where the files go, those of a rank to a folder of its own.
    ///
    /// # Errors
    /// Another trace of the same rank.
    pub(super) fn made_folder(&self, rank: Option<u32>) -> Result<Option<PathBuf>, AnalyzeError> {
        let Some(out) = &self.out else {
            return Ok(None);
        };
        let folder = match rank {
            Some(rank) => out.join(format!("rank-{rank}")),
            None => out.clone(),
        };
        if let Some(rank) = rank.filter(|_| folder.exists()) {
            let path = self.name();
            return Err(AnalyzeError::SameRank { path, rank });
        }
        // Whether that went well shows at once.
        fs::create_dir_all(&folder).ok();
        Ok(Some(folder))
    }
}

/// What the trace says.
///
/// # Errors
/// A file that is no trace of PyTorch's profiler, or has no steps.
pub fn analyze(options: &AnalyzeOptions) -> Result<Report, AnalyzeError> {
    analyze_from(&mut options.open()?, options)
}

/// The same where the trace is read from `source`.
///
/// # Errors
/// As of [`analyze`].
pub fn analyze_from(
    source: &mut dyn Read,
    options: &AnalyzeOptions,
) -> Result<Report, AnalyzeError> {
    let path = options.name();
    let mut trace = options.read(source)?;
    let zero = trace.zero();
    let host = trace.host(zero);
    let device = options.device_of(&trace)?;
    let does = union([&host.operators, &host.calls, &host.communicates]);
    let launches = device
        .as_ref()
        .map_or(Vec::new(), |own| own.launches(&trace, zero));
    let training = Loop::of(&trace, zero, &does, &launches, device.is_some());
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
    let world = trace.world.filter(|(rank, of)| rank < of);
    let rank = options.rank.map(|own| world.unwrap_or(own));
    let of_rank = rank.map(|(rank, of)| RankOf {
        rank,
        of,
        meets_others: true,
    });
    let beside = device.is_some();
    let mut run = Run::begin(options, &training, beside, of_rank, trace.unix(zero))?;
    run.steps(&trace, zero, &training, device.as_ref())?;
    let costs = std::mem::take(&mut run.costs);
    let gain = costs.gain_without_waits();
    let mut report = run.report(&trace, options, device.as_ref(), gain);
    let number = device.as_ref().map(|device| device.number);
    let categories = Categories::of(&trace, number, zero, &host);
    report.profiler_trace = Some(ProfilerTrace {
        costs,
        lacks: lacks(&trace, device.as_ref(), false),
        rank: rank.or(world).map(|(rank, _)| rank),
        world_size: rank.or(world).map(|(_, of)| of),
        ..profiler_trace(&trace, path, zero, number, &categories)
    });
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

/// What the trace lacks, and what that means for the report; where it `is_joined`, hooks know the rest.
pub(super) fn lacks(trace: &Trace, device: Option<&Device>, is_joined: bool) -> Vec<String> {
    let trainer = trace.trainer();
    let expected = !trace.gpus.is_empty() || !trace.calls.is_empty();
    let no_gpu = (device.is_none() && expected && !is_joined).then(|| {
        "no GPU activity is in it, so the device counts as busy from a step's first operator to its last; \
         record it with ProfilerActivity.CUDA"
            .to_owned()
    });
    let no_calls = device.is_some_and(|device| device.launched.is_empty()).then(|| {
        "no call that launched the GPU's work is in it, so idle time within a step counts as device side"
            .to_owned()
    });
    let processes: BTreeSet<u32> = trace.steps.iter().map(|step| step.thread.0).collect();
    let several = (processes.len() > 1).then(|| {
        let own = trainer.map_or(0, |(process, _)| process);
        let all = processes.len();
        format!("steps of {all} processes are in it; this is process {own}")
    });
    let own = trace.nexts.iter().any(|next| Some(next.thread) == trainer);
    let elsewhere = (!own && !trace.nexts.is_empty() && !is_joined).then(|| {
        "another thread asks the DataLoader, so how long the loop waited for it is not known"
            .to_owned()
    });
    [no_gpu, no_calls, several, elsewhere]
        .into_iter()
        .flatten()
        .collect()
}

pub(super) fn profiler_trace(
    trace: &Trace,
    path: String,
    zero: i64,
    device: Option<u32>,
    categories: &Categories,
) -> ProfilerTrace {
    let named = steps_of(trace, zero).into_iter();
    let named: Vec<(String, Interval)> = named
        .map(|(step, until)| (trace.texts[step.name as usize].to_string(), until))
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
    let busy = window.map(|window| categories.device.covered_in(window));
    let steps = categories.steps(&named);
    ProfilerTrace {
        path,
        bytes: trace.bytes,
        events: trace.events,
        losses: trace.losses.clone(),
        joined: None,
        device,
        other_devices: others,
        lacks: Vec::new(),
        rank: None,
        world_size: None,
        kernels,
        kernel_ns,
        window_ns: window.map_or(Nanos::ZERO, Interval::length),
        device_ns: busy.unwrap_or_default(),
        mean: StepTime::mean(&steps),
        steps,
        costs: LoopCosts::default(),
    }
}

/// An analysis on its way through the steps.
struct Run {
    rows: Rows,
    rule: WindowRule,
    measuring: Measuring,
    gpu: Option<CollectedSteps>,
    lanes: Lanes,
    costs: LoopCosts,
}

impl Run {
    /// Of a rank whose times begin at `unix_ns` nanoseconds since 1970 a log of steps is written, too.
    fn begin(
        options: &AnalyzeOptions,
        training: &Loop<'_>,
        device_beside: bool,
        rank: Option<RankOf>,
        unix_ns: u64,
    ) -> Result<Run, AnalyzeError> {
        let first = training.batches.first();
        let rule = WindowRule {
            warmup_steps: options.warmup_steps,
            steps: Some(training.batches.len() as u64 - options.warmup_steps),
            run_start: first.map_or(Nanos::ZERO, |first| first.waited.start),
            device_beside,
        };
        let folder = options.made_folder(rank.map(|own| own.rank))?;
        let steps = TracedSteps {
            first: 0,
            count: options.traced_steps,
        };
        let traced = folder.as_ref();
        let traced = traced.map(|folder| Traced::create(folder, steps, &rule));
        let log = folder.zip(rank).map(|(folder, rank)| {
            // Nobody knows which ranks share a clock.
            let clock = format!("clock of rank {}", rank.rank);
            let header = LogHeader::of_trace(rank, options.warmup_steps, unix_ns, clock);
            StepLog::create(&folder, &header, &rule)
        });
        // The process is not of this machine.
        let mut lanes = Lanes::of_training(1);
        let gpu = device_beside.then(|| {
            let steps = GpuSteps::foreign(lanes.add_device(), rule.run_start);
            CollectedSteps::new(steps, rule, TimelineReport::default())
        });
        let analysis = Analysis::new(rule, CLAIMS);
        Ok(Run {
            rows: Rows::new()?,
            rule,
            measuring: Measuring::new(analysis, traced.transpose()?, log.transpose()?),
            gpu,
            lanes,
            costs: LoopCosts {
                device_beside,
                ..LoopCosts::default()
            },
        })
    }

    /// Takes all steps, in order, each with what was put on the device until its end.
    fn steps(
        &mut self,
        trace: &Trace,
        zero: i64,
        training: &Loop<'_>,
        device: Option<&Device>,
    ) -> Result<(), LogUnwritten> {
        let names = &trace.texts;
        let mut activities = device.map(|device| Activities::of(trace, zero, device));
        let last = training.batches.len() - 1;
        for (number, batch) in training.batches.iter().enumerate() {
            let is_last = number == last;
            training.record(number, &self.rows, &mut self.lanes);
            let chunks = self.lanes.take().into_iter();
            let mut records: Vec<_> = chunks.flat_map(|chunk| chunk.records).collect();
            if let (Some(gpu), Some(activities)) = (&mut self.gpu, &mut activities) {
                gpu.steps.host(&records);
                gpu.steps.host_known_until(batch.until);
                let until = if is_last {
                    Nanos(u64::MAX)
                } else {
                    batch.until
                };
                activities.before(until, &mut gpu.steps);
                gpu.steps.calls_known_until(batch.until);
                if is_last {
                    gpu.steps.host_is_over();
                }
                let name_of = |call: &ApiCall| names[call.function as usize].clone();
                let (analysis, feed) = self.measuring.device();
                gpu.settle(is_last, count(trace), name_of, &mut records, analysis, feed);
            }
            let measured = number as u64 >= self.rule.warmup_steps;
            if measured && self.costs.steps.len() < MOST_COSTS {
                let took = batch.until - batch.waited.start;
                self.costs.steps.push(training.costs(number));
                self.costs.took += took.0;
            }
            for (step, busy) in device_steps(&records) {
                let place = step.checked_sub(self.rule.warmup_steps);
                let step = place.and_then(|place| self.costs.steps.get_mut(place as usize));
                if let Some(step) = step {
                    step.device = busy.0;
                }
            }
            let lanes = self.lanes.infos();
            self.measuring.absorb(&records, lanes, batch.until, 0, None);
            self.measuring.settle();
        }
        self.measuring.finish(self.lanes.infos())
    }

    fn report(
        self,
        trace: &Trace,
        options: &AnalyzeOptions,
        device: Option<&Device>,
        gain: f64,
    ) -> Report {
        let name = name_of(&options.trace);
        let config = json!({
            "trace": options.trace.display().to_string(),
            "step": options.step,
            "warmup_steps": options.warmup_steps,
        });
        let mut report = Report::new(name, Default::default(), config);
        report.pipeline = self.rows.pipeline;
        report.status = Status::Complete;
        let Some(summary) = self.measuring.analysis.summary(self.lanes.infos()) else {
            return report;
        };
        let timeline = self.gpu.map(|gpu| TimelineReport {
            source: TimelineSource::Trace,
            doubt: doubt(gpu.report.kernels, &trace.losses),
            ..gpu.report
        });
        let on_host = match trace.gpus.is_empty() {
            true => "your training on the CPU",
            false => "your training as its host saw it",
        };
        let device = DeviceReport {
            name: device.map_or(on_host.to_owned(), |device| device.name(trace)),
            timeline,
            ..DeviceReport::of(&summary)
        };
        report.measured(&summary, Some(device));
        // Of threads and samples it has no more than that.
        report.workers.clear();
        report.slowest_samples.clear();
        report.verdict = Some(verdict(&summary, &self.rows, self.rule.device_beside, gain));
        self.measuring.end_trace(&mut report);
        report
    }
}

/// Steps that predictions are made from.
const MOST_COSTS: usize = 10_000;

/// The verdict; where the loader binds, what shows more of it. Without data wait the steps are `gain` times as fast.
fn verdict(summary: &Summary, rows: &Rows, device_beside: bool, gain: f64) -> Verdict {
    // Nothing is known of workers and cores.
    let shape = shape(rows.pipeline, 0, 1, device_beside, 1.0);
    let mut verdict = Verdict::of(summary, &shape);
    verdict.slack.clear();
    verdict.suggestion = summary.causes.first().and_then(|(cause, length)| {
        let is_loader = cause.stage().map(|stage| stage.kind()) == Some(StageKind::Sample);
        let words = match cause {
            Cause::Capacity(_) if is_loader => {
                "`stallscope torch` with the same script: a profiler's trace does not show the loader's workers"
            }
            _ => return None,
        };
        let rest = summary.time().0.saturating_sub(length.0).max(1);
        let at_most = summary.time().0 as f64 / rest as f64;
        // Without waits the host launches further ahead, too.
        let at_most = at_most.max(gain);
        let own = Suggestion::new(Change::Words(words.to_owned()), at_most);
        (own.at_most >= WORTH_TRYING).then_some(own)
    });
    verdict
}

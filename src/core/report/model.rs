//! What a report says.

use super::NvmlReport;
use super::ProfilerTrace;
use super::TimelineReport;
use super::TorchReport;
use crate::analysis::{
    Cause, Guard, LengthSummary, OverTime, Profile, SlowSample, StageSummary, Summary, Verdict,
    WorkerSummary,
};
use crate::pipeline::Skipped;
use crate::timeline::{LaneKind, Nanos, Pipeline, Stage, ThreadUsage};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;

/// How the run stands.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Steps are still to come.
    #[default]
    Running,
    /// Every planned step is done.
    Complete,
    /// Stopped by the user; what was measured until then is whole.
    Interrupted,
    /// Ended by an error.
    Failed,
}

/// The machine the run was measured on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// CPU cores that the process may use; a quota may leave it a fraction of one.
    pub cores: f64,
    /// Its name, with its release where that is known.
    pub operating_system: String,
    /// Of the CPU, as Rust names it.
    pub architecture: Cow<'static, str>,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cores, system) = (self.cores, &self.operating_system);
        write!(f, "{cores} cores, {}, {system}", self.architecture)
    }
}

/// The data of the run, as far as its pipeline must know it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataReport {
    /// Samples that are trained on.
    pub samples: usize,
    /// Bytes of one preprocessed sample.
    pub sample_bytes: usize,
    /// Samples that a worker takes at a time, at most.
    pub claim_samples: usize,
    /// What reading it from object storage took; `None` where it lies elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreReport>,
}

/// What reading from object storage took, warm-up included. A read is what the loader asks for: one sample, or several
/// that lie one behind the other. It takes one request, and more where some fail.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Samples that were read.
    pub samples: u64,
    /// How many of them lay in the cache (`read.cache`).
    #[serde(default)]
    pub cached: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// HTTP requests, those that failed included.
    pub requests: u64,
    /// Answers that told to slow down: HTTP status 429 or 503.
    pub throttled: u64,
    /// Answers with another status from 500 on.
    pub server_errors: u64,
    /// Requests that had no whole answer: refused, cut off, not in time, or of another length than it should be.
    pub cut_off: u64,
    /// Mean time from asking for a read to its last byte, of reads that took one request.
    pub mean_ns: Nanos,
    /// The 95th percentile of the same.
    pub p95_ns: Nanos,
}

impl StoreReport {
    /// What went wrong and was tried again, in words; `None` where nothing did.
    pub fn troubles(&self) -> Option<String> {
        let told = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let all = [
            told(self.throttled, "were told to slow down (status 429 or 503)"),
            told(self.server_errors, "failed with another status from 500 on"),
            told(
                self.cut_off,
                "were cut off, refused or not answered in time",
            ),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| format!("of {} requests, {}", self.requests, all.join(", ")))
    }
}

/// The disk that the data was read from, where it was an emulated one. Its times are added to no real ones:
/// a read takes the longer of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageReport {
    /// Name of the emulated disk.
    pub name: Cow<'static, str>,
    /// Where the figures of that name are from, and whether the configuration has changed any.
    pub source: Cow<'static, str>,
    /// Whether the configuration has changed any figure of that name.
    pub changed: bool,
    /// From a request to its first byte. Requests of several workers overlap.
    pub latency_ns: Nanos,
    /// What a sample costs that does not follow the one before it. One at a time.
    pub seek_ns: Nanos,
    /// Of all workers together; `None` takes no time.
    pub bytes_per_second: Option<u64>,
}

/// The data's pages in the page cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// What the configuration asked for; what came of it is in `epochs`.
    pub asked: Cow<'static, str>,
    /// Why it is not known, where it is not.
    pub unknown: Option<String>,
    /// One entry for each epoch that was looked at, in order.
    pub epochs: Vec<EpochCache>,
}

/// How much was in the page cache as an epoch began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochCache {
    /// From zero.
    pub epoch: u64,
    /// Bytes of the data in the page cache.
    pub resident_bytes: u64,
    /// Bytes of the data in all.
    pub bytes: u64,
    /// 0 to 1.
    pub resident_share: f64,
    /// Of many files each so-many-eth was looked at.
    pub every: u64,
}

/// The device over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// As the run's configuration or the driver names it.
    pub name: String,
    /// Union of the intervals in which it was busy.
    pub busy_ns: Nanos,
    /// Window without them.
    pub idle_ns: Nanos,
    /// Busy / window, 0 to 1.
    pub busy_share: f64,
    /// Where the device's allocator counts it.
    pub memory: Option<DeviceMemoryReport>,
    /// Where the device is emulated.
    pub emulated: Option<EmulatedReport>,
    /// Where the device is a GPU.
    pub timeline: Option<TimelineReport>,
    /// What nvidia-smi would have shown, where the device is an NVIDIA GPU.
    pub nvml: Option<NvmlReport>,
    /// Why that is not known, where the device is one.
    pub nvml_missing: Option<String>,
}

impl DeviceReport {
    /// How busy it was by `summary`, and no more.
    pub fn of(summary: &Summary) -> DeviceReport {
        DeviceReport {
            busy_ns: summary.device_busy,
            idle_ns: summary.device_idle(),
            busy_share: summary.busy_share(),
            ..DeviceReport::default()
        }
    }
}

/// The device's memory, looked at between steps at most once a second and at the end of the run.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemoryReport {
    /// Of tensors that are alive between steps, when last looked at.
    pub in_use_bytes: u64,
    /// Held by the allocator's pools, when last looked at: what steps use in their course is in it.
    pub reserved_bytes: u64,
    /// The most that was seen.
    pub peak_in_use_bytes: u64,
    /// The most that the pools were seen to hold.
    pub peak_reserved_bytes: u64,
    /// Of the device in all; `None` where it is unknown or unlimited.
    pub total_bytes: Option<u64>,
}

/// What an emulated device adds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmulatedReport {
    /// As MLPerf Storage defines it, 0 to 1: time in steps / time, without preprocessing on the device and
    /// without the I/O of the run's first step.
    pub accelerator_utilization: f64,
    /// Whether burn trains on the CPU beside it; otherwise nothing is trained.
    pub trains: bool,
    /// Where its figures are from, and whether the configuration has changed any.
    pub source: Cow<'static, str>,
    /// Whether the configuration has changed any figure.
    pub changed: bool,
}

/// A thread of the device's runtime, which serves the device and has no lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceThread {
    /// Whose it is, and its name in the system.
    pub name: String,
    /// In the window.
    pub usage: ThreadUsage,
}

/// One cause of device idle time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleCause {
    /// In words.
    pub cause: String,
    /// The same for programs.
    pub kind: Cause,
    /// The stage it names, where it names one.
    pub stage: Option<Stage>,
    /// Device idle time of this cause.
    pub ns: Nanos,
    /// Of device idle, 0 to 1.
    pub share: f64,
}

/// What the recorder cost and lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecorderReport {
    /// Whether anything was recorded.
    pub on: bool,
    /// Records taken in, over the whole run.
    pub records: u64,
    /// Records lost since their ring was full; the idle time that led to them is `unattributed`.
    pub dropped: u64,
    /// What one record with its clock reading costs the thread that writes it, measured before the run.
    pub record_ns: Nanos,
    /// Questions to the kernel (CPU time, run delay, faults), and what one costs.
    pub readings: u64,
    /// What one such question costs the thread that asks.
    pub reading_ns: Nanos,
    /// CPU time of all that and of the collector's own thread, over the whole run.
    pub cpu_ns: Nanos,
    /// Of the process's CPU time over the whole run, 0 to 1.
    pub cpu_share: f64,
}

/// The trace file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// The file as it now is, `.json` or `.json.gz`.
    pub path: String,
    /// Its time zero on the clock that the log of a rank's steps has, in nanoseconds.
    #[serde(default)]
    pub base_ns: Option<Nanos>,
    /// Events in the file.
    pub events: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Events that are not in the file, past its size limit or after an error.
    pub left_out_events: u64,
    /// Steps in the traced part of the run.
    pub step_slices_expected: u64,
    /// Units of work of decode for those steps: one a sample, unless samples are tiny.
    pub decode_slices_expected: u64,
    /// Why writing ended early.
    pub error: Option<String>,
}

/// What the training itself says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Of the first step; `None` where it is not known.
    pub first_loss: Option<f64>,
    /// Of the last step; `None` where it is not known.
    pub last_loss: Option<f64>,
    /// Of each step from the first on, so many as [`Training::FIRST_LOSSES`]; `None` where it is not a number.
    pub losses: Vec<Option<f64>>,
    /// Epoch of the last step, from zero.
    pub epoch: u64,
    /// Steps done, warm-up included.
    pub steps: u64,
    /// Trainable numbers of the model.
    pub parameters: Option<usize>,
    /// Each epoch's training, first to last.
    pub epochs: Vec<EpochReport>,
    /// How the trained model does on what was held out, after the training.
    pub evaluations: Vec<Evaluation>,
}

impl Training {
    /// Losses that are kept one by one.
    pub const FIRST_LOSSES: usize = 32;

    /// Notes a step's loss, steps in order.
    pub fn noted(&mut self, loss: f64) {
        self.first_loss.get_or_insert(loss);
        self.last_loss = Some(loss);
        if self.losses.len() < Training::FIRST_LOSSES {
            self.losses.push(loss.is_finite().then_some(loss));
        }
    }

    /// Adds what a step of `samples` samples learned to its epoch.
    pub fn learned(&mut self, epoch: u64, samples: u64, loss: f64, correct: u64) {
        if self.epochs.last().is_none_or(|last| last.epoch != epoch) {
            self.epochs.push(EpochReport {
                epoch,
                ..EpochReport::default()
            });
        }
        if let Some(epoch) = self.epochs.last_mut() {
            epoch.steps += 1;
            epoch.score.add(samples, loss, correct);
        }
    }
}

/// How the model did on samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// How many it was measured on.
    pub samples: u64,
    /// Mean cross-entropy; `null` in JSON where it is not a number.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Share that was classified right, 0 to 1.
    pub accuracy: f64,
}

/// JSON has no number for one that is none.
fn number<'de, D: Deserializer<'de>>(json: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(json)?.unwrap_or(f64::NAN))
}

impl Score {
    /// Adds a batch of `samples`, of which `correct` were right, with this mean loss.
    pub fn add(&mut self, samples: u64, loss: f64, correct: u64) {
        let (before, all) = (self.samples as f64, (self.samples + samples).max(1) as f64);
        self.loss = (self.loss * before + loss * samples as f64) / all;
        self.accuracy = (self.accuracy * before + correct as f64) / all;
        self.samples += samples;
    }
}

/// One pass over the training samples, as far as it went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// From zero.
    pub epoch: u64,
    /// Steps done in it.
    pub steps: u64,
    /// Each sample before the step that learned from it.
    #[serde(flatten)]
    pub score: Score,
}

/// The model on samples that it has not learned from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// "validation" or "test".
    pub part: Cow<'static, str>,
    /// Over all its samples.
    #[serde(flatten)]
    pub score: Score,
    /// Samples that could not be loaded, as [`Report::skipped`].
    pub skipped: Skipped,
    /// Time it took, which is no part of the window.
    pub elapsed_ns: Nanos,
}

/// Everything a report says. Times are in nanoseconds, shares from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Says that this is a report of this program: `stallscope-report`.
    pub schema: Cow<'static, str>,
    /// Raised when a field changes its meaning or goes away.
    pub schema_version: u32,
    /// The version that wrote it.
    pub stallscope_version: Cow<'static, str>,
    /// The run's name.
    pub name: String,
    /// Whether the run is over, and how it ended.
    pub status: Status,
    /// Why the run ended early.
    pub error: Option<String>,
    /// Seconds since 1970, when this was written.
    pub written_at_unix_seconds: f64,
    /// What it was measured on.
    pub machine: Machine,
    /// The whole resolved configuration.
    pub config: serde_json::Value,
    /// The keys of it that were given a value, so that it can be changed and resolved again.
    pub settings: serde_json::Value,
    /// The stages that work went through, in the order of the data's way.
    pub pipeline: &'static Pipeline,
    /// What it loads.
    pub data: DataReport,
    /// Steps in the window.
    pub steps: u64,
    /// Samples of those steps; of a profiler's trace, which does not tell, the steps.
    pub samples: u64,
    /// Length of the window, without pauses.
    pub window_ns: Nanos,
    /// Pauses in the window: the trainer's thread validated, say, which is not measured.
    #[serde(default)]
    pub paused_ns: Nanos,
    /// Over the window.
    pub samples_per_second: f64,
    /// `None` where the loader runs alone.
    pub device: Option<DeviceReport>,
    /// `None` where the data was read as fast as the machine can.
    pub storage: Option<StorageReport>,
    /// `None` where the data is in memory.
    pub cache: Option<CacheReport>,
    /// Causes of device idle time; they add up to it to the nanosecond.
    pub idle_causes: Vec<IdleCause>,
    /// The same in parts of the window: up to 200 bins, and by epoch.
    pub over_time: OverTime,
    /// Device idle time without a cause / device idle time, 0 to 1.
    pub unattributed_share: f64,
    /// How long the trainer's thread waited for a batch, per step.
    pub data_wait: LengthSummary,
    /// Sum of those waits / window, 0 to 1.
    pub data_wait_share: f64,
    /// The trainer's own time per step, without the wait.
    pub step: LengthSummary,
    /// From the start of the pipeline to the first device batch in the trainer's hands.
    pub first_batch_ns: Option<Nanos>,
    /// Those of the loader and the copy engine that did anything, in the order of the data's way.
    pub stages: Vec<StageSummary>,
    /// Parts that stages opened without having declared them, whose time is the stages' own.
    #[serde(default)]
    pub undeclared_parts: Vec<(Stage, String)>,
    /// The slowest samples of each stage, longest first.
    pub slowest_samples: Vec<SlowSample>,
    /// One for each thread with a lane.
    pub workers: Vec<WorkerSummary>,
    /// Threads of the device's runtime, which have no lanes.
    #[serde(default)]
    pub service_threads: Vec<ServiceThread>,
    /// CPU time of the whole process in the window; `None` where it is not known.
    pub process_cpu_ns: Option<Nanos>,
    /// The costs, net, from which other runs are predicted.
    pub profile: Option<Profile>,
    /// Of other programs, on the cores that this process may use; `None` where it is not known.
    pub other_programs_cpu_ns: Option<Nanos>,
    /// What binds the run; `None` until it can be said.
    pub verdict: Option<Verdict>,
    /// `None` where there are not too many workers.
    pub guard: Option<Guard>,
    /// Samples left out: how many, and the first of them.
    pub skipped: Skipped,
    /// What recording cost, and what it lost.
    pub recorder: RecorderReport,
    /// `None` where no trace is written.
    pub trace: Option<TraceReport>,
    /// What the training says of itself.
    pub training: Training,
    /// Where the training is PyTorch's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchReport>,
    /// Where it is made from a trace of PyTorch's profiler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiler_trace: Option<ProfilerTrace>,
}

/// What the file says that it is.
pub(super) const SCHEMA: &str = "stallscope-report";
/// Version of the JSON's schema: raised when a field changes its meaning or goes away.
pub(super) const SCHEMA_VERSION: u32 = 3;

impl Report {
    /// Whether it is made from a profiler's trace alone: then it counts steps, and knows nothing of the loader but how long it
    /// was waited for.
    pub fn is_of_trace(&self) -> bool {
        self.profiler_trace.is_some() && self.torch.is_none()
    }

    /// A report on a run that has measured nothing yet.
    pub fn new(name: String, machine: Machine, config: serde_json::Value) -> Report {
        Report {
            schema: SCHEMA.into(),
            schema_version: SCHEMA_VERSION,
            stallscope_version: env!("CARGO_PKG_VERSION").into(),
            name,
            machine,
            config,
            ..Report::default()
        }
    }

    /// Takes over what the analysis found. `device` is the one that executes steps, where there is one.
    pub fn measured(&mut self, summary: &Summary, device: Option<DeviceReport>) {
        let idle = summary.device_idle();
        let share = |length: Nanos| length.0 as f64 / idle.0.max(1) as f64;
        self.steps = summary.steps;
        self.samples = summary.samples;
        self.window_ns = summary.time();
        self.paused_ns = summary.paused;
        self.samples_per_second = summary.samples_per_second();
        self.device = device;
        let mut causes = summary.causes.clone();
        // Shown even at zero.
        if !causes
            .iter()
            .any(|(cause, _)| *cause == Cause::Unattributed)
        {
            causes.push((Cause::Unattributed, Nanos::ZERO));
        }
        let causes = causes.into_iter().map(|(cause, ns)| IdleCause {
            cause: cause.to_string(),
            kind: cause,
            stage: cause.stage(),
            ns,
            share: share(ns),
        });
        self.idle_causes = causes.collect();
        self.over_time = summary.over_time.clone();
        self.unattributed_share = share(summary.cause(Cause::Unattributed));
        self.data_wait = summary.data_wait;
        self.data_wait_share = summary.data_wait_share();
        self.step = summary.step;
        self.first_batch_ns = summary.first_batch;
        self.stages = summary.stages.clone();
        self.slowest_samples = summary.slowest_samples.clone();
        self.workers = summary.workers.clone();
        self.process_cpu_ns = summary.process_cpu;
        self.profile = Some(summary.profile.clone());
        self.other_programs_cpu_ns = summary.others_cpu;
    }

    /// Name and figures of each thread: those with a lane, and those of the device's runtime.
    pub(super) fn threads(&self) -> impl Iterator<Item = (&str, &ThreadUsage)> {
        let workers = self.workers.iter();
        let workers = workers.map(|worker| (worker.name.as_str(), &worker.usage));
        let service = self.service_threads.iter();
        workers.chain(service.map(|thread| (thread.name.as_str(), &thread.usage)))
    }

    /// Leaves out the stages and threads of a loader that ended before the window.
    pub fn leave_out_loader(&mut self) {
        self.stages
            .retain(|stage| stage.items > 0 || stage.busy > Nanos::ZERO);
        let idle = |worker: &WorkerSummary| worker.items == 0 && worker.busy == Nanos::ZERO;
        self.workers
            .retain(|worker| worker.kind == LaneKind::Trainer || !idle(worker));
    }
}

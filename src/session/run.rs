//! One run, from its configuration to its report.

use super::cache::CacheWatch;
use super::calibration::{cache_folder, once_a_boot};
use super::collector::{Collector, DeviceName, OnCollectorHang, OnProgress, PATIENCE};
use super::error::SessionError;
use super::gpu::{GpuDevice, TakenTimeline, Timeline};
use super::gpu_watch::GpuWatch;
use super::images::stages;
use super::memory::MemoryWatch;
use super::plan::{emulated_spec, model_spec, parts, plan, runs_beside, shape};
use super::predict::predict_suggested;
use super::service_threads::ServiceThreads;
use super::source::{Source, storage_report};
use super::trainee::{Device, Ended, Trainee};
use crate::analysis::{Analysis, WindowRule};
use crate::config::{DeviceConfig, EmulatedConfig, GpuConfig, Mode, Resolved, TypedKey};
use crate::data::Parts;
use crate::device::{nvtx, probe};
use crate::loader::{Intake, cpu_of, note_trace, this_machine};
use crate::machine::usable_cores;
use crate::pipeline::{Plan, RecordingCost, Skipped, Skips, StopSignal, WakingCost, panic_message};
use crate::ranks::{LogHeader, RankOf, Ring, StepLog};
use crate::report::{DataReport, Report, Status, TraceReport, Training};
use crate::timeline::{Clock, MonotonicClock, Nanos, Recorder};
use crate::trace::{
    HostSpans, HostSpansError, SharedTrace, TraceOptions, TraceWriter, install_layer,
};
use crate::tracing_feed::{TracedSteps, TracingFeed};
use crate::train::{
    Awaited, CopyOptions, DevicePreprocess, ModelSpec, Together, TrainError, keep_kernels, on_cpu,
    on_cuda,
};
use nix::sys::resource::UsageWho;
use std::convert::Infallible;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a rank waits for others to start, which may have to bring up a device first.
const RANKS_COME_WITHIN: Duration = Duration::from_secs(600);

/// Where a run writes, and whom it tells how it stands.
pub struct RunOptions {
    /// The folder for the report, and for the trace unless the configuration names another place.
    pub run_dir: PathBuf,
    pub on_progress: OnProgress,
    /// Called with the number of another rank that has not come after some seconds.
    pub on_wait: Box<dyn Fn(u32) + Send + Sync>,
    /// The keys of the configuration that were given a value, for the report.
    pub settings: Vec<TypedKey>,
    /// Whether the model is evaluated on what was held out, after the training.
    pub evaluate: bool,
    /// Ends the process with what there is of a run that hangs, or with what it hangs in before it starts. Without it such a
    /// run hangs on.
    pub on_hang: Option<OnHang>,
}

/// Called on the collector's thread.
pub type OnHang = Box<dyn FnOnce(Result<Outcome, SessionError>) -> Infallible + Send + Sync>;

/// How a run ended; trace and report are on disk.
pub struct Outcome {
    pub report: Report,
    /// `None` where it could not be written.
    pub report_path: Option<PathBuf>,
    /// Why it ended early, where it did.
    pub error: Option<SessionError>,
    /// Things that went wrong beside the run itself.
    pub warnings: Vec<String>,
}

/// A run that is ready to start.
pub struct Session {
    config: Resolved,
    pub(super) options: RunOptions,
    pub(super) source: Source,
    pub(super) parts: Parts,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: StopSignal,
    pub(super) memory: MemoryWatch,
    /// The samples that the training skips, once it has begun.
    pub(super) skips: OnceLock<Skips>,
    cores: f64,
    /// How much of the data is in the page cache.
    cache: Option<CacheWatch>,
}

impl Session {
    /// Opens the data of `config` and makes the run's folder.
    ///
    /// # Errors
    /// Data that cannot be used, or a folder that cannot be made.
    pub fn open(config: Resolved, options: RunOptions) -> Result<Session, SessionError> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let stop = StopSignal::new(clock.clone());
        let source = Source::open(&config.pipeline, &config.device, &clock, &stop);
        let source = source.map_err(|error| match config.mode {
            Mode::Cached => error.of_cached(&config.pipeline.source.path),
            _ => error,
        })?;
        let parts = parts(&config, source.samples())?;
        fs::create_dir_all(&options.run_dir).map_err(|source| SessionError::Io {
            action: "create the run's folder",
            path: options.run_dir.clone(),
            source,
        })?;
        let cache = CacheWatch::prepare(config.cache, source.files())?;
        Ok(Session {
            stop,
            memory: MemoryWatch::default(),
            skips: OnceLock::new(),
            cache,
            cores: usable_cores(),
            config,
            options,
            source,
            parts,
            clock,
        })
    }

    /// The switch that ends the run early; the report then says so.
    pub fn stop_signal(&self) -> StopSignal {
        self.stop.clone()
    }

    /// The configuration of the run.
    pub(super) fn config(&self) -> &Resolved {
        &self.config
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// What kept the run from starting. A run that started and failed is an [`Outcome`].
    pub fn run(mut self) -> Result<Outcome, SessionError> {
        let plan = self.plan()?;
        // Compiling kernels and making contexts is no part of the run.
        let on_hang = self.options.on_hang.take();
        let on_hang = Mutex::new(on_hang);
        let device = self.device(&on_hang);
        let mut device = device.map_err(|error| self.recognised(error))?;
        device.in_step_with(self.together()?)?;
        let mut warnings = self.source.warnings();
        let nvtx = self.config.trace.nvtx.then(nvtx::attached).flatten();
        let ranges =
            nvtx.and_then(|nvtx| nvtx.map_err(|error| warnings.push(error.to_string())).ok());
        let recorder = if self.config.recorder {
            Recorder::new().counting_after(self.config.warmup_steps)
        } else {
            Recorder::off()
        };
        let stages = stages(&self.config.pipeline.preprocess.transform);
        let recorder = recorder.of_pipeline(stages).showing(ranges);
        let timeline = device.take_timeline(&recorder);
        warnings.extend(self.unfinished());
        let trace = self.open_trace()?;
        let host_spans = trace.as_ref().and_then(|trace| {
            let spans = self.host_spans(trace, &recorder);
            spans.map_err(|error| warnings.push(error.to_string())).ok()
        });
        let training = Arc::new(Mutex::new(Training::default()));
        let mut collector = self.collector(&plan, &recorder, trace, training.clone(), timeline);
        collector.host_spans = host_spans;
        collector.warnings.extend(warnings);
        let device_wait = collector.device_wait.clone();
        let session = Arc::new(self);
        let on_hang = on_hang.into_inner().unwrap_or_else(PoisonError::into_inner);
        let on_hang = on_hang.map(|on_hang| session.clone().on_hang(on_hang));
        let collector = collector.start(on_hang).map_err(SessionError::Collector)?;
        let trainee = Trainee {
            plan: &plan,
            session: &session,
            recorder: &recorder,
            training,
            device_wait,
        };
        let ended = catch_unwind(AssertUnwindSafe(|| trainee.run_on(device)));
        let ended = ended.unwrap_or_else(|payload| {
            let message = panic_message(payload.as_ref());
            Ended::of(Err(SessionError::Panicked(message)))
        });
        match collector.stop() {
            Some(collector) => Ok(session.conclude(collector, ended)),
            None => Err(ended.result.err().unwrap_or(SessionError::CollectorGone)),
        }
    }

    /// What the collector does where the device hangs, or the run after a stop.
    fn on_hang(self: Arc<Self>, end: OnHang) -> OnCollectorHang {
        Box::new(move |mut collector| {
            let hung = collector.hung.filter(|_| !collector.stop.is_stopped());
            if let Some((work, waited)) = hung {
                let hangs = self.hangs(work, waited).into();
                return end(Ok(self.conclude(collector, Ended::of(Err(hangs)))));
            }
            collector.warnings.push(format!(
                "the run did not end within {} s after it was stopped (a read or a step takes longer); the report is of what was \
                 measured until then",
                PATIENCE.as_secs()
            ));
            let mut interrupted = Ended::of(Ok(collector.report.training.steps));
            interrupted.stopped = true;
            end(Ok(self.conclude(collector, interrupted)))
        })
    }

    fn hangs(&self, work: Awaited, waited: Nanos) -> TrainError {
        TrainError::Hangs {
            device: self.config.device.to_string(),
            work,
            seconds: waited.seconds(),
        }
    }

    /// Trace and report of a run that `ended`, from what the `collector` has.
    fn conclude(&self, mut collector: Collector, ended: Ended) -> Outcome {
        collector.process_cpu_before += ended.evaluation_cpu;
        collector.finish();
        drop(collector.host_spans.take());
        if let Some(summary) = collector.trace.take().and_then(|trace| trace.finish())
            && let Some(trace) = &mut collector.report.trace
        {
            note_trace(trace, &summary);
        }
        let error = self.note_end(&mut collector, ended);
        let report = &mut collector.report;
        predict_suggested(report, self.config.mode, &self.options.settings);
        let mut warnings = std::mem::take(&mut collector.warnings);
        // The plan is bounded by the epochs; a run also has fewer steps where whole batches were skipped.
        let planned = collector.steps.saturating_sub(self.config.warmup_steps);
        let fewer = self.config.steps.filter(|asked| planned < *asked);
        if let Some(asked) = fewer
            && report.status == Status::Complete
        {
            let done = report.training.steps;
            let done = done.saturating_sub(self.config.warmup_steps);
            warnings.push(format!(
                "the epochs were used up after {done} of {asked} steps"
            ));
        }
        let unwritten = collector.write().err();
        Outcome {
            report_path: unwritten.is_none().then_some(collector.report_path),
            report: collector.report,
            error: error.or(unwritten),
            warnings,
        }
    }

    /// What is left to the device where it costs nothing.
    fn unfinished(&self) -> Option<String> {
        self.source.on_device()?;
        if self.config.mode == Mode::LoaderOnly {
            let text = "preprocess.on = \"device\" and there is none: nothing finishes the 8-bit batches, so that \
                        these samples/s are not those of preprocess.on = \"host\"";
            return Some(text.to_owned());
        }
        let free = |device: &EmulatedConfig| device.preprocess_per_sample_ns == 0;
        let text = "the emulated device finishes 8-bit batches in no time; set emulated.preprocess_per_sample";
        let emulated = self.config.emulated.as_ref();
        emulated
            .filter(|device| free(device))
            .map(|_| text.to_owned())
    }

    /// The pipeline of the run.
    fn plan(&self) -> Result<Plan, SessionError> {
        let training = self.parts.training.clone();
        let plan = plan(&self.config, training, self.source.claim_size());
        let (steps, warmup) = (plan.batches, self.config.warmup_steps);
        if steps > 0 && steps <= warmup {
            return Err(SessionError::NothingMeasured { steps, warmup });
        }
        Ok(plan)
    }

    /// Brings the device up; ends with `on_hang` where it hangs.
    fn device(&self, on_hang: &Mutex<Option<OnHang>>) -> Result<Device, SessionError> {
        if self.config.mode == Mode::LoaderOnly {
            return Ok(Device::None);
        }
        let spec = model_spec(&self.config, &self.source);
        let pixels = self.source.on_device();
        if let Some(emulated) = &self.config.emulated {
            self.memory.set_total(emulated.memory_bytes);
            return Ok(Device::Emulated {
                spec: emulated_spec(emulated),
                burn: emulated.train.then(|| on_cpu(&spec, pixels)).transpose()?,
                ranks: None,
            });
        }
        match (self.config.device, &self.config.gpu) {
            (DeviceConfig::Cuda(ordinal), Some(gpu)) => {
                self.gpu((ordinal, gpu), &spec, pixels, on_hang)
            }
            _ => Ok(Device::Burn(on_cpu(&spec, pixels)?)),
        }
    }

    /// Brings a GPU up, with its timeline, and has its kernels compiled and tuned.
    fn gpu(
        &self,
        (ordinal, gpu): (usize, &GpuConfig),
        spec: &ModelSpec,
        pixels: Option<DevicePreprocess>,
        on_hang: &Mutex<Option<OnHang>>,
    ) -> Result<Device, SessionError> {
        let name = self.config.device.to_string();
        TrainError::require_built(&name)?;
        let probe = probe::cuda();
        let found = probe.require(ordinal);
        let found = found.map_err(|missing| TrainError::device_missing(name, &missing))?;
        self.memory.set_total(Some(found.memory_bytes));
        let mut timeline = Timeline::start(gpu, &probe, &self.clock, self.config.recorder)?;
        let copies = CopyOptions {
            pinned: gpu.copy_pinned,
            overlap: gpu.copy_overlap,
        };
        let kernels = keep_kernels(cache_folder().as_deref(), &probe, ordinal);
        let mut burn = on_cuda(ordinal, &probe, spec, pixels, copies)?;
        let began = self.clock.now();
        let samples = self.config.share_of(self.parts.training.len());
        let samples = self.config.pipeline.batch.size.min(samples).max(1);
        let hung = |waited| {
            let end = on_hang
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(end) = end {
                match end(Err(self.hangs(Awaited::Preparation, waited).into())) {}
            }
        };
        timeline.forgetting(|| burn.prepare(samples, spec.input), hung)?;
        let mut report = timeline.report();
        report.preparation_ns = self.clock.now() - began;
        report.kernels_kept = Some(kernels);
        Ok(Device::Gpu(GpuDevice::new(
            ordinal,
            burn,
            timeline,
            report,
            gpu.run_ahead,
        )))
    }

    /// The other ranks, where they meet at each step; `None` also where the run was stopped before they came.
    fn together(&self) -> Result<Option<Together>, SessionError> {
        let rank = self.config.rank;
        let run = self.options.run_dir.parent();
        let Some(run) = run.filter(|_| self.config.ranks_meet()) else {
            return Ok(None);
        };
        let stop = self.stop.clone();
        let is_stopped = Arc::new(move || stop.is_stopped());
        let (index, of) = (rank.index as u32, rank.world_size as u32);
        let waits = &*self.options.on_wait;
        let ring = Ring::join(run, index, of, RANKS_COME_WITHIN, is_stopped, waits)?;
        Ok(ring.map(Together::new))
    }

    /// `error`, as what it is where the device ran out of memory.
    fn recognised(&self, error: SessionError) -> SessionError {
        let SessionError::Train(error) = error else {
            return error;
        };
        let device = self.config.device.to_string();
        let batch_size = self.config.pipeline.batch.size;
        error
            .recognised(&device, self.memory.total(), batch_size)
            .into()
    }

    /// How the run ended, into the report.
    fn note_end(&self, collector: &mut Collector, ended: Ended) -> Option<SessionError> {
        let report = &mut collector.report;
        let mut skipped = self
            .skips
            .get()
            .map_or_else(Skipped::default, Skips::so_far);
        skipped.broken_files = self.source.broken_files();
        report.skipped = skipped;
        report.data.store = self.source.store();
        let troubles = report.data.store.and_then(|store| store.troubles());
        let troubles = troubles
            .map(|troubles| format!("{troubles}; reads waited until they were tried again"));
        collector.warnings.extend(troubles);
        for slow in &mut report.slowest_samples {
            slow.name = Some(self.source.name(slow.index));
        }
        let broken = collector.broken.take().map(SessionError::Panicked);
        let failed = ended.result.err().map(|error| self.recognised(error));
        let error = broken.or(failed).or_else(|| {
            let (steps, warmup) = (report.training.steps, self.config.warmup_steps);
            let nothing = !ended.stopped && steps <= warmup;
            nothing.then_some(SessionError::NothingMeasured { steps, warmup })
        });
        report.error = error.as_ref().map(ToString::to_string);
        report.status = match &error {
            Some(_) => Status::Failed,
            None if ended.stopped => Status::Interrupted,
            None => Status::Complete,
        };
        error
    }

    fn report(&self, trace: Option<&SharedTrace>) -> Report {
        let machine = this_machine(self.cores);
        let config = serde_json::to_value(&self.config).unwrap_or_default();
        let mut report = Report::new(self.config.name.clone(), machine, config);
        report.pipeline = stages(&self.config.pipeline.preprocess.transform);
        report.settings = serde_json::to_value(&self.options.settings).unwrap_or_default();
        report.data = DataReport {
            samples: self.parts.training.len(),
            sample_bytes: self.source.sample_bytes(),
            claim_samples: self.source.claim_size(),
            store: self.source.store(),
        };
        report.storage = self.config.pipeline.storage.as_ref().map(storage_report);
        report.cache = self.cache.as_ref().map(|cache| cache.report.clone());
        report.trace = trace.map(|_| TraceReport {
            path: self.trace_path().display().to_string(),
            ..TraceReport::default()
        });
        report
    }

    fn trace_path(&self) -> PathBuf {
        let named = self.config.trace.path.clone();
        named.unwrap_or_else(|| self.options.run_dir.join("trace.json"))
    }

    fn open_trace(&self) -> Result<Option<SharedTrace>, SessionError> {
        let settings = &self.config.trace;
        if !settings.enabled || !self.config.recorder {
            return Ok(None);
        }
        let options = TraceOptions {
            base: self.clock.now(),
            max_bytes: settings.max_bytes,
            compress: settings.compress,
        };
        let writer = TraceWriter::create(self.trace_path(), options)?;
        Ok(Some(SharedTrace::new(writer)))
    }

    fn host_spans(
        &self,
        trace: &SharedTrace,
        recorder: &Recorder,
    ) -> Result<HostSpans, HostSpansError> {
        install_layer()?;
        let first = self.config.trace.start_step;
        let steps = first..first.saturating_add(self.config.trace.steps);
        HostSpans::record(trace.clone(), recorder.clone(), self.clock.clone(), steps)
    }

    fn collector(
        &mut self,
        plan: &Plan,
        recorder: &Recorder,
        trace: Option<SharedTrace>,
        training: Arc<Mutex<Training>>,
        timeline: Option<TakenTimeline>,
    ) -> Collector {
        // Neither measuring what recording and waking cost nor loading NVML is a part of the run.
        let cost = RecordingCost::measure(&self.clock);
        let waking = match self.config.recorder {
            true if self.clock.scheduler().is_none() => {
                let measure = || WakingCost::measure(&self.clock);
                once_a_boot(cache_folder().as_deref(), usable_cores(), measure)
            }
            // No costs are measured that could be predicted from.
            _ => WakingCost::default(),
        };
        let gpu = GpuWatch::start(&self.config, &self.clock);
        let rule = WindowRule {
            warmup_steps: self.config.warmup_steps,
            steps: Some(plan.batches.saturating_sub(self.config.warmup_steps)),
            run_start: self.clock.now(),
            device_beside: runs_beside(&self.config),
        };
        let steps = TracedSteps {
            first: self.config.trace.start_step,
            count: self.config.trace.steps,
        };
        let storage = self.config.pipeline.storage.as_ref();
        let storage = storage.map(|storage| storage.preset);
        let (gpu_timeline, timeline) = match timeline {
            Some(taken) => taken.collector(rule),
            None => (None, None),
        };
        let rank = self.config.rank;
        let mut warnings = Vec::new();
        let step_log = (rank.world_size > 1).then(|| {
            let rank = RankOf {
                rank: rank.index as u32,
                of: rank.world_size as u32,
                meets_others: self.config.ranks_meet(),
            };
            // The trainer's thread ends its step with the other ranks.
            let rule = WindowRule {
                device_beside: rule.device_beside && !rank.meets_others,
                ..rule
            };
            let clock = || self.clock.now();
            let header = LogHeader::now(rank, rule.warmup_steps, Some(&clock));
            StepLog::create(&self.options.run_dir, &header, &rule)
        });
        let step_log =
            step_log.and_then(|log| log.map_err(|error| warnings.push(error.to_string())).ok());
        let on_progress = std::mem::replace(&mut self.options.on_progress, Box::new(|_, _| {}));
        Collector {
            clock: self.clock.clone(),
            recorder: recorder.clone(),
            analysis: Analysis::new(rule, plan.in_flight())
                .with_epochs(plan.batches_per_epoch(self.source.samples())),
            feed: trace
                .as_ref()
                .map(|trace| TracingFeed::new(trace.clone(), steps, &rule, storage)),
            report: self.report(trace.as_ref()),
            trace,
            host_spans: None,
            step_log,
            warnings,
            report_path: self.options.run_dir.join("report.json"),
            device: (self.config.mode != Mode::LoaderOnly).then(|| DeviceName {
                name: self.config.device.to_string(),
                emulated: self.config.emulated,
                timeline,
                memory: self.memory.clone(),
            }),
            gpu_timeline,
            shape: shape(&self.config, self.cores),
            training,
            on_progress,
            steps: plan.batches,
            device_wait: Arc::default(),
            hung: None,
            intake: Intake::new(),
            stop: self.stop.clone(),
            broken: None,
            cache: self.cache.take(),
            gpu,
            service_threads: ServiceThreads::of(&self.config),
            cost,
            waking,
            process_cpu_before: cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default(),
            own_cpu: Nanos::ZERO,
        }
    }
}

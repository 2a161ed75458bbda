//! One run, from its configuration to its report.

use super::collector::{Collector, OnProgress, cpu_of};
use super::error::SessionError;
use super::evaluation::evaluate;
use super::plan::{model_spec, parts, plan, shape};
use super::source::Source;
use super::tracing_feed::{HOST, TracedSteps, TracingFeed};
use crate::analysis::{Analysis, WindowRule};
use crate::config::{DeviceConfig, Mode, Resolved};
use crate::data::Parts;
use crate::device::cgroup::usable_cores;
use crate::device::probe;
use crate::pipeline::{
    Delivered, Discard, HostToDevice, Logbook, Plan, RecordingCost, SampleWork, Skipped,
    StopSignal, panic_message, start,
};
use crate::report::{EpochReport, Machine, Report, Status, TraceReport, Training};
use crate::timeline::{Clock, MonotonicClock, Nanos, Recorder};
use crate::trace::{
    HostSpans, HostSpansError, HostSpansGuard, SharedTrace, TraceClock, TraceOptions, TraceSummary,
    TraceWriter,
};
use crate::train::{BurnTrainer, Learned, StepDone, TrainError, TrainStep, on_cpu, on_cuda, train};
use nix::sys::resource::UsageWho;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a run writes, and whom it tells how it stands.
pub struct RunOptions {
    /// The folder for the report, and for the trace unless the configuration names another place.
    pub run_dir: PathBuf,
    pub on_progress: OnProgress,
}

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
    options: RunOptions,
    source: Source,
    parts: Parts,
    clock: Arc<dyn Clock>,
    stop: StopSignal,
    cores: f64,
}

impl Session {
    /// Opens the data of `config` and makes the run's folder.
    ///
    /// # Errors
    /// Data that cannot be used, or a folder that cannot be made.
    pub fn open(config: Resolved, options: RunOptions) -> Result<Session, SessionError> {
        let source = Source::open(&config.pipeline)?;
        let parts = parts(&config, source.samples())?;
        fs::create_dir_all(&options.run_dir).map_err(|source| SessionError::Io {
            action: "create the run's folder",
            path: options.run_dir.clone(),
            source,
        })?;
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        Ok(Session {
            stop: StopSignal::new(clock.clone()),
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

    /// Runs to the end.
    ///
    /// # Errors
    /// What kept the run from starting. A run that started and failed is an [`Outcome`].
    pub fn run(mut self) -> Result<Outcome, SessionError> {
        let plan = self.plan()?;
        // Compiling kernels and making contexts is no part of the run.
        let device = self.device()?;
        let recorder = if self.config.recorder {
            Recorder::new()
        } else {
            Recorder::off()
        };
        let mut warnings = Vec::new();
        let trace = self.open_trace()?;
        let host_spans = trace.as_ref().and_then(|trace| {
            let spans = self.host_spans(trace);
            spans.map_err(|error| warnings.push(error.to_string())).ok()
        });
        let training = Arc::new(Mutex::new(Training::default()));
        let collector = self.collector(&plan, &recorder, trace.as_ref(), training.clone());
        let collector = collector.start().map_err(SessionError::Collector)?;
        let trainee = Trainee {
            plan: &plan,
            session: &self,
            recorder: &recorder,
            training,
        };
        let ended = catch_unwind(AssertUnwindSafe(|| trainee.run_on(device)));
        let ended = ended.unwrap_or_else(|payload| {
            let message = panic_message(payload.as_ref());
            Ended::of(Err(SessionError::Panicked(message)))
        });
        let Some(mut collector) = collector.stop() else {
            return Err(ended.result.err().unwrap_or(SessionError::CollectorGone));
        };
        collector.finish();
        drop(host_spans);
        if let Some(summary) = trace.and_then(|trace| trace.finish()) {
            note_trace(&mut collector.report, &summary);
        }
        let error = self.note_end(&mut collector, ended);
        let (done, asked) = (collector.report.steps, self.config.steps);
        if collector.report.status == Status::Complete && recorder.is_on() && done < asked {
            warnings.push(format!(
                "the epochs were used up after {done} of {asked} steps"
            ));
        }
        let unwritten = collector.write().err();
        Ok(Outcome {
            report_path: unwritten.is_none().then_some(collector.report_path),
            report: collector.report,
            error: error.or(unwritten),
            warnings,
        })
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

    /// Brings the device up.
    fn device(&self) -> Result<Device, TrainError> {
        if self.config.mode == Mode::LoaderOnly {
            return Ok(Device::None);
        }
        let spec = model_spec(&self.config, &self.source);
        let trainer = match self.config.device {
            DeviceConfig::Cpu => on_cpu(&spec)?,
            DeviceConfig::Cuda(ordinal) => on_cuda(ordinal, &probe::cuda(), &spec)?,
        };
        Ok(Device::Burn(trainer))
    }

    /// How the run ended, into the report.
    fn note_end(&self, collector: &mut Collector, ended: Ended) -> Option<SessionError> {
        let report = &mut collector.report;
        report.skipped = serde_json::to_value(&ended.skipped).unwrap_or_default();
        let broken = collector.broken.take().map(SessionError::Panicked);
        let error = broken.or(ended.result.err()).or_else(|| {
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
        let release = fs::read_to_string("/proc/sys/kernel/osrelease");
        let machine = Machine {
            cores: self.cores,
            operating_system: release.map_or_else(
                |_| std::env::consts::OS.to_owned(),
                |release| format!("Linux {}", release.trim()),
            ),
            architecture: std::env::consts::ARCH,
        };
        let config = serde_json::to_value(&self.config).unwrap_or_default();
        let mut report = Report::new(self.config.name.clone(), machine, config);
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

    fn host_spans(&self, trace: &SharedTrace) -> Result<HostSpansGuard, HostSpansError> {
        let clock = self.clock.clone();
        let now: TraceClock = Arc::new(move || clock.now());
        HostSpans::install(trace.clone(), HOST, now)
    }

    fn collector(
        &mut self,
        plan: &Plan,
        recorder: &Recorder,
        trace: Option<&SharedTrace>,
        training: Arc<Mutex<Training>>,
    ) -> Collector {
        let rule = WindowRule {
            warmup_steps: self.config.warmup_steps,
            steps: Some(plan.batches.saturating_sub(self.config.warmup_steps)),
            run_start: self.clock.now(),
        };
        let steps = TracedSteps {
            first: self.config.trace.start_step,
            count: self.config.trace.steps,
        };
        let on_progress = std::mem::replace(&mut self.options.on_progress, Box::new(|_| {}));
        Collector {
            clock: self.clock.clone(),
            recorder: recorder.clone(),
            analysis: Analysis::new(rule, plan.in_flight()),
            feed: trace.map(|trace| TracingFeed::new(trace.clone(), steps, rule.run_start)),
            report: self.report(trace),
            report_path: self.options.run_dir.join("report.json"),
            device: (self.config.mode == Mode::Normal).then(|| self.config.device.to_string()),
            shape: shape(&self.config, self.cores),
            training,
            on_progress,
            records: Vec::new(),
            stop: self.stop.clone(),
            broken: None,
            cost: RecordingCost::measure(&self.clock),
            process_cpu_before: cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default(),
            own_cpu: Nanos::ZERO,
        }
    }
}

/// What takes the batches.
enum Device {
    /// Nothing: the loader runs alone.
    None,
    Burn(BurnTrainer),
}

/// How the training ended.
struct Ended {
    result: Result<u64, SessionError>,
    skipped: Skipped,
    stopped: bool,
}

impl Ended {
    fn of(result: Result<u64, SessionError>) -> Ended {
        Ended {
            result,
            skipped: Skipped::default(),
            stopped: false,
        }
    }
}

/// What runs once the device is there: the pipeline and the training loop, in this thread.
struct Trainee<'a> {
    plan: &'a Plan,
    session: &'a Session,
    recorder: &'a Recorder,
    training: Arc<Mutex<Training>>,
}

impl Trainee<'_> {
    fn run_on(self, device: Device) -> Ended {
        match &self.session.source {
            Source::Images(work) => self.load(work, None, device),
            Source::Idx { work, test } => self.load(work, test.as_ref(), device),
        }
    }

    fn load<W: SampleWork>(&self, work: &Arc<W>, test: Option<&Arc<W>>, device: Device) -> Ended {
        match device {
            Device::None => self.run(work, Discard, &mut NoStep),
            Device::Burn(mut trainer) => {
                self.training().parameters = Some(trainer.parameters());
                let mut ended = self.run(work, trainer.copy(), &mut trainer);
                if ended.result.is_ok() && !ended.stopped {
                    let evaluated = self.evaluate(work, test, &mut trainer);
                    ended.result = ended.result.and_then(|steps| evaluated.map(|()| steps));
                }
                ended
            }
        }
    }

    /// Evaluates the model on everything that was held out.
    fn evaluate<W: SampleWork>(
        &self,
        work: &Arc<W>,
        test: Option<&Arc<W>>,
        trainer: &mut BurnTrainer,
    ) -> Result<(), SessionError> {
        let Session {
            parts, clock, stop, ..
        } = self.session;
        let own = [("validation", &parts.validation), ("test", &parts.test)];
        let own = own.map(|(name, part)| (name, work, part.clone()));
        let files = test.filter(|_| parts.test.is_empty());
        let files = files.map(|test| ("test", test, (0..test.samples() as u32).collect()));
        for (name, work, part) in own.into_iter().chain(files) {
            if !part.is_empty() {
                let evaluation = evaluate(name, work, part, self.plan, trainer, clock, stop)?;
                self.training().evaluations.extend(evaluation);
            }
        }
        Ok(())
    }

    fn run<W, H, T>(&self, work: &Arc<W>, copy: H, trainer: &mut T) -> Ended
    where
        W: SampleWork,
        H: HostToDevice,
        T: TrainStep<Batch = H::Batch>,
    {
        let Session { clock, stop, .. } = self.session;
        let feed = start(self.plan, work.clone(), copy, clock, self.recorder, stop);
        let mut feed = match feed {
            Ok(feed) => feed,
            Err(error) => return Ended::of(Err(error.into())),
        };
        let mut epoch = Some(tracing::info_span!("epoch", epoch = 0u64).entered());
        let mut current = 0;
        let result = train(&mut feed, trainer, |done| {
            if done.epoch != current {
                current = done.epoch;
                // The old one is left before the new one is entered, so that they do not nest.
                drop(epoch.take());
                epoch = Some(tracing::info_span!("epoch", epoch = current).entered());
            }
            self.note(done);
        });
        drop(epoch);
        let stopped = stop.is_stopped();
        feed.shut_down();
        let skipped = feed.skipped();
        Ended {
            result: result.map_err(SessionError::from),
            skipped,
            stopped,
        }
    }

    fn training(&self) -> MutexGuard<'_, Training> {
        self.training.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, done: StepDone) {
        let mut training = self.training();
        training.steps = done.steps;
        training.epoch = done.epoch;
        let Some(Learned { loss, correct }) = done.learned else {
            return;
        };
        training.first_loss.get_or_insert(loss);
        training.last_loss = Some(loss);
        if training
            .epochs
            .last()
            .is_none_or(|last| last.epoch != done.epoch)
        {
            training.epochs.push(EpochReport {
                epoch: done.epoch,
                ..EpochReport::default()
            });
        }
        if let Some(epoch) = training.epochs.last_mut() {
            epoch.steps += 1;
            epoch.score.add(done.samples as u64, loss, correct);
        }
    }
}

/// Takes a batch and does nothing: for running the loader alone.
struct NoStep;

impl TrainStep for NoStep {
    type Batch = ();

    fn step(&mut self, _: Delivered<()>, _: &mut Logbook) -> Result<Option<Learned>, TrainError> {
        Ok(None)
    }
}

/// What became of the trace, into the report.
fn note_trace(report: &mut Report, summary: &TraceSummary) {
    if let Some(trace) = &mut report.trace {
        trace.path = summary.path.display().to_string();
        trace.events = summary.events;
        trace.bytes = summary.bytes;
        trace.left_out_events = summary.left_out_events;
        trace.error = summary.error.clone();
    }
}

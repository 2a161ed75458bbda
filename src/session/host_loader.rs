//! The engine for a training loop that is not ours: finished batches in host memory, one epoch at a time.
//!
//! Invariant: batches are those of `stallscope run` with the same configuration, bit by bit. A batch's buffer is its
//! user's until it is dropped, and the engine goes on without it.

use super::error::SessionError;
use super::plan::{parts, plan, shape};
use super::predict::predict_suggested;
use super::source::{Source, storage_report};
use crate::config::{Decoder, DeviceConfig, Mode, Resolved, TypedKey};
use crate::loader::{Measurement, MeasurementError, MeasurementOptions, Standing};
use crate::machine::usable_cores;
use crate::pipeline::sampler::Share;
use crate::pipeline::{
    Delivered, Feed, HostBatch, KeptBuffer, PipelineError, Plan, SampleError, SampleWork, Skipped,
    StopSignal, ToDevice, start,
};
use crate::report::{DataReport, Report, Status};
use crate::timeline::{Clock, DevicePhase, MonotonicClock, Nanos, UnitRef};
use std::path::PathBuf;
use std::sync::Arc;

/// A batch in its user's hands.
#[derive(Debug)]
pub struct ReadyBatch {
    /// Its place in its epoch.
    pub number: u64,
    /// Of all samples one after another, and behind them whatever was there where samples were skipped.
    pub data: KeptBuffer,
    /// One class for each sample.
    pub labels: Vec<i64>,
    /// Index of each sample in the data set.
    pub samples: Vec<u32>,
}

/// Gives batches away.
struct Hand;

impl ToDevice<()> for Hand {
    /// The engine's batches can be cloned; these are not.
    type Batch = Arc<ReadyBatch>;

    fn copy(
        &mut self,
        batch: &mut HostBatch,
        (): &mut (),
        _: UnitRef,
    ) -> Result<Arc<ReadyBatch>, SampleError> {
        Ok(Arc::new(ReadyBatch {
            number: batch.number,
            labels: batch.labels.iter().copied().map(i64::from).collect(),
            samples: batch.samples.clone(),
            data: batch.keep(),
        }))
    }
}

/// An engine, whatever it works on.
trait Feeding: Send {
    fn next(&mut self) -> Result<Option<Delivered<Arc<ReadyBatch>>>, PipelineError>;
    /// Ends the step of `batch` that began at `since`, in which the loop kept the device busy.
    fn end_step(&mut self, step: Option<(u64, Nanos)>);
    /// Begins another pass, which ends after so many batches in all.
    fn resume(&mut self, until: u64);
    fn is_complete(&self) -> bool;
    fn failure(&self) -> Option<PipelineError>;
    fn skipped(&self) -> Skipped;
    fn shut_down(&mut self);
}

impl<W: SampleWork> Feeding for Feed<W, Hand> {
    fn next(&mut self) -> Result<Option<Delivered<Arc<ReadyBatch>>>, PipelineError> {
        Feed::next(self)
    }

    fn end_step(&mut self, step: Option<(u64, Nanos)>) {
        if let (Some((batch, since)), Some(logbook)) = (step, self.logbook()) {
            let now = logbook.now();
            logbook.busy(DevicePhase::Step, batch, since, now);
        }
        self.finish_step();
    }

    fn resume(&mut self, until: u64) {
        self.deliver_until(until);
        if let Some(logbook) = self.logbook() {
            logbook.resume();
        }
    }

    fn is_complete(&self) -> bool {
        Feed::is_complete(self)
    }

    fn failure(&self) -> Option<PipelineError> {
        Feed::failure(self)
    }

    fn skipped(&self) -> Skipped {
        Feed::skipped(self)
    }

    fn shut_down(&mut self) {
        Feed::shut_down(self);
    }
}

/// An engine that was started.
struct Engine {
    feed: Box<dyn Feeding>,
    measurement: Measurement,
    /// The pass in progress, and the number of batches after which it ends.
    epoch: u64,
    until: u64,
    /// The batch that is trained on, and since when.
    step: Option<(u64, Nanos)>,
    failed: bool,
    stopped: bool,
}

impl Engine {
    fn end_step(&mut self) {
        self.feed.end_step(self.step.take());
    }

    fn stop(&mut self) {
        if !self.stopped {
            self.end_step();
            self.stopped = true;
            self.feed.shut_down();
            self.measurement.finish();
        }
    }
}

/// Says now and then, while it is waited for a batch, whether to give up.
type GiveUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// The data and stages of a configuration, whose batches a loop of somebody else's takes. Its threads start with the first
/// [pass](Self::begin), and work ahead into the next epoch.
pub struct HostLoader {
    config: Resolved,
    typed: Vec<TypedKey>,
    share: Share,
    source: Source,
    training: Arc<[u32]>,
    give_up: GiveUp,
    engine: Option<Engine>,
}

impl HostLoader {
    /// Opens the data of `config`, of which `typed` was given a value; this process gets its `share` of each epoch.
    ///
    /// # Errors
    /// Data that cannot be used, or settings that leave batches unfinished.
    pub fn open(
        mut config: Resolved,
        typed: Vec<TypedKey>,
        share: Share,
        give_up: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<HostLoader, SessionError> {
        let refused = |what: &str| Err(SessionError::HostLoader(what.to_owned()));
        if config.pipeline.preprocess.on_device {
            return refused(
                "preprocess.on = \"device\" leaves pictures to be finished by stallscope's own trainer; \
                 leave it out, and batches are finished on the host",
            );
        }
        if config.pipeline.decode.decoder == Decoder::Nvjpeg {
            return refused(
                "decode.decoder = \"nvjpeg\" decodes on the GPU of stallscope's own trainer; choose another decoder",
            );
        }
        if config.pipeline.batch.mix.is_on() {
            return refused(
                "batch.mixup and batch.cutmix mix labels in the loss of stallscope's own trainer; leave them out, and mix \
                 batches with torchvision's MixUp and CutMix",
            );
        }
        if !config.pipeline.ordered {
            return refused(
                "ordered = false may deliver a batch of the next epoch before the last one of this; leave it out",
            );
        }
        if share.rank >= share.of {
            let Share { rank, of } = share;
            return refused(&format!(
                "rank = {rank} and world_size = {of}: ranks are 0 to world_size - 1"
            ));
        }
        // Nothing is copied, and the loop is the device.
        config.pipeline.copy.workers = 0;
        config.device = DeviceConfig::Cpu;
        (config.emulated, config.gpu) = (None, None);
        if config.mode != Mode::Cached {
            config.mode = Mode::Normal;
        }
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let stop = StopSignal::new(clock.clone());
        let source = Source::open(&config.pipeline, &config.device, &clock, &stop);
        let source = source.map_err(|error| match config.mode {
            Mode::Cached => error.of_cached(&config.pipeline.source.path),
            _ => error,
        })?;
        let training = parts(&config, source.samples())?.training;
        let loader = HostLoader {
            config,
            typed,
            share,
            source,
            training,
            give_up: Arc::new(give_up),
            engine: None,
        };
        match loader.batches() {
            0 => Err(SessionError::from(PipelineError::TooFewSamples {
                samples: loader.samples(),
                batch_size: loader.config.pipeline.batch.size,
            })),
            _ => Ok(loader),
        }
    }

    fn plan(&self) -> Plan {
        let plan = plan(
            &self.config,
            self.training.clone(),
            self.source.claim_size(),
        );
        Plan {
            share: self.share,
            batches: u64::MAX,
            ..plan
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Resolved {
        &self.config
    }

    /// Samples of this process in an epoch; without `drop_last` some may be another's, too.
    pub fn samples(&self) -> usize {
        let drop_last = self.config.pipeline.drop_last;
        self.share.samples(self.training.len(), drop_last)
    }

    /// Batches of this process in an epoch.
    pub fn batches(&self) -> u64 {
        let batches = self.plan().batches_per_epoch(self.source.samples());
        batches.unwrap_or(0)
    }

    /// Channels, height and width of a sample, whose values are 32-bit floats.
    pub fn shape(&self) -> [usize; 3] {
        self.source.shape()
    }

    /// Classes of the data set.
    pub fn classes(&self) -> usize {
        self.source.classes()
    }

    /// How to name a sample to the user.
    pub fn name(&self, sample: u32) -> String {
        self.source.name(sample)
    }

    /// What a user should know of the data.
    pub fn warnings(&self) -> Vec<String> {
        self.source.warnings()
    }

    /// Begins the pass over `epoch` at its batch number `batch`. The engine goes on where it stands there; else it starts
    /// anew, and so does the report.
    ///
    /// # Errors
    /// A system that gives no threads, or a trace that cannot be written.
    pub fn begin(&mut self, epoch: u64, batch: u64) -> Result<(), SessionError> {
        let per_epoch = self.batches();
        if let Some(engine) = &mut self.engine {
            let is_next = engine.epoch + 1 == epoch && batch == 0;
            if is_next && !engine.failed && !engine.stopped && engine.feed.is_complete() {
                engine.end_step();
                engine.epoch = epoch;
                engine.until += per_epoch;
                engine.feed.resume(engine.until);
                return Ok(());
            }
        }
        self.stop();
        self.engine = None;
        let plan = Plan {
            first_epoch: epoch,
            first_batch: batch,
            ..self.plan()
        };
        self.engine = Some(self.start(&plan, per_epoch.saturating_sub(batch))?);
        Ok(())
    }

    fn start(&self, plan: &Plan, until: u64) -> Result<Engine, SessionError> {
        let options = MeasurementOptions {
            warmup_steps: self.config.warmup_steps,
            steps: None,
            batches_per_epoch: plan.batches_per_epoch(self.source.samples()),
            in_flight: plan.in_flight(),
            trace: self.traced(),
        };
        let shape = shape(&self.config, usable_cores());
        let measurement = Measurement::start(shape, &options).map_err(|error| match error {
            MeasurementError::Trace(error) => SessionError::Trace(error),
            MeasurementError::Thread(error) => SessionError::Collector(error),
        })?;
        let feed = match &self.source {
            Source::Images(work) => self.feed(plan, work, until, &measurement),
            Source::Small { work, .. } => self.feed(plan, work, until, &measurement),
        };
        Ok(Engine {
            feed: feed?,
            measurement,
            epoch: plan.first_epoch,
            until,
            step: None,
            failed: false,
            stopped: false,
        })
    }

    fn feed<W: SampleWork>(
        &self,
        plan: &Plan,
        work: &Arc<W>,
        until: u64,
        measurement: &Measurement,
    ) -> Result<Box<dyn Feeding>, PipelineError> {
        let (clock, recorder) = (measurement.clock(), measurement.recorder());
        let stop = StopSignal::new(clock.clone());
        let mut feed = start(plan, work.clone(), Hand, clock, recorder, &stop)?;
        feed.deliver_until(until);
        let give_up = self.give_up.clone();
        feed.give_up_when(move || give_up());
        Ok(Box::new(feed))
    }

    /// Where a trace is written, if that was asked for by name, and of which steps.
    fn traced(&self) -> Option<(PathBuf, std::ops::Range<u64>)> {
        let trace = &self.config.trace;
        let path = trace.path.clone().filter(|_| trace.enabled)?;
        let steps = trace.start_step..trace.start_step.saturating_add(trace.steps);
        Some((path, steps))
    }

    /// The next batch of the pass, in order; `None` at its end. The time from its return to the next call is a step.
    ///
    /// # Errors
    /// The first failure of any stage, once the batches before it were delivered.
    pub fn next_batch(&mut self) -> Result<Option<ReadyBatch>, PipelineError> {
        let Some(engine) = self.engine.as_mut().filter(|engine| !engine.failed) else {
            return Ok(None);
        };
        engine.end_step();
        let delivered = engine.feed.next().inspect_err(|_| engine.failed = true)?;
        let Some(delivered) = delivered else {
            return Ok(None);
        };
        engine.step = Some((delivered.number, engine.measurement.clock().now()));
        let until = engine.until - delivered.number;
        let ready = Arc::into_inner(delivered.batch);
        let number = self.batches().saturating_sub(until);
        Ok(ready.map(|ready| ReadyBatch { number, ..ready }))
    }

    /// What was measured since the engine was started; `None` before.
    pub fn report(&self) -> Option<Report> {
        let engine = self.engine.as_ref()?;
        let is_complete = engine.feed.is_complete();
        let error = engine
            .feed
            .failure()
            .filter(|_| engine.failed || !is_complete);
        let mut report = engine.measurement.report(Standing {
            status: match &error {
                Some(_) => Status::Failed,
                None if is_complete => Status::Complete,
                None if engine.stopped => Status::Interrupted,
                None => Status::Running,
            },
            error: error.map(|error| error.to_string()),
            skipped: engine.feed.skipped(),
            samples: self.training.len(),
            device: "your loop".to_owned(),
            config: serde_json::to_value(&self.config).unwrap_or_default(),
        });
        report.name.clone_from(&self.config.name);
        report.settings = serde_json::to_value(&self.typed).unwrap_or_default();
        report.data = DataReport {
            samples: self.training.len(),
            sample_bytes: self.source.sample_bytes(),
            claim_samples: self.source.claim_size(),
            store: self.source.store(),
        };
        report.storage = self.config.pipeline.storage.as_ref().map(storage_report);
        report.skipped.broken_files = self.source.broken_files();
        for slow in &mut report.slowest_samples {
            slow.name = Some(self.source.name(slow.index));
        }
        predict_suggested(&mut report, self.config.mode, &self.typed);
        Some(report)
    }

    /// Stops the threads and closes the trace; the report stays.
    pub fn stop(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.stop();
        }
    }
}

impl Drop for HostLoader {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;

//! What runs once the device is there: the pipeline and the training loop, in the session's thread.

use super::error::SessionError;
use super::evaluation::HeldOut;
use super::gpu::{GpuDevice, TakenTimeline};
use super::run::Session;
use super::small::SmallWork;
use super::source::Source;
use crate::config::Resolved;
use crate::data::stages::storage::Stored;
use crate::device::emulated::EmulatedSpec;
use crate::loader::cpu_of;
use crate::pipeline::{Delivered, Discard, HostToDevice, Logbook, Plan, SampleWork, start};
use crate::report::Training;
use crate::timeline::{Nanos, Place, Recorder};
use crate::train::{
    BurnTrainer, DevicePreprocess, DeviceWait, EmulatedCopy, EmulatedTrainer, GpuTrainer, Learned,
    StepDone, Together, TrainError, TrainStep, train,
};
use nix::sys::resource::UsageWho;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps that CubeCL launches before the device has done them, at most, whatever is asked for: it stages as many uploads.
const LAUNCHED_AHEAD: usize = 64;

/// What takes the batches.
pub(super) enum Device {
    /// Nothing: the loader runs alone.
    None,
    Burn(BurnTrainer),
    Gpu(GpuDevice),
    /// An emulated accelerator, and burn's trainer where one trains beside it.
    Emulated {
        spec: EmulatedSpec,
        burn: Option<BurnTrainer>,
        ranks: Option<Together>,
    },
}

impl Device {
    /// Steps end with those of other `ranks`, where there are any.
    pub(super) fn in_step_with(&mut self, others: Option<Together>) -> Result<(), TrainError> {
        let Some(others) = others else {
            return Ok(());
        };
        match self {
            Device::None => Ok(()),
            Device::Burn(burn) => burn.average_by(others),
            Device::Gpu(gpu) => gpu.burn.average_by(others),
            Device::Emulated { burn, ranks, .. } => {
                *ranks = Some(others.clone());
                burn.as_mut().map_or(Ok(()), |burn| burn.average_by(others))
            }
        }
    }

    /// What the collector needs of a GPU; makes its lanes.
    pub(super) fn take_timeline(&mut self, recorder: &Recorder) -> Option<TakenTimeline> {
        match self {
            Device::Gpu(gpu) => gpu.take_timeline(recorder),
            _ => None,
        }
    }
}

/// How the training ended.
pub(super) struct Ended {
    pub(super) result: Result<u64, SessionError>,
    pub(super) stopped: bool,
    /// CPU time of the process while it evaluated, which is no part of the run that is measured.
    pub(super) evaluation_cpu: Nanos,
}

impl Ended {
    pub(super) fn of(result: Result<u64, SessionError>) -> Ended {
        Ended {
            result,
            stopped: false,
            evaluation_cpu: Nanos::ZERO,
        }
    }
}

/// What runs once the device is there: the pipeline and the training loop, in this thread.
pub(super) struct Trainee<'a> {
    pub(super) plan: &'a Plan,
    pub(super) session: &'a Session,
    pub(super) recorder: &'a Recorder,
    pub(super) training: Arc<Mutex<Training>>,
    pub(super) device_wait: Arc<DeviceWait>,
}

impl Trainee<'_> {
    pub(super) fn run_on(self, device: Device) -> Ended {
        match &self.session.source {
            Source::Images(work) => {
                let calm = Arc::new(work.with(work.inner().for_evaluation()));
                let pixels = calm.inner().on_device();
                self.load(work, &self.held_out(&calm, None, pixels.as_ref()), device)
            }
            Source::Small { work, test } => {
                let calm = |work: &Arc<Stored<SmallWork>>| {
                    Arc::new(work.with(work.inner().for_evaluation()))
                };
                let (own, test) = (calm(work), test.as_ref().map(calm));
                let pixels = work.inner().on_device();
                let held_out = self.held_out(&own, test.as_ref(), pixels.as_ref());
                self.load(work, &held_out, device)
            }
        }
    }

    /// Everything to evaluate: parts of `work`, and the data set's own files for the `test` unless a part of it is.
    fn held_out<W: SampleWork>(
        &self,
        work: &Arc<W>,
        test: Option<&Arc<W>>,
        pixels: Option<&DevicePreprocess>,
    ) -> Vec<HeldOut<W>> {
        let parts = &self.session.parts;
        let own = [("validation", &parts.validation), ("test", &parts.test)];
        let own = own.map(|(name, part)| (name, work, part.clone()));
        let files = test.filter(|_| parts.test.is_empty());
        let files = files.map(|test| ("test", test, (0..test.samples() as u32).collect()));
        let all = own.into_iter().chain(files);
        let held_out = all.map(|(part, work, samples)| HeldOut {
            part,
            work: work.clone(),
            samples,
            pixels: pixels.cloned(),
        });
        held_out.filter(|one| !one.samples.is_empty()).collect()
    }

    fn load<W: SampleWork>(&self, work: &Arc<W>, held_out: &[HeldOut<W>], device: Device) -> Ended {
        match device {
            Device::None => self.run(work, Discard, &mut NoStep),
            Device::Burn(mut trainer) => {
                self.training().parameters = Some(trainer.parameters());
                let ended = self.run(work, trainer.copy(0), &mut trainer);
                self.evaluated(ended, held_out, &mut trainer)
            }
            Device::Gpu(gpu) => self.train_on(gpu, work, held_out),
            Device::Emulated { spec, burn, ranks } => {
                self.training().parameters = burn.as_ref().map(BurnTrainer::parameters);
                let Session { clock, stop, .. } = self.session;
                let on_cpu = burn.as_ref().map(|burn| burn.copy(0));
                let copy =
                    EmulatedCopy::new(&spec, clock.clone(), stop.clone(), self.recorder, on_cpu);
                let mut trainer =
                    EmulatedTrainer::new(spec, clock.clone(), stop.clone(), self.recorder, burn)
                        .in_step_with(ranks);
                let ended = self.run(work, copy, &mut trainer);
                match trainer.into_burn() {
                    Some(mut burn) => self.evaluated(ended, held_out, &mut burn),
                    None => ended,
                }
            }
        }
    }

    fn train_on<W: SampleWork>(
        &self,
        gpu: GpuDevice,
        work: &Arc<W>,
        held_out: &[HeldOut<W>],
    ) -> Ended {
        let mut burn = gpu.burn;
        self.training().parameters = Some(burn.parameters());
        let copy = burn.copy(self.at_once(gpu.run_ahead));
        let ended = match gpu.lane {
            None => self.run(work, copy, &mut burn),
            Some(lane) => {
                let clock = self.session.clock.clone();
                let wait = self.device_wait.clone();
                let trainer =
                    GpuTrainer::new(&mut burn, gpu.run_ahead, clock, lane, gpu.by_events, wait);
                match trainer {
                    Ok(mut trainer) => self.run(work, copy, &mut trainer),
                    Err(error) => Ended::of(Err(SessionError::Outcomes(error))),
                }
            }
        };
        // The evaluation's kernels belong to no step.
        gpu.ending.tell();
        self.evaluated(ended, held_out, &mut burn)
    }

    /// Batches that may be on the device at the same time: those in the queue, the one that waits for room there, the one that
    /// is trained on, and those whose steps have not ended.
    fn at_once(&self, run_ahead: usize) -> usize {
        let Plan { copy, keep, .. } = self.plan;
        let most = copy.prefetch + 2 + run_ahead.min(LAUNCHED_AHEAD);
        let stays = keep.filter(|keep| keep.place == Place::Device);
        stays.map_or(most, |keep| most.min(keep.batches as usize))
    }

    /// A run that `ended`, with the model evaluated on what was `held_out` where it ran to its end.
    pub(super) fn evaluated<W: SampleWork>(
        &self,
        mut ended: Ended,
        held_out: &[HeldOut<W>],
        trainer: &mut BurnTrainer,
    ) -> Ended {
        let Session { clock, stop, .. } = self.session;
        // Some batches over and over teach nothing that is worth a score.
        if !self.session.options.evaluate || self.plan.keep.is_some() {
            return ended;
        }
        let cpu = || cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default();
        let before = cpu();
        // A CPU may take its time.
        let unwatched = DeviceWait::default();
        let wait = match self.session.config().gpu.is_some() {
            true => &*self.device_wait,
            false => &unwatched,
        };
        for part in held_out {
            if ended.result.is_err() || ended.stopped {
                break;
            }
            match part.evaluate(self.plan, trainer, clock, stop, wait) {
                Ok(evaluation) => self.training().evaluations.extend(evaluation),
                Err(error) => ended.result = Err(error),
            }
            ended.stopped = stop.is_stopped();
        }
        ended.evaluation_cpu = cpu() - before;
        ended
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
        self.session.skips.set(feed.skips()).ok();
        let mut measured = MeasuredTime::of(self.session.config());
        let result = train(&mut feed, trainer, |done| {
            self.session.memory.note(done.memory);
            let goes_on = measured.step(done.steps, clock.now());
            self.note(done);
            goes_on
        });
        if result.is_ok() {
            self.session.memory.note(trainer.memory());
        }
        let stopped = stop.is_stopped();
        feed.shut_down();
        Ended {
            result: result.map_err(SessionError::from),
            stopped,
            evaluation_cpu: Nanos::ZERO,
        }
    }

    fn training(&self) -> MutexGuard<'_, Training> {
        self.training.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, done: StepDone) {
        let mut training = self.training();
        training.steps = done.steps;
        training.epoch = done.epoch;
        for outcome in done.outcomes {
            let Learned { loss, correct } = outcome.learned;
            training.noted(loss);
            // Over the same batches again is no pass over the data.
            if self.plan.keep.is_none() {
                training.learned(outcome.epoch, outcome.samples as u64, loss, correct);
            }
        }
    }
}

/// How long steps have been measured, against the most that is asked for.
struct MeasuredTime {
    warmup_steps: u64,
    most: Option<Nanos>,
    since: Option<Nanos>,
}

impl MeasuredTime {
    fn of(config: &Resolved) -> MeasuredTime {
        MeasuredTime {
            warmup_steps: config.warmup_steps,
            most: config.max_time_ns.map(Nanos),
            since: None,
        }
    }

    /// Whether another step follows when `steps` are done at the time `now`.
    fn step(&mut self, steps: u64, now: Nanos) -> ControlFlow<()> {
        let (Some(most), true) = (self.most, steps >= self.warmup_steps) else {
            return ControlFlow::Continue(());
        };
        let since = *self.since.get_or_insert(now);
        match steps > self.warmup_steps && now - since >= most {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
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

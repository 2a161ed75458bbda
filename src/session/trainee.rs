//! What runs once the device is there: the pipeline and the training loop, in the session's thread.

use super::error::SessionError;
use super::evaluation::evaluate;
use super::gpu::{GpuDevice, TakenTimeline};
use super::run::Session;
use super::source::Source;
use crate::device::emulated::EmulatedSpec;
use crate::pipeline::{
    Delivered, Discard, HostToDevice, Logbook, Plan, SampleWork, Skipped, start,
};
use crate::report::Training;
use crate::timeline::Recorder;
use crate::train::{
    BurnTrainer, EmulatedCopy, EmulatedTrainer, GpuTrainer, Learned, StepDone, TrainError,
    TrainStep, train,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    },
}

impl Device {
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
    pub(super) skipped: Skipped,
    pub(super) stopped: bool,
}

impl Ended {
    pub(super) fn of(result: Result<u64, SessionError>) -> Ended {
        Ended {
            result,
            skipped: Skipped::default(),
            stopped: false,
        }
    }
}

/// What runs once the device is there: the pipeline and the training loop, in this thread.
pub(super) struct Trainee<'a> {
    pub(super) plan: &'a Plan,
    pub(super) session: &'a Session,
    pub(super) recorder: &'a Recorder,
    pub(super) training: Arc<Mutex<Training>>,
}

impl Trainee<'_> {
    pub(super) fn run_on(self, device: Device) -> Ended {
        match &self.session.source {
            Source::Images(work) => self.load(work, None, device),
            Source::Small { work, test } => self.load(work, test.as_ref(), device),
        }
    }

    fn load<W: SampleWork>(&self, work: &Arc<W>, test: Option<&Arc<W>>, device: Device) -> Ended {
        match device {
            Device::None => self.run(work, Discard, &mut NoStep),
            Device::Burn(mut trainer) => {
                self.training().parameters = Some(trainer.parameters());
                let ended = self.run(work, trainer.copy(), &mut trainer);
                self.evaluated(ended, work, test, &mut trainer)
            }
            Device::Gpu(gpu) => self.train_on(gpu, work, test),
            Device::Emulated { spec, burn } => {
                self.training().parameters = burn.as_ref().map(BurnTrainer::parameters);
                let Session { clock, stop, .. } = self.session;
                let on_cpu = burn.as_ref().map(BurnTrainer::copy);
                let copy =
                    EmulatedCopy::new(&spec, clock.clone(), stop.clone(), self.recorder, on_cpu);
                let mut trainer = EmulatedTrainer::new(spec, stop.clone(), self.recorder, burn);
                let ended = self.run(work, copy, &mut trainer);
                match trainer.into_burn() {
                    Some(mut burn) => self.evaluated(ended, work, test, &mut burn),
                    None => ended,
                }
            }
        }
    }

    fn train_on<W: SampleWork>(
        &self,
        gpu: GpuDevice,
        work: &Arc<W>,
        test: Option<&Arc<W>>,
    ) -> Ended {
        let ending = gpu.ending();
        let mut burn = gpu.burn;
        self.training().parameters = Some(burn.parameters());
        let copy = burn.copy();
        let ended = match gpu.lane {
            None => self.run(work, copy, &mut burn),
            Some(lane) => {
                let clock = self.session.clock.clone();
                match GpuTrainer::new(&mut burn, gpu.run_ahead, clock, lane, gpu.by_events) {
                    Ok(mut trainer) => self.run(work, copy, &mut trainer),
                    Err(error) => Ended::of(Err(SessionError::Outcomes(error))),
                }
            }
        };
        // The evaluation's kernels belong to no step.
        ending.tell();
        self.evaluated(ended, work, test, &mut burn)
    }

    /// A run that `ended`, with the model evaluated where it ran to its end.
    fn evaluated<W: SampleWork>(
        &self,
        mut ended: Ended,
        work: &Arc<W>,
        test: Option<&Arc<W>>,
        trainer: &mut BurnTrainer,
    ) -> Ended {
        // Some batches over and over teach nothing that is worth a score.
        let scores = self.session.options.evaluate && self.plan.keep.is_none();
        if ended.result.is_ok() && !ended.stopped && scores {
            let evaluated = self.evaluate(work, test, trainer);
            ended.result = ended.result.and_then(|steps| evaluated.map(|()| steps));
        }
        ended
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
            self.session.memory.note(done.memory);
            self.note(done);
        });
        if result.is_ok() {
            self.session.memory.note(trainer.memory());
        }
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

/// Takes a batch and does nothing: for running the loader alone.
struct NoStep;

impl TrainStep for NoStep {
    type Batch = ();

    fn step(&mut self, _: Delivered<()>, _: &mut Logbook) -> Result<Option<Learned>, TrainError> {
        Ok(None)
    }
}

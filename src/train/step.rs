//! The training loop, generic over what a step does: the same loop runs burn and the tests' planted
//! steps.

use super::memory::{DeviceMemory, OutOfMemory, TimedWork};
use crate::device::probe::Missing;
use crate::pipeline::{Delivered, Feed, HostToDevice, Logbook, PipelineError, SampleWork};
use crate::timeline::{HostWork, Nanos, UnitRef};
use stallscope_trainer::Learned;
use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;

/// Why training stopped.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The model or the device refused a step.
    #[error("training step {step} failed: {reason}")]
    Step { step: u64, reason: String },
    /// The device does not end what it was given.
    #[error(
        "{device} has not finished {work} after {seconds:.0} s; a kernel may be hung: check nvidia-smi and the system log \
         (`dmesg`, lines with NVRM){}", work.advice()
    )]
    Hangs {
        device: String,
        work: Awaited,
        seconds: f64,
    },
    /// Ranks that were to average their gradients do not.
    #[error("gradients cannot be averaged over the ranks: {reason}")]
    AllReduce { reason: String },
    /// The device refused the steps before the run, which compile and tune its kernels.
    #[error("the device could not be prepared: {reason}")]
    Preparation { reason: String },
    /// The model or the device refused a batch that is held out.
    #[error("the evaluation failed: {reason}")]
    Evaluation { reason: String },
    /// The device refused what was to be timed.
    #[error("{work} could not be timed: {reason}")]
    Timing { work: TimedWork, reason: String },
    /// The model does not fit the data.
    #[error("the model cannot be trained on this data: {reason}")]
    Model { reason: String },
    /// The device cannot be used on this machine.
    #[error("device {device} is not usable here: {reason}")]
    Device { device: String, reason: String },
    /// The device's memory is too small for the batch or the model.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
}

/// What a device is waited for to end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// What compiles and tunes its kernels.
    Preparation,
    /// The training step of that number.
    Step(u64),
    /// A batch that is held out.
    Evaluation,
}

impl Awaited {
    fn advice(self) -> &'static str {
        match self {
            Awaited::Step(_) => ", and run again with gpu.run_ahead = 0 to find the exact step",
            Awaited::Preparation | Awaited::Evaluation => "",
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Preparation => formatter.write_str("the kernel that is being tuned"),
            Awaited::Step(step) => write!(formatter, "training step {step}"),
            Awaited::Evaluation => formatter.write_str("a batch of the evaluation"),
        }
    }
}

/// The backends that this build may lack: the device that needs each, and what to do where it is not there.
pub fn backends() -> [(&'static str, Result<(), String>); 2] {
    [
        ("cpu", stallscope_trainer::require_cpu()),
        ("cuda", stallscope_trainer::require_cuda()),
    ]
}

impl TrainError {
    /// Refuses a device, such as `cpu` or `cuda:0`, whose backend this build lacks.
    ///
    /// # Errors
    /// What to do.
    pub fn require_built(device: &str) -> Result<(), TrainError> {
        let kind = device.split(':').next();
        let backend = backends().into_iter().find(|(name, _)| Some(*name) == kind);
        let built = backend.map_or(Ok(()), |(_, built)| built);
        built.map_err(|reason| TrainError::Device {
            device: device.to_owned(),
            reason,
        })
    }

    /// A device that lacks these pieces.
    pub fn device_missing(device: String, missing: &[Missing]) -> TrainError {
        let count = missing.len();
        let s = if count == 1 { " is" } else { "s are" };
        let list = missing.iter().map(|missing| {
            let Missing {
                piece,
                detail,
                remedy,
            } = missing;
            format!("\n  {piece}: {detail}\n    try: {remedy}")
        });
        let list: String = list.collect();
        let reason = format!("{count} piece{s} missing{list}\n`stallscope doctor` shows all");
        TrainError::Device { device, reason }
    }
}

/// What one optimizer update does with a batch on the device.
pub trait TrainStep {
    /// The batch as the copy stage left it.
    type Batch;

    /// Whether what a step learned is known only later, by [`outcomes`](Self::outcomes).
    const DEFERS: bool = false;

    /// Runs forward, backward and optimizer on `batch` and returns what was learned, where anything was and it is
    /// known at once. Reports through `logbook` when the device was busy and what the host did beside.
    ///
    /// # Errors
    /// Why the step could not be run.
    fn step(
        &mut self,
        batch: Delivered<Self::Batch>,
        logbook: &mut Logbook,
    ) -> Result<Option<Learned>, TrainError>;

    /// What was learned in steps whose outcome was not known when they returned, oldest first.
    fn outcomes(&mut self) -> Vec<Learned> {
        Vec::new()
    }

    /// Blocks until the device takes another step. Returns when that was and the device's unit of work
    /// that made the room; `None` where there was room.
    fn wait_for_room(&mut self, _logbook: &Logbook) -> Option<(Nanos, UnitRef)> {
        None
    }

    /// The step's unit of work has been recorded: those of the device that it caused may follow.
    fn step_closed(&mut self) {}

    /// Blocks until the device has done everything it was given.
    ///
    /// # Errors
    /// Why a step that was under way failed.
    fn finish(&mut self) -> Result<(), TrainError> {
        Ok(())
    }

    /// How much of its memory the device has in use, where that is counted. May block for a moment.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
}

/// Where training stands, for progress and logs.
#[derive(Clone, Debug)]
pub struct StepDone {
    /// Steps done, warm-up included.
    pub steps: u64,
    pub epoch: u64,
    /// What has become known of this step or of those before, oldest first.
    pub outcomes: Vec<Outcome>,
    /// The device's memory, where it was looked at after this step.
    pub memory: Option<DeviceMemory>,
}

/// What a step learned.
#[derive(Copy, Clone, Debug)]
pub struct Outcome {
    pub epoch: u64,
    /// Samples in the step.
    pub samples: usize,
    pub learned: Learned,
}

/// Between two looks at the device's memory, which wait for the device's queue.
const MEMORY_EVERY: Nanos = Nanos::from_millis(1_000);

/// Trains on every batch that `feed` delivers; returns the number of steps.
///
/// `after_step` is the trainer's own code after each step; its time is the host's ("logging"). No step follows one after
/// which it breaks.
///
/// # Errors
/// The first failure of the pipeline or of a step.
pub fn train<W: SampleWork, H: HostToDevice, T: TrainStep<Batch = H::Batch>>(
    feed: &mut Feed<W, H>,
    trainer: &mut T,
    mut after_step: impl FnMut(StepDone) -> ControlFlow<()>,
) -> Result<u64, TrainError> {
    let mut course = Course::default();
    let ran = steps(feed, trainer, &mut course, &mut after_step);
    // What is known of the last steps is told however it ended.
    let finished = trainer.finish();
    let outcomes = course.told(trainer.outcomes());
    if !outcomes.is_empty() {
        let _over_already = after_step(StepDone {
            steps: course.steps,
            epoch: course.epoch,
            outcomes,
            memory: None,
        });
    }
    ran.and(finished).map(|()| course.steps)
}

fn steps<W: SampleWork, H: HostToDevice, T: TrainStep<Batch = H::Batch>>(
    feed: &mut Feed<W, H>,
    trainer: &mut T,
    course: &mut Course,
    after_step: &mut impl FnMut(StepDone) -> ControlFlow<()>,
) -> Result<(), TrainError> {
    while let Some(delivered) = feed.next()? {
        let (number, epoch, samples) = (delivered.number, delivered.epoch, delivered.samples);
        let Some(logbook) = feed.logbook() else { break };
        let learned = trainer.step(delivered, logbook)?;
        course.steps += 1;
        course.epoch = epoch;
        let logging_from = logbook.now();
        let looks = course.looks_at_memory(logging_from);
        let memory = looks.then(|| trainer.memory()).flatten();
        if T::DEFERS || learned.is_some() {
            course.unknown.push_back((epoch, samples));
        }
        let known = learned.into_iter().chain(trainer.outcomes());
        let goes_on = after_step(StepDone {
            steps: course.steps,
            epoch,
            outcomes: course.told(known),
            memory,
        });
        let logging_to = logbook.now();
        logbook.host(HostWork::Logging, number, logging_from, logging_to);
        feed.finish_step_when(|logbook| trainer.wait_for_room(logbook));
        trainer.step_closed();
        if goes_on.is_break() {
            break;
        }
    }
    Ok(())
}

/// How far training has come.
#[derive(Default)]
struct Course {
    steps: u64,
    /// Of the last step.
    epoch: u64,
    /// Epoch and samples of the steps whose outcome is not known yet.
    unknown: VecDeque<(u64, usize)>,
    look_at: Nanos,
}

impl Course {
    /// What the oldest steps learned of which that was not known.
    fn told(&mut self, known: impl IntoIterator<Item = Learned>) -> Vec<Outcome> {
        let outcome = |learned| {
            let (epoch, samples) = self.unknown.pop_front()?;
            Some(Outcome {
                epoch,
                samples,
                learned,
            })
        };
        known.into_iter().filter_map(outcome).collect()
    }

    /// Whether it is time to look at the device's memory.
    fn looks_at_memory(&mut self, now: Nanos) -> bool {
        let looks = now >= self.look_at;
        if looks {
            self.look_at = now + MEMORY_EVERY;
        }
        looks
    }
}

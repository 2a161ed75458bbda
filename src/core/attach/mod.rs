//! Profiles a loader and a training loop that are not ours: code that wraps them says when a sample is fetched, a batch
//! collated and the next batch asked for.
//!
//! The wrapped loader's threads each make whole batches, one sample after another, and hand them to the training loop's
//! thread over a queue; without such threads the loop's own makes them. All threads share one [`Attached`].
//!
//! ```
//! use stallscope_core::attach::{Attached, AttachOptions};
//!
//! let attached = Attached::new(AttachOptions::default());
//! let get = attached.stage("get")?;
//! for _ in 0..2 {
//!     let mut epoch = attached.epoch(6);
//!     for first in [0, 2, 4] {
//!         let load = || {
//!             let pair = [first, first + 1].map(|index| attached.sample(get, index, || Some(index)).unwrap());
//!             Some(attached.batch(pair.len(), || pair.iter().sum::<usize>()))
//!         };
//!         let batch = epoch.next(load);
//!         assert_eq!(batch, Some(2 * first + 1));
//!     }
//! }
//! let report = attached.finish();
//! assert_eq!((report.steps, report.samples), (6, 12));
//! # Ok::<(), stallscope_core::attach::AttachError>(())
//! ```
//!
//! Invariants: nothing that is wrapped behaves differently; the report names all that was passed through without being
//! recorded; a thread's lane goes to another thread when it ends, so that lanes do not pile up. May use `loader`, `report`,
//! `analysis`, `pipeline`, `machine` and `timeline`.

mod desk;
mod training;

pub use training::Epoch;

use crate::analysis::{Cause, LoaderShape};
use crate::loader::{Measurement, MeasurementOptions, Standing, attached_settings};
use crate::machine::usable_cores;
use crate::report::{Report, Status};
use crate::timeline::{
    Clock, LaneRecorder, Layout, Nanos, Pipeline, Recorder, StageKind, StageKnobs, StageNameError,
    ThreadUsage, UnitRef,
};
use desk::{Started as EpochStart, Worker};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use training::Trainer;

/// How a training is profiled.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// First steps that are not measured: they load kernels and fill caches.
    pub warmup_steps: u64,
    /// Where a trace for Perfetto is written.
    pub trace: Option<PathBuf>,
    /// Steps that are in the trace, from the first.
    pub trace_steps: u64,
    /// Batches that fit in the wrapped loader's queue, over all of its threads.
    pub queue: usize,
}

impl Default for AttachOptions {
    fn default() -> AttachOptions {
        AttachOptions {
            warmup_steps: 0,
            trace: None,
            trace_steps: 200,
            queue: 100,
        }
    }
}

/// Why something cannot be attached to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// A name that cannot be a stage's.
    #[error(transparent)]
    Name(#[from] StageNameError),
    /// A part of a sample's way that is named too late.
    #[error("`{0}` is wrapped after the training has begun\n  try: wrap it before the first epoch")]
    Late(String),
}

/// A part of what is done to a sample, of an [`Attached`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part(usize);

/// A batch's origin, which travels with it from the thread that made it to the training loop.
#[derive(Copy, Clone, Debug)]
pub struct Tag {
    number: u64,
    samples: u32,
    ready_at: Nanos,
    unit: UnitRef,
}

/// How the training stands: for progress displays.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Live {
    /// Device busy / time, 0 to 1.
    pub device_busy: f64,
    /// The longest cause of device idle time.
    pub cause: Option<Cause>,
}

/// A training that is profiled. Clones are the same one.
#[derive(Clone)]
pub struct Attached(Arc<Shared>);

struct Shared {
    /// Tells it from others of the process.
    id: u64,
    options: AttachOptions,
    /// The parts of a sample's way, in order.
    names: Mutex<Vec<String>>,
    /// `None` where it could not begin.
    running: OnceLock<Option<Running>>,
    problems: Mutex<Vec<String>>,
}

/// From the first epoch on.
struct Running {
    measurement: Mutex<Measurement>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    pipeline: &'static Pipeline,
    trainer: Mutex<Trainer>,
    epoch: Mutex<EpochStart>,
    /// Batches that fit in the loader's queue.
    queue: usize,
    /// The unit of the training loop's thread that took the last batch.
    taking: AtomicU64,
    /// Batches that were begun and made, and those of them that no longer wait in the queue.
    begun: AtomicU64,
    made: AtomicU64,
    taken: AtomicU64,
    /// A pass of the training loop is in progress.
    is_training: AtomicBool,
    /// Nothing is recorded any more.
    is_over: AtomicBool,
    /// Samples of an epoch, and of the largest batch.
    samples: AtomicUsize,
    largest_batch: AtomicUsize,
    /// The most loader threads whose batches came in one pass.
    most_workers: AtomicUsize,
    /// Lanes of threads that have ended, by name, and what they had used.
    spare: Mutex<Vec<(String, LaneRecorder, ThreadUsage)>>,
}

thread_local! {
    /// The id of the one whose next batch this thread is asking for.
    static ASKING: Cell<u64> = const { Cell::new(0) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attached {
    /// One that has begun nothing yet.
    pub fn new(options: AttachOptions) -> Attached {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Attached(Arc::new(Shared {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            options,
            names: Mutex::default(),
            running: OnceLock::new(),
            problems: Mutex::default(),
        }))
    }

    /// Names a part of what is done to each sample, behind those that were named before. Of parts that are nested the
    /// inner ones come first.
    ///
    /// # Errors
    /// A name that cannot be a stage's, or a training that has begun.
    pub fn stage(&self, name: &str) -> Result<Part, AttachError> {
        let mut names = locked(&self.0.names);
        if self.0.running.get().is_some() {
            return Err(AttachError::Late(name.to_owned()));
        }
        names.push(name.to_owned());
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Err(error) = Pipeline::of(&all) {
            names.pop();
            return Err(error.into());
        }
        Ok(Part(names.len() - 1))
    }

    /// Says in the report, once, that something is not measured.
    pub fn problem(&self, problem: String) {
        let mut problems = locked(&self.0.problems);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Whether the training loop has begun to iterate.
    pub fn has_begun(&self) -> bool {
        self.0.running.get().is_some()
    }

    /// Whether a pass of the training loop over its loader is in progress.
    pub fn is_training(&self) -> bool {
        let running = self.0.measuring();
        running.is_some_and(|running| running.is_training.load(Ordering::Relaxed))
    }

    /// Does a `part` of what is done to the sample `index`, in any thread; `None` is no sample. Parts may be nested; each
    /// has the time that those inside do not take.
    pub fn sample<T>(
        &self,
        part: Part,
        index: usize,
        serve: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let Some(running) = self.0.measuring() else {
            return serve();
        };
        let inline = ASKING.get() == self.0.id;
        let now = running.clock.now();
        self.0.desk(running, inline, |desk| {
            desk.enter(running, part.0, index, now)
        });
        let result = serve();
        let now = running.clock.now();
        let is_one = result.is_some();
        self.0
            .desk(running, inline, |desk| desk.exit(running, is_one, now));
        result
    }

    /// Makes a batch of the `samples` samples that this thread has served since its last batch.
    pub fn batch<T>(&self, samples: usize, collate: impl FnOnce() -> T) -> (T, Option<Tag>) {
        let Some(running) = self.0.measuring() else {
            return (collate(), None);
        };
        let inline = ASKING.get() == self.0.id;
        let now = running.clock.now();
        self.0
            .desk(running, inline, |desk| desk.samples_done(running, now));
        let batch = collate();
        let now = running.clock.now();
        let tag = self.0.desk(running, inline, |desk| {
            desk.batch_done(running, samples, now, inline)
        });
        running.largest_batch.fetch_max(samples, Ordering::Relaxed);
        (batch, Some(tag))
    }

    /// The training loop begins to iterate over its loader, of `samples` samples.
    pub fn epoch(&self, samples: usize) -> Epoch {
        let running = self.0.running.get_or_init(|| self.0.begin());
        if let Some(running) = running {
            running.samples.store(samples, Ordering::Relaxed);
        }
        Epoch::begin(self.clone())
    }

    /// The device is done with the step in progress; what follows until the next batch is asked for is the training
    /// loop's own time. Where this is not called, all of it keeps the device busy.
    pub fn computed(&self) {
        if let Some(running) = self.0.measuring() {
            locked(&running.trainer).computed(running.clock.now());
        }
    }

    /// How the training stands; `None` before the first measured step.
    pub fn live(&self) -> Option<Live> {
        let summary = locked(&self.0.running()?.measurement).summary()?;
        let causes = summary.causes.iter();
        let longest = { causes }.max_by_key(|(_, length)| *length);
        Some(Live {
            device_busy: summary.busy_share(),
            cause: longest.map(|(cause, _)| *cause),
        })
    }

    /// What was measured so far.
    pub fn report(&self) -> Report {
        self.0.report(Status::Running)
    }

    /// Ends the measurement and reports on all of it. A thread that panics reports a run that failed.
    pub fn finish(&self) -> Report {
        // What begins later is not measured.
        self.0.running.set(None).ok();
        if let Some(running) = self.0.measuring() {
            locked(&running.trainer).end_step(running, running.clock.now());
            running.is_over.store(true, Ordering::Relaxed);
            locked(&running.measurement).finish();
        }
        if std::thread::panicking() {
            self.problem("the training panicked".to_owned());
            return self.0.report(Status::Failed);
        }
        self.0.report(Status::Complete)
    }
}

impl Shared {
    fn running(&self) -> Option<&Running> {
        self.running.get()?.as_ref()
    }

    /// The same until the measurement ends.
    fn measuring(&self) -> Option<&Running> {
        self.running()
            .filter(|running| !running.is_over.load(Ordering::Relaxed))
    }

    /// Begins to measure; says why where that cannot be.
    fn begin(&self) -> Option<Running> {
        let names = locked(&self.names);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let problem = match Pipeline::of(&names).map(|pipeline| self.measure(pipeline)) {
            Ok(Ok(running)) => return Some(running),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "nothing is measured: no dataset is wrapped\n  try: wrap the dataset as well"
                .to_owned(),
        };
        locked(&self.problems).push(problem);
        None
    }

    fn measure(
        &self,
        pipeline: &'static Pipeline,
    ) -> Result<Running, crate::loader::MeasurementError> {
        let options = &self.options;
        let measured = MeasurementOptions {
            warmup_steps: options.warmup_steps,
            steps: None,
            batches_per_epoch: None,
            in_flight: RECORDED * options.queue,
            trace: options
                .trace
                .clone()
                .map(|path| (path, 0..options.trace_steps)),
        };
        let shape = LoaderShape {
            pipeline,
            layout: workers(0, options.queue),
            copy: NO_COPY,
            has_device: true,
            resident: None,
            device_beside: false,
            disk: None,
            copy_latency: Nanos::ZERO,
            value_bytes: 1,
            cores: usable_cores(),
        };
        let measurement = Measurement::start(shape, &measured)?;
        let (recorder, clock) = (measurement.recorder().clone(), measurement.clock().clone());
        let trainer = Trainer::new(&recorder, clock.now());
        Ok(Running {
            measurement: Mutex::new(measurement),
            epoch: Mutex::new(EpochStart::default()),
            queue: self.options.queue,
            recorder,
            clock,
            pipeline,
            trainer: Mutex::new(trainer),
            taking: AtomicU64::new(UnitRef::NONE.word()),
            begun: AtomicU64::default(),
            made: AtomicU64::default(),
            taken: AtomicU64::default(),
            is_training: AtomicBool::default(),
            is_over: AtomicBool::default(),
            samples: AtomicUsize::default(),
            largest_batch: AtomicUsize::default(),
            most_workers: AtomicUsize::default(),
            spare: Mutex::default(),
        })
    }

    fn report(&self, status: Status) -> Report {
        let problems = locked(&self.problems).join("\n");
        let error = (!problems.is_empty()).then_some(problems);
        let Some(running) = self.running() else {
            return Report {
                status,
                error,
                ..Report::default()
            };
        };
        let threads = running.most_workers.load(Ordering::Relaxed);
        let samples = running.samples.load(Ordering::Relaxed);
        let batch = running.largest_batch.load(Ordering::Relaxed);
        let steps = running.recorder.steps(StageKind::Step).all.steps;
        let mut measurement = locked(&running.measurement);
        measurement.shape().layout = workers(threads, self.options.queue);
        measurement.report(Standing {
            status,
            error,
            samples,
            device: "your training".to_owned(),
            config: attached_settings(samples, batch, steps, &workers(threads, self.options.queue)),
            ..Standing::default()
        })
    }
}

/// Samples of a batch that are recorded one by one while a queue is full of such batches.
const RECORDED: usize = 64;

/// The wrapped loader makes batches where they are used.
const NO_COPY: StageKnobs = StageKnobs {
    workers: 1,
    prefetch: 1,
};

/// So many threads, which together have room for `queue` batches.
fn workers(num_workers: usize, queue: usize) -> Layout {
    Layout::WholeBatch {
        num_workers,
        prefetch_factor: queue.div_ceil(num_workers.max(1)),
    }
}

impl Shared {
    /// This thread's desk: the training loop's where it is asking for a batch, or else one of its own.
    fn desk<T>(
        self: &Arc<Self>,
        running: &Running,
        inline: bool,
        work: impl FnOnce(&mut desk::Desk) -> T,
    ) -> T {
        match inline {
            true => work(&mut locked(&running.trainer).desk),
            false => Worker::of_this_thread(self, running, work),
        }
    }
}

#[cfg(test)]
mod tests;

//! Training on a GPU that runs beside the trainer's thread: steps are launched and not waited for, up to as many as
//! the thread may run ahead, and their outcomes are read by a thread of its own.
//!
//! That thread sees when each step's CUDA event has completed, and tells the device's queue. Where nothing better tells
//! what the device did, that is its lane: a step has begun when it was launched and the step before was over. May use
//! `pipeline` and `timeline`.

use super::burning::{checked, guarded};
use super::memory::DeviceMemory;
use super::step::{Awaited, TrainError, TrainStep};
use crate::pipeline::{Delivered, DeviceQueues, Logbook, Submitted, Work};
use crate::timeline::{Clock, HostWork, LaneRecorder, Nanos, UnitRef};
use crossbeam_channel::{Receiver, Sender, unbounded};
use stallscope_trainer::{Learned, Pending};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Launches the steps of some model. So that the trainer can be tested without a GPU.
pub trait Launch {
    /// The batch as the copy stage left it.
    type Batch;

    /// Launches a step; returns its number and its outcome for whoever waits for it.
    ///
    /// # Errors
    /// Why the device refused it.
    fn launch(&mut self, batch: Self::Batch) -> Result<(u64, Box<dyn Pending>), TrainError>;

    /// How much of its memory the device has in use, where that is counted.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
}

/// How long the device is waited for at the moment.
#[derive(Debug, Default)]
pub struct DeviceWait {
    /// When the wait began, and what the longest that ended took; 0 for none.
    since: AtomicU64,
    longest: AtomicU64,
    step: AtomicU64,
    most_ahead: AtomicUsize,
}

/// Kernels are compiled and tuned before the run, so that no step takes as long.
const LONGEST_STEP: Nanos = Nanos::from_millis(10_000);
/// And none takes as many times as long as another.
const TIMES_LONGEST: u64 = 20;
/// Some kernels of an evaluation are compiled in it.
const LONGEST_EVALUATED: Nanos = Nanos::from_millis(60_000);
/// In the place of a step's number: the evaluation.
const EVALUATION: u64 = u64::MAX;

impl DeviceWait {
    /// Runs `body`, which evaluates a batch, as something that is waited for.
    pub fn evaluating<T>(&self, clock: &dyn Clock, body: impl FnOnce() -> T) -> T {
        self.begin(EVALUATION, clock.now());
        let done = body();
        self.since.store(0, Ordering::Release);
        done
    }

    fn begin(&self, step: u64, now: Nanos) {
        self.step.store(step, Ordering::Relaxed);
        self.since.store(now.0.max(1), Ordering::Release);
    }

    fn end(&self, now: Nanos) {
        let since = self.since.swap(0, Ordering::AcqRel);
        self.longest
            .fetch_max(now.0.saturating_sub(since), Ordering::Relaxed);
    }

    /// Most earlier steps that were not over when one had been launched.
    pub fn most_ahead(&self) -> usize {
        self.most_ahead.load(Ordering::Relaxed)
    }

    /// What the device does not end, and how long it has been waited for.
    pub fn hangs(&self, now: Nanos) -> Option<(Awaited, Nanos)> {
        let since = self.since.load(Ordering::Acquire);
        let waited = Nanos(now.0.saturating_sub(since));
        let longest = self.longest.load(Ordering::Relaxed);
        let (work, least) = match self.step.load(Ordering::Relaxed) {
            EVALUATION => (Awaited::Evaluation, LONGEST_EVALUATED),
            step => (Awaited::Step(step), LONGEST_STEP),
        };
        let bound = least.max(Nanos(longest.saturating_mul(TIMES_LONGEST)));
        (since > 0 && waited > bound).then_some((work, waited))
    }
}

/// A step that has been launched.
struct Launched {
    step: u64,
    batch: u64,
    submitted: Submitted,
    pending: Box<dyn Pending>,
}

/// What a step that the device has done was about.
type Done = Result<Learned, TrainError>;

/// Trains on the GPU.
pub struct GpuTrainer<'a, L> {
    launcher: &'a mut L,
    run_ahead: usize,
    device: DeviceQueues,
    to_reader: Option<Sender<Launched>>,
    from_reader: Receiver<Done>,
    reader: Option<JoinHandle<()>>,
    wait: Arc<DeviceWait>,
    outcomes: Vec<Learned>,
    failed: Option<TrainError>,
}

impl<'a, L: Launch> GpuTrainer<'a, L> {
    /// A trainer that runs at most `run_ahead` steps ahead of the device, whose steps are named on `device`, a lane
    /// made for them. With `writes` the end of each is recorded there as seen from the host. `wait` tells of steps that
    /// do not end.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn new(
        launcher: &'a mut L,
        run_ahead: usize,
        clock: Arc<dyn Clock>,
        device: LaneRecorder,
        writes: bool,
        wait: Arc<DeviceWait>,
    ) -> io::Result<GpuTrainer<'a, L>> {
        let (to_reader, launched) = unbounded();
        let (done, from_reader) = unbounded();
        let reader = std::thread::Builder::new().name("outcomes".to_owned());
        let read = wait.clone();
        let reader = reader.spawn(move || read_outcomes(&launched, &done, &read))?;
        Ok(GpuTrainer {
            launcher,
            run_ahead,
            device: DeviceQueues::new(clock, vec![device], writes),
            to_reader: Some(to_reader),
            from_reader,
            reader: Some(reader),
            wait,
            outcomes: Vec::new(),
            failed: None,
        })
    }

    /// Takes what has become known.
    fn take_outcomes(&mut self) {
        while let Ok(done) = self.from_reader.try_recv() {
            match done {
                // Those after a failure would be taken for the outcome of the step that failed.
                Ok(learned) if self.failed.is_none() => self.outcomes.push(learned),
                Ok(_) => {}
                Err(error) => {
                    self.failed.get_or_insert(error);
                }
            }
        }
    }
}

impl<L> GpuTrainer<'_, L> {
    fn end_reader(&mut self) {
        self.to_reader = None;
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
        self.device.finish();
    }
}

impl<L: Launch> TrainStep for GpuTrainer<'_, L> {
    type Batch = L::Batch;

    const DEFERS: bool = true;

    fn step(
        &mut self,
        batch: Delivered<L::Batch>,
        logbook: &mut Logbook,
    ) -> Result<Option<Learned>, TrainError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (number, samples, began) = (batch.number, batch.samples, logbook.now());
        let (step, pending) = self.launcher.launch(batch.batch)?;
        logbook.host(HostWork::Launch, number, began, logbook.now());
        let host = logbook.current();
        let work = Work {
            batch: number,
            samples: samples as u32,
            at: began,
            cause: host,
            host,
        };
        let launched = Launched {
            step,
            batch: number,
            submitted: self.device.submit(0, work),
            pending,
        };
        let ahead = self.device.under_way().saturating_sub(1);
        self.wait.most_ahead.fetch_max(ahead, Ordering::Relaxed);
        if let Some(reader) = &self.to_reader {
            reader.send(launched).ok();
        }
        Ok(None)
    }

    fn outcomes(&mut self) -> Vec<Learned> {
        std::mem::take(&mut self.outcomes)
    }

    fn wait_for_room(&mut self, _: &Logbook) -> Option<(Nanos, UnitRef)> {
        let room = self.device.wait_for_room(self.run_ahead);
        self.take_outcomes();
        room
    }

    fn memory(&self) -> Option<DeviceMemory> {
        self.launcher.memory()
    }

    fn step_closed(&mut self) {
        self.device.step_closed();
    }

    fn finish(&mut self) -> Result<(), TrainError> {
        self.end_reader();
        self.take_outcomes();
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl<L> Drop for GpuTrainer<'_, L> {
    fn drop(&mut self) {
        self.end_reader();
    }
}

/// Waits for one step after another, and tells the device's queue of its end once its outcome can be taken.
fn read_outcomes(launched: &Receiver<Launched>, done: &Sender<Done>, wait: &DeviceWait) {
    for Launched {
        step,
        batch,
        submitted,
        pending,
    } in launched
    {
        wait.begin(step, submitted.now());
        let learned = guarded(|| pending.wait());
        let end = submitted.now();
        wait.end(end);
        done.send(checked(step, batch, learned)).ok();
        submitted.ran(Nanos::ZERO..end);
    }
}

#[cfg(test)]
mod tests;

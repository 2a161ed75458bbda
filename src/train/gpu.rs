//! Training on a GPU that runs beside the trainer's thread: steps are launched and not waited for, up to as many as
//! the thread may run ahead, and their outcomes are read by a thread of its own.
//!
//! That thread sees when each step's CUDA event has completed. Where nothing better tells what the device did, it
//! writes the device's lane: a step has begun when it was launched and the step before was over. May use
//! `pipeline` and `timeline`.

use super::burning::{checked, guarded};
use super::memory::DeviceMemory;
use super::step::{TrainError, TrainStep};
use crate::pipeline::{Delivered, Logbook};
use crate::timeline::{
    BusySpan, Clock, DevicePhase, HostWork, LaneRecorder, Nanos, Record, Stage, StageKind,
    UnitRecord, UnitRef,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use stallscope_burn::{Learned, Pending};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// A step that has been launched.
struct Launched {
    step: u64,
    batch: u64,
    samples: u32,
    /// The unit of work that launched it, and when.
    host: UnitRef,
    at: Nanos,
    pending: Box<dyn Pending>,
}

/// What a step that the device has done was about.
type Done = Result<Learned, TrainError>;

/// Trains on the GPU.
pub struct GpuTrainer<'a, L> {
    launcher: &'a mut L,
    run_ahead: usize,
    /// The device's lane, and how many steps of it are over.
    device: UnitRef,
    launched: u64,
    done: u64,
    to_reader: Option<Sender<Launched>>,
    from_reader: Receiver<Done>,
    reader: Option<JoinHandle<()>>,
    /// Steps of this thread whose records are written.
    closed: Arc<AtomicU64>,
    outcomes: Vec<Learned>,
    failed: Option<TrainError>,
}

impl<'a, L: Launch> GpuTrainer<'a, L> {
    /// A trainer that runs at most `run_ahead` steps ahead of the device, whose steps are named on `device`, a lane
    /// made for them. With `writes` the end of each is recorded there as seen from the host.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn new(
        launcher: &'a mut L,
        run_ahead: usize,
        clock: Arc<dyn Clock>,
        device: LaneRecorder,
        writes: bool,
    ) -> io::Result<GpuTrainer<'a, L>> {
        let (to_reader, launched) = unbounded();
        let (done, from_reader) = unbounded();
        let closed = Arc::new(AtomicU64::new(0));
        let first = device.current();
        let reader = Reader {
            clock,
            lane: writes.then_some(device),
            closed: closed.clone(),
            free_at: Nanos::ZERO,
            unwritten: VecDeque::new(),
            written: 0,
        };
        let reader = std::thread::Builder::new()
            .name("outcomes".to_owned())
            .spawn(move || reader.run(&launched, &done))?;
        Ok(GpuTrainer {
            launcher,
            run_ahead,
            device: first,
            launched: 0,
            done: 0,
            to_reader: Some(to_reader),
            from_reader,
            reader: Some(reader),
            closed,
            outcomes: Vec::new(),
            failed: None,
        })
    }

    fn take(&mut self, done: Done) {
        self.done += 1;
        match done {
            // Those after a failure would be taken for the outcome of the step that failed.
            Ok(learned) if self.failed.is_none() => self.outcomes.push(learned),
            Ok(_) => {}
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    /// Waits until at most `left` steps are under way. Says whether it had to wait.
    fn wait_until(&mut self, left: u64) -> bool {
        while let Ok(done) = self.from_reader.try_recv() {
            self.take(done);
        }
        let mut waited = false;
        while self.failed.is_none() && self.launched - self.done > left {
            waited = true;
            match self.from_reader.recv() {
                Ok(done) => self.take(done),
                Err(_) => break,
            }
        }
        waited
    }
}

impl<L> GpuTrainer<'_, L> {
    fn end_reader(&mut self) {
        self.to_reader = None;
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
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
        self.launched += 1;
        let launched = Launched {
            step,
            batch: number,
            samples: samples as u32,
            host: logbook.current(),
            at: began,
            pending,
        };
        if let Some(reader) = &self.to_reader {
            reader.send(launched).ok();
        }
        Ok(None)
    }

    fn outcomes(&mut self) -> Vec<Learned> {
        std::mem::take(&mut self.outcomes)
    }

    fn wait_for_room(&mut self, logbook: &Logbook) -> Option<(Nanos, UnitRef)> {
        let waited = self.wait_until(self.run_ahead as u64);
        // The step whose end made the room is the last of those that are over.
        let last = self.done.checked_sub(1).filter(|_| waited)?;
        let unit = UnitRef::new(self.device.lane(), self.device.ordinal() + last);
        Some((logbook.now(), unit))
    }

    fn memory(&self) -> Option<DeviceMemory> {
        self.launcher.memory()
    }

    fn step_closed(&mut self) {
        self.closed.fetch_add(1, Ordering::Release);
    }

    fn finish(&mut self) -> Result<(), TrainError> {
        self.wait_until(0);
        self.end_reader();
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl<L> Drop for GpuTrainer<'_, L> {
    fn drop(&mut self) {
        self.end_reader();
    }
}

/// What the thread that reads outcomes works on.
struct Reader {
    clock: Arc<dyn Clock>,
    /// The device's lane, where this thread writes it.
    lane: Option<LaneRecorder>,
    closed: Arc<AtomicU64>,
    /// When the device was done with the last step.
    free_at: Nanos,
    /// Units of the device are written after those of the thread that launched them.
    unwritten: VecDeque<UnitRecord>,
    written: u64,
}

impl Reader {
    fn run(mut self, launched: &Receiver<Launched>, done: &Sender<Done>) {
        for Launched {
            step,
            batch,
            samples,
            host,
            at,
            pending,
        } in launched
        {
            let learned = guarded(|| pending.wait());
            let end = self.clock.now();
            let waited = at > self.free_at;
            let start = at.max(self.free_at);
            let lane = self.lane.as_ref();
            let stage = lane.map_or(Stage::DEVICE, |lane| lane.stage(StageKind::Device));
            self.note(UnitRecord {
                samples,
                ..UnitRecord::of_device(stage, batch, host, waited, start, end)
            });
            self.write(false);
            if done.send(checked(step, batch, learned)).is_err() {
                break;
            }
        }
        self.write(true);
    }

    /// A step of the device's that has just been over.
    fn note(&mut self, unit: UnitRecord) {
        let Some(lane) = &mut self.lane else { return };
        lane.write(&Record::Busy(BusySpan {
            phase: DevicePhase::Step,
            batch: unit.item.batch,
            start: unit.start,
            end: unit.end,
        }));
        self.free_at = unit.end;
        self.unwritten.push_back(unit);
    }

    fn write(&mut self, at_the_end: bool) {
        let Some(lane) = &mut self.lane else { return };
        while self.written < self.closed.load(Ordering::Acquire) || at_the_end {
            let Some(unit) = self.unwritten.pop_front() else {
                return;
            };
            lane.unit(&unit);
            self.written += 1;
        }
    }
}

#[cfg(test)]
mod tests;

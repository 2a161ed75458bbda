//! Training on an emulated accelerator: the host's part is real (its thread launches, waits and runs ahead),
//! the device's is arithmetic. burn may train beside it, on the CPU.

use super::burning::{BurnCopy, BurnTrainer, DeviceBatch};
use super::memory::DeviceMemory;
use super::step::{TrainError, TrainStep};
use super::together::Together;
use crate::device::emulated::{
    ComputeQueue, CopyEngine, EmulatedMemory, EmulatedSpec, EmulatedStep,
};
use crate::pipeline::{
    Delivered, DeviceQueues, HostBatch, HostToDevice, Logbook, SampleError, StopSignal, Work,
};
use crate::timeline::{
    Bytes, Clock, DevicePhase, HostWork, Interval, LaneKind, LaneRecorder, Nanos, Recorder,
    StageKind, UnitRecord, UnitRef,
};
use stallscope_trainer::Learned;
use std::collections::VecDeque;
use std::sync::Arc;

/// Copies in flight: one that runs and one that waits for the engine, as with double buffering.
const IN_FLIGHT: usize = 2;

/// A batch that is, or soon will be, on the emulated device.
#[derive(Clone)]
pub struct EmulatedBatch {
    /// When its copy ends, and the unit of work that copies it.
    copied: Nanos,
    by: UnitRef,
    /// For burn, where it trains beside.
    burn: Option<DeviceBatch>,
}

/// Hands batches to the emulated copy engine, which copies them while the host goes on.
pub struct EmulatedCopy {
    engine: CopyEngine,
    clock: Arc<dyn Clock>,
    stop: StopSignal,
    lane: LaneRecorder,
    /// Ends of the copies that have not ended.
    in_flight: VecDeque<Nanos>,
    burn: Option<BurnCopy>,
}

impl EmulatedCopy {
    /// Copies to a device of that `spec`, on `clock`; `burn` copies for its own trainer as well. Nothing is
    /// waited for once `stop` is given.
    pub fn new(
        spec: &EmulatedSpec,
        clock: Arc<dyn Clock>,
        stop: StopSignal,
        recorder: &Recorder,
        burn: Option<BurnCopy>,
    ) -> EmulatedCopy {
        EmulatedCopy {
            engine: CopyEngine::new(spec),
            clock,
            stop,
            lane: recorder.lane("copy engine (emulated)", LaneKind::CopyEngine),
            in_flight: VecDeque::with_capacity(IN_FLIGHT),
            burn,
        }
    }
}

impl HostToDevice for EmulatedCopy {
    type Batch = EmulatedBatch;

    fn copy(&mut self, batch: &mut HostBatch, unit: UnitRef) -> Result<EmulatedBatch, SampleError> {
        if self.in_flight.len() >= IN_FLIGHT
            && let Some(oldest) = self.in_flight.pop_front()
        {
            self.stop.sleep_until(oldest);
        }
        let submitted = self.clock.now();
        let bytes = batch.bytes().len() as u64;
        let copy = self.engine.copy(submitted, bytes);
        self.in_flight.push_back(copy.end);
        let by = self.lane.current();
        let (number, waited) = (batch.number, copy.start == submitted);
        let stage = self.lane.stage(StageKind::Transfer);
        self.lane.unit(&UnitRecord {
            samples: batch.len() as u32,
            bytes_in: bytes,
            bytes_out: bytes,
            ..UnitRecord::of_device(stage, number, unit, waited, copy.start, copy.end)
        });
        let burn = self.burn.as_mut();
        let burn = burn.map(|burn| burn.copy(batch, unit)).transpose()?;
        Ok(EmulatedBatch {
            copied: copy.end,
            by,
            burn,
        })
    }
}

/// Trains on the emulated device.
pub struct EmulatedTrainer {
    queue: ComputeQueue,
    stop: StopSignal,
    device: DeviceQueues,
    /// Ends of the steps that have not ended, and their units of work.
    unfinished: VecDeque<(Nanos, UnitRef)>,
    /// Steps launched so far, and the most samples in one.
    steps: u64,
    most_samples: u64,
    burn: Option<BurnTrainer>,
    /// Whose steps end with this one's.
    ranks: Option<Together>,
}

impl EmulatedTrainer {
    /// A device of that `spec`, on `clock`; `burn` trains beside it. Nothing is waited for once `stop` is given.
    pub fn new(
        spec: EmulatedSpec,
        clock: Arc<dyn Clock>,
        stop: StopSignal,
        recorder: &Recorder,
        burn: Option<BurnTrainer>,
    ) -> EmulatedTrainer {
        let lane = recorder.lane("device (emulated)", LaneKind::Device);
        EmulatedTrainer {
            queue: ComputeQueue::new(spec),
            stop,
            device: DeviceQueues::new(clock, vec![lane], true),
            unfinished: VecDeque::new(),
            steps: 0,
            most_samples: 0,
            burn,
            ranks: None,
        }
    }

    /// A step ends when all of `ranks` have ended theirs, and the next one begins after that.
    pub fn in_step_with(mut self, ranks: Option<Together>) -> EmulatedTrainer {
        self.ranks = ranks;
        self
    }

    /// Waits until the device has done the step of the batch `number`, and the other ranks theirs.
    fn meet(&mut self, number: u64, logbook: &mut Logbook) -> Result<(), TrainError> {
        if self.ranks.is_none() {
            return Ok(());
        }
        // The device is busy at first: what it is idle for counts as waiting for others only behind that.
        let (step, from) = (self.steps - 1, logbook.now());
        self.finish()?;
        if let Some(ranks) = &mut self.ranks {
            let failed = |reason| TrainError::Step { step, reason };
            ranks.meet().map_err(failed)?;
        }
        logbook.host(HostWork::AllReduce, number, from, logbook.now());
        Ok(())
    }

    /// What burn has trained, where it does.
    pub fn into_burn(self) -> Option<BurnTrainer> {
        self.burn
    }

    /// Takes the memory that a step of `samples` samples needs.
    fn allocate(&mut self, samples: u64) -> Result<(), TrainError> {
        let memory = self.queue.spec().memory;
        if !memory.holds(samples) {
            let (needed, total) = (Bytes(memory.needed(samples)), memory.total.map(Bytes));
            let total = total.map_or_else(String::new, |total| format!(" of {total}"));
            return Err(TrainError::Step {
                step: self.steps,
                reason: format!("out of memory: the step needs {needed}{total}"),
            });
        }
        self.steps += 1;
        self.most_samples = self.most_samples.max(samples);
        Ok(())
    }

    /// Puts a step on the device.
    fn submit(&mut self, batch: &Delivered<EmulatedBatch>, launched: Nanos, host: UnitRef) {
        let EmulatedBatch { copied, by, .. } = batch.batch;
        let EmulatedStep {
            start,
            preprocessed,
            end,
        } = self.queue.step(launched, copied, batch.samples as u64);
        let work = Work {
            batch: batch.number,
            samples: batch.samples as u32,
            at: launched.max(copied),
            cause: if copied > launched { by } else { host },
            host,
        };
        let phases = [
            (DevicePhase::Preprocess, Interval::new(start, preprocessed)),
            (DevicePhase::Step, Interval::new(preprocessed, end)),
        ];
        let unit = self.device.submit(0, work).ran_in(&phases);
        self.unfinished.push_back((end, unit));
    }
}

impl TrainStep for EmulatedTrainer {
    type Batch = EmulatedBatch;

    fn step(
        &mut self,
        batch: Delivered<EmulatedBatch>,
        logbook: &mut Logbook,
    ) -> Result<Option<Learned>, TrainError> {
        self.allocate(batch.samples as u64)?;
        let (began, launch) = (logbook.now(), self.queue.spec().launch);
        // Up to here the launch takes; that the thread wakes a little later is not the device's time.
        let launched = began + launch;
        if launch > Nanos::ZERO {
            self.stop.sleep_until(launched);
            logbook.host(HostWork::Launch, batch.number, began, logbook.now());
        }
        self.submit(&batch, launched, logbook.current());
        let number = batch.number;
        let mut learned = None;
        if let Some((burn, on_cpu)) = self.burn.as_mut().zip(batch.batch.burn) {
            let from = logbook.now();
            learned = Some(burn.learn(number, on_cpu, |_| {})?);
            logbook.host(HostWork::Training, number, from, logbook.now());
        }
        self.meet(number, logbook)?;
        Ok(learned)
    }

    fn wait_for_room(&mut self, logbook: &Logbook) -> Option<(Nanos, UnitRef)> {
        let mut room = None;
        while self.unfinished.len() > self.queue.spec().run_ahead {
            let (end, unit) = self.unfinished.pop_front()?;
            if end > logbook.now() {
                self.stop.sleep_until(end);
                room = Some((logbook.now(), unit));
            }
        }
        room
    }

    fn step_closed(&mut self) {
        self.device.step_closed();
    }

    fn finish(&mut self) -> Result<(), TrainError> {
        if let Some((end, _)) = self.unfinished.back() {
            self.stop.sleep_until(*end);
        }
        self.unfinished.clear();
        Ok(())
    }

    /// As a pool that keeps what the largest batch needed; `None` where the configuration plans none.
    fn memory(&self) -> Option<DeviceMemory> {
        let memory = self.queue.spec().memory;
        let needed = memory.needed(self.most_samples);
        (memory != EmulatedMemory::default()).then_some(DeviceMemory {
            in_use: needed,
            reserved: needed,
        })
    }
}

//! Training on an emulated accelerator: the host's part is real (its thread launches, waits and runs ahead),
//! the device's is arithmetic. burn may train beside it, on the CPU.

use super::burning::{BurnCopy, BurnTrainer, DeviceBatch};
use super::memory::DeviceMemory;
use super::step::{TrainError, TrainStep};
use crate::device::emulated::{
    BoundBy, ComputeQueue, CopyEngine, EmulatedMemory, EmulatedSpec, EmulatedStep,
};
use crate::pipeline::{Delivered, HostBatch, HostToDevice, Logbook, SampleError, StopSignal};
use crate::timeline::{
    BusySpan, Bytes, Clock, DevicePhase, HostWork, LaneKind, LaneRecorder, Nanos, Record, Recorder,
    StageKind, UnitRecord, UnitRef,
};
use stallscope_burn::Learned;
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

    fn copy(&mut self, batch: &HostBatch, unit: UnitRef) -> Result<EmulatedBatch, SampleError> {
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
    lane: LaneRecorder,
    /// Ends of the steps that have not ended, and their units of work.
    unfinished: VecDeque<(Nanos, UnitRef)>,
    /// The last step's record, which is written after that of the thread that launched it.
    unwritten: Option<UnitRecord>,
    /// Steps launched so far, and the most samples in one.
    steps: u64,
    most_samples: u64,
    burn: Option<BurnTrainer>,
}

impl EmulatedTrainer {
    /// A device of that `spec`; `burn` trains beside it. Nothing is waited for once `stop` is given.
    pub fn new(
        spec: EmulatedSpec,
        stop: StopSignal,
        recorder: &Recorder,
        burn: Option<BurnTrainer>,
    ) -> EmulatedTrainer {
        EmulatedTrainer {
            queue: ComputeQueue::new(spec),
            stop,
            lane: recorder.lane("device (emulated)", LaneKind::Device),
            unfinished: VecDeque::new(),
            unwritten: None,
            steps: 0,
            most_samples: 0,
            burn,
        }
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

    fn busy(&mut self, phase: DevicePhase, batch: u64, start: Nanos, end: Nanos) {
        if end > start {
            self.lane.write(&Record::Busy(BusySpan {
                phase,
                batch,
                start,
                end,
            }));
        }
    }

    /// Puts a step on the device.
    fn submit(&mut self, batch: &Delivered<EmulatedBatch>, launched: Nanos, logbook: &Logbook) {
        let (number, on_device) = (batch.number, &batch.batch);
        let step = self
            .queue
            .step(launched, on_device.copied, batch.samples as u64);
        let EmulatedStep {
            start,
            preprocessed,
            end,
            bound_by,
        } = step;
        self.busy(DevicePhase::Preprocess, number, start, preprocessed);
        self.busy(DevicePhase::Step, number, preprocessed, end);
        let host = logbook.current();
        let cause = if bound_by == BoundBy::Copy {
            on_device.by
        } else {
            host
        };
        let waited = bound_by != BoundBy::Device;
        let stage = self.lane.stage(StageKind::Device);
        self.unfinished.push_back((end, self.lane.current()));
        self.unwritten = Some(UnitRecord {
            samples: batch.samples as u32,
            lineage: host,
            ..UnitRecord::of_device(stage, number, cause, waited, start, end)
        });
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
        self.submit(&batch, launched, logbook);
        let Some((burn, on_cpu)) = self.burn.as_mut().zip(batch.batch.burn) else {
            return Ok(None);
        };
        let from = logbook.now();
        let learned = burn.learn(batch.number, on_cpu, |_| {})?;
        logbook.host(HostWork::Training, batch.number, from, logbook.now());
        Ok(Some(learned))
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
        if let Some(unit) = self.unwritten.take() {
            self.lane.unit(&unit);
        }
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

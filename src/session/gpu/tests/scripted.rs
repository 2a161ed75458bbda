//! A run as a script: what a real pipeline would record of it, and what CUPTI would write into its buffers.
//!
//! One sample a batch, a worker a stage, queues without end; a launched kernel runs once it is launched and its
//! stream is free. Times are nanoseconds.

use crate::device::cupti::synthetic::{Buffer, CUDA_12_9};
use crate::device::cupti::{Activity, RecordCount};
use crate::device::gpu_steps::GpuLanes;
use crate::session::test_files::lanes as host_lanes;
use crate::timeline::{
    HostSpan, HostWork, Interval, IntervalSet, ItemId, LaneInfo, LaneKind, Nanos, Pipeline, Record,
    Stage, UnitRecord, UnitRef,
};
use std::collections::HashMap;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

const COPY: u16 = Stage::COPY.number() as u16;
const TRAINER: u16 = Stage::STEP.number() as u16;
pub const GPU_LANES: GpuLanes = GpuLanes {
    device: 6,
    copy_engine: 7,
};
/// Threads that call CUDA.
const LAUNCHER: u32 = 100;
const COPIER: u32 = 200;
const COPY_STREAM: u32 = 13;
pub const BATCH_BYTES: u64 = 1_000_000;

/// A kernel of every step.
#[derive(Copy, Clone, Debug)]
pub struct Kernel {
    /// When it is launched, from the start of the step on, and how long the call takes.
    pub at: u64,
    pub call: u64,
    /// From the end of the call to its start at the earliest.
    pub latency: u64,
    pub length: u64,
    pub stream: u32,
}

/// What every step is like.
#[derive(Clone, Debug)]
pub struct Script {
    /// Of each loader stage, in order.
    pub costs: [u64; 5],
    pub kernels: Vec<Kernel>,
    /// How long the outcome's way back to the host takes, once the stream before it is free.
    pub read_back: u64,
    pub read_back_stream: u32,
    /// How long the trainer's thread takes for a step.
    pub host: u64,
    pub run_ahead: usize,
    pub steps: u64,
    /// The device's clock is so much behind the host's.
    pub behind: u64,
}

/// What becomes of a record of CUPTI's.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Whole,
    NoTime,
    Backwards,
    Dropped,
}

/// A script, played.
pub struct Played {
    /// With the time at which it was written, by lane and in order there.
    pub host: Vec<(Nanos, u16, Record)>,
    /// With the step that it is of.
    pub activities: Vec<(u64, Activity)>,
    pub count: RecordCount,
    /// When kernels ran, and when each step ended on the device.
    pub busy: IntervalSet,
    pub ends: Vec<Nanos>,
}

pub fn lanes() -> Vec<LaneInfo> {
    let mut lanes = host_lanes();
    for (name, kind) in [
        ("device", LaneKind::Device),
        ("copy engine", LaneKind::CopyEngine),
    ] {
        let name = name.to_owned();
        lanes.push(LaneInfo {
            name,
            kind,
            thread: None,
        });
    }
    lanes
}

/// The host's threads and the device while the script is played.
struct Player<'a> {
    script: &'a Script,
    fates: &'a mut dyn FnMut() -> Fate,
    /// When each host lane is free.
    free: [u64; 6],
    streams: HashMap<u32, u64>,
    correlation: u32,
    played: Played,
}

impl Script {
    /// Plays it; `fates` says what becomes of each record of CUPTI's.
    pub fn play_with(&self, fates: &mut dyn FnMut() -> Fate) -> Played {
        let mut player = Player {
            script: self,
            fates,
            // No time is zero, which CUPTI gives to what it does not know.
            free: [MS; 6],
            streams: HashMap::new(),
            correlation: 0,
            played: Played {
                host: Vec::new(),
                activities: Vec::new(),
                count: RecordCount::default(),
                busy: IntervalSet::new(),
                ends: Vec::new(),
            },
        };
        (0..self.steps).for_each(|batch| player.step(batch));
        player.played
    }

    pub fn play(&self) -> Played {
        self.play_with(&mut || Fate::Whole)
    }
}

impl Player<'_> {
    fn step(&mut self, batch: u64) {
        let mut buffer = Buffer::new(CUDA_12_9);
        let mut ready = 0;
        for stage in Pipeline::IMAGES.loader() {
            ready = self.load(stage, batch, ready);
        }
        let copied = [ready - self.script.costs[4], ready];
        self.correlation += 1;
        let [start, end] = [copied[0], copied[1]].map(|at| at - self.script.behind);
        let call = [copied[0], copied[0] + 10];
        self.call(&mut buffer, call, COPIER);
        if let Some(times) = self.fated([start + 20, end]) {
            buffer.copy([1, 2, 3], BATCH_BYTES, times, COPY_STREAM, self.correlation);
        }
        let start = ready.max(self.free[TRAINER as usize]);
        let waited = ready > self.free[TRAINER as usize];
        let ended = self.device(batch, start, &mut buffer);
        self.played.ends.push(Nanos(ended));
        self.trainer(batch, start, waited);
        let (activities, count) = buffer.read();
        let activities = activities.into_iter().map(|activity| (batch, activity));
        self.played.activities.extend(activities);
        let total = &mut self.played.count;
        total.read += count.read;
        total.without_time += count.without_time;
        total.unusable += count.unusable;
    }

    /// A loader stage's unit; returns when its result is ready.
    fn load(&mut self, stage: Stage, batch: u64, ready: u64) -> u64 {
        let lane = stage.number() as u16;
        let free = &mut self.free[lane as usize];
        let (waited, start) = (ready > *free, ready.max(*free));
        let end = start + self.script.costs[lane as usize];
        *free = end;
        let unit = unit(stage, batch, [start, end], waited);
        self.write(end, lane, Record::Unit(unit));
        end
    }

    /// The trainer's records of a step from `start` on.
    fn trainer(&mut self, batch: u64, start: u64, waited: bool) {
        let end = start + self.script.host;
        let mut step = unit(Stage::STEP, batch, [start, end], waited);
        let before = batch.checked_sub(self.script.run_ahead as u64);
        let room = before.map(|before| (before, self.played.ends[before as usize]));
        if let Some((before, room)) = room.filter(|(_, room)| room.0 > end) {
            (step.pushed, step.room_from) = (room, UnitRef::new(GPU_LANES.device, before));
        }
        self.free[TRAINER as usize] = step.pushed.0;
        let launch = HostSpan {
            work: HostWork::Launch,
            batch,
            start: step.start + Nanos(US),
            end: step.end,
        };
        self.write(end, TRAINER, Record::Host(launch));
        self.write(step.pushed.0, TRAINER, Record::Unit(step));
    }

    /// What the device does in a step that is launched from `start` on; returns when it ends.
    fn device(&mut self, batch: u64, start: u64, buffer: &mut Buffer) -> u64 {
        let script = self.script;
        let mut launched = start;
        let mut last = start;
        for (number, kernel) in script.kernels.iter().enumerate() {
            self.correlation += 1;
            launched = start + kernel.at + kernel.call;
            self.call(buffer, [start + kernel.at, launched], LAUNCHER);
            let times = self.run(kernel.stream, launched + kernel.latency, kernel.length);
            let busy = Interval::new(Nanos(times[0]), Nanos(times[1]));
            self.played.busy.insert(busy);
            last = last.max(times[1]);
            let name = format!("kernel {number} of step {batch}");
            if let Some(times) = self.fated(times) {
                buffer.kernel(&name, times, kernel.stream, self.correlation);
            }
        }
        self.correlation += 1;
        self.call(buffer, [launched, launched + 10], LAUNCHER);
        let times = self.run(script.read_back_stream, launched + 10, script.read_back);
        if let Some(times) = self.fated(times) {
            buffer.copy(
                [2, 3, 2],
                8,
                times,
                script.read_back_stream,
                self.correlation,
            );
        }
        last.max(times[1])
    }

    /// The device's times of what may begin at `from`, on its clock.
    fn run(&mut self, stream: u32, from: u64, length: u64) -> [u64; 2] {
        let free = self.streams.entry(stream).or_default();
        let start = (from - self.script.behind).max(*free);
        *free = start + length;
        [start, start + length]
    }

    fn call(&mut self, buffer: &mut Buffer, times: [u64; 2], thread: u32) {
        if let Some(times) = self.fated(times) {
            buffer.call(307, times, thread, self.correlation);
        }
    }

    /// What stands in the record; `None` where there is no record.
    fn fated(&mut self, times: [u64; 2]) -> Option<[u64; 2]> {
        match (self.fates)() {
            Fate::Whole => Some(times),
            Fate::NoTime => Some([times[0], 0]),
            Fate::Backwards => Some([times[1] + 1, times[1]]),
            Fate::Dropped => {
                self.played.count.dropped += 1;
                None
            }
        }
    }

    fn write(&mut self, at: u64, lane: u16, record: Record) {
        self.played.host.push((Nanos(at), lane, record));
    }
}

/// A unit of the host's, bound by the same batch's before it where it `waited`.
fn unit(stage: Stage, batch: u64, times: [u64; 2], waited: bool) -> UnitRecord {
    let before = (stage.number() as u16).checked_sub(1);
    let lineage = before.map_or(UnitRef::NONE, |lane| UnitRef::new(lane, batch));
    let [start, end] = times.map(Nanos);
    let bytes = if stage.number() as u16 == COPY {
        BATCH_BYTES
    } else {
        1
    };
    UnitRecord {
        ordinal: batch,
        item: ItemId { batch, slot: 0 },
        sample: batch as u32,
        samples: 1,
        bytes_in: bytes,
        bytes_out: bytes,
        ..UnitRecord::of_device(stage, batch, lineage, waited, start, end)
    }
}

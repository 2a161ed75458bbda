//! The recorder: one ring for each thread that works, drained by one collector.
//!
//! A full ring drops the record and counts it, and the next one that finds room says so; no thread ever waits.

use super::steps::StepCounters;
use super::{
    CountedSteps, Here, Interval, Pipeline, Ranges, Record, Stage, StageKind, UnitRecord, UnitRef,
    Wakings,
};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a lane of the timeline shows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// A worker of one stage.
    Worker(Stage),
    /// A worker that assembles whole batches, from the first stage to collate.
    BatchWorker,
    /// The trainer's own thread.
    Trainer,
    /// The copy engine of a device.
    CopyEngine,
    /// The compute queue of a device that runs beside the trainer's thread.
    Device,
}

impl LaneKind {
    /// Whether a thread of this process is behind it, and not a device.
    pub const fn is_thread(self) -> bool {
        !matches!(self, LaneKind::CopyEngine | LaneKind::Device)
    }
}

static RUNS: AtomicU64 = AtomicU64::new(0);

/// A lane: one row of the timeline, written by one thread.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LaneInfo {
    /// As the timeline and reports show it.
    pub name: String,
    /// What works on it.
    pub kind: LaneKind,
    /// The thread behind it, where that is one of another process.
    pub thread: Option<ForeignThread>,
}

impl LaneInfo {
    /// Whether its thread is one of another process.
    pub fn is_foreign(&self) -> bool {
        self.thread.is_some()
    }
}

/// A thread of a process that is profiled from outside.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ForeignThread {
    /// The process, as the system numbers it.
    pub process: u32,
    /// What the process is called.
    pub process_name: String,
    /// The thread, as the system numbers it.
    pub thread: u32,
}

struct Lane {
    info: LaneInfo,
    records: Consumer<Slot>,
    lost: Arc<Lost>,
}

/// A record, and whether some before it were dropped.
type Slot = (Record, bool);

/// Records of a lane that found no room.
#[derive(Default)]
struct Lost {
    count: AtomicU64,
    /// Whether the last record was one.
    last: AtomicBool,
}

/// Hands out lanes to threads and their records to the collector. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    lanes: Arc<Mutex<Vec<Lane>>>,
    records_per_lane: usize,
    on: bool,
    /// Tells the run apart from others of the process.
    run: u64,
    wakings: Arc<Wakings>,
    steps: Arc<StepCounters>,
    pipeline: &'static Pipeline,
    ranges: Option<Arc<dyn Ranges>>,
}

impl Recorder {
    /// Records a lane holds until the collector comes by.
    pub const RECORDS_PER_LANE: usize = 4096;

    /// A recorder with rings of the usual size.
    pub fn new() -> Recorder {
        Recorder::with_capacity(Recorder::RECORDS_PER_LANE)
    }

    /// A recorder with rings of `records_per_lane` records.
    pub fn with_capacity(records_per_lane: usize) -> Recorder {
        Recorder {
            lanes: Arc::default(),
            records_per_lane,
            on: true,
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            wakings: Arc::default(),
            steps: Arc::default(),
            pipeline: Pipeline::IMAGES,
            ranges: None,
        }
    }

    /// The same, for a run whose first `warmup_steps` steps are counted apart. No lane may have been made yet.
    pub fn counting_after(self, warmup_steps: u64) -> Recorder {
        let steps = Arc::new(StepCounters::after(warmup_steps));
        Recorder { steps, ..self }
    }

    /// The same, for a run whose stages are those of `pipeline`. No lane may have been made yet.
    pub fn of_pipeline(self, pipeline: &'static Pipeline) -> Recorder {
        Recorder { pipeline, ..self }
    }

    /// The same, for a run whose threads show to `ranges` what they do. No lane may have been made yet.
    pub fn showing(self, ranges: Option<Arc<dyn Ranges>>) -> Recorder {
        Recorder { ranges, ..self }
    }

    /// The stages whose work is recorded.
    pub fn pipeline(&self) -> &'static Pipeline {
        self.pipeline
    }

    /// The steps so far of the `kind` step or device: of the trainer's thread, or of the device that runs beside it.
    /// They hold whatever was dropped. Read before the records are taken they are no more than these tell of.
    pub fn steps(&self, kind: StageKind) -> CountedSteps {
        self.steps.read(kind)
    }

    /// A recorder that records nothing: only for measuring what recording costs.
    pub fn off() -> Recorder {
        Recorder {
            on: false,
            ..Recorder::with_capacity(0)
        }
    }

    /// Where in this run the calling thread is; `None` for one that has no lane in it.
    pub fn here(&self) -> Option<Here> {
        Here::get().filter(|here| here.run == self.run)
    }

    /// Whether it records.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// What waking each other costs the threads; `None` where nothing is recorded.
    pub fn wakings(&self) -> Option<&Arc<Wakings>> {
        self.on.then_some(&self.wakings)
    }

    /// A new lane, for the one thread that will write to it.
    pub fn lane(&self, name: impl Into<String>, kind: LaneKind) -> LaneRecorder {
        let mut lanes = self.lock();
        let number = lanes.len() as u16;
        let lost = Arc::<Lost>::default();
        let ring = self.on.then(|| {
            let (mut ring, mut records) = RingBuffer::new(self.records_per_lane);
            // The memory is touched now, so that it never grows later.
            while ring.push((Record::Dropped, false)).is_ok() {}
            while records.pop().is_ok() {}
            lanes.push(Lane {
                info: LaneInfo {
                    name: name.into(),
                    kind,
                    thread: None,
                },
                records,
                lost: lost.clone(),
            });
            ring
        });
        LaneRecorder {
            ring,
            lost,
            steps: self.steps.clone(),
            pipeline: self.pipeline,
            ranges: self.ranges.clone(),
            run: self.run,
            lane: number,
            ordinal: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves every record written so far to `take`, lane by lane, each lane's in order, with [`Record::Dropped`] where
    /// some are missing. No lane is made meanwhile.
    pub fn drain(&self, mut take: impl FnMut(u16, Record)) -> Drain {
        let mut drain = Drain::default();
        for (number, lane) in self.lock().iter_mut().enumerate() {
            let before = drain.records;
            while let Ok((record, after_dropped)) = lane.records.pop() {
                if after_dropped {
                    take(number as u16, Record::Dropped);
                }
                drain.records += 1;
                take(number as u16, record);
            }
            if lane.lost.last.load(Ordering::Relaxed) {
                take(number as u16, Record::Dropped);
            }
            drain.fullest = drain.fullest.max(drain.records - before);
            drain.dropped += lane.lost.count.load(Ordering::Relaxed);
        }
        drain
    }

    /// The lanes so far, by number.
    pub fn lanes(&self) -> Vec<LaneInfo> {
        self.lock().iter().map(|lane| lane.info.clone()).collect()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// What one pass of the collector found.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// Records taken in this pass.
    pub records: u64,
    /// Most records taken from one lane.
    pub fullest: u64,
    /// Records dropped since the start of the run, over all lanes.
    pub dropped: u64,
}

/// A thread's own end of its lane.
pub struct LaneRecorder {
    ring: Option<Producer<Slot>>,
    lost: Arc<Lost>,
    steps: Arc<StepCounters>,
    pipeline: &'static Pipeline,
    ranges: Option<Arc<dyn Ranges>>,
    run: u64,
    lane: u16,
    ordinal: u64,
}

impl LaneRecorder {
    /// Whether anything is recorded; timestamps need not be taken where not.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.ring.is_some()
    }

    /// The name of the unit of work in progress on this lane.
    #[inline]
    pub fn current(&self) -> UnitRef {
        UnitRef::new(self.lane, self.ordinal)
    }

    /// To whom the lane's thread shows what it does.
    pub(crate) fn ranges(&self) -> Option<&Arc<dyn Ranges>> {
        self.ranges.as_ref()
    }

    /// The calling thread is the lane's. From now until this is called again it works on `batch`, in a unit of work of
    /// its own, recorded as it comes where that `is_whole`; with `None` it does nothing of the run's.
    #[inline]
    pub fn works_on(&self, batch: Option<u64>, is_whole: bool) {
        if self.is_on() {
            Here::set(self.run, self.lane, batch, is_whole);
        }
    }

    /// The stage of the run's pipeline that is of `kind`; of sample stages the first.
    pub fn stage(&self, kind: StageKind) -> Stage {
        self.pipeline.the(kind)
    }

    /// Records the unit in progress (its ordinal is set here) and begins the next.
    #[inline]
    pub fn unit(&mut self, unit: &UnitRecord) {
        self.write(&Record::Unit(UnitRecord {
            ordinal: self.ordinal,
            ..*unit
        }));
        self.ordinal += 1;
        if self.is_on() {
            self.steps.count(unit);
        }
    }

    /// Records that the trainer's thread did other things than training; not while a step is in progress.
    pub fn pause(&mut self, pause: Interval) {
        self.write(&Record::Pause(pause));
        if self.is_on() {
            self.steps.pause(pause.length());
        }
    }

    /// Records anything that is not a unit of work.
    #[inline]
    pub fn write(&mut self, record: &Record) {
        let Some(ring) = &mut self.ring else { return };
        if ring.is_full() {
            self.lost.count.fetch_add(1, Ordering::Relaxed);
            self.lost.last.store(true, Ordering::Relaxed);
            return;
        }
        let after_dropped = self.lost.last.load(Ordering::Relaxed);
        if after_dropped {
            self.lost.last.store(false, Ordering::Relaxed);
        }
        // Nobody else takes the room that there is.
        ring.push((*record, after_dropped)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{BusySpan, DevicePhase, Nanos};

    /// A record that tells itself from others in every field.
    fn numbered(n: u64) -> Record {
        Record::Busy(BusySpan {
            phase: DevicePhase::Step,
            batch: n,
            start: Nanos(n),
            end: Nanos(n),
        })
    }

    fn taken(recorder: &Recorder) -> (Vec<Record>, Drain) {
        let mut records = Vec::new();
        let drain = recorder.drain(|_, record| records.push(record));
        (records, drain)
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let recorder = Recorder::with_capacity(4);
        let mut lane = recorder.lane("x", LaneKind::Trainer);
        (0..7).for_each(|n| lane.write(&numbered(n)));
        let (records, drain) = taken(&recorder);
        let [first, second, third, fourth] = [0, 1, 2, 3].map(numbered);
        assert_eq!(records, [first, second, third, fourth, Record::Dropped]);
        assert_eq!((drain.records, drain.fullest, drain.dropped), (4, 4, 3));
        (8..10).for_each(|n| lane.write(&numbered(n)));
        let (records, drain) = taken(&recorder);
        assert_eq!(records, [Record::Dropped, numbered(8), numbered(9)]);
        assert_eq!((drain.records, drain.dropped), (2, 3));
    }

    #[test]
    fn nothing_is_lost_or_torn_between_threads() {
        let recorder = Recorder::with_capacity(64);
        let mut lane = recorder.lane("x", LaneKind::Trainer);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..100_000 {
                    // Those that find no room are written again.
                    while lane.ring.as_ref().unwrap().is_full() {
                        std::thread::yield_now();
                    }
                    lane.write(&numbered(n));
                }
            });
            let mut expected = 0;
            while expected < 100_000 {
                for record in taken(&recorder).0 {
                    assert_eq!(record, numbered(expected));
                    expected += 1;
                }
                std::thread::yield_now();
            }
        });
    }
}

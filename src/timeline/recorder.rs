//! The recorder: one ring for each thread that works, drained by one collector.

use super::ring::Ring;
use super::steps::StepCounters;
use super::{CountedSteps, Record, Stage, UnitRecord, UnitRef, Wakings};
use std::sync::{Arc, Mutex, PoisonError};

/// What a lane of the timeline shows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// A worker of one stage.
    Worker(Stage),
    /// A worker that assembles whole batches, read to collate.
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

/// A lane: one row of the timeline, written by one thread.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LaneInfo {
    pub name: String,
    pub kind: LaneKind,
}

struct Lane {
    info: LaneInfo,
    ring: Arc<Ring>,
}

/// Hands out lanes to threads and their records to the collector. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    lanes: Arc<Mutex<Vec<Lane>>>,
    records_per_lane: usize,
    on: bool,
    wakings: Arc<Wakings>,
    steps: Arc<StepCounters>,
}

impl Recorder {
    /// Records a lane holds until the collector comes by.
    pub const RECORDS_PER_LANE: usize = 4096;

    /// A recorder with rings of the usual size.
    pub fn new() -> Recorder {
        Recorder::with_capacity(Recorder::RECORDS_PER_LANE)
    }

    /// A recorder with rings of at least `records_per_lane` records.
    pub fn with_capacity(records_per_lane: usize) -> Recorder {
        Recorder {
            lanes: Arc::default(),
            records_per_lane,
            on: true,
            wakings: Arc::default(),
            steps: Arc::default(),
        }
    }

    /// The same, for a run whose first `warmup_steps` steps are counted apart. No lane may have been made yet.
    pub fn counting_after(self, warmup_steps: u64) -> Recorder {
        let steps = Arc::new(StepCounters::after(warmup_steps));
        Recorder { steps, ..self }
    }

    /// The steps so far of `stage`: of the trainer's thread, or of the device that runs beside it. They hold whatever
    /// was dropped. Read before the records are taken they are no more than these tell of.
    pub fn steps(&self, stage: Stage) -> CountedSteps {
        self.steps.read(stage)
    }

    /// A recorder that records nothing: only for measuring what recording costs.
    pub fn off() -> Recorder {
        Recorder {
            lanes: Arc::default(),
            records_per_lane: 0,
            on: false,
            wakings: Arc::default(),
            steps: Arc::default(),
        }
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
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let number = lanes.len() as u16;
        let ring = self.on.then(|| Arc::new(Ring::new(self.records_per_lane)));
        if let Some(ring) = &ring {
            let info = LaneInfo {
                name: name.into(),
                kind,
            };
            lanes.push(Lane {
                info,
                ring: ring.clone(),
            });
        }
        LaneRecorder {
            ring,
            steps: self.steps.clone(),
            lane: number,
            ordinal: 0,
            tail_seen: 0,
        }
    }

    /// Moves every record written so far to `take`, lane by lane, each lane's in order, with [`Record::Dropped`] where
    /// some are missing.
    /// Call from one thread only.
    pub fn drain(&self, mut take: impl FnMut(u16, Record)) -> Drain {
        let rings: Vec<Arc<Ring>> = {
            let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            lanes.iter().map(|lane| lane.ring.clone()).collect()
        };
        let mut drain = Drain::default();
        for (number, ring) in rings.iter().enumerate() {
            let before = drain.records;
            while let Some((words, after_dropped)) = ring.pop() {
                if after_dropped {
                    take(number as u16, Record::Dropped);
                }
                if let Some(record) = Record::decode(&words) {
                    drain.records += 1;
                    take(number as u16, record);
                }
            }
            if ring.is_dropping() {
                take(number as u16, Record::Dropped);
            }
            drain.fullest = drain.fullest.max(drain.records - before);
            drain.dropped += ring.dropped();
        }
        drain
    }

    /// The lanes so far, by number.
    pub fn lanes(&self) -> Vec<LaneInfo> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().map(|lane| lane.info.clone()).collect()
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
    ring: Option<Arc<Ring>>,
    steps: Arc<StepCounters>,
    lane: u16,
    ordinal: u64,
    tail_seen: u64,
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

    /// Records anything that is not a unit of work.
    #[inline]
    pub fn write(&mut self, record: &Record) {
        if let Some(ring) = &self.ring {
            ring.push(&record.encode(), &mut self.tail_seen);
        }
    }
}

//! What is recorded: one fixed-size record for each unit of work, and a few for the trainer.
//!
//! A [`UnitRecord`] holds the times at which each condition of its start was met and *who* met the last
//! one (its binding predecessor), so that the critical path can be walked back exactly.

use super::{Interval, Nanos, Stage, StageKind, ThreadUsage};

/// A sample's place in the run: the batch it belongs to and its slot there. Whole batches use slot 0.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// Number of the batch in the run, from zero.
    pub batch: u64,
    /// Place in the batch, from zero.
    pub slot: u32,
}

impl ItemId {
    /// The largest batch that is allowed.
    pub const MAX_BATCH_SIZE: usize = 1 << 24;
}

/// Names one unit of work of the run: the `ordinal`-th on its lane.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitRef(u64);

impl UnitRef {
    /// Nobody: the start of the run.
    pub const NONE: UnitRef = UnitRef(u64::MAX);

    /// The `ordinal`-th unit of `lane`.
    pub const fn new(lane: u16, ordinal: u64) -> UnitRef {
        UnitRef((lane as u64) << 48 | ordinal)
    }

    /// The lane it ran on.
    pub const fn lane(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Its number on that lane, from zero.
    pub const fn ordinal(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    /// Whether it names a unit at all.
    pub const fn is_some(self) -> bool {
        self.0 != u64::MAX
    }

    /// The word it is stored as.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The reference stored as `word`.
    pub const fn from_word(word: u64) -> UnitRef {
        UnitRef(word)
    }
}

/// How a worker spent a unit of work in which it took samples through three stages one after another: the rest of it
/// was the last.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Nanoseconds.
    pub first: u32,
    /// Nanoseconds.
    pub second: u32,
    /// Bytes that the second handed on.
    pub second_bytes: u64,
}

/// What one stage did in a unit of work.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The stage that served.
    pub stage: Stage,
    /// Start of service.
    pub start: Nanos,
    /// End of service.
    pub end: Nanos,
    /// Time runnable but not running, in nanoseconds.
    pub run_delay: u32,
    /// Bytes taken in.
    pub bytes_in: u64,
    /// Bytes handed on.
    pub bytes_out: u64,
    /// Items left in the input queue after this one was taken; none where the same worker made the input.
    pub input_depth: u16,
}

/// One unit of work: a worker's service of a sample or a batch, a copy, a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UnitRecord {
    /// The last one, where several served the samples one after another.
    pub stage: Stage,
    /// The stages before it, where there are any; such a unit hands on to the same worker's next.
    pub split: Option<Split>,
    /// Its number on its lane, from zero; a gap betrays a dropped record.
    pub ordinal: u64,
    /// The first sample, where a worker took several.
    pub item: ItemId,
    /// Index of the sample in the data set, the first where a worker took several; for a batch, of the
    /// sample that completed it.
    pub sample: u32,
    /// Samples worked on; of a batch those that were not skipped.
    pub samples: u32,
    /// The worker was waiting when the input came: *input ready* is what bound the start.
    /// Otherwise the worker's previous unit was (*worker freed*).
    pub waited: bool,
    /// The input is an admission: it exists since a slot was freed downstream, not since an item
    /// left the stage before.
    pub admitted: bool,
    /// The samples failed and go on as a hole in their batch.
    pub skipped: bool,
    /// When the input was handed over.
    pub ready_at: Nanos,
    /// Who handed it over.
    pub cause: UnitRef,
    /// Start of service.
    pub start: Nanos,
    /// End of service.
    pub end: Nanos,
    /// When the result had found room downstream; `end` where there was room at once.
    pub pushed: Nanos,
    /// Who made that room (took an item out of the full queue), where `pushed > end`.
    pub room_from: UnitRef,
    /// The unit before on the *data's* way: the same sample's, the last sample's of a batch, the same
    /// batch's.
    pub lineage: UnitRef,
    /// Time runnable but not running between hand-over and start, in nanoseconds.
    pub wake_run_delay: u32,
    /// Time runnable but not running during service, in nanoseconds.
    pub run_delay: u32,
    /// Bytes taken in.
    pub bytes_in: u64,
    /// Bytes handed on.
    pub bytes_out: u64,
    /// Items left in the input queue after this one was taken.
    pub input_depth: u16,
    /// Items in the output queue after this one was put there.
    pub output_depth: u16,
}

impl UnitRecord {
    /// A unit of work of a device that runs beside the host, of which no more is known. Where it `waited`, `cause`
    /// gave it what it lacked; otherwise the unit before did by its end.
    pub fn of_device(
        stage: Stage,
        batch: u64,
        cause: UnitRef,
        waited: bool,
        start: Nanos,
        end: Nanos,
    ) -> UnitRecord {
        UnitRecord {
            stage,
            split: None,
            ordinal: 0,
            item: ItemId { batch, slot: 0 },
            sample: 0,
            samples: 0,
            waited,
            admitted: false,
            skipped: false,
            ready_at: start,
            cause,
            start,
            end,
            pushed: end,
            room_from: UnitRef::NONE,
            lineage: cause,
            wake_run_delay: 0,
            run_delay: 0,
            bytes_in: 0,
            bytes_out: 0,
            input_depth: 0,
            output_depth: 0,
        }
    }

    /// Items worked on: samples, or a batch.
    pub fn items(&self) -> u32 {
        if self.stage.per_batch() {
            1
        } else {
            self.samples
        }
    }

    /// What each stage did in it, in order.
    pub fn services(&self) -> impl DoubleEndedIterator<Item = Service> + use<> {
        let whole = Service {
            stage: self.stage,
            start: self.start,
            end: self.end,
            run_delay: self.run_delay,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            input_depth: self.input_depth,
        };
        // The last of three places is that of the unit's own stage.
        let (services, first) = match self.split {
            Some(split) => (split.of(whole), 0),
            None => ([whole; 3], 2),
        };
        services.into_iter().skip(first)
    }

    /// Whether it made samples of nothing: no unit comes before on the data's way.
    pub fn begins(&self) -> bool {
        let first = self.services().next();
        let own = |stage: Stage| !stage.per_batch() && !self.lineage.is_some();
        first.is_some_and(|first| first.stage.is_first() || own(first.stage))
    }

    /// Whether the thread of `lane` took its input from another one's queue; to itself it hands on without one.
    pub fn is_from_queue(&self, lane: u16) -> bool {
        !self.begins() && self.lineage.lane() != lane
    }

    /// Whether `stage` did anything in it.
    pub fn involves(&self, stage: Stage) -> bool {
        let before = || self.services().any(|service| service.stage == stage);
        self.stage == stage || self.split.is_some() && before()
    }

    /// Whether it is an optimizer update; one whose samples were all skipped is none.
    pub fn is_step(&self) -> bool {
        self.stage.kind() == StageKind::Step && !self.skipped
    }
}

impl Split {
    /// The services that make up `whole`.
    fn of(&self, whole: Service) -> [Service; 3] {
        let last = whole.stage;
        let second = last.before().unwrap_or(last);
        let first = second.before().unwrap_or(second);
        let first_until = (whole.start + Nanos(self.first.into())).min(whole.end);
        let second_until = (first_until + Nanos(self.second.into())).min(whole.end);
        let (length, delay) = (whole.end - whole.start, Nanos(whole.run_delay.into()));
        let service = |stage, start: Nanos, end: Nanos, bytes_in, bytes_out| Service {
            stage,
            start,
            end,
            // Where in the unit the thread lacked a core is not known.
            run_delay: delay.share_of(end - start, length).0 as u32,
            bytes_in,
            bytes_out,
            input_depth: match stage == first {
                true => whole.input_depth,
                false => 0,
            },
        };
        let (made, handed_on) = (whole.bytes_in, self.second_bytes);
        [
            service(first, whole.start, first_until, made, made),
            service(second, first_until, second_until, made, handed_on),
            service(last, second_until, whole.end, handed_on, whole.bytes_out),
        ]
    }
}

/// What the device was doing during a busy interval.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DevicePhase {
    /// The model's output and the loss.
    Forward,
    /// The gradients.
    Backward,
    /// The update of the weights.
    Optimizer,
    /// A whole step of a device that does not tell its phases apart.
    Step,
    /// Kernels of a step, as the device itself reports them.
    Kernels,
    /// Preprocessing on the device.
    Preprocess,
}

impl DevicePhase {
    /// The name used in output and traces.
    pub const fn name(self) -> &'static str {
        match self {
            DevicePhase::Forward => "forward",
            DevicePhase::Backward => "backward",
            DevicePhase::Optimizer => "optimizer",
            DevicePhase::Step => "device step",
            DevicePhase::Kernels => "kernels",
            DevicePhase::Preprocess => "device preprocess",
        }
    }
}

/// An interval in which the device was busy.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BusySpan {
    /// What the device computed.
    pub phase: DevicePhase,
    /// Number of the batch in the run, from zero.
    pub batch: u64,
    /// When the device became busy.
    pub start: Nanos,
    /// When it was done.
    pub end: Nanos,
}

/// What the trainer's own code was doing while it kept the device waiting.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum HostWork {
    /// Putting a step's work on the device.
    Launch,
    /// Fetching the loss from the device.
    LossReadback,
    /// Writing down how training goes.
    Logging,
    /// Waiting for metrics of earlier steps to be computed.
    Metrics,
    /// burn's training on the CPU beside an emulated device.
    Training,
    /// Averaging gradients over ranks, waiting for the others included.
    AllReduce,
    /// Drawing indices and giving them to workers.
    Sampler,
    /// Taking a batch from the workers' queue.
    Receive,
    /// Making an iterator over the data, with its workers.
    StartWorkers,
    /// Waiting for workers to end.
    StopWorkers,
    /// Bringing a batch to the device.
    Copy,
    /// Waiting for the device.
    Synchronize,
    /// The script's own code between steps.
    Between,
    /// Batches without gradients, and waiting for them.
    Validation,
    /// The start of a pass over them, up to its first batch.
    ValidationStart,
    /// Anything of the trainer's thread that reported no name.
    Other,
}

impl HostWork {
    /// Whether the trainer's thread does it for its loader.
    pub const fn is_of_loader(self) -> bool {
        matches!(
            self,
            HostWork::Sampler
                | HostWork::Receive
                | HostWork::StartWorkers
                | HostWork::StopWorkers
                | HostWork::Copy
        )
    }

    /// The name used in output and traces.
    pub const fn name(self) -> &'static str {
        match self {
            HostWork::Launch => "launch",
            HostWork::LossReadback => "loss read-back",
            HostWork::Logging => "logging",
            HostWork::Metrics => "metrics, logging",
            HostWork::Training => "training on the CPU",
            HostWork::AllReduce => "all-reduce",
            HostWork::Sampler => "sampler",
            HostWork::Receive => "receiving and unpickling",
            HostWork::StartWorkers => "starting workers",
            HostWork::StopWorkers => "stopping workers",
            HostWork::Copy => "copying to the device",
            HostWork::Synchronize => "waiting for the device",
            HostWork::Between => "between steps",
            HostWork::Validation => "validation",
            HostWork::ValidationStart => "validation start-up",
            HostWork::Other => "other",
        }
    }
}

/// An interval of the trainer's own code.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HostSpan {
    /// What the code did.
    pub work: HostWork,
    /// Number of the batch in the run, from zero.
    pub batch: u64,
    /// When it began.
    pub start: Nanos,
    /// When it was done.
    pub end: Nanos,
}

/// Anything a lane records.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A unit of work.
    Unit(UnitRecord),
    /// A time in which the device was busy.
    Busy(BusySpan),
    /// A time of the trainer's own code.
    Host(HostSpan),
    /// A time in which the trainer's thread did other things than training, such as validating: no part of what is
    /// measured.
    Pause(Interval),
    /// A finished batch had to wait for an earlier one.
    Held(Interval),
    /// Of the loader's workers so many still have something to load, from then on.
    Live {
        /// When that began.
        at: Nanos,
        /// How many.
        workers: u32,
        /// How many there are.
        of: u32,
    },
    /// The thread's figures so far.
    Usage(ThreadUsage),
    /// The trainer's thread has loaded a batch itself.
    Loaded {
        /// When it was done with that.
        at: Nanos,
        /// What it computed for it.
        cpu: Nanos,
    },
    /// Records of the lane before this place found no room and are lost. The recorder's own, written by no thread.
    Dropped,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Its services follow each other without a gap and are the whole of it.
        #[test]
        fn a_split_unit_is_the_sum_of_its_services(start in 0u64..1 << 60, lengths in any::<[u32; 2]>(), last in 0u64..1 << 50, delay in any::<u32>()) {
            let [first, second] = lengths;
            let end = Nanos(start + u64::from(first) + u64::from(second) + last);
            let unit = UnitRecord {
                input_depth: 3,
                run_delay: delay,
                split: Some(Split { first, second, second_bytes: 7 }),
                ..UnitRecord::of_device(Stage::PREPROCESS, 0, UnitRef::NONE, false, Nanos(start), end)
            };
            let services: Vec<_> = unit.services().collect();
            let ends = services.iter().map(|service| service.end);
            let starts = services.iter().skip(1).map(|service| service.start);
            prop_assert!(ends.zip(starts).all(|(end, start)| end == start));
            let found: Vec<u64> = services.iter().map(|service| (service.end - service.start).0).collect();
            prop_assert_eq!(found, [first.into(), second.into(), last]);
            let depths: Vec<u16> = services.iter().map(|service| service.input_depth).collect();
            prop_assert_eq!(depths, [3, 0, 0]);
            let delays: u64 = services.iter().map(|service| u64::from(service.run_delay)).sum();
            prop_assert!(delays <= delay.into() && delays + 3 >= u64::from(delay).min((unit.end - unit.start).0));
        }
    }
}

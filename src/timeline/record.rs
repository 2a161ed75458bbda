//! What is recorded: one fixed-size record for each unit of work, and a few for the trainer.
//!
//! A [`UnitRecord`] holds the times at which each condition of its start was met and *who* met the last
//! one (its binding predecessor), so that the critical path can be walked back exactly.

use super::Nanos;

/// A kind of work: the five loader stages, and the trainer's step.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Read,
    Decode,
    Preprocess,
    Batch,
    Copy,
    /// One optimizer update, as the trainer's own thread sees it: from holding the device batch to
    /// asking for the next.
    Step,
}

impl Stage {
    /// The loader stages, in order of the data's way.
    pub const LOADER: [Stage; 5] = [
        Stage::Read,
        Stage::Decode,
        Stage::Preprocess,
        Stage::Batch,
        Stage::Copy,
    ];

    /// The name used in configuration, output and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Decode => "decode",
            Stage::Preprocess => "preprocess",
            Stage::Batch => "batch",
            Stage::Copy => "copy",
            Stage::Step => "step",
        }
    }

    /// Whether its unit of work is a whole batch rather than a sample.
    pub const fn per_batch(self) -> bool {
        matches!(self, Stage::Batch | Stage::Copy | Stage::Step)
    }

    fn from_code(code: u8) -> Option<Stage> {
        [
            Stage::Read,
            Stage::Decode,
            Stage::Preprocess,
            Stage::Batch,
            Stage::Copy,
            Stage::Step,
        ]
        .get(code as usize)
        .copied()
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A sample's place in the run: the batch it belongs to and its slot there. Whole batches use slot 0.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    pub batch: u64,
    pub slot: u32,
}

const SLOT_BITS: u32 = 24;

impl ItemId {
    /// The largest batch that can be numbered.
    pub const MAX_BATCH_SIZE: usize = 1 << SLOT_BITS;

    fn pack(self) -> u64 {
        self.batch << SLOT_BITS | u64::from(self.slot)
    }

    fn unpack(word: u64) -> ItemId {
        ItemId {
            batch: word >> SLOT_BITS,
            slot: (word & ((1 << SLOT_BITS) - 1)) as u32,
        }
    }
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

/// One unit of work: a worker's service of a sample or a batch, a copy, a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UnitRecord {
    pub stage: Stage,
    /// Its number on its lane, from zero; a gap betrays a dropped record.
    pub ordinal: u64,
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
    /// Items worked on: samples, or a batch.
    pub fn items(&self) -> u32 {
        if self.stage.per_batch() {
            1
        } else {
            self.samples
        }
    }

    /// Whether it is an optimizer update; one whose samples were all skipped is none.
    pub fn is_step(&self) -> bool {
        self.stage == Stage::Step && !self.skipped
    }
}

/// What the device was doing during a busy interval.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DevicePhase {
    Forward,
    Backward,
    Optimizer,
    /// A whole step of a device that does not tell its phases apart.
    Step,
}

impl DevicePhase {
    /// The name used in output and traces.
    pub const fn name(self) -> &'static str {
        match self {
            DevicePhase::Forward => "forward",
            DevicePhase::Backward => "backward",
            DevicePhase::Optimizer => "optimizer",
            DevicePhase::Step => "device step",
        }
    }
}

/// An interval in which the device was busy.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BusySpan {
    pub phase: DevicePhase,
    pub batch: u64,
    pub start: Nanos,
    pub end: Nanos,
}

/// What the trainer's own code was doing while it kept the device waiting.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostWork {
    Launch,
    LossReadback,
    Logging,
    /// Anything of the trainer's thread that reported no name.
    Other,
}

impl HostWork {
    /// The name used in output and traces.
    pub const fn name(self) -> &'static str {
        match self {
            HostWork::Launch => "launch",
            HostWork::LossReadback => "loss read-back",
            HostWork::Logging => "logging",
            HostWork::Other => "other",
        }
    }
}

/// An interval of the trainer's own code.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HostSpan {
    pub work: HostWork,
    pub batch: u64,
    pub start: Nanos,
    pub end: Nanos,
}

/// What the kernel has charged to a thread so far (`getrusage(RUSAGE_THREAD)`, schedstat).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ThreadUsage {
    pub at: Nanos,
    pub user: Nanos,
    pub system: Nanos,
    pub run_delay: Nanos,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
    /// How often the thread asked the kernel, which is what recording costs it beside its records.
    pub readings: u64,
}

/// Anything a lane records.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Unit(UnitRecord),
    Busy(BusySpan),
    Host(HostSpan),
    Usage(ThreadUsage),
}

/// Words of a record in its ring.
pub(super) const WORDS: usize = 14;

const UNIT: u64 = 0;
const BUSY: u64 = 1;
const HOST: u64 = 2;
const USAGE: u64 = 3;

impl Record {
    pub(super) fn encode(&self) -> [u64; WORDS] {
        match self {
            Record::Unit(u) => encode_unit(u),
            Record::Busy(b) => span_words(BUSY | (b.phase as u64) << 8, b.batch, b.start, b.end),
            Record::Host(h) => span_words(HOST | (h.work as u64) << 8, h.batch, h.start, h.end),
            Record::Usage(t) => {
                let mut words = [0; WORDS];
                words[0] = USAGE;
                words[1..10].copy_from_slice(&[
                    t.at.0,
                    t.user.0,
                    t.system.0,
                    t.run_delay.0,
                    t.voluntary_switches,
                    t.involuntary_switches,
                    t.major_faults,
                    t.minor_faults,
                    t.readings,
                ]);
                words
            }
        }
    }

    /// The record stored as `words`; `None` where they hold none.
    pub(super) fn decode(words: &[u64; WORDS]) -> Option<Record> {
        let code = (words[0] >> 8) as u8;
        let (start, end) = (Nanos(words[2]), Nanos(words[3]));
        match words[0] & 0xff {
            UNIT => decode_unit(words).map(Record::Unit),
            BUSY => {
                let phases = [
                    DevicePhase::Forward,
                    DevicePhase::Backward,
                    DevicePhase::Optimizer,
                    DevicePhase::Step,
                ];
                let phase = *phases.get(code as usize)?;
                Some(Record::Busy(BusySpan {
                    phase,
                    batch: words[1],
                    start,
                    end,
                }))
            }
            HOST => {
                let works = [
                    HostWork::Launch,
                    HostWork::LossReadback,
                    HostWork::Logging,
                    HostWork::Other,
                ];
                let work = *works.get(code as usize)?;
                Some(Record::Host(HostSpan {
                    work,
                    batch: words[1],
                    start,
                    end,
                }))
            }
            USAGE => Some(Record::Usage(ThreadUsage {
                at: Nanos(words[1]),
                user: Nanos(words[2]),
                system: Nanos(words[3]),
                run_delay: Nanos(words[4]),
                voluntary_switches: words[5],
                involuntary_switches: words[6],
                major_faults: words[7],
                minor_faults: words[8],
                readings: words[9],
            })),
            _ => None,
        }
    }
}

fn span_words(header: u64, batch: u64, start: Nanos, end: Nanos) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[..4].copy_from_slice(&[header, batch, start.0, end.0]);
    words
}

const WAITED: u64 = 1 << 16;
const ADMITTED: u64 = 1 << 17;
const SKIPPED: u64 = 1 << 18;

fn encode_unit(u: &UnitRecord) -> [u64; WORDS] {
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    let header = UNIT
        | (u.stage as u64) << 8
        | flag(u.waited, WAITED)
        | flag(u.admitted, ADMITTED)
        | flag(u.skipped, SKIPPED)
        | u64::from(u.input_depth) << 24
        | u64::from(u.output_depth) << 40;
    [
        header,
        u.item.pack(),
        u.start.0,
        u.end.0,
        u.pushed.0,
        u.ready_at.0,
        u.cause.word(),
        u.room_from.word(),
        u.lineage.word(),
        u64::from(u.wake_run_delay) << 32 | u64::from(u.run_delay),
        u.bytes_in,
        u.bytes_out,
        u64::from(u.samples) << 32 | u64::from(u.sample),
        u.ordinal,
    ]
}

fn decode_unit(words: &[u64; WORDS]) -> Option<UnitRecord> {
    let header = words[0];
    Some(UnitRecord {
        stage: Stage::from_code((header >> 8) as u8)?,
        item: ItemId::unpack(words[1]),
        sample: words[12] as u32,
        samples: (words[12] >> 32) as u32,
        ordinal: words[13],
        waited: header & WAITED != 0,
        admitted: header & ADMITTED != 0,
        skipped: header & SKIPPED != 0,
        start: Nanos(words[2]),
        end: Nanos(words[3]),
        pushed: Nanos(words[4]),
        ready_at: Nanos(words[5]),
        cause: UnitRef::from_word(words[6]),
        room_from: UnitRef::from_word(words[7]),
        lineage: UnitRef::from_word(words[8]),
        wake_run_delay: (words[9] >> 32) as u32,
        run_delay: words[9] as u32,
        bytes_in: words[10],
        bytes_out: words[11],
        input_depth: (header >> 24) as u16,
        output_depth: (header >> 40) as u16,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_survive_encoding(times in prop::array::uniform4(0u64..1 << 60), refs in prop::array::uniform3(any::<u64>()),
                                  flags in 0u8..8, batch in 0u64..1 << 39, slot in 0u32..1 << SLOT_BITS,
                                  depths in any::<(u16, u16)>(), delays in any::<(u32, u32)>(), code in 0u8..6) {
            let unit = UnitRecord {
                stage: Stage::from_code(code).unwrap(),
                item: ItemId { batch, slot },
                sample: refs[0] as u32,
                samples: refs[1] as u32,
                ordinal: refs[1],
                waited: flags & 1 != 0,
                admitted: flags & 2 != 0,
                skipped: flags & 4 != 0,
                ready_at: Nanos(times[0]),
                cause: UnitRef::from_word(refs[0]),
                start: Nanos(times[1]),
                end: Nanos(times[2]),
                pushed: Nanos(times[3]),
                room_from: UnitRef::from_word(refs[1]),
                lineage: UnitRef::from_word(refs[2]),
                wake_run_delay: delays.0,
                run_delay: delays.1,
                bytes_in: 1,
                bytes_out: 2,
                input_depth: depths.0,
                output_depth: depths.1,
            };
            let record = Record::Unit(unit);
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn other_records_survive_encoding() {
        let (start, end) = (Nanos(5), Nanos(9));
        let usage = ThreadUsage {
            at: end,
            user: start,
            minor_faults: 7,
            readings: 8,
            ..ThreadUsage::default()
        };
        for record in [
            Record::Busy(BusySpan {
                phase: DevicePhase::Optimizer,
                batch: 3,
                start,
                end,
            }),
            Record::Host(HostSpan {
                work: HostWork::Logging,
                batch: 4,
                start,
                end,
            }),
            Record::Usage(usage),
        ] {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }
}

//! Records as the words that a ring holds.

use super::{
    BusySpan, DevicePhase, HostSpan, HostWork, ItemId, Record, Split, Stage, ThreadUsage,
    UnitRecord, UnitRef,
};
use crate::timeline::Nanos;

/// Words of a record in its ring.
pub(in crate::timeline) const WORDS: usize = 14;

const UNIT: u64 = 0;
const BUSY: u64 = 1;
const HOST: u64 = 2;
const USAGE: u64 = 3;
const DROPPED: u64 = 4;

impl Record {
    pub(in crate::timeline) fn encode(&self) -> [u64; WORDS] {
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
            Record::Dropped => span_words(DROPPED, 0, Nanos::ZERO, Nanos::ZERO),
        }
    }

    /// The record stored as `words`; `None` where they hold none.
    pub(in crate::timeline) fn decode(words: &[u64; WORDS]) -> Option<Record> {
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
                    DevicePhase::Kernels,
                    DevicePhase::Preprocess,
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
                    HostWork::Training,
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
            DROPPED => Some(Record::Dropped),
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
/// Such a unit has found no room downstream, so the words for that hold its split.
const SPLIT: u64 = 1 << 19;

fn encode_unit(u: &UnitRecord) -> [u64; WORDS] {
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    let header = UNIT
        | (u.stage as u64) << 8
        | flag(u.waited, WAITED)
        | flag(u.admitted, ADMITTED)
        | flag(u.skipped, SKIPPED)
        | flag(u.split.is_some(), SPLIT)
        | u64::from(u.input_depth) << 24
        | u64::from(u.output_depth) << 40;
    let (pushed, room_from) = match u.split {
        None => (u.pushed.0, u.room_from.word()),
        Some(split) => {
            let times = u64::from(split.decode) << 32 | u64::from(split.read);
            (split.decoded_bytes, times)
        }
    };
    [
        header,
        u.item.pack(),
        u.start.0,
        u.end.0,
        pushed,
        u.ready_at.0,
        u.cause.word(),
        room_from,
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
    let split = (header & SPLIT != 0).then(|| Split {
        read: words[7] as u32,
        decode: (words[7] >> 32) as u32,
        decoded_bytes: words[4],
    });
    let (pushed, room_from) = match split {
        None => (Nanos(words[4]), UnitRef::from_word(words[7])),
        Some(_) => (Nanos(words[3]), UnitRef::NONE),
    };
    Some(UnitRecord {
        split,
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
        pushed,
        ready_at: Nanos(words[5]),
        cause: UnitRef::from_word(words[6]),
        room_from,
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
    use super::super::SLOT_BITS;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_survive_encoding(times in prop::array::uniform4(0u64..1 << 60), refs in prop::array::uniform3(any::<u64>()),
                                  flags in 0u8..8, batch in 0u64..1 << 39, slot in 0u32..1 << SLOT_BITS,
                                  depths in any::<(u16, u16)>(), delays in any::<(u32, u32)>(), code in 0u8..6) {
            let unit = UnitRecord {
                stage: Stage::from_code(code).unwrap(),
                split: None,
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
            // One of several stages has nothing to say of room downstream.
            let split = Split { read: delays.0, decode: delays.1, decoded_bytes: refs[0] };
            let unit = UnitRecord { split: Some(split), pushed: unit.end, room_from: UnitRef::NONE, ..unit };
            let record = Record::Unit(unit);
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }

        /// Its services follow each other without a gap and are the whole of it.
        #[test]
        fn a_split_unit_is_the_sum_of_its_services(start in 0u64..1 << 60, lengths in any::<[u32; 2]>(), preprocess in 0u64..1 << 50, delay in any::<u32>()) {
            let mut unit = blank();
            let [read, decode] = lengths;
            unit.start = Nanos(start);
            unit.end = Nanos(start + u64::from(read) + u64::from(decode) + preprocess);
            unit.input_depth = 3;
            unit.run_delay = delay;
            unit.split = Some(Split { read, decode, decoded_bytes: 7 });
            let services: Vec<_> = unit.services().collect();
            let ends = services.iter().map(|service| service.end);
            let starts = services.iter().skip(1).map(|service| service.start);
            prop_assert!(ends.zip(starts).all(|(end, start)| end == start));
            let found: Vec<u64> = services.iter().map(|service| (service.end - service.start).0).collect();
            prop_assert_eq!(found, [read.into(), decode.into(), preprocess]);
            let depths: Vec<u16> = services.iter().map(|service| service.input_depth).collect();
            prop_assert_eq!(depths, [3, 0, 0]);
            let delays: u64 = services.iter().map(|service| u64::from(service.run_delay)).sum();
            prop_assert!(delays <= delay.into() && delays + 3 >= u64::from(delay).min((unit.end - unit.start).0));
        }
    }

    fn blank() -> UnitRecord {
        UnitRecord {
            stage: Stage::Preprocess,
            split: None,
            ordinal: 0,
            item: ItemId::default(),
            sample: 0,
            samples: 1,
            waited: false,
            admitted: false,
            skipped: false,
            ready_at: Nanos::ZERO,
            cause: UnitRef::NONE,
            start: Nanos::ZERO,
            end: Nanos::ZERO,
            pushed: Nanos::ZERO,
            room_from: UnitRef::NONE,
            lineage: UnitRef::NONE,
            wake_run_delay: 0,
            run_delay: 0,
            bytes_in: 0,
            bytes_out: 0,
            input_depth: 0,
            output_depth: 0,
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
            Record::Dropped,
        ] {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }
}

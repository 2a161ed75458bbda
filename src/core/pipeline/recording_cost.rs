//! What recording costs a thread, measured on the machine at hand before a run.

use super::logbook::{Logbook, Subject};
use super::queue::Handoff;
use super::usage::UsageMeter;
use crate::timeline::{Clock, ItemId, LaneKind, Nanos, Recorder, Stage, UnitRef};
use std::sync::Arc;

/// The two things that recording spends a working thread's time on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RecordingCost {
    /// One record with its clock reading.
    pub per_record: Nanos,
    /// One question to the kernel.
    pub per_reading: Nanos,
}

/// All rounds fit the ring, so that none is dropped.
const RECORDS: u64 = 512;
const READINGS: u64 = 64;
/// The fastest counts: what makes a round slower is not the recorder.
const ROUNDS: usize = 5;

impl RecordingCost {
    /// Measures both, in about a millisecond.
    pub fn measure(clock: &Arc<dyn Clock>) -> RecordingCost {
        let recorder = Recorder::new();
        let lane = recorder.lane("measure", LaneKind::Trainer);
        let mut logbook = Logbook::new(clock.clone(), lane);
        let subject = Subject {
            stage: Stage::READ,
            split: None,
            item: ItemId::default(),
            sample: 0,
            samples: 1,
            skipped: false,
            bytes_in: 0,
            bytes_out: 0,
        };
        let handoff = Handoff {
            ready_at: clock.now(),
            cause: UnitRef::NONE,
            lineage: UnitRef::NONE,
            admitted: false,
        };
        let per_record = fastest(clock, RECORDS, || {
            let opening = logbook.open(handoff, false, 0);
            logbook.works_on(0, Stage::READ);
            let end = logbook.ended();
            logbook.close(subject, &opening, end, None);
        });
        let meter = UsageMeter::new(true);
        let per_reading = fastest(clock, READINGS, || {
            std::hint::black_box(meter.read_run_delay());
        });
        RecordingCost {
            per_record,
            per_reading,
        }
    }
}

fn fastest(clock: &Arc<dyn Clock>, times: u64, mut action: impl FnMut()) -> Nanos {
    let mut round = || {
        let began = clock.now();
        (0..times).for_each(|_| action());
        Nanos((clock.now() - began).0 / times)
    };
    (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::MonotonicClock;

    #[test]
    fn both_cost_something() {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let cost = RecordingCost::measure(&clock);
        assert!(
            cost.per_record > Nanos::ZERO && cost.per_reading > Nanos::ZERO,
            "{cost:?}"
        );
    }
}

//! What dropped records hide: in a gap of a lane its thread may have said that the device was busy, or what its own
//! code did. Idle time there has no cause that anybody knows.

use super::fold::DeviceActivity;
use crate::timeline::{Interval, Nanos, Record, StageKind};

/// How far a lane's records tell.
#[derive(Copy, Clone, Debug, Default)]
struct LaneEnd {
    until: Nanos,
    /// Records after that were dropped.
    dropped: bool,
    /// It tells when the device was busy, and what the trainer's code did.
    tells_busy: bool,
    tells_host: bool,
}

impl LaneEnd {
    fn hide(&self, until: Nanos, device: &mut DeviceActivity) -> Interval {
        let gap = Interval::new(self.until, until);
        if self.tells_busy {
            device.busy_hidden.insert(gap);
        }
        if self.tells_host {
            device.host_hidden.insert(gap);
        }
        gap
    }
}

/// The gaps of all lanes.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// By number.
    lanes: Vec<LaneEnd>,
}

impl Gaps {
    /// Takes a lane's next record; returns the gap that it ends, where there is one, which is noted in `device`.
    pub(super) fn record(
        &mut self,
        lane: u16,
        record: &Record,
        device: &mut DeviceActivity,
    ) -> Option<Interval> {
        let number = usize::from(lane);
        if self.lanes.len() <= number {
            self.lanes.resize_with(number + 1, LaneEnd::default);
        }
        let lane = &mut self.lanes[number];
        // Within a step others are recorded before it.
        let (start, end) = match record {
            Record::Unit(unit)
                if matches!(unit.stage.kind(), StageKind::Step | StageKind::Device) =>
            {
                (unit.pushed, unit.pushed)
            }
            Record::Unit(unit) => (unit.start, unit.pushed),
            Record::Busy(busy) => (busy.start, busy.end),
            Record::Host(host) => (host.start, host.end),
            Record::Pause(pause) => (pause.start, pause.end),
            Record::Usage(usage) => (usage.at, usage.at),
            Record::Loaded { at, .. } => (*at, *at),
            Record::Held(_) | Record::Live { .. } => return None,
            Record::Dropped => {
                lane.dropped = true;
                return None;
            }
        };
        lane.tells_busy |= matches!(record, Record::Busy(_));
        lane.tells_host |= matches!(record, Record::Host(_));
        let dropped = std::mem::take(&mut lane.dropped);
        let gap = dropped.then(|| lane.hide(start, device));
        lane.until = lane.until.max(end);
        gap
    }

    /// Notes in `device` the gaps that no record has ended yet.
    pub(super) fn note_open(&self, device: &mut DeviceActivity) {
        for lane in self.lanes.iter().filter(|lane| lane.dropped) {
            lane.hide(Nanos(u64::MAX), device);
        }
    }

    pub(super) fn any_open(&self) -> bool {
        self.lanes.iter().any(|lane| lane.dropped)
    }
}

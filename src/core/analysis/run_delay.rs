//! When threads lacked a core: the one account of run delay, which causes, stages and costs follow.
//!
//! The kernel is asked now and then. What it says is of all units since it was asked before, and of the times in which
//! the thread was being woken.

use crate::timeline::{Nanos, UnitRecord};

/// Being woken when room was made takes about as long at most; it is not recorded.
const WOKEN_BY_ROOM: Nanos = Nanos::from_micros(100);

/// A thread's account.
#[derive(Copy, Clone, Default)]
struct Account {
    /// Run delay that is yet to be taken off a service: it may be longer than the one that it is read in.
    owed: Nanos,
    /// Time since the last reading in which the thread was being woken: run delay there is no service's.
    woken: Nanos,
    /// Records were dropped since: the next reading is of their units, too.
    after_gap: bool,
}

impl Account {
    /// Takes of a `reading` what is no waking's.
    fn read(&mut self, reading: u32) {
        let woken = std::mem::take(&mut self.woken);
        if !std::mem::take(&mut self.after_gap) {
            self.owed += Nanos(reading.into()) - woken;
        }
    }

    fn settle(&mut self, unit: &UnitRecord) -> (UnitRecord, Nanos) {
        if unit.waited {
            self.woken += unit.start - unit.ready_at;
        }
        if unit.wake_run_delay > 0 {
            self.read(unit.wake_run_delay);
        }
        let by_room = (unit.pushed - unit.end).min(WOKEN_BY_ROOM);
        self.woken += by_room;
        let late = by_room.min(Nanos(unit.run_delay.into()));
        if unit.run_delay > 0 {
            self.read(unit.run_delay);
        }
        let own = self.owed.min(unit.end - unit.start);
        self.owed = self.owed - own;
        let run_delay = u32::try_from(own.0).unwrap_or(u32::MAX);
        (UnitRecord { run_delay, ..*unit }, late)
    }
}

/// Those of all lanes, by number.
#[derive(Default)]
pub(super) struct RunDelays {
    lanes: Vec<Account>,
}

impl RunDelays {
    fn lane(&mut self, lane: u16) -> &mut Account {
        let number = usize::from(lane);
        if self.lanes.len() <= number {
            self.lanes.resize_with(number + 1, Account::default);
        }
        &mut self.lanes[number]
    }

    /// The lane's next unit, with the run delay that was in its own service; and that in which it was woken for room.
    pub(super) fn settle(&mut self, lane: u16, unit: &UnitRecord) -> (UnitRecord, Nanos) {
        self.lane(lane).settle(unit)
    }

    /// Records of the lane were dropped.
    pub(super) fn gap(&mut self, lane: u16) {
        *self.lane(lane) = Account {
            after_gap: true,
            ..Account::default()
        };
    }
}

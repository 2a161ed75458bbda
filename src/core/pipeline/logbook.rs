//! A worker's logbook: it takes the timestamps of each unit of work and records it.
//!
//! A unit costs one clock reading for each stage that serves in it, one more if its worker had waited for
//! it. With recording off it costs nothing.

use super::queue::{Handoff, Sent};
use super::usage::UsageMeter;
use crate::timeline::DevicePhase;
use crate::timeline::{
    BusySpan, Clock, HostSpan, HostWork, Interval, ItemId, LaneRecorder, Nanos, Record, Scheduler,
    Split, Stage, ThreadUsage, UnitRecord, UnitRef,
};
use std::cell::Cell;
use std::sync::Arc;

/// Waits shorter than this are not asked for their run delay, which would take as long.
const SHORT_WAIT: Nanos = Nanos::from_micros(50);

/// Shorter spans of the trainer's code stay unnamed: a record would tell of less time than it takes.
const SHORT_SPAN: Nanos = Nanos(500);

/// A thread's clock, lane and meter.
pub struct Logbook {
    clock: Arc<dyn Clock>,
    lane: LaneRecorder,
    meter: UsageMeter,
    /// Run delay seen so far, where the clock's scheduler counts it and not the kernel.
    scheduled: Option<Nanos>,
    /// When the last unit was out of the worker's hands.
    free_at: Nanos,
    on: bool,
    /// Whether a range is begun, where the lane shows any.
    in_range: Cell<bool>,
}

/// The beginning of a unit: what its start was bound by.
#[derive(Copy, Clone, Debug)]
pub(super) struct Opening {
    pub(super) handoff: Handoff,
    pub(super) waited: bool,
    pub(super) start: Nanos,
    pub(super) wake_run_delay: u32,
    pub(super) depth: u16,
}

/// What a unit worked on.
#[derive(Copy, Clone, Debug)]
pub(super) struct Subject {
    pub(super) stage: Stage,
    pub(super) split: Option<Split>,
    pub(super) item: ItemId,
    pub(super) sample: u32,
    pub(super) samples: u32,
    pub(super) skipped: bool,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

impl Logbook {
    /// A logbook for the calling thread, which writes to `lane` from now on.
    pub fn new(clock: Arc<dyn Clock>, lane: LaneRecorder) -> Logbook {
        let on = lane.is_on();
        let meter = UsageMeter::new(on && clock.scheduler().is_none());
        let free_at = clock.now();
        let scheduled = clock.scheduler().filter(|_| on).map(Scheduler::run_delay);
        lane.works_on(None, false);
        Logbook {
            clock,
            lane,
            meter,
            scheduled,
            free_at,
            on,
            in_range: Cell::new(false),
        }
    }

    /// The thread does `stage` for `batch` from now on, as a unit of work of its own.
    #[inline]
    pub(super) fn works_on(&self, batch: u64, stage: Stage) {
        // Where parts of it lay is not recorded, but how long each took.
        let is_whole = stage.parts().next().is_none();
        self.lane.works_on(Some(batch), is_whole);
        if let Some(ranges) = self.lane.ranges() {
            self.end_range();
            ranges.begin(stage, batch);
            self.in_range.set(true);
        }
    }

    /// The thread is between two units of work.
    #[inline]
    pub(super) fn rests(&self) {
        self.lane.works_on(None, false);
        self.end_range();
    }

    #[inline]
    fn end_range(&self) {
        if let Some(ranges) = self.lane.ranges()
            && self.in_range.replace(false)
        {
            ranges.end();
        }
    }

    /// The clock the thread runs on.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The unit in progress.
    #[inline]
    pub fn current(&self) -> UnitRef {
        self.lane.current()
    }

    /// The unit before the one in progress.
    #[inline]
    pub(super) fn previous(&self) -> UnitRef {
        let current = self.current();
        current
            .ordinal()
            .checked_sub(1)
            .map_or(UnitRef::NONE, |n| UnitRef::new(current.lane(), n))
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Opens a unit for an input that was just taken.
    #[inline]
    pub(super) fn open(&mut self, handoff: Handoff, waited: bool, depth: u16) -> Opening {
        let mut opening = Opening {
            handoff,
            waited,
            start: self.free_at,
            wake_run_delay: 0,
            depth,
        };
        if waited && self.on {
            opening.start = self.clock.now();
            if opening.start - handoff.ready_at > SHORT_WAIT {
                opening.wake_run_delay = self.run_delay(opening.start);
            }
        }
        opening
    }

    /// Opens a unit that follows the worker's previous one at once; `lineage` made its input.
    #[inline]
    pub(super) fn continue_with(&self, lineage: UnitRef) -> Opening {
        let handoff = Handoff {
            ready_at: self.free_at,
            cause: lineage,
            lineage,
            admitted: false,
        };
        Opening {
            handoff,
            waited: false,
            start: self.free_at,
            wake_run_delay: 0,
            depth: 0,
        }
    }

    /// The end of service.
    #[inline]
    pub(super) fn ended(&self) -> Nanos {
        self.end_range();
        if self.on {
            self.clock.now()
        } else {
            Nanos::ZERO
        }
    }

    /// The handoff of what the unit in progress made.
    #[inline]
    pub(super) fn handoff(&self, ready_at: Nanos) -> Handoff {
        let unit = self.current();
        Handoff {
            ready_at,
            cause: unit,
            lineage: unit,
            admitted: false,
        }
    }

    /// Time runnable but not running since the last call, as far as it is known.
    #[inline]
    pub(super) fn run_delay(&mut self, now: Nanos) -> u32 {
        let Some(seen) = &mut self.scheduled else {
            return self.meter.run_delay(now);
        };
        let total = self.clock.scheduler().map_or(*seen, Scheduler::run_delay);
        let since = total - std::mem::replace(seen, total);
        u32::try_from(since.0).unwrap_or(u32::MAX)
    }

    /// Records the unit and closes it; `sent` is `None` where nothing was handed to a queue.
    #[inline]
    pub(super) fn close(
        &mut self,
        subject: Subject,
        opening: &Opening,
        end: Nanos,
        sent: Option<Sent>,
    ) {
        if self.on {
            let run_delay = self.run_delay(end);
            self.close_with(subject, opening, end, sent, run_delay);
        }
    }

    /// The same, where it is known how long the thread lacked a core meanwhile, in nanoseconds.
    pub(super) fn close_with(
        &mut self,
        subject: Subject,
        opening: &Opening,
        end: Nanos,
        sent: Option<Sent>,
        run_delay: u32,
    ) {
        if !self.on {
            return;
        }
        let (pushed, room_from) = sent.and_then(|s| s.blocked).unwrap_or((end, UnitRef::NONE));
        self.lane.unit(&UnitRecord {
            stage: subject.stage,
            split: subject.split,
            ordinal: 0,
            item: subject.item,
            sample: subject.sample,
            samples: subject.samples,
            waited: opening.waited,
            admitted: opening.handoff.admitted,
            skipped: subject.skipped,
            ready_at: opening.handoff.ready_at,
            cause: opening.handoff.cause,
            start: opening.start,
            end,
            pushed: pushed.max(end),
            room_from,
            lineage: opening.handoff.lineage,
            wake_run_delay: opening.wake_run_delay,
            run_delay,
            bytes_in: subject.bytes_in,
            bytes_out: subject.bytes_out,
            input_depth: opening.depth,
            output_depth: sent.map_or(0, |s| s.depth),
        });
        self.free_at = pushed.max(end);
        if let Some(usage) = self.meter.usage(end).or_else(|| self.scheduled_usage(end)) {
            self.lane.write(&Record::Usage(usage));
        }
    }

    /// The thread's figures where the clock's scheduler counts them.
    fn scheduled_usage(&self, at: Nanos) -> Option<ThreadUsage> {
        let scheduler = self.clock.scheduler().filter(|_| self.on)?;
        Some(ThreadUsage {
            at,
            user: scheduler.cpu_time()?,
            run_delay: scheduler.run_delay(),
            ..ThreadUsage::default()
        })
    }

    /// Leaves out the time since the last unit. The calling thread may be another than before.
    pub fn resume(&mut self) {
        let now = self.clock.now();
        self.meter = UsageMeter::new(self.meter.is_on());
        self.run_delay(now);
        self.lane.pause(Interval::new(self.free_at, now));
        self.free_at = now;
    }

    /// What the thread has computed so far, as far as that is known.
    pub(super) fn cpu(&self) -> Option<Nanos> {
        match self.clock.scheduler().filter(|_| self.on) {
            Some(scheduler) => scheduler.cpu_time(),
            None => self.meter.is_on().then(|| self.meter.cpu_now()),
        }
    }

    /// Records that this thread has loaded a batch, before which it had computed for `before`.
    pub(super) fn loaded(&mut self, before: Option<Nanos>) {
        if let (Some(before), Some(now)) = (before, self.cpu()) {
            let (at, cpu) = (self.free_at, now - before);
            self.lane.write(&Record::Loaded { at, cpu });
        }
    }

    /// Records that the device was busy.
    pub fn busy(&mut self, phase: DevicePhase, batch: u64, start: Nanos, end: Nanos) {
        self.lane.write(&Record::Busy(BusySpan {
            phase,
            batch,
            start,
            end,
        }));
    }

    /// Records what the trainer's own code did, unless that was too short to be worth a record.
    pub fn host(&mut self, work: HostWork, batch: u64, start: Nanos, end: Nanos) {
        if end - start < SHORT_SPAN {
            return;
        }
        self.lane.write(&Record::Host(HostSpan {
            work,
            batch,
            start,
            end,
        }));
    }
}

impl Drop for Logbook {
    /// The thread's last figures.
    fn drop(&mut self) {
        self.rests();
        if self.meter.is_on() {
            let now = self.clock.now();
            let usage = self.meter.usage_now(now);
            self.lane.write(&Record::Usage(usage));
        }
    }
}

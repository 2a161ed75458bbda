//! A device that runs beside the trainer's thread: what it was given, and what it did, as it tells later.
//!
//! It has one queue or more, each a lane. A queue does one thing after another: what it is said to have begun before
//! the end of what it was given earlier counts from there. A step may be given to several queues; the device is busy
//! where any is, and the step is over with the last of them. Steps are recorded in the order in which they were
//! submitted, whatever order they are told of, and after the unit of work that submitted them.

use crate::timeline::{
    BusySpan, Clock, DevicePhase, Interval, LaneRecorder, Nanos, Record, StageKind, UnitRecord,
    UnitRef,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A device that runs beside the trainer's thread. Clones are the same one.
#[derive(Clone)]
pub struct DeviceQueues(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    told: Condvar,
}

/// What a device is given to do.
#[derive(Copy, Clone, Debug)]
pub struct Work {
    /// Number of the batch in the run.
    pub batch: u64,
    /// Samples in it.
    pub samples: u32,
    /// When the device could have begun it, and the unit of work that made it possible.
    pub at: Nanos,
    /// Whose end or submission that was.
    pub cause: UnitRef,
    /// The unit of the trainer's thread that submitted it.
    pub host: UnitRef,
}

/// A step that was submitted and is not recorded.
struct Step {
    work: Work,
    /// Of its queues those that have not told.
    open: usize,
    /// One of them never will.
    lost: bool,
    told: Vec<(usize, DevicePhase, Interval)>,
}

struct State {
    /// Each with when it was done with all that is recorded.
    queues: Vec<(LaneRecorder, Nanos)>,
    /// What is recorded by others is only counted.
    writes: bool,
    waiting: VecDeque<Step>,
    submitted: u64,
    /// Steps of the trainer's thread that are recorded.
    closed: u64,
    /// Steps that are not over.
    under_way: usize,
    lost: usize,
    /// Unit of work of the first step that is not recorded.
    next: UnitRef,
    free_at: Nanos,
    /// The last step that was over.
    over: UnitRef,
}

impl DeviceQueues {
    /// A device with a queue for each lane. The first lane has the steps; with `writes` unset somebody else records
    /// what it did, in the same order.
    pub fn new(clock: Arc<dyn Clock>, lanes: Vec<LaneRecorder>, writes: bool) -> DeviceQueues {
        let next = lanes.first().map_or(UnitRef::NONE, LaneRecorder::current);
        let state = State {
            queues: lanes.into_iter().map(|lane| (lane, Nanos::ZERO)).collect(),
            writes,
            waiting: VecDeque::new(),
            submitted: 0,
            closed: 0,
            under_way: 0,
            lost: 0,
            next,
            free_at: Nanos::ZERO,
            over: UnitRef::NONE,
        };
        DeviceQueues(Arc::new(Shared {
            clock,
            state: Mutex::new(state),
            told: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// `work` of the step in progress is given to the queue of that number.
    pub fn submit(&self, queue: usize, work: Work) -> Submitted {
        let mut state = self.state();
        let closed = state.closed;
        let number = state.submitted;
        // Another queue's part of the same step.
        let same = state.waiting.back_mut();
        let same = same.filter(|step| number > closed && step.work.batch == work.batch);
        let (number, begins) = match same {
            Some(step) => {
                step.open += 1;
                (number - 1, step.open == 1)
            }
            None => {
                state.waiting.push_back(Step {
                    work,
                    open: 1,
                    lost: false,
                    told: Vec::with_capacity(1),
                });
                state.submitted += 1;
                (number, true)
            }
        };
        state.under_way += usize::from(begins);
        Submitted {
            device: self.clone(),
            number,
            queue,
            told: false,
        }
    }

    /// The unit of work that submitted the last step is recorded.
    pub fn step_closed(&self) {
        let mut state = self.state();
        state.closed = state.submitted;
        state.record();
    }

    /// Blocks until at most `left` steps are not over. Returns when that was and the step whose end made the room;
    /// `None` where there was room.
    pub fn wait_for_room(&self, left: usize) -> Option<(Nanos, UnitRef)> {
        let mut state = self.state();
        let waits = state.under_way > left;
        while state.under_way > left {
            let woken = self.0.told.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        waits.then(|| (self.0.clock.now(), state.over))
    }

    /// Steps that were submitted and are not over.
    pub fn under_way(&self) -> usize {
        self.state().under_way
    }

    /// Records what is over, and nothing any more after that. Returns how many steps were never told of.
    pub fn finish(&self) -> usize {
        let mut state = self.state();
        state.closed = u64::MAX;
        for step in &mut state.waiting {
            step.lost |= std::mem::take(&mut step.open) > 0;
        }
        state.under_way = 0;
        state.record();
        self.0.told.notify_all();
        state.lost
    }

    /// What a queue did of a step, or nothing where it never tells; returns the last step that was over.
    fn told(&self, number: u64, queue: usize, phases: &[(DevicePhase, Interval)]) -> UnitRef {
        let mut state = self.state();
        let first = state.submitted - state.waiting.len() as u64;
        let place = number.checked_sub(first).map(|place| place as usize);
        let Some(step) = place.and_then(|place| state.waiting.get_mut(place)) else {
            return state.over;
        };
        let told = phases.iter().map(|(phase, span)| (queue, *phase, *span));
        step.told.extend(told);
        step.lost |= phases.is_empty();
        step.open = step.open.saturating_sub(1);
        if step.open == 0 {
            let lost = step.lost;
            let before = state.waiting.iter().take(place.unwrap_or_default());
            let before = before.filter(|step| !step.lost).count() as u64;
            if !lost {
                state.over = UnitRef::new(state.next.lane(), state.next.ordinal() + before);
            }
            state.under_way -= 1;
            state.record();
            self.0.told.notify_all();
        }
        state.over
    }
}

impl State {
    /// Records the oldest steps that are over and closed.
    fn record(&mut self) {
        while self.submitted - (self.waiting.len() as u64) < self.closed
            && self.waiting.front().is_some_and(|step| step.open == 0)
            && let Some(step) = self.waiting.pop_front()
        {
            let span = self.busy(&step);
            match step.lost {
                true => self.lost += 1,
                false => self.unit(&step.work, span),
            }
        }
    }

    /// Records when the queues were busy with `step`; from the first to the last of it.
    fn busy(&mut self, step: &Step) -> Interval {
        let (mut start, mut end) = (Nanos(u64::MAX), step.work.at);
        for (queue, phase, span) in &step.told {
            let Some((lane, free_at)) = self.queues.get_mut(*queue) else {
                continue;
            };
            let from = span.start.max(step.work.at).max(*free_at);
            let span = Interval::new(from, span.end);
            *free_at = span.end;
            (start, end) = (start.min(from), end.max(span.end));
            if self.writes && !span.is_empty() {
                lane.write(&Record::Busy(BusySpan {
                    phase: *phase,
                    batch: step.work.batch,
                    start: span.start,
                    end: span.end,
                }));
            }
        }
        Interval::new(start.min(end), end)
    }

    /// Records a step that the device had in work for `span`.
    fn unit(&mut self, work: &Work, span: Interval) {
        self.next = UnitRef::new(self.next.lane(), self.next.ordinal() + 1);
        let waited = work.at > self.free_at;
        let span = Interval::new(span.start.max(self.free_at), span.end);
        self.free_at = span.end;
        let Some((lane, _)) = self.queues.first_mut().filter(|_| self.writes) else {
            return;
        };
        let stage = lane.stage(StageKind::Device);
        lane.unit(&UnitRecord {
            samples: work.samples,
            lineage: work.host,
            ..UnitRecord::of_device(stage, work.batch, work.cause, waited, span.start, span.end)
        });
    }
}

/// Work that a device was given, which any thread may tell the end of. Dropped untold, its step is taken to be lost.
#[must_use = "the step is not measured unless `done` or `ran` is called"]
pub struct Submitted {
    device: DeviceQueues,
    number: u64,
    queue: usize,
    told: bool,
}

impl Submitted {
    /// The time now, on the clock of the run.
    pub fn now(&self) -> Nanos {
        self.device.0.clock.now()
    }

    /// The device is done with it now, and began it as soon as it had it and nothing before it.
    pub fn done(self) {
        let now = self.now();
        self.ran(Nanos::ZERO..now);
    }

    /// The device worked on it during `span`, on the clock of the run.
    pub fn ran(self, span: Range<Nanos>) {
        // A time of another clock would keep the device busy for ever.
        let span = Interval::new(span.start, span.end.min(self.now()));
        self.ran_in(&[(DevicePhase::Step, span)]);
    }

    /// The device worked on it in these phases, one after another; returns the step's unit of work.
    pub fn ran_in(mut self, phases: &[(DevicePhase, Interval)]) -> UnitRef {
        self.told = true;
        self.device.told(self.number, self.queue, phases)
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if !self.told {
            self.device.told(self.number, self.queue, &[]);
        }
    }
}

#[cfg(test)]
mod tests;

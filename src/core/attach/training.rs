//! The training loop's side: batches taken, steps, epochs and what lies between them.

use super::desk::{Desk, SHORT_WAIT, Started};
use super::{ASKING, Attached, Running, Tag, locked};
use crate::timeline::{
    BusySpan, DevicePhase, HostSpan, HostWork, Interval, LaneKind, Nanos, Record, Recorder,
    StageKind, ThreadUsage, UnitRecord, UnitRef,
};
use std::sync::atomic::Ordering;
use std::thread::{ThreadId, current};

const SEVERAL: &str = "a loader was iterated while another one was: steps and device busy are those of both together, and wrong\n  \
     try: wrap one loader, and not the one for validation";
const OTHER_THREADS: &str = "another thread trains at the same time; its steps are not measured\n  try: train on one device";

/// The batch that is trained on.
struct Step {
    tag: Tag,
    start: Nanos,
    waited: bool,
    /// Since when, and for which unit.
    ready_at: Nanos,
    cause: UnitRef,
    wake_run_delay: u32,
    /// When the device was done with it.
    computed: Option<Nanos>,
}

/// The training loop's thread.
pub(super) struct Trainer {
    pub(super) desk: Desk,
    /// The one that iterates.
    thread: Option<ThreadId>,
    /// Iterations in progress.
    iterating: usize,
    /// Batches were left in a pass before.
    left: bool,
    /// Since when there has been none.
    paused: Option<Nanos>,
    step: Option<Step>,
    /// Lanes of the threads whose batches came in this pass.
    lanes: Vec<u16>,
}

impl Trainer {
    pub(super) fn new(recorder: &Recorder, now: Nanos) -> Trainer {
        let lane = recorder.lane("trainer", LaneKind::Trainer);
        Trainer {
            desk: Desk::new(lane, ThreadUsage::default(), now),
            thread: None,
            iterating: 0,
            left: false,
            paused: None,
            step: None,
            lanes: Vec::new(),
        }
    }

    /// The device is done with the step in progress. If it says so several times in a step, the last one counts.
    pub(super) fn computed(&mut self, now: Nanos) {
        let is_its_thread = self.thread == Some(current().id());
        if let Some(step) = self.step.as_mut().filter(|_| is_its_thread) {
            step.computed = Some(now);
        }
    }

    /// Records the step in progress, which ends at `now`.
    pub(super) fn end_step(&mut self, running: &Running, now: Nanos) {
        let Some(step) = self.step.take() else {
            return;
        };
        let batch = step.tag.number;
        let computed = step.computed.unwrap_or(now);
        let desk = &mut self.desk;
        desk.lane.write(&Record::Busy(BusySpan {
            phase: DevicePhase::Step,
            batch,
            start: step.start,
            end: computed,
        }));
        if now > computed {
            desk.lane.write(&Record::Host(HostSpan {
                work: HostWork::Metrics,
                batch,
                start: computed,
                end: now,
            }));
        }
        let stage = running.pipeline.the(StageKind::Step);
        let unit = UnitRecord {
            samples: step.tag.samples,
            waited: step.waited,
            ready_at: step.ready_at,
            cause: step.cause,
            lineage: step.tag.unit,
            wake_run_delay: step.wake_run_delay,
            run_delay: desk.meter.run_delay(now),
            ..desk.unit(stage, batch, step.start, now)
        };
        desk.record(&unit);
    }

    /// A batch has come, for which the thread had been asking since `since`.
    fn take(&mut self, running: &Running, tag: Tag, since: Nanos, now: Nanos) {
        let inline = tag.unit.lane() == self.desk.lane.current().lane();
        // A batch that was made in time may not have been handed on yet.
        let waited = !inline && (tag.ready_at > since || now - since > SHORT_WAIT);
        let lane = tag.unit.lane();
        if !inline && !self.lanes.contains(&lane) {
            self.lanes.push(lane);
            let workers = self.lanes.len();
            running.most_workers.fetch_max(workers, Ordering::Relaxed);
        }
        let start = match waited {
            true => now,
            false => self.desk.free_at,
        };
        // One that was made before it was asked for was not waited for longer than that, whatever took the time.
        let (ready_at, cause) = match waited && tag.ready_at <= since {
            true => (since, self.desk.before()),
            false => (tag.ready_at, tag.unit),
        };
        self.step = Some(Step {
            wake_run_delay: match waited {
                true => self.desk.woken(now - ready_at, now),
                false => 0,
            },
            ready_at,
            cause,
            tag,
            start,
            waited,
            computed: None,
        });
        running.taken.fetch_add(1, Ordering::Relaxed);
        let taking = self.desk.lane.current().word();
        running.taking.store(taking, Ordering::Relaxed);
    }
}

/// One pass of the training loop over its loader.
pub struct Epoch {
    attached: Attached,
    /// Another thread's pass is in progress, or nothing is measured: this one is passed through.
    passive: bool,
    ended: bool,
}

impl Epoch {
    pub(super) fn begin(attached: Attached) -> Epoch {
        let running = attached.0.running();
        let passive = !running.is_some_and(|running| enter(&attached, running));
        Epoch {
            attached,
            passive,
            ended: passive,
        }
    }

    /// The training loop asks for its next batch: the step before is over. `receive` gets it from the wrapped loader.
    pub fn next<T>(&mut self, receive: impl FnOnce() -> Option<(T, Option<Tag>)>) -> Option<T> {
        let running = self.attached.0.measuring().filter(|_| !self.passive);
        let Some(running) = running else {
            return receive().map(|(batch, _)| batch);
        };
        let since = running.clock.now();
        locked(&running.trainer).end_step(running, since);
        let asking = Asking::of(self.attached.0.id);
        let received = receive();
        drop(asking);
        let now = running.clock.now();
        let Some((batch, tag)) = received else {
            self.end(since, false);
            return None;
        };
        if let Some(tag) = tag {
            locked(&running.trainer).take(running, tag, since, now);
        }
        Some(batch)
    }

    /// The pass is over at `at`, `early` where batches are left that nobody takes.
    fn end(&mut self, at: Nanos, early: bool) {
        let running = self.attached.0.running();
        let ended = std::mem::replace(&mut self.ended, true);
        if let Some(running) = running.filter(|_| !ended) {
            let mut trainer = locked(&running.trainer);
            trainer.end_step(running, at);
            trainer.iterating -= 1;
            trainer.left |= early;
            if trainer.iterating == 0 {
                trainer.paused = Some(at);
                running.is_training.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        if let Some(running) = self.attached.0.running() {
            let now = running.clock.now();
            self.end(now, true);
        }
    }
}

/// The calling thread asks for a batch while this lives.
struct Asking(u64);

impl Asking {
    fn of(id: u64) -> Asking {
        Asking(ASKING.replace(id))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.set(self.0);
    }
}

/// Begins an iteration of the calling thread; false where another thread's is in progress.
fn enter(attached: &Attached, running: &Running) -> bool {
    let now = running.clock.now();
    let thread = current().id();
    let mut trainer = locked(&running.trainer);
    let is_its_thread = trainer.thread == Some(thread);
    if trainer.iterating > 0 {
        let problem = match is_its_thread {
            true => SEVERAL,
            false => OTHER_THREADS,
        };
        attached.problem(problem.to_owned());
        if !is_its_thread {
            return false;
        }
    }
    if trainer.thread.replace(thread).is_some() && !is_its_thread {
        trainer.desk.taken_over();
    }
    trainer.iterating += 1;
    trainer.lanes.clear();
    running.is_training.store(true, Ordering::Relaxed);
    if std::mem::take(&mut trainer.left) {
        let made = running.made.load(Ordering::Relaxed);
        running.taken.store(made, Ordering::Relaxed);
    }
    trainer.end_step(running, now);
    if let Some(since) = trainer.paused.take() {
        trainer.desk.lane.pause(Interval::new(since, now));
    }
    trainer.desk.free_at = now;
    let cause = trainer.desk.before();
    let mut epoch = locked(&running.epoch);
    *epoch = Started {
        number: epoch.number + 1,
        at: now,
        cause,
    };
    true
}

//! A thread that makes whole batches, and the records of what it does.

use super::{Running, Shared, Tag, locked};
use crate::pipeline::{Nesting, UsageMeter};
use crate::timeline::{
    ItemId, LaneKind, LaneRecorder, Nanos, Record, Split, Stage, StageKind, ThreadUsage,
    UnitRecord, UnitRef,
};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Samples that took less are recorded together.
const SHORT: Nanos = Nanos::from_micros(100);
/// A thread that was away for longer, with the queue full, had waited for room.
const NOTICEABLE: Nanos = Nanos::from_micros(20);
/// Waits shorter than this are not asked for their run delay, which would take as long.
pub(super) const SHORT_WAIT: Nanos = Nanos::from_micros(50);

/// Lanes that are kept for threads of the same name.
const MOST_SPARE: usize = 64;

/// When the epoch began, and the last unit of the training loop's thread before.
#[derive(Copy, Clone, Debug)]
pub(super) struct Started {
    pub(super) number: u64,
    pub(super) at: Nanos,
    pub(super) cause: UnitRef,
}

impl Default for Started {
    fn default() -> Started {
        Started {
            number: 0,
            at: Nanos::ZERO,
            cause: UnitRef::NONE,
        }
    }
}

/// Samples that a thread serves one after another.
struct Claim {
    batch: u64,
    /// The one that took longest, and how long.
    sample: u32,
    longest: Nanos,
    samples: u32,
    start: Nanos,
    /// What began it, where this thread did nothing before.
    begun: Option<Started>,
    /// How long each part took.
    parts: Vec<Nanos>,
}

/// One thread's lane, and what is to be recorded on it.
pub(super) struct Desk {
    pub(super) lane: LaneRecorder,
    pub(super) meter: UsageMeter,
    /// What the threads that had the lane before had used, and what all have used so far.
    before: ThreadUsage,
    used: ThreadUsage,
    /// End of the last unit.
    pub(super) free_at: Nanos,
    epoch: u64,
    /// Parts of samples in progress, each with its sample.
    open: Nesting<(usize, u32)>,
    claim: Option<Claim>,
    /// The batch in the making.
    batch: Option<u64>,
    /// A batch that is being handed on.
    handing_on: Option<UnitRecord>,
}

impl Desk {
    pub(super) fn new(lane: LaneRecorder, before: ThreadUsage, now: Nanos) -> Desk {
        Desk {
            lane,
            used: before,
            before,
            meter: UsageMeter::new(true),
            free_at: now,
            epoch: 0,
            open: Nesting::new(),
            claim: None,
            batch: None,
            handing_on: None,
        }
    }

    /// Another thread takes the desk.
    pub(super) fn taken_over(&mut self) {
        self.before = self.used;
        self.meter = UsageMeter::new(true);
    }

    /// A part begins.
    pub(super) fn enter(&mut self, running: &Running, part: usize, index: usize, now: Nanos) {
        if self.open.depth() == 0 {
            self.handed_on(running, Some(now));
            if self.claim.is_none() {
                self.begin(running, now);
            }
        }
        let sample = u32::try_from(index).unwrap_or(u32::MAX);
        self.open.enter((part, sample), now);
    }

    fn begin(&mut self, running: &Running, now: Nanos) {
        let epoch = *locked(&running.epoch);
        let before = std::mem::replace(&mut self.epoch, epoch.number);
        // A thread that lives on may be ahead of the epoch.
        let is_idle = before == 0 || self.free_at <= epoch.at;
        let begun = (before != epoch.number && is_idle).then_some(epoch);
        let next = || running.begun.fetch_add(1, Ordering::Relaxed);
        self.claim = Some(Claim {
            batch: *self.batch.get_or_insert_with(next),
            sample: 0,
            longest: Nanos::ZERO,
            samples: 0,
            start: begun.map_or(self.free_at, |_| now),
            begun,
            parts: vec![Nanos::ZERO; running.pipeline.samples().count()],
        });
    }

    /// The part that began last ends; with or without a `sample`.
    pub(super) fn exit(&mut self, running: &Running, sample: bool, now: Nanos) {
        let (Some(ended), Some(claim)) = (self.open.exit(now), &mut self.claim) else {
            return;
        };
        let (part, index) = ended.part;
        if let Some(part) = claim.parts.get_mut(part) {
            *part += ended.own;
        }
        if self.open.depth() > 0 {
            return;
        }
        if !sample {
            if claim.samples == 0 {
                self.claim = None;
            }
            return;
        }
        claim.samples += 1;
        if ended.length >= claim.longest {
            (claim.sample, claim.longest) = (index, ended.length);
        }
        if now - claim.start >= SHORT {
            self.samples_done(running, now);
        }
    }

    /// Records the samples so far.
    pub(super) fn samples_done(&mut self, running: &Running, now: Nanos) {
        let Some(claim) = self.claim.take() else {
            return;
        };
        let services = services(running, &claim, now);
        let run_delay = Nanos(self.meter.run_delay(now).into());
        let whole = now - claim.start;
        let mut start = claim.start;
        for services in in_units(&services) {
            let Some((stage, end)) = services.last().copied() else {
                continue;
            };
            let begun = claim.begun.filter(|_| start == claim.start);
            let unit = UnitRecord {
                split: split(start, services),
                sample: claim.sample,
                samples: claim.samples,
                run_delay: run_delay.share_of(end - start, whole).0 as u32,
                ..self.unit(stage, claim.batch, start, end)
            };
            let unit = match begun {
                Some(epoch) => UnitRecord {
                    waited: true,
                    ready_at: epoch.at,
                    cause: epoch.cause,
                    lineage: UnitRef::NONE,
                    ..unit
                },
                None => unit,
            };
            self.record(&unit);
            start = end;
        }
    }

    /// The unit of work before.
    pub(super) fn before(&self) -> UnitRef {
        let current = self.lane.current();
        let before = current.ordinal().checked_sub(1);
        before.map_or(UnitRef::NONE, |before| UnitRef::new(current.lane(), before))
    }

    /// A unit of work that follows the one before at once.
    pub(super) fn unit(&self, stage: Stage, batch: u64, start: Nanos, end: Nanos) -> UnitRecord {
        let before = self.before();
        UnitRecord {
            item: ItemId { batch, slot: 0 },
            lineage: match stage.is_first() {
                true => UnitRef::NONE,
                false => before,
            },
            ..UnitRecord::of_device(stage, batch, before, false, start, end)
        }
    }

    pub(super) fn record(&mut self, unit: &UnitRecord) {
        self.lane.unit(unit);
        self.free_at = unit.pushed;
        if let Some(usage) = self.meter.usage(unit.end) {
            self.used = self.before.plus(&usage);
            self.lane.write(&Record::Usage(self.used));
        }
    }

    /// A batch is made of the samples before.
    pub(super) fn batch_done(
        &mut self,
        running: &Running,
        samples: usize,
        now: Nanos,
        inline: bool,
    ) -> Tag {
        let next = || running.begun.fetch_add(1, Ordering::Relaxed);
        self.open.clear();
        let number = self.batch.take().unwrap_or_else(next);
        let stage = running.pipeline.the(StageKind::Batch);
        let run_delay = self.meter.run_delay(now);
        let unit = UnitRecord {
            samples: samples as u32,
            run_delay,
            ..self.unit(stage, number, self.free_at, now)
        };
        let tag = Tag {
            number,
            samples: samples as u32,
            ready_at: now,
            unit: self.lane.current(),
        };
        running.made.fetch_add(1, Ordering::Relaxed);
        match inline {
            true => self.record(&unit),
            false => self.handing_on = Some(unit),
        }
        tag
    }

    /// The batch before was handed on, at the latest `at`: where the queue was full its thread had waited for room.
    fn handed_on(&mut self, running: &Running, at: Option<Nanos>) {
        let Some(mut unit) = self.handing_on.take() else {
            return;
        };
        let made = running.made.load(Ordering::Relaxed);
        let waiting = made.saturating_sub(running.taken.load(Ordering::Relaxed));
        let is_full = waiting >= running.queue as u64;
        if let Some(at) = at.filter(|at| is_full && *at - unit.end > NOTICEABLE) {
            unit.pushed = at;
            unit.room_from = UnitRef::from_word(running.taking.load(Ordering::Relaxed));
        }
        self.record(&unit);
    }

    /// Time runnable but not running since the last call, where the thread had waited for `waited`.
    pub(super) fn woken(&mut self, waited: Nanos, now: Nanos) -> u32 {
        match waited > SHORT_WAIT {
            true => self.meter.run_delay(now),
            false => 0,
        }
    }
}

/// The parts of a claim in order, and when each ended, until `end`. What the wrapped loader does in between is of the
/// first.
fn services(running: &Running, claim: &Claim, end: Nanos) -> Vec<(Stage, Nanos)> {
    let known: Nanos = claim.parts.iter().copied().sum();
    let mut until = claim.start + (end - claim.start - known);
    let stages = running.pipeline.samples().zip(&claim.parts);
    let mut services: Vec<(Stage, Nanos)> = stages
        .map(|(stage, length)| {
            until = (until + *length).min(end);
            (stage, until)
        })
        .collect();
    if let Some((_, last)) = services.last_mut() {
        *last = end;
    }
    services
}

/// Services that share a unit of work: all where there are three, or else each has its own.
fn in_units(services: &[(Stage, Nanos)]) -> impl Iterator<Item = &[(Stage, Nanos)]> {
    services.chunks(match services.len() {
        3 => 3,
        _ => 1,
    })
}

/// How long the first two of three services took.
fn split(start: Nanos, services: &[(Stage, Nanos)]) -> Option<Split> {
    let [(_, first), (_, second), _] = services else {
        return None;
    };
    let length = |from: Nanos, to: Nanos| u32::try_from((to - from).0).unwrap_or(u32::MAX);
    Some(Split {
        first: length(start, *first),
        second: length(*first, *second),
        second_bytes: 0,
    })
}

thread_local! {
    static WORKERS: RefCell<Vec<Worker>> = const { RefCell::new(Vec::new()) };
}

/// A loader's thread at its desk, until the thread ends.
pub(super) struct Worker {
    id: u64,
    shared: Weak<Shared>,
    name: String,
    desk: Option<Desk>,
}

impl Worker {
    /// Does `work` at the calling thread's desk.
    pub(super) fn of_this_thread<T>(
        shared: &Arc<Shared>,
        running: &Running,
        work: impl FnOnce(&mut Desk) -> T,
    ) -> T {
        WORKERS.with_borrow_mut(|workers| {
            let known = workers.iter().position(|worker| worker.id == shared.id);
            let place = known.unwrap_or_else(|| {
                workers.push(Worker::new(shared, running));
                workers.len() - 1
            });
            let worker = &mut workers[place];
            let name = &worker.name;
            work(worker.desk.get_or_insert_with(|| running.desk(name)))
        })
    }

    fn new(shared: &Arc<Shared>, running: &Running) -> Worker {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("loader").to_owned();
        Worker {
            id: shared.id,
            shared: Arc::downgrade(shared),
            desk: Some(running.desk(&name)),
            name,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let shared = self.shared.upgrade();
        let running = shared.as_ref().and_then(|shared| shared.running());
        if let (Some(running), Some(mut desk)) = (running, self.desk.take()) {
            desk.handed_on(running, None);
            let used = desk.before.plus(&desk.meter.usage_now(running.clock.now()));
            desk.lane.write(&Record::Usage(used));
            let name = std::mem::take(&mut self.name);
            locked(&running.spare).push((name, desk.lane, used));
        }
    }
}

impl Running {
    /// A desk for a loader's thread, with the lane of one before it that has ended: one of its name, or any where a loader
    /// gives each thread a name of its own.
    fn desk(&self, name: &str) -> Desk {
        let mut spare = locked(&self.spare);
        let place = spare.iter().position(|(known, ..)| known == name);
        let place = place.or_else(|| (spare.len() >= MOST_SPARE).then_some(0));
        let (lane, used) = match place {
            Some(place) => {
                let (_, lane, used) = spare.swap_remove(place);
                (lane, used)
            }
            None => {
                let lane = self.recorder.lane(name, LaneKind::BatchWorker);
                (lane, ThreadUsage::default())
            }
        };
        Desk::new(lane, used, self.clock.now())
    }
}

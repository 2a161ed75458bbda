//! Which step each piece of a GPU's work belongs to, and what the device and its copy engine did for each.
//!
//! The trainer's records say between when and when it launched a step, and the copy stage's when it copied a
//! batch; a piece of work belongs where the call that launched it lies. Records of the device come in any
//! order and late, so a step is put together once the reading back of its outcome, which ends it, and those of
//! two steps after it have been seen. What comes out are units of work of two lanes, as of any device that
//! runs beside the trainer's thread.
//!
//! Invariants: each step of the trainer's gives exactly one unit, in order; units of a lane do not overlap;
//! nothing is thrown away uncounted. May use: `timeline`, `cupti`'s types.

mod foreign;
mod matching;
mod parts;

use super::cupti::{Activity, ApiCall, DeviceWork};
use matching::Matching;
use parts::{bytes_to_device, late, own_works, reads_back};
use stallscope_core::timeline::{
    BusySpan, DevicePhase, Interval, IntervalSet, Nanos, Record, Stage, StageKind, UnitRecord,
    UnitRef,
};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Steps that have to be seen behind one before that is put together: records of a step that come later than
/// its end are waited for that long.
const STEPS_BEHIND: usize = 2;
/// The same of a step whose own end has not been seen, since its record was lost.
const STEPS_BEHIND_LOST: usize = 8;
/// Pieces of work, and steps, that may wait for the ends of steps: where none are seen, steps are put together as
/// they are.
const MOST_HELD: usize = 1 << 18;
const MOST_STEPS: usize = 1 << 16;
/// A batch is copied as a whole, or in pieces that are as long.
const PIECE_BYTES: u64 = 256 << 10;
/// Copied batches that may wait for their step.
const MOST_COPIES: usize = 4096;

/// A piece of work with the call that launched it.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchedWork {
    pub work: DeviceWork,
    /// `None` where its record was lost.
    pub call: Option<ApiCall>,
}

impl LaunchedWork {
    /// When it was launched; without the call, when it began.
    fn launched(&self) -> Interval {
        let began = Interval::new(self.work.interval.start, self.work.interval.start);
        self.call.as_ref().map_or(began, |call| call.interval)
    }

    /// The thread that launched it.
    fn thread(&self) -> Option<u32> {
        self.call.as_ref().map(|call| call.thread)
    }
}

/// One step on the device, put together.
#[derive(Clone, Debug)]
pub struct GpuStep {
    pub batch: u64,
    /// By start; with what other threads launched right after it.
    pub works: Vec<LaunchedWork>,
    /// When at least one kernel ran.
    pub busy: IntervalSet,
    /// Parts of the time between in which the host had not launched what came next.
    pub late: Vec<Interval>,
    /// The copies of its batch.
    pub copies: Vec<LaunchedWork>,
    /// When the step's first kernel had to wait for one of them, as far as that is known.
    pub copying: Vec<Interval>,
    /// Time of those copies, and the part of it in which kernels ran.
    pub copied: Nanos,
    pub overlapped: Nanos,
}

/// The lanes of the two.
#[derive(Copy, Clone, Debug, Default)]
pub struct GpuLanes {
    pub device: u16,
    pub copy_engine: u16,
}

struct HostStep {
    stage: Stage,
    batch: u64,
    host: UnitRef,
    samples: u32,
    interval: Interval,
    works: Vec<LaunchedWork>,
    /// Launched by other threads between it and the next, or too late for the step before: device time all the
    /// same, but no part of the step.
    beside: Vec<LaunchedWork>,
    /// The reading back of its outcome has been seen, or what else tells that all its work has.
    ended: bool,
    /// A kernel of it has been placed.
    computes: bool,
}

struct HostCopy {
    stage: Stage,
    host: UnitRef,
    samples: u32,
    bytes: u64,
    interval: Interval,
    works: Vec<LaunchedWork>,
}

impl HostCopy {
    /// Whether it was under way.
    fn is_at(&self, time: Nanos) -> bool {
        self.interval.start <= time && time < self.interval.end
    }
}

impl HostStep {
    /// Its end has been seen, which `ended` counts.
    fn end(&mut self, ended: &mut usize) {
        *ended += usize::from(!self.ended);
        self.ended = true;
    }
}

/// Puts the steps together.
#[derive(Default)]
pub struct GpuSteps {
    lanes: GpuLanes,
    steps: VecDeque<HostStep>,
    copies: BTreeMap<u64, HostCopy>,
    /// Those of them that have ended.
    ended: usize,
    /// Threads that launched kernels. They copy, too: small numbers that kernels take, and the model's weights.
    launching: HashSet<u32>,
    /// Whether batches are copied by another thread.
    copies_apart: bool,
    matching: Matching,
    /// Pieces of work in `steps`.
    held: usize,
    /// When the host began the first step.
    began: Option<Nanos>,
    /// Launched, but not placed yet.
    unplaced: Vec<LaunchedWork>,
    /// Kernels of the steps before, for copies that ran beside them.
    recent: IntervalSet,
    device_free_at: Nanos,
    engine_free_at: Nanos,
    device_units: u64,
    engine_units: u64,
    /// Work that came after its step had been put together.
    late: u64,
    /// Threads of the loader that work on the device, when their kernels were launched and how long those took, until it is
    /// known when the first step began, and the number of those since then, with the sum of their times.
    loaders: HashSet<u32>,
    loader_launches: Vec<(Nanos, Nanos)>,
    loader_kernels: (u64, Nanos),
    /// Where the training is not ours.
    foreign: Option<foreign::Foreign>,
}

impl GpuSteps {
    /// Nothing has been seen. The units go to `lanes`.
    pub fn new(lanes: GpuLanes) -> GpuSteps {
        GpuSteps {
            lanes,
            ..GpuSteps::default()
        }
    }

    /// Work that came after its step had been put together, and is missing from it.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// What these threads launch is the loader's and of no step; to be said before it is taken.
    pub fn leave_out(&mut self, threads: impl IntoIterator<Item = u32>) {
        self.loaders.extend(threads);
    }

    /// Kernels that were left out since the first step, and the sum of their times.
    pub fn left_out(&self) -> (u64, Nanos) {
        self.loader_kernels
    }

    /// Takes from `launched` what threads of the loader launched, and counts it.
    fn leave_out_loader(&mut self, launched: &mut Vec<LaunchedWork>) {
        let loaders = &self.loaders;
        let is_own = |one: &LaunchedWork| !one.thread().is_some_and(|own| loaders.contains(&own));
        let (own, of_loader) = std::mem::take(launched).into_iter().partition(is_own);
        *launched = own;
        let of_loader: Vec<LaunchedWork> = of_loader;
        let kernels = of_loader.iter().filter(|one| one.work.kind.is_kernel());
        let launches = kernels.map(|one| (one.launched().start, one.work.interval.length()));
        self.loader_launches.extend(launches);
        let Some(began) = self.began else {
            return;
        };
        for (_, length) in self
            .loader_launches
            .drain(..)
            .filter(|(at, _)| *at >= began)
        {
            self.loader_kernels.0 += 1;
            self.loader_kernels.1 += length;
        }
    }

    /// Takes what the host recorded. Call it before the activities of the same pass.
    pub fn host(&mut self, records: &[(u16, Record)]) {
        for (lane, record) in records {
            let Record::Unit(unit) = record else { continue };
            let host = UnitRef::new(*lane, unit.ordinal);
            let interval = Interval::new(unit.start, unit.end);
            match unit.stage.kind() {
                StageKind::Step if !unit.skipped => {
                    self.began.get_or_insert(interval.start);
                    self.steps.push_back(HostStep {
                        stage: unit.stage,
                        batch: unit.item.batch,
                        host,
                        samples: unit.samples,
                        interval,
                        works: Vec::new(),
                        beside: Vec::new(),
                        ended: false,
                        computes: false,
                    });
                }
                // Of an empty batch nothing is copied, and nobody trains on it.
                StageKind::Copy if unit.samples > 0 && self.foreign.is_none() => {
                    let copy = HostCopy {
                        stage: unit.stage,
                        host,
                        samples: unit.samples,
                        bytes: unit.bytes_in,
                        interval,
                        works: Vec::new(),
                    };
                    self.copies.insert(unit.item.batch, copy);
                }
                _ => {}
            }
        }
    }

    /// Takes one activity; in any order.
    pub fn take(&mut self, activity: Activity) {
        self.matching.take(activity, &mut self.unplaced);
    }

    /// Takes work of which it is known that its call was not recorded.
    pub fn take_without_call(&mut self, work: DeviceWork) {
        self.unplaced.push(LaunchedWork { work, call: None });
    }

    /// Puts together the steps that are complete, all of them where nothing more will come. Their units are
    /// added to `records`.
    pub fn settle(&mut self, at_the_end: bool, records: &mut Vec<(u16, Record)>) -> Vec<GpuStep> {
        let without_call = self.matching.give_up_all(at_the_end);
        self.unplaced.extend(without_call);
        self.place(at_the_end);
        self.find_ended();
        if at_the_end {
            self.forget_unknown();
        }
        let mut done = Vec::new();
        while let Some(step) = self.steps.front() {
            let behind = self.ended - usize::from(step.ended);
            let complete = step.ended && behind >= STEPS_BEHIND || behind >= STEPS_BEHIND_LOST;
            let too_many = self.held > MOST_HELD || self.steps.len() > MOST_STEPS;
            if !at_the_end && !complete && !too_many {
                break;
            }
            self.ended = behind;
            if let Some(mut step) = self.steps.pop_front() {
                self.held -= step.works.len() + step.beside.len();
                self.complete(&mut step);
                done.push(self.put_together(step, records));
            }
        }
        self.hand_on_outside(records);
        done
    }

    /// Gives what was launched to the step, or to the copy, in whose course it was.
    fn place(&mut self, at_the_end: bool) {
        let last = self.steps.back().map(|step| step.interval.end);
        let known_until = last.max(self.foreign.as_ref().map(|own| own.host_until));
        // A step may launch more than is remembered: then it is told what it is, and not in which step.
        let too_many = self.foreign.is_some() && self.unplaced.len() > MOST_HELD;
        let mut launched = std::mem::take(&mut self.unplaced);
        if !self.loaders.is_empty() {
            self.leave_out_loader(&mut launched);
        }
        for one in launched.iter().filter(|one| one.work.kind.is_kernel()) {
            self.launching.extend(one.thread());
        }
        for launched in launched {
            let at = launched.launched().start;
            self.note_launch(&launched);
            if self.place_copy(&launched) {
                continue;
            }
            let unknown = known_until.is_none_or(|known| at >= known);
            if unknown && !at_the_end && !too_many {
                // Its step's record has yet to come.
                self.unplaced.push(launched);
                continue;
            }
            if unknown && too_many {
                self.late += 1;
                self.note_outside(&launched);
                continue;
            }
            let place = self.steps.partition_point(|step| step.interval.end <= at);
            let before_the_run = self.began.is_none_or(|began| at < began);
            match self.steps.get_mut(place) {
                Some(step) if step.interval.start <= at => {
                    if self.foreign.is_none() && reads_back(&launched.work) {
                        step.end(&mut self.ended);
                    }
                    step.computes |= launched.work.kind.is_kernel();
                    step.works.push(launched);
                    self.held += 1;
                }
                _ if self.foreign.is_some() && !unknown => self.note_outside(&launched),
                // Preparation and evaluation.
                _ if unknown || before_the_run => self.note_kernel(&launched),
                _ => {
                    self.late += u64::from(place == 0);
                    if let Some(step) = self.steps.get_mut(place.saturating_sub(1)) {
                        step.beside.push(launched);
                        self.held += 1;
                    }
                }
            }
        }
    }

    /// Gives `step` the work whose calls were lost, and takes from it the copies of batches that were not known as
    /// such when they came.
    fn complete(&mut self, step: &mut HostStep) {
        for launched in self.matching.give_up_before(&step.works) {
            if self.place_copy(&launched) {
                continue;
            }
            if launched.work.interval.start >= step.interval.start {
                step.works.push(launched);
            } else if self
                .began
                .is_some_and(|began| launched.work.interval.start >= began)
            {
                self.late += 1;
                step.beside.push(launched);
            }
        }
        step.works.retain(|launched| !self.place_copy(launched));
        step.beside.retain(|launched| !self.place_copy(launched));
    }

    /// Remembers when a kernel ran, for copies beside it.
    fn note_kernel(&mut self, launched: &LaunchedWork) {
        if launched.work.kind.is_kernel() {
            self.recent.insert(launched.work.interval);
        }
    }

    /// Whether it is the copy of a batch to the device.
    fn place_copy(&mut self, launched: &LaunchedWork) -> bool {
        let Some(bytes) = bytes_to_device(&launched.work) else {
            return false;
        };
        let at = launched.launched().start;
        let mut copies = self.copies.values_mut();
        let Some(copy) = copies.find(|copy| copy.is_at(at)) else {
            return false;
        };
        let is_large = 2 * bytes > copy.bytes.min(2 * PIECE_BYTES - 1);
        let is_batch = match launched.thread() {
            Some(thread) if !self.launching.contains(&thread) => {
                self.copies_apart = true;
                true
            }
            Some(_) => is_large && !self.copies_apart,
            None => is_large,
        };
        if is_batch {
            copy.works.push(launched.clone());
        }
        is_batch
    }

    fn put_together(&mut self, mut step: HostStep, records: &mut Vec<(u16, Record)>) -> GpuStep {
        self.settled(&step);
        let mut works = std::mem::take(&mut step.works);
        works.sort_by_key(|launched| launched.work.interval.start);
        let mut busy = IntervalSet::new();
        for launched in works.iter().chain(&step.beside) {
            if launched.work.kind.is_kernel() {
                busy.insert(launched.work.interval);
            }
            self.note_kernel(launched);
        }
        let (copy, copying) = match self.foreign {
            Some(_) => foreign::copies_of(&step, &mut works),
            None => (self.copies.remove(&step.batch), Vec::new()),
        };
        let copy = copy.map(|copy| self.without_others(copy, &mut works));
        // Copies of batches that were never trained on.
        while self.copies.len() > MOST_COPIES {
            self.copies.pop_first();
        }
        let (copies, copied, overlapped) = self.transfer(step.batch, copy, records);
        let own = own_works(&works);
        let free_at = self.device_free_at;
        let start = own.first().map(|first| first.work.interval.start);
        let start = start.unwrap_or(step.interval.end).max(free_at);
        let end = own.iter().map(|launched| launched.work.interval.end);
        let end = end.max().unwrap_or(start).max(start);
        let launched = own.first().map(|first| first.launched().end.min(start));
        let waited = launched.unwrap_or(start) > free_at;
        let late = late(&own, start, end);
        for part in busy.parts() {
            let span = BusySpan {
                phase: DevicePhase::Kernels,
                batch: step.batch,
                start: part.start,
                end: part.end,
            };
            records.push((self.lanes.device, Record::Busy(span)));
        }
        let stage = step.stage.other(StageKind::Device);
        let unit = UnitRecord {
            samples: step.samples,
            lineage: step.host,
            ordinal: self.device_units,
            ..UnitRecord::of_device(stage, step.batch, step.host, waited, start, end)
        };
        records.push((self.lanes.device, Record::Unit(unit)));
        self.device_units += 1;
        self.device_free_at = end;
        // Copies still to come have begun no earlier than the first of those that wait for their step.
        let waiting = self.copies.values().map(|copy| copy.interval.start).min();
        self.recent
            .forget_before(waiting.map_or(start, |waiting| waiting.min(start)));
        works.extend(step.beside);
        works.sort_by_key(|launched| launched.work.interval.start);
        GpuStep {
            batch: step.batch,
            late,
            works,
            busy,
            copies,
            copying,
            copied,
            overlapped,
        }
    }

    /// `copy` without what a thread copied of which it was not known yet that it launches kernels: that is the step's.
    fn without_others(&self, mut copy: HostCopy, works: &mut Vec<LaunchedWork>) -> HostCopy {
        if self.foreign.is_none() && self.copies_apart {
            let launches = |one: &LaunchedWork| {
                let thread = one.thread();
                thread.is_some_and(|thread| self.launching.contains(&thread))
            };
            let (others, own) = copy.works.into_iter().partition(launches);
            copy.works = own;
            works.extend::<Vec<_>>(others);
            works.sort_by_key(|one| one.work.interval.start);
        }
        copy
    }

    /// The copies of a batch, their time, and how much of it lies beside kernels; with a unit of the copy engine.
    fn transfer(
        &mut self,
        batch: u64,
        copy: Option<HostCopy>,
        records: &mut Vec<(u16, Record)>,
    ) -> (Vec<LaunchedWork>, Nanos, Nanos) {
        let Some(copy) = copy.filter(|copy| !copy.works.is_empty()) else {
            return (Vec::new(), Nanos::ZERO, Nanos::ZERO);
        };
        let mut times = IntervalSet::new();
        for launched in &copy.works {
            times.insert(launched.work.interval);
        }
        let overlapped = times
            .parts()
            .iter()
            .map(|part| self.recent.covered_in(*part));
        let overlapped = overlapped.sum();
        let first = times.parts().first().map_or(Nanos::ZERO, |part| part.start);
        let last = times.parts().last().map_or(first, |part| part.end);
        let start = first.max(self.engine_free_at);
        let end = last.max(start);
        let stage = copy.stage.other(StageKind::Transfer);
        let unit = UnitRecord {
            samples: copy.samples,
            bytes_in: copy.bytes,
            bytes_out: copy.bytes,
            ordinal: self.engine_units,
            ..UnitRecord::of_device(stage, batch, copy.host, true, start, end)
        };
        records.push((self.lanes.copy_engine, Record::Unit(unit)));
        self.engine_units += 1;
        self.engine_free_at = end;
        (copy.works, times.length(), overlapped)
    }
}

#[cfg(test)]
mod tests;

//! The analysis of a run in progress: takes records as they come, folds what is settled, keeps little.

use super::cause::IdleSpan;
use super::fold::{DeviceActivity, Fold};
use super::hidden::Gaps;
use super::process_cpu::{CpuReading, ProcessCpu};
use super::run_delay::RunDelays;
use super::summary::Summary;
use super::tally::{Lengths, Tally};
use super::totals::Totals;
use super::units::{Link, MEETING_PATIENCE, Moment, Point, Units};
use crate::timeline::{
    CountedSteps, DevicePhase, HostWork, Interval, IntervalSet, LaneInfo, Nanos, Record, StageKind,
    StepCounts, UnitRecord, UnitRef,
};
use std::borrow::Cow;

/// Records that are taken before the caller may give way to other threads: in about as long as waking one takes.
const AT_A_STRETCH: usize = 64;

/// Which part of the run is measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WindowRule {
    /// Steps before the window; with none it begins at `run_start`.
    pub warmup_steps: u64,
    /// Measured steps after which the window ends, where it is known.
    pub steps: Option<u64>,
    /// When the pipeline was started.
    pub run_start: Nanos,
    /// Steps end on a device that runs beside the trainer's thread, and not when that thread asks for the
    /// next batch.
    pub device_beside: bool,
}

impl WindowRule {
    /// Whether the step of this number, counted from one, is in the window.
    pub fn measures(&self, number: u64) -> bool {
        let last = self.steps.map(|steps| self.warmup_steps + steps);
        number > self.warmup_steps && last.is_none_or(|last| number <= last)
    }
}

/// Steps seen so far.
struct Steps {
    /// Those of the trainer's thread, and those that ended, on the device where that runs beside.
    trainer: CountedSteps,
    ended: CountedSteps,
    /// When that thread was done with the last of them; `None` where records after that were dropped.
    free_at: Option<Nanos>,
    /// Its lane, once it is known.
    lane: Option<u16>,
    /// Device time of the steps proper, without preprocessing.
    compute: Nanos,
    /// The same, not counted yet since the window has not begun as far as is known.
    early: Vec<Interval>,
    /// When the device began its first step.
    device_began: Option<Nanos>,
    data_wait: Lengths,
    /// Of the trainer's waits the part before the window.
    waited_before: Nanos,
    /// Measured waits, not counted yet since it is not known when the window began: a device beside the trainer's
    /// thread tells of its steps later than that does.
    early_waits: Vec<Interval>,
    service: Lengths,
    run_delay: Nanos,
    first_batch: Option<Nanos>,
    /// The last two steps: the older one's predecessors have surely arrived.
    latest: Option<(UnitRef, Nanos)>,
    before_latest: Option<(UnitRef, Nanos)>,
}

impl Steps {
    /// Counts a wait, as far as it lies in the window that `begins`.
    fn data_wait(&mut self, wait: Interval, begins: Nanos, fold: &mut Fold) {
        let length = wait.end - wait.start.max(begins);
        self.data_wait.add(length);
        fold.data_wait(wait.end, length);
        self.waited_before += wait.length() - length;
    }
}

/// A run's analysis.
pub struct Analysis {
    rule: WindowRule,
    /// Units left in memory at least, so that late records find what bound them.
    keep: usize,
    units: Units,
    device: DeviceActivity,
    fold: Fold,
    /// What of the run is not measured.
    pauses: IntervalSet,
    tally: Tally,
    /// Units that reach past the end of the last step, to be counted once that is known not to be the
    /// end of the window.
    ahead: Vec<(u16, UnitRecord)>,
    gaps: Gaps,
    run_delays: RunDelays,
    steps: Steps,
    /// `None` where nothing passes over the data.
    batches_per_epoch: Option<u64>,
    window_end: Option<Nanos>,
    cpu: ProcessCpu,
    others_cpu: ProcessCpu,
    records: u64,
    dropped: u64,
    /// Steps are counted by those who end them.
    are_counted: bool,
}

/// `device`, with the gaps that are open yet.
fn activity<'a>(device: &'a DeviceActivity, gaps: &Gaps) -> Cow<'a, DeviceActivity> {
    let mut device = Cow::Borrowed(device);
    if gaps.any_open() {
        gaps.note_open(device.to_mut());
    }
    device
}

impl Analysis {
    /// Units remembered at least, whatever is in flight.
    const KEEP: usize = 512;

    /// An analysis that has seen nothing. `in_flight` is the number of claims that the pipeline can
    /// hold at once.
    pub fn new(rule: WindowRule, in_flight: usize) -> Analysis {
        let mut fold = Fold::new(rule.device_beside);
        if rule.warmup_steps == 0 {
            fold.open_window(rule.run_start);
        }
        let steps = Steps {
            trainer: CountedSteps::default(),
            ended: CountedSteps::default(),
            free_at: Some(rule.run_start),
            lane: None,
            compute: Nanos::ZERO,
            early: Vec::new(),
            device_began: None,
            data_wait: Lengths::new(),
            waited_before: Nanos::ZERO,
            early_waits: Vec::new(),
            service: Lengths::new(),
            run_delay: Nanos::ZERO,
            first_batch: None,
            latest: None,
            before_latest: None,
        };
        Analysis {
            rule,
            keep: Analysis::KEEP.max(8 * in_flight),
            units: Units::default(),
            device: DeviceActivity::default(),
            fold,
            pauses: IntervalSet::default(),
            tally: Tally::default(),
            ahead: Vec::new(),
            gaps: Gaps::default(),
            run_delays: RunDelays::default(),
            steps,
            batches_per_epoch: None,
            window_end: None,
            cpu: ProcessCpu::default(),
            others_cpu: ProcessCpu::default(),
            records: 0,
            dropped: 0,
            are_counted: false,
        }
    }

    /// The same, of batches of which an epoch has so many: causes are told by epoch, too.
    pub fn with_epochs(self, batches: Option<u64>) -> Analysis {
        Analysis {
            batches_per_epoch: batches.filter(|batches| *batches > 0),
            ..self
        }
    }

    /// Takes one pass of the collector: every lane's records, each lane's in order. `dropped` is the
    /// total so far, `cpu` was read after the records were taken. `give_way` is called now and then in
    /// between, for callers that share their core with the pipeline.
    pub fn absorb(
        &mut self,
        records: &[(u16, Record)],
        dropped: u64,
        cpu: Option<CpuReading>,
        mut give_way: impl FnMut(),
    ) {
        self.dropped = dropped;
        self.records += records.len() as u64;
        // The trainer's steps say where the window begins and ends, so they come first.
        self.begin_window();
        for (lane, record) in records {
            match record {
                Record::Unit(unit) => self.step(*lane, unit),
                // So do pauses, which workers may have waited through.
                Record::Pause(pause) => self.pauses.insert(*pause),
                _ => {}
            }
        }
        if let Some(reading) = cpu {
            self.cpu.read(reading);
        }
        self.clip_cpu();
        for (number, part) in records.chunks(AT_A_STRETCH).enumerate() {
            if number > 0 {
                give_way();
            }
            for (lane, record) in part {
                self.record(*lane, record);
            }
        }
        self.count_until(self.steps.ended.all.until);
    }

    /// Takes what the trainer's thread, and a device that runs beside it, have counted of their steps so far; before
    /// the records taken until then. Without it the records are counted, none of which may be missing then.
    pub fn counted(&mut self, trainer: CountedSteps, device: CountedSteps) {
        let ended = match self.rule.device_beside {
            true => device,
            false => trainer,
        };
        self.are_counted = ended.all.steps > 0;
        if self.are_counted {
            (self.steps.trainer, self.steps.ended) = (trainer, ended);
        }
    }

    /// Takes what other programs have computed on this process's cores, as of a reading taken now and then; before
    /// the records taken until then.
    pub fn other_programs(&mut self, reading: CpuReading) {
        self.others_cpu.read(reading);
    }

    /// Notes what of the CPU time so far lies in the window.
    fn clip_cpu(&mut self) {
        for cpu in [&mut self.cpu, &mut self.others_cpu] {
            if let Some(start) = self.fold.window_start() {
                cpu.begins(start);
            }
            if self.steps.latest.is_some() {
                cpu.reaches(self.window_end.unwrap_or(self.steps.ended.all.until));
            }
        }
    }

    /// Takes the parts of steps on the device in which it had nothing to do since the host had not launched what
    /// came next; before the records of those steps.
    pub fn host_was_late(&mut self, parts: &[Interval]) {
        for part in parts {
            self.device.late.insert(*part);
        }
    }

    /// Takes the times in which a batch was on its way to the device, whose work on it could not begin: before the
    /// records of those steps.
    pub fn batch_was_copied(&mut self, times: &[Interval]) {
        for time in times {
            self.device.copying.insert(*time);
        }
    }

    /// Notes how many items the unit's thread left in its queue. A thread hands on to itself without one.
    fn queue(&mut self, lane: u16, unit: &UnitRecord) {
        let kind = unit.stage.kind();
        let has_none = kind == StageKind::Part || unit.stage.on_device();
        if !has_none && unit.is_from_queue(lane) {
            self.fold
                .queue(unit.stage, unit.start, unit.input_depth.into());
        }
    }

    /// Counts a unit, at once where it ended before the last step did.
    fn count(&mut self, lane: u16, unit: &UnitRecord) {
        if unit.pushed > self.steps.ended.all.until {
            self.ahead.push((lane, *unit));
        } else if let Some(window) = self.open_window() {
            self.tally.unit(lane, unit, window, &self.pauses);
        }
    }

    /// Counts the units that ended until `end`.
    fn count_until(&mut self, end: Nanos) {
        let window = self.open_window();
        let (tally, pauses) = (&mut self.tally, &self.pauses);
        self.ahead.retain(|(lane, unit)| {
            let is_ahead = unit.pushed > end;
            if let Some(window) = window.filter(|_| !is_ahead) {
                tally.unit(*lane, unit, window, pauses);
            }
            is_ahead
        });
    }

    fn record(&mut self, lane: u16, record: &Record) {
        let gap = self.gaps.record(lane, record, &mut self.device);
        if let Some((gap, window)) = gap.zip(self.open_window()) {
            self.tally.hide(lane, gap.clip(window).length());
        }
        match record {
            Record::Unit(unit) => {
                let (unit, late) = &self.run_delays.settle(lane, unit);
                if unit.is_step() {
                    self.step_of_trainer(lane, unit);
                }
                // A batch that was handed on thanks to an earlier one had been ready before.
                if unit.stage.kind() == StageKind::Copy
                    && unit.cause != unit.lineage
                    && let Some(made) = self.units.get(unit.lineage)
                {
                    let held = Interval::new(made.end, unit.ready_at);
                    self.device.held.insert(held);
                }
                self.queue(lane, unit);
                self.count(lane, unit);
                self.units.insert(lane, *unit, *late);
            }
            Record::Busy(busy) => {
                let interval = Interval::new(busy.start, busy.end);
                self.device.busy.insert(interval);
                self.device_time(busy.phase, interval);
            }
            Record::Pause(pause) => self.pause(*pause),
            Record::Host(host) => {
                if host.work == HostWork::AllReduce {
                    self.tally.met(Interval::new(host.start, host.end));
                }
                self.device.host.push_back(*host);
            }
            Record::Live { at, workers, of } => self.device.live(*at, *workers, *of),
            Record::Held(held) => self.device.held.insert(*held),
            Record::Usage(usage) => self.tally.usage(lane, *usage, self.open_window()),
            Record::Loaded { at, cpu } => {
                let window = self.open_window();
                if window.is_some_and(|window| *at > window.start && *at <= window.end) {
                    self.tally.loaded(*cpu);
                }
            }
            Record::Dropped => {
                self.run_delays.gap(lane);
                if self.steps.lane.is_none_or(|own| own == lane) {
                    self.steps.free_at = None;
                }
            }
        }
    }

    /// Leaves a pause out of what is measured: as busy as it is long, and taken off again.
    fn pause(&mut self, pause: Interval) {
        self.device.busy.insert(pause);
        if self.steps.free_at.is_some() {
            self.steps.free_at = Some(pause.end);
        }
    }

    /// The window as far as it is known; open at its end while the run goes on.
    fn open_window(&self) -> Option<Interval> {
        let end = self.window_end.unwrap_or(Nanos(u64::MAX));
        self.fold
            .window_start()
            .map(|start| Interval::new(start, end))
    }

    /// Takes note that a step has ended.
    fn step(&mut self, lane: u16, unit: &UnitRecord) {
        let WindowRule {
            warmup_steps,
            device_beside,
            ..
        } = self.rule;
        let ends = match device_beside {
            true => unit.stage.kind() == StageKind::Device,
            false => unit.is_step(),
        };
        if unit.is_step() && !self.are_counted {
            self.steps.trainer.count(unit, warmup_steps);
        }
        if ends {
            if let Some(epoch) = self.epoch_of(unit.item.batch) {
                let latest = self.steps.latest;
                let waits_from = latest.map_or(self.rule.run_start, |(_, end)| end);
                self.fold.begin_epoch(epoch, waits_from);
            }
            if !self.are_counted {
                self.steps.ended.count(unit, warmup_steps);
                self.begin_window();
            }
            self.fold.step(unit.pushed, u64::from(unit.samples));
            let name = UnitRef::new(lane, unit.ordinal);
            self.steps.before_latest = self.steps.latest.replace((name, unit.pushed));
        }
    }

    /// What the trainer's thread says of its step.
    fn step_of_trainer(&mut self, lane: u16, unit: &UnitRecord) {
        let steps = &mut self.steps;
        steps.lane = Some(lane);
        steps
            .first_batch
            .get_or_insert(unit.start - self.rule.run_start);
        let free_at = steps.free_at.replace(unit.pushed);
        let warm = steps.trainer.warm_up.map(|warm_up| warm_up.until);
        let measured = match self.rule.warmup_steps {
            0 => true,
            _ => warm.is_some_and(|warm| unit.pushed > warm),
        };
        if !measured {
            return;
        }
        if let Some(free_at) = free_at {
            let wait = Interval::new(free_at, unit.start);
            // A thread that runs ahead of its device waits before the window, too.
            let begins = match self.rule.device_beside {
                true => self.fold.window_start(),
                false => Some(free_at),
            };
            match begins {
                Some(begins) => steps.data_wait(wait, begins, &mut self.fold),
                None => steps.early_waits.push(wait),
            }
        }
        steps.service.add(unit.end - unit.start);
        steps.run_delay += Nanos(u64::from(unit.run_delay));
    }

    /// The window begins with the end of the warm-up.
    fn begin_window(&mut self) {
        if let Some(warm_up) = self.steps.ended.warm_up
            && self.fold.window_start().is_none()
        {
            self.fold.open_window(warm_up.until);
            for wait in std::mem::take(&mut self.steps.early_waits) {
                self.steps.data_wait(wait, warm_up.until, &mut self.fold);
            }
        }
    }

    /// The epoch of a batch, from zero.
    fn epoch_of(&self, batch: u64) -> Option<u64> {
        Some(batch / self.batches_per_epoch?)
    }

    /// Steps counted in `all`, without those of the warm-up.
    fn since_warm_up(&self, counted: &CountedSteps) -> StepCounts {
        let before = counted.warm_up.unwrap_or_default();
        let all = counted.all;
        let none_yet = self.rule.warmup_steps > 0 && counted.warm_up.is_none();
        if none_yet {
            return StepCounts::default();
        }
        StepCounts {
            steps: all.steps - before.steps,
            samples: all.samples - before.samples,
            waited: all.waited - before.waited,
            until: all.until,
            paused: all.paused,
        }
    }

    /// The measured steps so far; `None` before the first.
    fn measured(&self) -> Option<StepCounts> {
        let measured = self.since_warm_up(&self.steps.ended);
        (measured.steps > 0).then_some(measured)
    }

    /// The trainer's waits in the window. The first step's is not between two.
    fn data_wait_total(&self) -> Nanos {
        let first = match self.rule.warmup_steps {
            0 => self.steps.first_batch.unwrap_or_default(),
            _ => Nanos::ZERO,
        };
        self.since_warm_up(&self.steps.trainer).waited + first - self.steps.waited_before
    }

    /// Counts device time for accelerator utilization, as far as it lies in the window.
    fn device_time(&mut self, phase: DevicePhase, interval: Interval) {
        self.steps.device_began.get_or_insert(interval.start);
        if phase != DevicePhase::Preprocess {
            self.steps.early.push(interval);
        }
        let window = self.open_window();
        let steps = &mut self.steps;
        match window {
            Some(window) => {
                let inside = steps.early.drain(..).map(|part| part.clip(window).length());
                steps.compute += inside.sum();
            }
            // The record of the step that the window begins with may follow, those before it do not matter.
            None => {
                let ended = steps.ended.all.until;
                steps.early.retain(|part| part.end > ended);
            }
        }
    }

    /// Folds what no later record can change and forgets it; returns its idle spans, in order.
    /// Call every second or so, and whenever it [is full](Self::is_full).
    pub fn settle(&mut self) -> Vec<IdleSpan> {
        let Some((_, end)) = self.steps.before_latest else {
            return Vec::new();
        };
        let path = self
            .units
            .settle(self.keep, end.min(self.steps.ended.all.until));
        let spans = self.fold.extend(&path, &activity(&self.device, &self.gaps));
        self.device.forget_before(self.fold.cursor());
        spans
    }

    /// Folds the rest of the run, up to the end of the last step.
    pub fn finish(&mut self) -> Vec<IdleSpan> {
        let Some((unit, latest)) = self.steps.latest else {
            return Vec::new();
        };
        let end = self.steps.ended.all.until;
        self.window_end.get_or_insert(end);
        self.count_until(Nanos(u64::MAX));
        self.units.end();
        let moment = Moment::Pushed;
        // Where the last step's own record was lost, the one before it may have been bound by other work at its end.
        let known = match latest < end {
            true => self.units.meeting_of_all(latest),
            false => Some(Point { unit, moment }),
        };
        let path = known.map_or(Vec::new(), |point| self.units.path_to(point));
        let device = activity(&self.device, &self.gaps);
        let mut spans = self.fold.extend(&path, &device);
        spans.extend(self.fold.close(end, &device));
        spans
    }

    /// Whether there is so much to fold that it should not wait for the next second: what is folded while it
    /// is still in the processor's caches costs less.
    pub fn is_full(&self) -> bool {
        self.units.len() > MEETING_PATIENCE * self.keep
    }

    /// Units in memory.
    pub fn units_kept(&self) -> usize {
        self.units.len()
    }

    /// Sums over the window so far; `None` before the first measured step. Much cheaper than a summary.
    pub fn totals(&self, lanes: &[LaneInfo]) -> Option<Totals> {
        let start = self.fold.window_start()?;
        let measured = self.measured()?;
        let window = Interval::new(start, self.window_end.unwrap_or(measured.until));
        let paused = self.pauses.covered_in(window);
        let time = window.length() - paused;
        let unfolded = Interval::new(self.fold.cursor().max(start), window.end);
        Some(Totals {
            time,
            steps: measured.steps,
            samples: measured.samples,
            device_busy: self.fold.busy() + self.device.busy.covered_in(unfolded) - paused,
            data_wait: self.data_wait_total(),
            stages: self.tally.stage_totals(),
            workers: self.tally.workers(lanes, time),
        })
    }

    /// Where accelerator utilization begins in a window from `start` on: the first step's I/O is left out.
    fn utilized_from(&self, start: Nanos) -> Nanos {
        self.steps.device_began.unwrap_or(start).max(start)
    }

    /// What has been found so far; `None` before the first measured step. `lanes` are the recorder's.
    pub fn summary(&self, lanes: &[LaneInfo]) -> Option<Summary> {
        let start = self.fold.window_start()?;
        let measured = self.measured()?;
        let (unit, _) = self.steps.latest?;
        let mut fold = self.fold.clone();
        let mut complete = true;
        let device = activity(&self.device, &self.gaps);
        if fold.cursor() < measured.until {
            let moment = Moment::Pushed;
            let mut path = self.units.path_to(Point { unit, moment });
            complete = path.iter().all(|visit| visit.link != Link::Missing);
            // The latest step may have ended after those that are counted.
            for visit in &mut path {
                visit.time = visit.time.min(measured.until);
            }
            fold.extend(&path, &device);
        }
        fold.close(measured.until, &device);
        let window = Interval::new(start, fold.cursor().max(start));
        let paused = self.pauses.covered_in(window);
        let time = window.length() - paused;
        let workers = self.tally.workers(lanes, time);
        // How full the queues of other processes are is not known.
        let queued = match lanes.first().is_some_and(LaneInfo::is_foreign) {
            true => Vec::new(),
            false => self.tally.seen(),
        };
        Some(Summary {
            window,
            paused,
            steps: measured.steps,
            samples: measured.samples,
            device_busy: fold.busy() - paused,
            busy_intervals: fold.busy_intervals(),
            compute: self.steps.compute,
            utilized_from: self.utilized_from(start),
            causes: fold.totals().ranked(),
            over_time: fold.over_time(window, &queued).without(&self.pauses, start),
            data_wait: self.steps.data_wait.summary(),
            data_wait_total: self.data_wait_total(),
            step: self.steps.service.summary(),
            step_run_delay: self.steps.run_delay,
            first_batch: self.steps.first_batch,
            stages: self.tally.stage_summaries(&workers, time),
            slowest_samples: self.tally.slowest(|batch| self.epoch_of(batch)),
            profile: self.tally.profile(
                &workers,
                time,
                self.cpu.used(),
                self.others_cpu.used(),
                (measured.steps, measured.samples),
            ),
            workers,
            process_cpu: self.cpu.used(),
            others_cpu: self.others_cpu.used(),
            records: self.records,
            readings: self.tally.readings(),
            dropped: self.dropped,
            complete,
        })
    }
}

//! The analysis of a run in progress: takes records as they come, folds what is settled, keeps little.

use super::cause::IdleSpan;
use super::fold::{DeviceActivity, Fold};
use super::process_cpu::{CpuReading, ProcessCpu};
use super::summary::Summary;
use super::tally::{Lengths, Tally, share};
use super::units::{Link, MEETING_PATIENCE, Moment, Point, Units, Visit};
use crate::timeline::{DevicePhase, Interval, LaneInfo, Nanos, Record, Stage, UnitRecord, UnitRef};

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
    /// The last measured step, counted from one, where it is known.
    fn last(&self) -> Option<u64> {
        Some(self.warmup_steps + self.steps?)
    }

    /// Whether the step of this number, counted from one, is in the window.
    pub fn measures(&self, number: u64) -> bool {
        number > self.warmup_steps && self.last().is_none_or(|last| number <= last)
    }
}

/// How fast a run goes, over the window so far.
#[derive(Copy, Clone, Debug)]
pub struct Pace {
    pub samples_per_second: f64,
    /// Device busy / window, 0 to 1.
    pub device_busy: f64,
}

/// Steps seen so far.
struct Steps {
    /// Begun and ended by the trainer's thread.
    seen: u64,
    /// When that thread was done with the last of them.
    free_at: Nanos,
    /// Ended, on the device where that runs beside.
    ended: u64,
    measured: u64,
    samples: u64,
    /// Device time of the steps proper, without preprocessing.
    compute: Nanos,
    /// The same, not counted yet since the window has not begun as far as is known.
    early: Vec<Interval>,
    /// When the device began its first step.
    device_began: Option<Nanos>,
    data_wait: Lengths,
    data_wait_total: Nanos,
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
    fn data_wait(&mut self, wait: Interval, begins: Nanos) {
        let length = wait.end - wait.start.max(begins);
        self.data_wait.add(length);
        self.data_wait_total += length;
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
    tally: Tally,
    /// Units that reach past the end of the last step, to be counted once that is known not to be the
    /// end of the window.
    ahead: Vec<(u16, UnitRecord)>,
    steps: Steps,
    /// `None` where nothing passes over the data.
    batches_per_epoch: Option<u64>,
    window_end: Option<Nanos>,
    cpu: ProcessCpu,
    others_cpu: ProcessCpu,
    records: u64,
    dropped: u64,
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
            seen: 0,
            free_at: rule.run_start,
            ended: 0,
            measured: 0,
            samples: 0,
            compute: Nanos::ZERO,
            early: Vec::new(),
            device_began: None,
            data_wait: Lengths::new(),
            data_wait_total: Nanos::ZERO,
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
            tally: Tally::default(),
            ahead: Vec::new(),
            steps,
            batches_per_epoch: None,
            window_end: None,
            cpu: ProcessCpu::default(),
            others_cpu: ProcessCpu::default(),
            records: 0,
            dropped: 0,
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
        for (lane, record) in records {
            if let Record::Unit(unit) = record {
                let name = UnitRef::new(*lane, unit.ordinal);
                let ends = match self.rule.device_beside {
                    true => unit.stage == Stage::Device,
                    false => unit.is_step(),
                };
                if unit.is_step() {
                    self.step(unit);
                }
                if ends {
                    self.step_ended(name, unit);
                }
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
        if let Some((_, end)) = self.steps.latest {
            self.count_until(end);
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
            if let Some((_, end)) = self.steps.latest {
                cpu.reaches(self.window_end.unwrap_or(end));
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

    /// Counts a unit, at once where it ended before the last step did.
    fn count(&mut self, lane: u16, unit: &UnitRecord) {
        let latest = self.steps.latest;
        if latest.is_none_or(|(_, end)| unit.pushed > end) {
            self.ahead.push((lane, *unit));
        } else if let Some(window) = self.open_window() {
            self.tally.unit(lane, unit, window);
        }
    }

    /// Counts the units that ended until `end`.
    fn count_until(&mut self, end: Nanos) {
        let window = self.open_window();
        let tally = &mut self.tally;
        self.ahead.retain(|(lane, unit)| {
            let is_ahead = unit.pushed > end;
            if let Some(window) = window.filter(|_| !is_ahead) {
                tally.unit(*lane, unit, window);
            }
            is_ahead
        });
    }

    fn record(&mut self, lane: u16, record: &Record) {
        match record {
            Record::Unit(unit) => {
                self.count(lane, unit);
                self.units.insert(lane, *unit);
            }
            Record::Busy(busy) => {
                let interval = Interval::new(busy.start, busy.end);
                self.device.busy.insert(interval);
                self.device_time(busy.phase, interval);
            }
            Record::Host(host) => self.device.host.push_back(*host),
            Record::Usage(usage) => self.tally.usage(lane, *usage, self.open_window()),
        }
    }

    /// The window as far as it is known; open at its end while the run goes on.
    fn open_window(&self) -> Option<Interval> {
        let end = self.window_end.unwrap_or(Nanos(u64::MAX));
        self.fold
            .window_start()
            .map(|start| Interval::new(start, end))
    }

    /// What the trainer's thread says of its step.
    fn step(&mut self, unit: &UnitRecord) {
        let steps = &mut self.steps;
        steps
            .first_batch
            .get_or_insert(unit.start - self.rule.run_start);
        let free_at = std::mem::replace(&mut steps.free_at, unit.pushed);
        steps.seen += 1;
        if self.rule.measures(steps.seen) {
            let wait = Interval::new(free_at, unit.start);
            // A thread that runs ahead of its device waits before the window, too.
            let begins = match self.rule.device_beside {
                true => self.fold.window_start(),
                false => Some(free_at),
            };
            match begins {
                Some(begins) => steps.data_wait(wait, begins),
                None => steps.early_waits.push(wait),
            }
            steps.service.add(unit.end - unit.start);
            // Where it waited for the device afterwards, it is not known in which of the two it lacked a core.
            let waited = unit.pushed > unit.end;
            let run_delay = if waited { 0 } else { unit.run_delay };
            steps.run_delay += Nanos(u64::from(run_delay));
        }
    }

    /// The epoch of a batch, from zero.
    fn epoch_of(&self, batch: u64) -> Option<u64> {
        Some(batch / self.batches_per_epoch?)
    }

    /// A step has ended, with the unit `name`: the window begins and ends with one.
    fn step_ended(&mut self, name: UnitRef, unit: &UnitRecord) {
        let epoch = self.epoch_of(unit.item.batch);
        let (rule, steps) = (self.rule, &mut self.steps);
        if let Some(epoch) = epoch {
            let waits_from = steps.latest.map_or(rule.run_start, |(_, end)| end);
            self.fold.begin_epoch(epoch, waits_from);
        }
        steps.before_latest = steps.latest.replace((name, unit.pushed));
        steps.ended += 1;
        let number = steps.ended;
        if rule.measures(number) {
            steps.measured += 1;
            steps.samples += u64::from(unit.samples);
        }
        if number == rule.warmup_steps {
            self.fold.open_window(unit.pushed);
            for wait in std::mem::take(&mut steps.early_waits) {
                steps.data_wait(wait, unit.pushed);
            }
        }
        if Some(number) == rule.last() {
            self.window_end = Some(unit.pushed);
        }
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
                let ended = steps.latest.map_or(Nanos::ZERO, |(_, end)| end);
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
        let path = self.units.settle(self.keep, end, self.dropped > 0);
        let spans = self.fold.extend(path, &self.device);
        self.forget();
        spans
    }

    /// Folds the rest of the run, up to the end of the last step.
    pub fn finish(&mut self) -> Vec<IdleSpan> {
        let Some((unit, end)) = self.steps.latest else {
            return Vec::new();
        };
        self.window_end.get_or_insert(end);
        self.count_until(Nanos(u64::MAX));
        let moment = Moment::Pushed;
        let path = self.units.path_to(Point { unit, moment });
        let mut spans = self.fold.extend(path, &self.device);
        // Nothing is left over unless the last step's own record was lost.
        spans.extend(self.fold.close(end, &self.device));
        spans
    }

    /// Forgets the device's activity in what has been folded.
    fn forget(&mut self) {
        let done = self.fold.cursor();
        self.device.busy.forget_before(done);
        self.device.late.forget_before(done);
        let host = self.device.host.partition_point(|span| span.end <= done);
        self.device.host.drain(..host);
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

    /// How fast it goes so far; `None` before the first measured step. Much cheaper than a summary.
    pub fn pace(&self) -> Option<Pace> {
        let start = self.fold.window_start()?;
        let (_, end) = self.steps.latest.filter(|_| self.steps.measured > 0)?;
        let window = Interval::new(start, self.window_end.unwrap_or(end));
        let unfolded = Interval::new(self.fold.cursor().max(start), window.end);
        let busy = self.fold.busy() + self.device.busy.covered_in(unfolded);
        Some(Pace {
            samples_per_second: self.steps.samples as f64 / window.length().seconds().max(1e-9),
            device_busy: share(busy, window.length()),
        })
    }

    /// Where accelerator utilization begins in a window from `start` on: the first step's I/O is left out.
    fn utilized_from(&self, start: Nanos) -> Nanos {
        self.steps.device_began.unwrap_or(start).max(start)
    }

    /// What has been found so far; `None` before the first measured step. `lanes` are the recorder's.
    pub fn summary(&self, lanes: &[LaneInfo]) -> Option<Summary> {
        let start = self.fold.window_start()?;
        let (unit, end) = self.steps.latest.filter(|_| self.steps.measured > 0)?;
        let mut fold = self.fold.clone();
        let mut complete = true;
        if fold.cursor() < end {
            let moment = Moment::Pushed;
            let path: Vec<Visit> = self.units.path_to(Point { unit, moment }).collect();
            complete = self.dropped > 0 || path.iter().all(|visit| visit.link != Link::Lost);
            fold.extend(path, &self.device);
            fold.close(end, &self.device);
        }
        let window = Interval::new(start, fold.cursor().max(start));
        let workers = self.tally.workers(lanes, window.length());
        Some(Summary {
            window,
            steps: self.steps.measured,
            samples: self.steps.samples,
            device_busy: fold.busy(),
            busy_intervals: fold.busy_intervals(),
            compute: self.steps.compute,
            utilized_from: self.utilized_from(start),
            causes: fold.totals().ranked(),
            over_time: fold.over_time(window),
            data_wait: self.steps.data_wait.summary(),
            data_wait_total: self.steps.data_wait_total,
            step: self.steps.service.summary(),
            step_run_delay: self.steps.run_delay,
            first_batch: self.steps.first_batch,
            stages: self.tally.stage_summaries(&workers, window.length()),
            slowest_samples: self.tally.slowest(|batch| self.epoch_of(batch)),
            profile: self.tally.profile(
                &workers,
                window.length(),
                self.cpu.used(),
                self.others_cpu.used(),
                (self.steps.measured, self.steps.samples),
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

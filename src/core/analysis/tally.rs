//! Running totals of stages and threads over the window.

mod costs;
mod slowest;

use super::profile::{LARGEST, Parts};
use super::totals::StageTotals;
use crate::timeline::{
    Interval, IntervalSet, LaneInfo, LaneKind, Nanos, Service, Stage, StageKind, ThreadUsage,
    UnitRecord,
};
use hdrhistogram::Histogram;
pub use slowest::SlowSample;
use slowest::Slowest;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Longer lengths count as this long in percentiles.
const LONGEST: Nanos = Nanos::from_millis(1_000_000);

/// Lengths of time, to three significant digits.
pub(super) struct Lengths {
    histogram: Histogram<u32>,
    sum: u128,
    longest: Nanos,
}

impl Lengths {
    pub(super) fn new() -> Lengths {
        // These bounds are always a valid choice.
        let mut histogram = Histogram::new_with_bounds(1, LONGEST.0, 3)
            .unwrap_or_else(|_| unreachable!("the bounds are allowed"));
        // Touches its memory, so that a long run takes no more of it than a short one.
        histogram.clear();
        Lengths {
            histogram,
            sum: 0,
            longest: Nanos::ZERO,
        }
    }

    pub(super) fn add(&mut self, length: Nanos) {
        self.add_all(length, 1);
    }

    /// Adds `count` lengths, equal shares of `total`.
    pub(super) fn add_all(&mut self, total: Nanos, count: u32) {
        let each = Nanos(total.0 / u64::from(count.max(1)));
        self.histogram
            .saturating_record_n(each.0.clamp(1, LONGEST.0), count);
        self.sum += u128::from(total.0);
        self.longest = self.longest.max(each);
    }

    /// The summary of what was added.
    pub(super) fn summary(&self) -> LengthSummary {
        let count = self.histogram.len();
        let at = |quantile| Nanos(self.histogram.value_at_quantile(quantile)).min(self.longest);
        if count == 0 {
            return LengthSummary::default();
        }
        LengthSummary {
            count,
            mean: Nanos((self.sum / u128::from(count)) as u64),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: self.longest,
        }
    }
}

/// How long something took, over many times.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LengthSummary {
    /// How often.
    pub count: u64,
    /// In nanoseconds, as the percentiles; these to three significant digits.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// Median.
    #[serde(rename = "p50_ns")]
    pub p50: Nanos,
    /// 90th percentile.
    #[serde(rename = "p90_ns")]
    pub p90: Nanos,
    /// 99th percentile.
    #[serde(rename = "p99_ns")]
    pub p99: Nanos,
    /// The longest, exactly.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

/// One stage over the window, all its workers together.
pub(super) struct StageTally {
    pub(super) stage: Stage,
    /// It did anything at all.
    serves: bool,
    units: u64,
    /// Threads woken by who handed on from here.
    woken: u64,
    /// Those that followed another one, without waiting for their input.
    began_at_once: u64,
    pub(super) items: u64,
    pub(super) skipped: u64,
    pub(super) service: Lengths,
    /// Service without run delay, and how its mean varies.
    net: Lengths,
    parts: Parts,
    pub(super) busy: Nanos,
    pub(super) blocked: Nanos,
    pub(super) run_delay: Nanos,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// What the largest units handed on.
    largest: BinaryHeap<Reverse<u64>>,
    slowest: Slowest,
    pub(super) input_depths: u64,
}

impl StageTally {
    fn new(stage: Stage) -> StageTally {
        StageTally {
            stage,
            serves: false,
            units: 0,
            woken: 0,
            began_at_once: 0,
            items: 0,
            skipped: 0,
            service: Lengths::new(),
            net: Lengths::new(),
            parts: Parts::new(),
            busy: Nanos::ZERO,
            blocked: Nanos::ZERO,
            run_delay: Nanos::ZERO,
            bytes_in: 0,
            bytes_out: 0,
            largest: BinaryHeap::with_capacity(LARGEST),
            slowest: Slowest::default(),
            input_depths: 0,
        }
    }

    fn handed_on(&mut self, bytes: u64) {
        self.bytes_out += bytes;
        if self.largest.len() < LARGEST {
            self.largest.push(Reverse(bytes));
        } else if let Some(mut least) = self.largest.peek_mut()
            && bytes > least.0
        {
            *least = Reverse(bytes);
        }
    }

    fn largest_bytes(&self) -> Vec<u64> {
        let largest_first = self.largest.clone().into_sorted_vec();
        largest_first
            .into_iter()
            .map(|Reverse(bytes)| bytes)
            .collect()
    }
}

/// One thread over the window.
#[derive(Clone, Default)]
pub(super) struct LaneTally {
    pub(super) busy: Nanos,
    pub(super) blocked: Nanos,
    /// Between records that were dropped.
    hidden: Nanos,
    pub(super) items: u64,
    first_usage: Option<ThreadUsage>,
    last_usage: Option<ThreadUsage>,
}

impl LaneTally {
    /// What the kernel charged to the thread, from its first reading in the window to its last.
    pub(super) fn usage(&self) -> ThreadUsage {
        let (Some(first), Some(last)) = (self.first_usage, self.last_usage) else {
            return ThreadUsage::default();
        };
        ThreadUsage {
            at: last.at - first.at,
            ..last.since(&first)
        }
    }
}

/// Steps are counted nearly in their order: those that are known before the device has ended them a little later.
const MET_KEPT: Nanos = Nanos::from_millis(10_000);

/// All stages and lanes.
#[derive(Default)]
pub(super) struct Tally {
    /// By [`Stage::number`]; none where nothing was seen.
    stages: Vec<Option<StageTally>>,
    /// By number.
    lanes: Vec<LaneTally>,
    before_window: BTreeMap<u16, ThreadUsage>,
    /// How often each thread has asked the kernel, over the whole run.
    readings: BTreeMap<u16, u64>,
    /// Workers assemble whole batches.
    whole_batches: bool,
    /// What the trainer's thread computed to load batches itself, where it did.
    inline_cpu: Option<Nanos>,
    /// When the trainer's thread met other ranks.
    met: IntervalSet,
}

/// The stage whose next unit of work has the time that waking the thread of `unit` took: handing on comes after
/// the unit that made the item.
fn woken_by(unit: &UnitRecord, whole_batches: bool) -> Option<Stage> {
    if !unit.waited || unit.stage.on_device() {
        return None;
    }
    match unit.stage.kind() {
        _ if unit.admitted => Some(unit.stage.other(StageKind::Copy)),
        StageKind::Copy if whole_batches => Some(unit.stage.other(StageKind::Sample).first_row()),
        _ => unit.stage.before().map(Stage::first_row),
    }
}

/// Whether a thread made the input of `unit` on `lane` itself, as those do that assemble whole batches.
fn is_of_whole_batches(lane: u16, unit: &UnitRecord) -> bool {
    let before = unit.stage.before().filter(|before| !before.is_part());
    let assembles = unit.stage.kind() <= StageKind::Batch && before.is_some();
    let own = unit.lineage.is_some() && unit.lineage.lane() == lane;
    unit.split.is_some() || assembles && own
}

impl Tally {
    /// Counts the part of a unit that lies in `window` and in none of the `pauses`; its item counts where it ended.
    pub(super) fn unit(
        &mut self,
        lane: u16,
        unit: &UnitRecord,
        window: Interval,
        pauses: &IntervalSet,
    ) {
        self.whole_batches |= is_of_whole_batches(lane, unit);
        if let Some(payer) = woken_by(unit, self.whole_batches) {
            self.stage(payer).woken += 1;
        }
        for service in unit.services() {
            self.service(lane, unit, &service, window, pauses);
        }
        let blocked = Interval::new(unit.end, unit.pushed).clip(window);
        let blocked = blocked.length() - pauses.covered_in(blocked);
        self.stage(unit.stage).blocked += blocked;
        self.lane(lane).blocked += blocked;
    }

    /// The trainer's thread has waited for other ranks, in a step that is counted later.
    pub(super) fn met(&mut self, wait: Interval) {
        self.met.insert(wait);
    }

    /// The trainer's thread has computed for `cpu` to load a batch itself.
    pub(super) fn loaded(&mut self, cpu: Nanos) {
        *self.inline_cpu.get_or_insert_default() += cpu;
    }

    /// Counts what one stage did in `unit`.
    fn service(
        &mut self,
        lane: u16,
        unit: &UnitRecord,
        service: &Service,
        window: Interval,
        pauses: &IntervalSet,
    ) {
        let Service { start, end, .. } = *service;
        let busy = Interval::new(start, end).clip(window);
        let busy = busy.length() - pauses.covered_in(busy);
        let counts = end > window.start && end <= window.end;
        let items = u64::from(unit.items());
        let delay = Nanos(service.run_delay.into());
        // Waiting for other ranks is no work of the step.
        let mut net = end - start - delay;
        if unit.is_step() {
            let met = self.met.covered_in(Interval::new(start, end));
            self.met.forget_before(start - MET_KEPT);
            // Whoever waits for others lacks a core then, if at all.
            net = net.min(end - start - met);
        }
        let stage = self.stage(service.stage);
        stage.serves = true;
        stage.busy += busy;
        if counts {
            stage.units += 1;
            stage.began_at_once += u64::from(!unit.waited);
            stage.items += items;
            stage.skipped += if unit.skipped { items } else { 0 };
            stage.service.add_all(end - start, unit.items());
            stage.net.add_all(net, unit.items());
            stage.parts.add(net, unit.items());
            if !service.stage.per_batch() {
                stage.slowest.note(service.stage, unit, net);
            }
            stage.run_delay += delay;
            stage.bytes_in += service.bytes_in;
            stage.handed_on(service.bytes_out);
            stage.input_depths += u64::from(service.input_depth);
        }
        let tally = self.lane(lane);
        tally.busy += busy;
        tally.items += if counts { items } else { 0 };
    }

    fn stage(&mut self, stage: Stage) -> &mut StageTally {
        let number = stage.number();
        if self.stages.len() <= number {
            self.stages.resize_with(number + 1, || None);
        }
        self.stages[number].get_or_insert_with(|| StageTally::new(stage))
    }

    fn lane(&mut self, lane: u16) -> &mut LaneTally {
        let number = usize::from(lane);
        if self.lanes.len() <= number {
            self.lanes.resize_with(number + 1, LaneTally::default);
        }
        &mut self.lanes[number]
    }

    /// Takes note of a time in the window of which dropped records would have told.
    pub(super) fn hide(&mut self, lane: u16, length: Nanos) {
        self.lane(lane).hidden += length;
    }

    /// Notes what the kernel has charged to a thread.
    pub(super) fn usage(&mut self, lane: u16, usage: ThreadUsage, window: Option<Interval>) {
        self.readings.insert(lane, usage.readings);
        let Some(window) = window.filter(|window| usage.at >= window.start) else {
            self.before_window.insert(lane, usage);
            return;
        };
        if usage.at > window.end {
            return;
        }
        let before = self.before_window.remove(&lane);
        let tally = self.lane(lane);
        // A reading just before the window is as good as one just inside it.
        tally.first_usage.get_or_insert(before.unwrap_or(usage));
        tally.last_usage = Some(usage);
    }
}

/// What one thread did in the window.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct WorkerSummary {
    /// Name of its lane.
    pub name: String,
    /// Whose thread it is.
    pub kind: LaneKind,
    /// Units of work it ended.
    pub items: u64,
    /// In service.
    #[serde(rename = "busy_ns")]
    pub busy: Nanos,
    /// Waiting for input; for the trainer, the data wait.
    #[serde(rename = "starved_ns")]
    pub starved: Nanos,
    /// Waiting for room downstream.
    #[serde(rename = "blocked_ns")]
    pub blocked: Nanos,
    /// From the kernel; all zero where it does not tell.
    pub usage: ThreadUsage,
}

/// One stage in the window, all its workers together.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct StageSummary {
    /// The stage.
    pub stage: Stage,
    /// Threads that serve this stage; 0 where the trainer's own thread does.
    pub workers: usize,
    /// Whether these threads serve other stages, or parts, too; then starved cannot be told apart by stage.
    pub shared_workers: bool,
    /// Samples, or batches, that it served.
    pub items: u64,
    /// Of these, samples that failed and were left out.
    pub skipped: u64,
    /// Time per item.
    pub service: LengthSummary,
    /// Sums over the workers.
    #[serde(rename = "busy_ns")]
    pub busy: Nanos,
    /// Waiting for input.
    #[serde(rename = "starved_ns")]
    pub starved: Nanos,
    /// Waiting for room downstream.
    #[serde(rename = "blocked_ns")]
    pub blocked: Nanos,
    /// Part of the service time in which the thread was runnable but not running.
    #[serde(rename = "run_delay_ns")]
    pub run_delay: Nanos,
    /// Bytes taken in.
    pub bytes_in: u64,
    /// Bytes handed on.
    pub bytes_out: u64,
    /// Items left in the input queue when one was taken, on average.
    pub input_queue_mean: f64,
}

impl StageSummary {
    /// Share of its workers' time spent in service, 0 to 1.
    pub fn busy_share(&self, window: Nanos) -> f64 {
        self.shares(window).busy
    }

    /// What its workers did with their time.
    pub fn shares(&self, window: Nanos) -> StageShares {
        let of = |time| share(time, Nanos(window.0 * self.workers.max(1) as u64));
        let own = self.workers > 0 && !self.shared_workers;
        StageShares {
            busy: of(self.busy),
            starved: own.then(|| of(self.starved)),
            blocked: of(self.blocked),
        }
    }
}

/// Shares of the time of a stage's workers, 0 to 1.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct StageShares {
    /// In service.
    pub busy: f64,
    /// Waiting for input; `None` where it cannot be told apart by stage.
    pub starved: Option<f64>,
    /// Waiting for room downstream.
    pub blocked: f64,
}

/// `part / whole`, 0 where there is no whole.
pub(super) fn share(part: Nanos, whole: Nanos) -> f64 {
    if whole == Nanos::ZERO {
        0.0
    } else {
        part.0 as f64 / whole.0 as f64
    }
}

impl Tally {
    /// How often all threads together have asked the kernel, over the whole run.
    pub(super) fn readings(&self) -> u64 {
        self.readings.values().sum()
    }

    /// The slowest samples of each stage, longest first; `epoch_of` is a batch's.
    pub(super) fn slowest(&self, epoch_of: impl Fn(u64) -> Option<u64>) -> Vec<SlowSample> {
        let stages = self.stages.iter().flatten();
        let samples = stages.flat_map(|stage| stage.slowest.samples());
        let mut slowest: Vec<SlowSample> = samples
            .map(|slow| SlowSample {
                epoch: epoch_of(slow.batch),
                ..slow.clone()
            })
            .collect();
        slowest.sort_by_key(|slow| Reverse(slow.time));
        slowest
    }

    /// The stages that did anything, in the order of the pipeline.
    pub(super) fn seen(&self) -> Vec<Stage> {
        let stages = self.stages.iter().flatten();
        stages.map(|tally| tally.stage).collect()
    }

    pub(super) fn stage_totals(&self) -> Vec<StageTotals> {
        let stages = self.stages.iter().flatten();
        let totals = stages.map(|tally| StageTotals {
            stage: tally.stage,
            busy: tally.busy,
            units: tally.units,
            input_depths: tally.input_depths,
        });
        totals.collect()
    }

    pub(super) fn workers(&self, lanes: &[LaneInfo], window: Nanos) -> Vec<WorkerSummary> {
        let threads = lanes.iter().enumerate();
        let threads = threads.filter(|(_, info)| info.kind.is_thread());
        let tallies = threads.map(|(number, info)| {
            let tally = self.lanes.get(number).cloned().unwrap_or_default();
            let busy = tally.busy.min(window);
            let blocked = tally.blocked.min(window - busy);
            WorkerSummary {
                name: info.name.clone(),
                kind: info.kind,
                items: tally.items,
                busy,
                blocked,
                starved: window - busy - blocked - tally.hidden,
                usage: tally.usage(),
            }
        });
        tallies.collect()
    }

    pub(super) fn stage_summaries(
        &self,
        workers: &[WorkerSummary],
        window: Nanos,
    ) -> Vec<StageSummary> {
        let told = |stage: &Stage| {
            stage.of_loader() || matches!(stage.kind(), StageKind::Main | StageKind::Transfer)
        };
        let seen = self.stages.iter().flatten();
        let seen = seen.map(|tally| (tally.stage, tally));
        let seen = seen.filter(|(stage, tally)| told(stage) && tally.serves);
        seen.map(|(stage, tally)| match stage.kind() {
            StageKind::Transfer => StageSummary {
                workers: 1,
                shared_workers: false,
                starved: window - tally.busy,
                ..stage_summary(stage, tally, &[])
            },
            _ => stage_summary(stage, tally, workers),
        })
        .collect()
    }
}

fn stage_summary(stage: Stage, tally: &StageTally, workers: &[WorkerSummary]) -> StageSummary {
    let has_parts = stage.is_part() || stage.parts().next().is_some();
    let own: Vec<&WorkerSummary> = workers
        .iter()
        .filter(|worker| worker.kind == LaneKind::Worker(stage.owner()))
        .collect();
    let shared = workers
        .iter()
        .filter(|worker| worker.kind == LaneKind::BatchWorker && stage.kind() <= StageKind::Batch)
        .count();
    let sum = |of: fn(&WorkerSummary) -> Nanos| own.iter().map(|worker| of(worker)).sum();
    StageSummary {
        stage,
        workers: if own.is_empty() { shared } else { own.len() },
        shared_workers: own.is_empty() && shared > 0 || has_parts && !own.is_empty(),
        items: tally.items,
        skipped: tally.skipped,
        service: tally.service.summary(),
        busy: tally.busy,
        starved: sum(|worker| worker.starved),
        blocked: tally.blocked,
        run_delay: tally.run_delay,
        bytes_in: tally.bytes_in,
        bytes_out: tally.bytes_out,
        input_queue_mean: tally.input_depths as f64 / tally.units.max(1) as f64,
    }
}

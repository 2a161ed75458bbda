//! Causes of device idle time over the window: in bins of equal width, and by epoch.
//!
//! Invariants: the causes of a part add up to its idle time, and those of all bins to the window's, to the
//! nanosecond; so do those of all epochs. So do steps, unless records of them were dropped. There are at most 200
//! bins and 200 epochs: past that, neighbours are merged.

use super::cause::{Cause, CauseTotals};
use crate::timeline::{Interval, IntervalSet, Nanos, Stage};
use serde::{Deserialize, Serialize};

const MOST_PARTS: usize = 200;
/// Width of a bin until there are too many.
const NARROWEST: Nanos = Nanos::from_millis(1);

/// A part of the window, and why the device was idle in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartOfWindow {
    /// Since the window began.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// How long the part is, without pauses.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Device idle time in it.
    #[serde(rename = "idle_ns")]
    pub idle: Nanos,
    /// That time by cause.
    pub causes: CauseTotals,
    /// Steps that ended in it; reports of earlier versions do not count them, nor the next two.
    #[serde(default)]
    pub steps: u64,
    /// Samples of those steps.
    #[serde(default)]
    pub samples: u64,
    /// When the last of those steps ended: measured time since the window began, without pauses.
    #[serde(default, rename = "last_step_end_ns")]
    pub last_step_end: Option<Nanos>,
    /// The waits for a batch that ended in it; as with steps, earlier versions did not tell.
    #[serde(default)]
    pub data_waits: Waits,
}

/// How long the trainer's thread waited for batches.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// How often: once for each step.
    pub count: u64,
    /// All together.
    #[serde(rename = "total_ns")]
    pub total: Nanos,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

impl Waits {
    fn add(&mut self, other: Waits) {
        self.count += other.count;
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The mean; zero where there were none.
    pub fn mean(&self) -> Nanos {
        Nanos(self.total.0 / self.count.max(1))
    }
}

/// Items that waited before a stage, over the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueOverTime {
    /// The stage that takes them.
    pub stage: Stage,
    /// Items left in the queue when one was taken: the mean in each bin, `None` where none was taken.
    pub means: Vec<Option<f64>>,
}

/// One epoch as far as it lies in the window, or some that follow each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochPart {
    /// From zero.
    pub first_epoch: u64,
    /// From zero; the same for a single epoch.
    pub last_epoch: u64,
    /// The time that these epochs take up of the window.
    #[serde(flatten)]
    pub part: PartOfWindow,
}

impl EpochPart {
    /// `epoch 3`, counted from one.
    pub fn name(&self) -> String {
        match (self.first_epoch + 1, self.last_epoch + 1) {
            (first, last) if first == last => format!("epoch {first}"),
            (first, last) => format!("epochs {first} to {last}"),
        }
    }
}

/// The window in parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    /// All as wide as the first but the last, which may be narrower.
    pub bins: Vec<PartOfWindow>,
    /// None where nothing passes over the data.
    pub epochs: Vec<EpochPart>,
    /// Of each stage that has a queue before it, in the order of the pipeline.
    #[serde(default)]
    pub queues: Vec<QueueOverTime>,
}

impl OverTime {
    /// The same where each part is shorter by the `pauses` in it; the window began at `start`.
    pub(super) fn without(mut self, pauses: &IntervalSet, start: Nanos) -> OverTime {
        let epochs = self.epochs.iter_mut().map(|epoch| &mut epoch.part);
        for part in self.bins.iter_mut().chain(epochs) {
            let begins = start + part.start;
            let whole = Interval::new(begins, begins + part.length);
            part.length = part.length - pauses.covered_in(whole);
            if let Some(end) = &mut part.last_step_end {
                *end = *end - pauses.covered_in(Interval::new(start, start + *end));
            }
        }
        self
    }
}

/// Both kinds of parts, as they come.
#[derive(Clone, Debug, Default)]
pub(super) struct OverTimeTally {
    /// Numbered in units of [`NARROWEST`].
    bins: Series,
    epochs: Series,
}

impl OverTimeTally {
    /// Opens the window; nothing has been added yet.
    pub(super) fn open(&mut self, at: Nanos) {
        self.bins.begin(0, at);
    }

    /// The first wait for a batch of `epoch` begins.
    pub(super) fn begin_epoch(&mut self, epoch: u64, at: Nanos) {
        if self.bins.rows.is_empty() {
            self.epochs.rows.clear();
        }
        self.epochs.begin(epoch, at);
    }

    /// The window goes on until `end`, at least.
    pub(super) fn reach(&mut self, end: Nanos) {
        while let [first, .., last] | [first @ last] = &self.bins.rows[..] {
            let next = last.first + self.bins.merged();
            let at = first.start + NARROWEST.times(next);
            if at >= end {
                break;
            }
            self.bins.begin(next, at);
        }
    }

    /// Adds idle time in what was reached.
    pub(super) fn add(&mut self, cause: Cause, idle: Interval) {
        self.bins.add(cause, idle);
        self.epochs.add(cause, idle);
    }

    /// A step of `samples` samples ended; steps in order, after the window was opened.
    pub(super) fn step(&mut self, end: Nanos, samples: u64) {
        self.reach(end);
        self.bins.step(end, samples);
        self.epochs.step(end, samples);
    }

    /// The trainer's thread waited for a batch until `end`, after the window was opened.
    pub(super) fn data_wait(&mut self, end: Nanos, length: Nanos) {
        self.reach(end);
        let wait = Waits {
            count: 1,
            total: length,
            max: length,
        };
        for series in [&mut self.bins, &mut self.epochs] {
            if let Some(row) = series.row_at(end) {
                row.waits.add(wait);
            }
        }
    }

    /// `stage` took an item at about `at`, and left so many in its queue.
    pub(super) fn queue(&mut self, stage: Stage, at: Nanos, left: u32) {
        self.reach(at);
        if let Some(row) = self.bins.row_at(at) {
            let number = stage.number();
            if row.queues.len() <= number {
                row.queues.resize(number + 1, Queue::default());
            }
            row.queues[number].taken += 1;
            row.queues[number].left += u64::from(left);
        }
    }

    /// The means of the queue before `stage`, for the bins in `window`.
    fn queue_of(&self, stage: Stage, window: Interval) -> QueueOverTime {
        let parts = self.bins.parts(window);
        let queues = parts.map(|(row, _)| row.queues.get(stage.number()));
        let mean = |queue: &Queue| {
            let mean = queue.left as f64 / queue.taken as f64;
            (queue.taken > 0).then(|| (mean * 100.0).round() / 100.0)
        };
        QueueOverTime {
            stage,
            means: queues.map(|queue| queue.and_then(mean)).collect(),
        }
    }

    /// `queued` are the stages that have queues before them.
    pub(super) fn over_time(&self, window: Interval, queued: &[Stage]) -> OverTime {
        let epochs = self.epochs.parts(window);
        OverTime {
            bins: self.bins.parts(window).map(|(_, part)| part).collect(),
            epochs: epochs
                .map(|(row, part)| EpochPart {
                    first_epoch: row.first,
                    last_epoch: row.last,
                    part,
                })
                .collect(),
            queues: { queued.iter() }
                .map(|stage| self.queue_of(*stage, window))
                .filter(|queue| queue.means.iter().any(Option::is_some))
                .collect(),
        }
    }
}

/// Numbered parts that follow each other, neighbours merged where there would be too many.
#[derive(Clone, Debug, Default)]
struct Series {
    rows: Vec<Row>,
    /// How often neighbours were merged.
    mergers: u32,
}

#[derive(Clone, Debug)]
struct Row {
    first: u64,
    last: u64,
    start: Nanos,
    causes: CauseTotals,
    steps: u64,
    samples: u64,
    last_step_end: Option<Nanos>,
    waits: Waits,
    /// By [`Stage::number`]; as many as were seen.
    queues: Vec<Queue>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Queue {
    taken: u64,
    left: u64,
}

impl Row {
    fn new(number: u64, start: Nanos) -> Row {
        Row {
            first: number,
            last: number,
            start,
            causes: CauseTotals::default(),
            steps: 0,
            samples: 0,
            last_step_end: None,
            waits: Waits::default(),
            queues: Vec::new(),
        }
    }

    /// Takes in the row that follows.
    fn join(&mut self, next: &Row) {
        self.last = next.last;
        self.causes.add_all(&next.causes);
        self.steps += next.steps;
        self.samples += next.samples;
        self.last_step_end = next.last_step_end.or(self.last_step_end);
        self.waits.add(next.waits);
        if self.queues.len() < next.queues.len() {
            self.queues.resize(next.queues.len(), Queue::default());
        }
        for (own, other) in self.queues.iter_mut().zip(&next.queues) {
            own.taken += other.taken;
            own.left += other.left;
        }
    }
}

impl Series {
    /// Parts to a row.
    fn merged(&self) -> u64 {
        1 << self.mergers
    }

    /// From `at` on time belongs to part `number`, unless that of a later one has begun.
    fn begin(&mut self, number: u64, at: Nanos) {
        let place = |number: u64, mergers| number >> mergers;
        if let Some(row) = self.rows.last_mut()
            && place(number, self.mergers) <= place(row.first, self.mergers)
        {
            row.last = row.last.max(number);
            return;
        }
        self.rows.push(Row::new(number, at));
        while self.rows.len() > MOST_PARTS {
            self.mergers += 1;
            let mergers = self.mergers;
            self.rows.dedup_by(|row, before| {
                let joins = place(row.first, mergers) == place(before.first, mergers);
                if joins {
                    before.join(row);
                }
                joins
            });
        }
    }

    /// The row of what ends at `end`: the one before where that is its end.
    fn row_at(&mut self, end: Nanos) -> Option<&mut Row> {
        let last = self.rows.len().checked_sub(1)?;
        // Most of what comes belongs to the last.
        let at = match self.rows[last].start < end {
            true => last,
            false => { self.rows.partition_point(|row| row.start < end) }.checked_sub(1)?,
        };
        Some(&mut self.rows[at])
    }

    fn step(&mut self, end: Nanos, samples: u64) {
        if let Some(row) = self.row_at(end) {
            row.steps += 1;
            row.samples += samples;
            row.last_step_end = Some(end);
        }
    }

    fn add(&mut self, cause: Cause, idle: Interval) {
        let after = self.rows.partition_point(|row| row.start <= idle.start);
        let mut end = idle.end;
        // Time that spans parts is rare: a record that is open for long.
        for row in self.rows[after.saturating_sub(1)..].iter_mut().rev() {
            let inside = Interval::new(row.start.max(idle.start), end);
            if !inside.is_empty() {
                row.causes.add(cause, inside.length());
                end = inside.start;
            }
        }
    }

    /// The parts in `window`, without what is empty.
    fn parts(&self, window: Interval) -> impl Iterator<Item = (&Row, PartOfWindow)> {
        let ends = self.rows.iter().skip(1).map(|row| row.start);
        let rows = self.rows.iter().zip(ends.chain([window.end]));
        let parts = rows.map(move |(row, end)| (row, Interval::new(row.start, end).clip(window)));
        parts
            .filter(|(_, inside)| !inside.is_empty())
            .map(move |(row, inside)| {
                let part = PartOfWindow {
                    start: inside.start - window.start,
                    length: inside.length(),
                    idle: row.causes.total(),
                    causes: row.causes.clone(),
                    steps: row.steps,
                    samples: row.samples,
                    last_step_end: row.last_step_end.map(|end| end - window.start),
                    data_waits: row.waits,
                };
                (row, part)
            })
    }
}

//! Causes of device idle time over the window: in bins of equal width, and by epoch.
//!
//! Invariants: the causes of a part add up to its idle time, and those of all bins to the window's, to the
//! nanosecond; so do those of all epochs. So do steps, unless records of them were dropped. There are at most 200 bins and 200 epochs: past that, neighbours are merged.

use super::cause::{Cause, CauseTotals};
use crate::timeline::{Interval, IntervalSet, Nanos};
use serde::{Deserialize, Serialize};

const MOST_PARTS: usize = 200;
/// Width of a bin until there are too many.
const NARROWEST: Nanos = Nanos::from_millis(1);

/// A part of the window, and why the device was idle in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

    pub(super) fn over_time(&self, window: Interval) -> OverTime {
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
        }
    }

    /// Takes in the row that follows.
    fn join(&mut self, next: &Row) {
        self.last = next.last;
        self.causes.add_all(&next.causes);
        self.steps += next.steps;
        self.samples += next.samples;
        self.last_step_end = next.last_step_end.or(self.last_step_end);
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

    /// A step that ends as a row begins belongs to the row before.
    fn step(&mut self, end: Nanos, samples: u64) {
        let after = self.rows.partition_point(|row| row.start < end);
        if let Some(row) = after.checked_sub(1).and_then(|at| self.rows.get_mut(at)) {
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
                };
                (row, part)
            })
    }
}

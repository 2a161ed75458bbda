//! What one thread did for the batch in its hands: samples become claims, and those units of work.

use super::lanes::{Lanes, unit};
use super::table::Table;
use super::typical::Typical;
use crate::event::Span;
use stallscope_core::analysis::predict::torch::{BatchCost, Cost};
use stallscope_core::timeline::{Nanos, Stage, UnitRecord, UnitRef};
use std::collections::HashMap;

/// Samples that took less are recorded together.
const SHORT: Nanos = Nanos::from_micros(100);
/// Claims of a batch that are told apart.
const MOST_CLAIMS: u64 = 4096;
/// What takes no longer than this beyond the others is not longer because its thread is new.
const OPENING: Nanos = Nanos::from_millis(1);

/// Samples that a thread made one after another.
struct Claim {
    start: Nanos,
    end: Nanos,
    samples: u32,
    /// The one that took longest, and how long.
    index: u64,
    longest: Nanos,
    /// How long each row took, but for the last.
    rows: Vec<(Stage, Nanos)>,
    closed: bool,
}

/// How long samples take as a rule without waits for locks, and their parts.
#[derive(Default)]
pub(super) struct Usual {
    whole: Typical,
    rows: HashMap<Stage, Typical>,
}

impl Usual {
    /// What `row` took in a thread that is not new.
    pub(super) fn add(&mut self, row: Stage, length: Nanos) -> Option<Nanos> {
        self.rows.entry(row).or_default().add(length);
        None
    }

    /// What `row` took beyond the others in a thread that is new.
    pub(super) fn starting(&self, row: Stage, length: Nanos) -> Option<Nanos> {
        let median = self.rows.get(&row)?.median()?;
        beyond(length, median)
    }
}

/// How much longer than `median` what a new thread did first took, where that is more than chance.
fn beyond(length: Nanos, median: Nanos) -> Option<Nanos> {
    let excess = length - median;
    (excess > OPENING.max(median)).then_some(excess)
}

/// One thread's batch.
#[derive(Default)]
pub(super) struct Bench {
    claims: Vec<Claim>,
    /// How long the first sample took, and later ones, without waits for locks.
    first: Nanos,
    lengths: Vec<Nanos>,
    pub(super) costs: BatchCost,
    /// It was just started, and has made nothing yet.
    pub(super) fresh: bool,
}

/// What bound the start of a thread's work.
pub(super) enum Bound {
    /// The thread's own work before.
    Before,
    /// A slot that was freed by `cause` at `at`.
    Dealt { cause: UnitRef, at: Nanos },
    /// It had been started, or a pass had begun, by `cause` at `at`.
    Started { cause: UnitRef, at: Nanos },
}

/// A sample as its event tells.
pub(super) struct Sampled<'a> {
    pub(super) span: Span,
    pub(super) cpu: u64,
    pub(super) samples: u32,
    pub(super) index: u64,
    pub(super) parts: &'a [(Stage, Nanos)],
}

impl Bench {
    /// That of a thread which was just started, or not.
    pub(super) fn of(fresh: bool) -> Bench {
        Bench {
            fresh,
            ..Bench::default()
        }
    }

    /// A sample was made.
    pub(super) fn sample(&mut self, sampled: &Sampled, table: &Table, usual: &mut Usual) {
        let (start, end) = (Nanos(sampled.span.start), Nanos(sampled.span.end));
        let length = end - start;
        let cost = Cost {
            wall: length.0,
            cpu: sampled.cpu,
        };
        self.costs.fetched(sampled.samples, cost);
        let opens = self.fresh && self.claims.is_empty();
        let mut rows = sampled.parts.to_vec();
        let own = length - rows.iter().map(|(_, part)| *part).sum();
        // How long a lock is waited for is up to those who hold it, and no trait of the sample or of a new thread.
        let is_lock = |stage| table.lock == Some(stage);
        let locked = rows.iter().filter(|(stage, _)| is_lock(*stage));
        let unlocked = length - locked.map(|(_, part)| *part).sum();
        if opens {
            self.first = unlocked;
        } else {
            let mut slow = Nanos::ZERO;
            let own_time = rows.iter_mut().filter(|(stage, _)| !is_lock(*stage));
            for (stage, part) in own_time.chain([&mut (table.fetch, own)]) {
                let typical = usual.rows.entry(*stage).or_default();
                let excess = typical.excess(*part);
                typical.add(*part);
                *part = *part - excess;
                slow += excess;
            }
            if slow > Nanos::ZERO {
                rows.push((table.slow, slow));
            }
            usual.whole.add(unlocked);
            if self.lengths.len() < 256 {
                self.lengths.push(unlocked);
            }
        }
        let batch_began = self.claims.first().map_or(start, |first| first.start);
        let short = SHORT.max(Nanos((end - batch_began).0 / MOST_CLAIMS));
        let claim = match self.claims.last_mut().filter(|claim| !claim.closed) {
            Some(claim) => claim,
            None => {
                self.claims.push(Claim {
                    start,
                    end,
                    samples: 0,
                    index: sampled.index,
                    longest: Nanos::ZERO,
                    rows: Vec::new(),
                    closed: false,
                });
                let last = self.claims.len() - 1;
                &mut self.claims[last]
            }
        };
        claim.end = end;
        claim.samples += sampled.samples;
        if length >= claim.longest {
            (claim.index, claim.longest) = (sampled.index, length);
        }
        for (stage, part) in rows {
            match claim.rows.iter_mut().find(|(known, _)| *known == stage) {
                Some((_, all)) => *all += part,
                None => claim.rows.push((stage, part)),
            }
        }
        claim.closed = opens || end - claim.start >= short;
    }

    /// Whether what its first sample took too long can be told.
    pub(super) fn knows_usual(&self, usual: &Usual) -> bool {
        !self.fresh || self.lengths.len() >= 4 || usual.whole.median().is_some()
    }

    /// What the first sample of a thread that was just started took beyond the others: opening what it needs.
    fn opening(&self, usual: &Usual) -> Nanos {
        if !self.fresh || self.claims.is_empty() {
            return Nanos::ZERO;
        }
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        let median = usual
            .whole
            .median()
            .or(lengths.get(lengths.len() / 2).copied());
        let Some(median) = median else {
            return Nanos::ZERO;
        };
        beyond(self.first, median).unwrap_or(Nanos::ZERO)
    }

    /// The batch was made: writes its units to `lane`; returns the last, and forgets the samples.
    pub(super) fn made(
        &mut self,
        batch: &Made,
        bound: Bound,
        table: &Table,
        usual: &mut Usual,
        lanes: &mut Lanes,
    ) -> UnitRef {
        let opening = self.opening(usual);
        let (start, end) = (Nanos(batch.span.start), Nanos(batch.span.end));
        let collate = match batch.collate.end > batch.collate.start {
            true => Nanos(batch.collate.start),
            false => self.claims.last().map_or(start, |last| last.end.min(end)),
        };
        let mut claims = std::mem::take(&mut self.claims);
        if claims.is_empty() {
            claims.push(Claim {
                start,
                end: collate,
                samples: batch.samples,
                index: 0,
                longest: Nanos::ZERO,
                rows: Vec::new(),
                closed: true,
            });
        }
        if let Some(last) = claims.last_mut() {
            last.end = collate;
        }
        let mut from = (start + opening).min(claims[0].end);
        let bound = match bound {
            Bound::Dealt { cause, at } if opening > Nanos::ZERO => Bound::Started { cause, at },
            bound => bound,
        };
        for (place, claim) in claims.iter_mut().enumerate() {
            if place == 0 && opening > Nanos::ZERO {
                claim.scale(claim.end - from);
            }
            let rest = [(table.fetch, claim.end)];
            let rows = spread(from, claim.end, &mut claim.rows)
                .into_iter()
                .chain(rest);
            for (row, (stage, until)) in rows.enumerate() {
                let first = row == 0;
                let made = UnitRecord {
                    sample: u32::try_from(claim.index).unwrap_or(u32::MAX),
                    samples: claim.samples,
                    cause: lanes.latest(batch.lane),
                    lineage: match first {
                        true => UnitRef::NONE,
                        false => lanes.latest(batch.lane),
                    },
                    ..unit(stage, batch.number, from, until)
                };
                let made = match first && place == 0 {
                    true => bound.of(made),
                    false => made,
                };
                lanes.unit(batch.lane, made);
                from = until;
            }
        }
        let starting = match self.fresh {
            true => usual.starting(table.collate, end - from),
            false => usual.add(table.collate, end - from),
        };
        self.fresh = false;
        self.lengths.clear();
        batch.collated((from, end), starting, lanes, table)
    }
}

impl Made<'_> {
    /// Writes the batch's last units; the thread may take longer as it is new.
    fn collated(
        &self,
        (mut from, end): (Nanos, Nanos),
        starting: Option<Nanos>,
        lanes: &mut Lanes,
        table: &Table,
    ) -> UnitRef {
        let mut last = lanes.latest(self.lane);
        if let Some(longer) = starting {
            let given = (last, from);
            from = (from + longer).min(end);
            lanes.started(self.lane, table.fetch, self.number, given, from);
        }
        let mut parts = self.parts.to_vec();
        let rows = spread(from, end, &mut parts).into_iter();
        for (stage, until) in rows.chain([(table.collate, end)]) {
            last = lanes.unit(
                self.lane,
                UnitRecord {
                    samples: self.samples,
                    cause: lanes.latest(self.lane),
                    lineage: last,
                    ..unit(stage, self.number, from, until)
                },
            );
            from = until;
        }
        last
    }
}

/// A batch that was made.
pub(super) struct Made<'a> {
    pub(super) lane: u16,
    pub(super) number: u64,
    pub(super) samples: u32,
    pub(super) span: Span,
    pub(super) collate: Span,
    pub(super) parts: &'a [(Stage, Nanos)],
}

/// The rows that took time one after another from `from` on, each with its end, no later than `end`.
fn spread(from: Nanos, end: Nanos, rows: &mut [(Stage, Nanos)]) -> Vec<(Stage, Nanos)> {
    rows.sort_unstable_by_key(|(stage, _)| *stage);
    let mut until = from;
    let rows = rows.iter().filter(|(_, length)| *length > Nanos::ZERO);
    rows.map(|(stage, length)| {
        until = (until + *length).min(end);
        (*stage, until)
    })
    .collect()
}

impl Claim {
    /// Of its time only `length` is left, each row's in proportion.
    fn scale(&mut self, length: Nanos) {
        let whole = self.end - self.start;
        for (_, row) in &mut self.rows {
            *row = row.share_of(length.min(whole), whole);
        }
    }
}

impl Bound {
    fn of(&self, unit: UnitRecord) -> UnitRecord {
        match *self {
            Bound::Before => unit,
            Bound::Dealt { cause, at } => UnitRecord {
                waited: true,
                admitted: true,
                ready_at: at.min(unit.start),
                cause,
                ..unit
            },
            Bound::Started { cause, at } => UnitRecord {
                waited: true,
                ready_at: at.min(unit.start),
                cause,
                ..unit
            },
        }
    }
}

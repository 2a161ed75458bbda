//! The log of a rank's steps: a line of JSON each, so that a run that dies leaves what it had done.
//!
//! The first line is a [`LogHeader`]. A line that is a [`CauseName`] gives a cause the next number, from zero. A step is
//! `[from, ready, end]`, in nanoseconds of the rank's clock: the step before had ended, the batch was there, the step had ended.
//! A later line `{"step": n, "idle": [[cause, length], ...]}` says what the device was idle for between `from` and `ready`, in
//! order, or, with `"mixed": true`, in all. After `{"lost": true}` records of steps are missing, and numbers are not right.

use crate::analysis::{Cause, IdleSpan, WindowRule};
use crate::machine::boot_id;
use crate::timeline::{Interval, Nanos, Record, StageKind};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The file's name, beside the report.
pub const STEP_LOG: &str = "steps.jsonl";
/// Names the format.
pub(super) const SCHEMA: &str = "stallscope-steps";
pub(super) const VERSION: u32 = 1;
/// Steps of which idle time may still be told: more than an analysis keeps back.
const MOST_WAITING: usize = 1 << 16;
/// Pieces of a step's idle time that are told in order.
const MOST_PIECES: usize = 8;

/// The log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {STEP_LOG}: {0}")]
pub struct LogUnwritten(#[from] io::Error);

/// A machine that only a trace tells of was started a day before the trace begins, as far as clocks are compared: then ranks whose
/// clocks are behind have times after its start, too.
const SINCE_START: u64 = 86_400_000_000_000;

/// Which process it is of how many.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RankOf {
    /// From zero.
    pub rank: u32,
    /// How many there are.
    pub of: u32,
    /// They exchange gradients, so that steps end together.
    pub meets_others: bool,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHeader {
    pub(super) schema: String,
    pub(super) version: u32,
    /// From zero.
    pub rank: u32,
    /// How many ranks there are.
    pub world_size: u32,
    /// [`RankOf::meets_others`].
    pub meets_others: bool,
    /// First steps that are not measured.
    pub warmup_steps: u64,
    /// Of the machine since it was started: ranks with the same one have the same `CLOCK_MONOTONIC`.
    pub boot_id: String,
    /// The rank's clock when the log began, and two others at the same time.
    pub clock_ns: u64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`.
    pub unix_ns: u64,
}

impl LogHeader {
    /// Of a rank whose time is that of `clock`; by default `CLOCK_MONOTONIC`.
    pub fn now(rank: RankOf, warmup_steps: u64, clock: Option<&dyn Fn() -> Nanos>) -> LogHeader {
        let read = |id| {
            clock_gettime(id).map_or(0, |at| {
                at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64
            })
        };
        // The thread may lose its core between two readings: the closest are the right ones.
        let readings = (0..5).map(|_| {
            let before = read(ClockId::CLOCK_MONOTONIC);
            let own = clock.map(|clock| clock().0);
            let unix = read(ClockId::CLOCK_REALTIME);
            let after = read(ClockId::CLOCK_MONOTONIC);
            let monotonic = before + after.saturating_sub(before) / 2;
            (after.saturating_sub(before), own, unix, monotonic)
        });
        let (_, own, unix_ns, monotonic_ns) = readings.min().unwrap_or_default();
        LogHeader {
            clock_ns: own.unwrap_or(monotonic_ns),
            monotonic_ns,
            ..LogHeader::of(rank, warmup_steps, unix_ns, boot_id().trim().to_owned())
        }
    }

    /// Of a rank that a trace tells of, whose times begin at `unix_ns` nanoseconds since 1970 by the clock of a machine of its own,
    /// which is called `clock`.
    pub fn of_trace(rank: RankOf, warmup_steps: u64, unix_ns: u64, clock: String) -> LogHeader {
        LogHeader {
            monotonic_ns: SINCE_START,
            ..LogHeader::of(rank, warmup_steps, unix_ns, clock)
        }
    }

    /// Of clocks that begin with the log.
    fn of(rank: RankOf, warmup_steps: u64, unix_ns: u64, boot_id: String) -> LogHeader {
        LogHeader {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            rank: rank.rank,
            world_size: rank.of,
            meets_others: rank.meets_others,
            warmup_steps,
            boot_id,
            clock_ns: 0,
            monotonic_ns: 0,
            unix_ns,
        }
    }
}

/// What a rank waits for, as reports name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CauseName {
    /// Such as `decode capacity`.
    pub cause: String,
    /// The stage that it is about.
    pub stage: Option<String>,
}

impl CauseName {
    pub(super) fn of_no_stage(cause: &str) -> CauseName {
        CauseName {
            cause: cause.to_owned(),
            stage: None,
        }
    }
}

/// The idle time of a step.
#[derive(Serialize, Deserialize)]
pub(super) struct StepIdle {
    pub(super) step: u64,
    pub(super) idle: Vec<(u32, u64)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) mixed: bool,
}

/// Says that records are missing.
#[derive(Serialize, Deserialize)]
pub(super) struct Lost {
    pub(super) lost: bool,
}

/// A step of which idle time may still be told.
struct Step {
    from: Nanos,
    ready: Nanos,
    end: Nanos,
    told: StepIdle,
}

impl Step {
    fn add(&mut self, cause: u32, length: Nanos) {
        let StepIdle { idle, mixed, .. } = &mut self.told;
        if let Some((last, sum)) = idle.last_mut()
            && *last == cause
        {
            *sum += length.0;
            return;
        }
        if !*mixed && idle.len() == MOST_PIECES {
            *mixed = true;
            for (cause, length) in std::mem::take(idle) {
                add_to(idle, cause, length);
            }
        }
        match *mixed {
            true => add_to(idle, cause, length.0),
            false => idle.push((cause, length.0)),
        }
    }
}

fn add_to(idle: &mut Vec<(u32, u64)>, cause: u32, length: u64) {
    match idle.iter_mut().find(|(known, _)| *known == cause) {
        Some((_, sum)) => *sum += length,
        None => idle.push((cause, length)),
    }
}

/// Writes the log while the run goes on.
pub struct StepLog {
    file: BufWriter<File>,
    device_beside: bool,
    /// Who tells of steps.
    lane: Option<u16>,
    /// When the step before had ended.
    free_at: Nanos,
    steps: u64,
    waiting: VecDeque<Step>,
    causes: Vec<Cause>,
    is_lost: bool,
    /// What the file system said first; nothing is written then.
    error: Option<io::Error>,
}

impl StepLog {
    /// Begins the log of a run in `folder`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(
        folder: &Path,
        header: &LogHeader,
        rule: &WindowRule,
    ) -> Result<StepLog, LogUnwritten> {
        let mut log = StepLog {
            file: BufWriter::new(File::create(folder.join(STEP_LOG))?),
            device_beside: rule.device_beside,
            lane: None,
            free_at: rule.run_start,
            steps: 0,
            waiting: VecDeque::new(),
            causes: Vec::new(),
            is_lost: false,
            error: None,
        };
        log.line(header);
        log.flush();
        log.result().map(|()| log)
    }

    /// Takes one pass of the collector.
    pub fn absorb(&mut self, records: &[(u16, Record)]) {
        for (lane, record) in records {
            match record {
                Record::Unit(unit) => {
                    let ends = match self.device_beside {
                        true => unit.stage.kind() == StageKind::Device,
                        false => unit.is_step(),
                    };
                    if ends {
                        self.lane = Some(*lane);
                        self.step(unit.start, unit.pushed);
                    }
                }
                Record::Pause(pause) => self.free_at = self.free_at.max(pause.end),
                Record::Dropped if self.lane == Some(*lane) && !self.is_lost => {
                    self.is_lost = true;
                    self.line(&Lost { lost: true });
                }
                _ => {}
            }
        }
        self.flush();
    }

    fn step(&mut self, ready: Nanos, end: Nanos) {
        let from = std::mem::replace(&mut self.free_at, end).min(ready);
        self.line(&(from, ready, end));
        let told = StepIdle {
            step: self.steps,
            idle: Vec::new(),
            mixed: false,
        };
        self.steps += 1;
        self.waiting.push_back(Step {
            from,
            ready,
            end,
            told,
        });
        if self.waiting.len() > MOST_WAITING {
            self.tell();
        }
    }

    /// Takes idle time by cause, in order.
    pub fn idle(&mut self, spans: &[IdleSpan]) {
        for span in spans {
            while { self.waiting.front() }.is_some_and(|step| step.end <= span.interval.start) {
                self.tell();
            }
            let cause = self.number(span.cause);
            for step in &mut self.waiting {
                if step.from >= span.interval.end {
                    break;
                }
                let part = span.interval.clip(Interval::new(step.from, step.ready));
                if !part.is_empty() {
                    step.add(cause, part.length());
                }
            }
        }
        self.flush();
    }

    /// Writes the rest, once all of the run has been analysed.
    ///
    /// # Errors
    /// What the file system has said first.
    pub fn finish(&mut self) -> Result<(), LogUnwritten> {
        while !self.waiting.is_empty() {
            self.tell();
        }
        self.flush();
        self.result()
    }

    fn result(&mut self) -> Result<(), LogUnwritten> {
        Ok(self.error.take().map_or(Ok(()), Err)?)
    }

    /// A cause's number; it is written where it is new.
    fn number(&mut self, cause: Cause) -> u32 {
        if let Some(known) = self.causes.iter().position(|known| *known == cause) {
            return known as u32;
        }
        self.causes.push(cause);
        self.line(&CauseName {
            cause: cause.to_string(),
            stage: cause.stage().map(|stage| stage.name().to_owned()),
        });
        self.causes.len() as u32 - 1
    }

    /// Writes the idle time of the oldest step.
    fn tell(&mut self) {
        if let Some(step) = self.waiting.pop_front()
            && !step.told.idle.is_empty()
        {
            self.line(&step.told);
        }
    }

    fn line(&mut self, line: &impl Serialize) {
        if self.error.is_none() {
            let written = serde_json::to_writer(&mut self.file, line).map_err(io::Error::from);
            self.error = written.and_then(|()| writeln!(self.file)).err();
        }
    }

    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.file.flush().err();
        }
    }
}

//! The log of a rank's steps: a line of JSON each, so that a run that dies leaves what it had done.
//!
//! The first line is a [`LogHeader`]. A line that is a [`CauseName`] gives a cause the next number, from zero. A step is
//! `[from, ready, end, [[cause, length], ...]]`: the trainer had done its last step, had the batch, and was done with that, in
//! nanoseconds of the rank's clock; and what the device was idle for until the batch was there.

use crate::analysis::{Cause, IdleSpan, WindowRule};
use crate::timeline::{Interval, Nanos, Record, StageKind};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The file's name, beside the report.
pub const STEP_LOG: &str = "steps.jsonl";
/// Names the format.
pub(super) const SCHEMA: &str = "stallscope-steps";
pub(super) const VERSION: u32 = 1;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Steps that are kept back until all is known of their idle time.
const MOST_WAITING: usize = 4_096;

/// Which process it is of how many.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RankOf {
    /// From zero.
    pub rank: u32,
    /// How many there are.
    pub of: u32,
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
    /// Of a rank whose clock says that it is `clock` now.
    pub fn now(rank: RankOf, warmup_steps: u64, clock: Nanos) -> LogHeader {
        let read = |id| {
            clock_gettime(id).map_or(0, |at| {
                at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64
            })
        };
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        LogHeader {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            rank: rank.rank,
            world_size: rank.of,
            warmup_steps,
            boot_id: boot.trim().to_owned(),
            clock_ns: clock.0,
            monotonic_ns: read(ClockId::CLOCK_MONOTONIC),
            unix_ns: read(ClockId::CLOCK_REALTIME),
        }
    }
}

/// A cause of idle time, as reports name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CauseName {
    /// Such as `decode capacity`.
    pub cause: String,
    /// The stage that it is about.
    pub stage: Option<String>,
}

/// A step, until it is written.
struct Step {
    from: Nanos,
    ready: Nanos,
    end: Nanos,
    causes: Vec<(usize, Nanos)>,
}

/// Writes the log while the run goes on.
pub struct StepLog {
    file: BufWriter<File>,
    device_beside: bool,
    /// When the step before had ended.
    free_at: Nanos,
    waiting: VecDeque<Step>,
    causes: Vec<Cause>,
    /// What the file system said first; nothing is written then.
    error: Option<io::Error>,
}

impl StepLog {
    /// Begins the log of a run in `folder`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(folder: &Path, header: &LogHeader, rule: &WindowRule) -> io::Result<StepLog> {
        let mut file = BufWriter::new(File::create(folder.join(STEP_LOG))?);
        serde_json::to_writer(&mut file, header)?;
        writeln!(file)?;
        file.flush()?;
        Ok(StepLog {
            file,
            device_beside: rule.device_beside,
            free_at: rule.run_start,
            waiting: VecDeque::new(),
            causes: Vec::new(),
            error: None,
        })
    }

    /// Takes one pass of the collector.
    pub fn absorb(&mut self, records: &[(u16, Record)]) {
        for (_, record) in records {
            match record {
                Record::Unit(unit) => {
                    let ends = match self.device_beside {
                        true => unit.stage.kind() == StageKind::Device,
                        false => unit.is_step(),
                    };
                    if ends {
                        let from = std::mem::replace(&mut self.free_at, unit.pushed);
                        self.waiting.push_back(Step {
                            from: from.min(unit.start),
                            ready: unit.start,
                            end: unit.pushed,
                            causes: Vec::new(),
                        });
                    }
                }
                Record::Pause(pause) => self.free_at = self.free_at.max(pause.end),
                _ => {}
            }
        }
    }

    /// Takes idle time by cause, in order, and writes the steps that nothing more is known to come of.
    pub fn idle(&mut self, spans: &[IdleSpan]) {
        for span in spans {
            while self
                .waiting
                .front()
                .is_some_and(|step| step.end <= span.interval.start)
            {
                self.write();
            }
            let cause = self.number(span.cause);
            for step in &mut self.waiting {
                if step.from >= span.interval.end {
                    break;
                }
                let part = span
                    .interval
                    .clip(Interval::new(step.from, step.ready))
                    .length();
                if part > Nanos::ZERO {
                    match step.causes.iter_mut().find(|(known, _)| *known == cause) {
                        Some((_, length)) => *length += part,
                        None => step.causes.push((cause, part)),
                    }
                }
            }
        }
        while self.waiting.len() > MOST_WAITING {
            self.write();
        }
        self.noted(|file| file.flush());
    }

    /// Writes the rest, once all of the run has been analysed.
    ///
    /// # Errors
    /// What the file system has said first.
    pub fn finish(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            self.write();
        }
        self.noted(|file| file.flush());
        self.error.take().map_or(Ok(()), Err)
    }

    /// A cause's number; it is written where it is new.
    fn number(&mut self, cause: Cause) -> usize {
        if let Some(known) = self.causes.iter().position(|known| *known == cause) {
            return known;
        }
        self.causes.push(cause);
        let name = CauseName {
            cause: cause.to_string(),
            stage: cause.stage().map(|stage| stage.name().to_owned()),
        };
        self.noted(|file| {
            serde_json::to_writer(&mut *file, &name)?;
            writeln!(file)
        });
        self.causes.len() - 1
    }

    fn write(&mut self) {
        if let Some(step) = self.waiting.pop_front() {
            self.noted(|file| {
                serde_json::to_writer(&mut *file, &(step.from, step.ready, step.end, step.causes))?;
                writeln!(file)
            });
        }
    }

    fn noted(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut self.file).err();
        }
    }
}

//! The log of a rank's steps, read: what a run that died has left is used up to its last whole line.

use super::log::{CauseName, LogHeader, Lost, SCHEMA, STEP_LOG, StepIdle, VERSION};
use crate::timeline::Nanos;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// More ranks than any training has.
const MOST_RANKS: u32 = 1 << 20;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system says so.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// The first line is no header.
    #[error("{0} is not a log of steps of this version of stallscope")]
    Format(PathBuf),
}

/// One step of a rank, in nanoseconds of its clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// When the step before had ended.
    pub from: Nanos,
    /// When its batch was there.
    pub ready: Nanos,
    /// When it had ended.
    pub end: Nanos,
}

/// What is wrong with the end of a log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its last line is not whole.
    Line,
    /// Records were lost behind its last step.
    Lost,
}

/// A piece of a step's idle time.
#[derive(Copy, Clone, Debug)]
struct Piece {
    step: u32,
    cause: u16,
    mixed: bool,
    length: Nanos,
}

/// The steps of a rank.
#[derive(Clone, Debug)]
pub struct RankLog {
    /// The first line.
    pub header: LogHeader,
    /// In order, with the warm-up.
    pub steps: Vec<StepTimes>,
    /// Why it ends before the run did, where it does.
    pub cut: Option<Cut>,
    causes: Vec<CauseName>,
    /// By step, and as they were told.
    pieces: Vec<Piece>,
}

impl RankLog {
    /// The log of the run in `folder`.
    ///
    /// # Errors
    /// A file that cannot be read, or that is no such log.
    pub fn read(folder: &Path) -> Result<RankLog, LogError> {
        let path = folder.join(STEP_LOG);
        let failed = |source| LogError::Read {
            path: path.clone(),
            source,
        };
        let mut lines = BufReader::new(File::open(&path).map_err(failed)?);
        let mut text = Vec::new();
        lines.read_until(b'\n', &mut text).map_err(failed)?;
        let header = serde_json::from_slice(&text).ok();
        let header = header.filter(|header: &LogHeader| {
            header.schema == SCHEMA
                && header.version == VERSION
                && header.rank < header.world_size
                && header.world_size <= MOST_RANKS
        });
        let mut log = RankLog {
            header: header.ok_or_else(|| LogError::Format(path.clone()))?,
            steps: Vec::new(),
            cut: None,
            causes: Vec::new(),
            pieces: Vec::new(),
        };
        while log.cut.is_none() {
            text.clear();
            if lines.read_until(b'\n', &mut text).map_err(failed)? == 0 {
                break;
            }
            if !log.take(&text) {
                log.cut = Some(Cut::Line);
            }
        }
        log.steps.shrink_to_fit();
        log.pieces.shrink_to_fit();
        Ok(log)
    }

    /// Takes a line, where it is one.
    fn take(&mut self, line: &[u8]) -> bool {
        if line.first() == Some(&b'[') {
            let step = serde_json::from_slice(line);
            self.steps.extend(step.iter().map(|times: &[u64; 3]| {
                let [from, ready, end] = times.map(Nanos);
                StepTimes { from, ready, end }
            }));
            return step.is_ok();
        }
        if let Ok(StepIdle { step, idle, mixed }) = serde_json::from_slice(line) {
            let known = self.causes.len();
            let idle = idle.into_iter();
            let idle = idle.filter(|(cause, _)| (*cause as usize) < known);
            self.pieces.extend(idle.map(|(cause, length)| Piece {
                step: step as u32,
                cause: cause as u16,
                mixed,
                length: Nanos(length),
            }));
        } else if let Ok(cause) = serde_json::from_slice(line) {
            self.causes.push(cause);
        } else if let Ok(Lost { lost: true }) = serde_json::from_slice(line) {
            self.cut = Some(Cut::Lost);
        } else {
            return false;
        }
        true
    }

    fn pieces(&self, number: usize) -> &[Piece] {
        let step = number as u32;
        let first = self.pieces.partition_point(|piece| piece.step < step);
        let count = self.pieces[first..].partition_point(|piece| piece.step == step);
        &self.pieces[first..first + count]
    }

    fn cause(&self, piece: &Piece) -> &CauseName {
        &self.causes[usize::from(piece.cause)]
    }

    /// What the device was idle for until the batch of step `number` was there.
    pub fn causes(&self, number: usize) -> impl Iterator<Item = (&CauseName, Nanos)> {
        let pieces = self.pieces(number).iter();
        pieces.map(|piece| (self.cause(piece), piece.length))
    }

    /// The same of the last `length` before the batch was there; of that less may be known.
    pub fn last_causes(
        &self,
        number: usize,
        length: Nanos,
    ) -> impl Iterator<Item = (&CauseName, Nanos)> {
        let pieces = self.pieces(number);
        let mixed = pieces.iter().any(|piece| piece.mixed);
        let known: Nanos = pieces.iter().map(|piece| piece.length).sum();
        let mut left = length;
        pieces.iter().rev().filter_map(move |piece| {
            let part = match mixed {
                true => length.min(known).share_of(piece.length, known),
                false => piece.length,
            };
            let part = part.min(left);
            left = left - part;
            (part > Nanos::ZERO).then(|| (self.cause(piece), part))
        })
    }

    /// What is to be added to its times for the clock of a machine: `CLOCK_MONOTONIC` of the one whose log began at `reference`,
    /// or, for another machine, what its `CLOCK_REALTIME` says that is.
    pub(super) fn later_than(&self, reference: &LogHeader) -> i128 {
        let own = &self.header;
        let mut later = i128::from(own.monotonic_ns) - i128::from(own.clock_ns);
        if own.boot_id != reference.boot_id {
            let real =
                |header: &LogHeader| i128::from(header.unix_ns) - i128::from(header.monotonic_ns);
            later += real(own) - real(reference);
        }
        later
    }

    /// Changes all times.
    pub(super) fn move_times(&mut self, moved: impl Fn(Nanos) -> Nanos) {
        for step in &mut self.steps {
            for time in [&mut step.from, &mut step.ready, &mut step.end] {
                *time = moved(*time);
            }
        }
    }
}

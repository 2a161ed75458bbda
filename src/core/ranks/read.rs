//! The log of a rank's steps, read: what a run that died has left is used up to its last whole line.

use super::log::{CauseName, LogHeader, SCHEMA, STEP_LOG, VERSION};
use crate::timeline::Nanos;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

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
    #[error("{0} is no log of steps of this version of stallscope")]
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
    /// Where its causes begin among those of all steps; they end where the next one's begin.
    first_part: u32,
}

/// The steps of a rank.
#[derive(Clone, Debug)]
pub struct RankLog {
    /// The first line.
    pub header: LogHeader,
    /// In order, with the warm-up.
    pub steps: Vec<StepTimes>,
    /// The last line is cut off.
    pub is_cut: bool,
    causes: Vec<CauseName>,
    /// Number of a cause and its time.
    parts: Vec<(u32, u64)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Step(u64, u64, u64, Vec<(u32, u64)>),
    Cause(CauseName),
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
        let mut text = String::new();
        lines.read_line(&mut text).map_err(failed)?;
        let header = serde_json::from_str(&text).ok();
        let header = header
            .filter(|header: &LogHeader| header.schema == SCHEMA && header.version == VERSION);
        let mut log = RankLog {
            header: header.ok_or_else(|| LogError::Format(path.clone()))?,
            steps: Vec::new(),
            is_cut: false,
            causes: Vec::new(),
            parts: Vec::new(),
        };
        loop {
            text.clear();
            // What is no text ends the log, too.
            if lines.read_line(&mut text).unwrap_or(0) == 0 {
                return Ok(log);
            }
            match serde_json::from_str(&text) {
                Ok(line) => log.take(line),
                Err(_) => {
                    log.is_cut = true;
                    return Ok(log);
                }
            }
        }
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Cause(cause) => self.causes.push(cause),
            Line::Step(from, ready, end, parts) => {
                self.steps.push(StepTimes {
                    from: Nanos(from),
                    ready: Nanos(ready),
                    end: Nanos(end),
                    first_part: self.parts.len() as u32,
                });
                self.parts.extend(parts);
            }
        }
    }

    /// What the device was idle for until the batch of step `number` was there.
    pub fn causes(&self, number: usize) -> impl Iterator<Item = (&CauseName, Nanos)> {
        let first = |number: usize| self.steps.get(number).map(|step| step.first_part as usize);
        let from = first(number).unwrap_or(self.parts.len());
        let until = first(number + 1).unwrap_or(self.parts.len());
        let parts = self.parts[from..until].iter();
        parts
            .filter_map(|(cause, length)| Some((self.causes.get(*cause as usize)?, Nanos(*length))))
    }

    /// The same log on the clock of a machine: `CLOCK_MONOTONIC` of the one whose log began at `reference`, or, for another
    /// machine, what its `CLOCK_REALTIME` says that is.
    pub(super) fn on_clock_of(mut self, reference: &LogHeader) -> RankLog {
        let own = &self.header;
        let mut later = i128::from(own.monotonic_ns) - i128::from(own.clock_ns);
        if own.boot_id != reference.boot_id {
            let real =
                |header: &LogHeader| i128::from(header.unix_ns) - i128::from(header.monotonic_ns);
            later += real(own) - real(reference);
        }
        let moved = |at: Nanos| Nanos(u64::try_from(i128::from(at.0) + later).unwrap_or(0));
        for step in &mut self.steps {
            (step.from, step.ready, step.end) =
                (moved(step.from), moved(step.ready), moved(step.end));
        }
        self
    }
}

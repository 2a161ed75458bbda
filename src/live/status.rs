//! A run in a line now and then, between whatever else is printed.

use super::figures::Past;
use super::panels::clock_time;
use super::snapshot::Snapshot;
use super::style::percent;
use std::time::{Duration, Instant};

/// Between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// The lines of a run that began when this was made.
pub struct StatusLines {
    began: Instant,
    past: Past,
    shown: Instant,
}

impl StatusLines {
    /// None yet.
    pub fn new() -> StatusLines {
        let now = Instant::now();
        StatusLines {
            began: now,
            past: Past::default(),
            shown: now,
        }
    }

    /// The line to print, where it is time for one; to be asked once a second.
    pub fn next(&mut self, snapshot: &Snapshot) -> Option<String> {
        let line = line(snapshot, &mut self.past, self.began.elapsed());
        if self.shown.elapsed() < EVERY {
            return None;
        }
        self.shown = Instant::now();
        Some(line)
    }
}

impl Default for StatusLines {
    fn default() -> Self {
        Self::new()
    }
}

pub(super) fn line(snapshot: &Snapshot, past: &mut Past, elapsed: Duration) -> String {
    let time = clock_time(elapsed);
    let (Some(figures), Some(totals)) = (past.figures(snapshot), &snapshot.totals) else {
        return format!("stallscope {time}  no step is measured yet");
    };
    let samples = figures.samples_per_second;
    let wait = figures.data_wait;
    let mut line = format!(
        "stallscope {time}  {} steps measured; {:.0} samples/s now, {:.0} over the run; data wait {} now, {} over the run",
        totals.steps,
        samples.now,
        samples.run,
        percent(wait.now),
        percent(wait.run),
    );
    if let Some(verdict) = &snapshot.verdict {
        line += &format!("; {} so far", verdict.title);
        if let Some(suggestion) = &verdict.suggestion {
            line += &format!("; {}", suggestion.text());
        }
    }
    line
}

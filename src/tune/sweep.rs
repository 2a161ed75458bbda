//! A sweep: every point of a grid of settings, run several times over, each trial a process of its own.
//!
//! Invariants: a trial that has ended is in the journal before the next one starts, or in a file of its own until it is, so that a
//! sweep that is killed loses the trials in flight at most. What is to be done follows from the manifest and what has ended. What ran out of memory or failed is a result.
//!
//! May use: `trial`, `config`.

mod error;
mod folder;
mod grid;
mod journal;
mod launched;
mod launcher;
mod order;
mod points;
mod results;
mod statistics;

pub use error::SweepError;
pub use folder::{Manifest, SweepFolder, write_whole};
pub use grid::{Axis, Grid, Point};
pub use journal::{Figures, Journal, Node, Outcome, Record};
pub use launched::{Launched, launch, run_one, take_ended};
pub use launcher::{CommandLauncher, Launcher, SLOT, SlurmLauncher, TRIAL, TrialCommand};
pub use order::{Place, order};
pub use points::resolve_points;
pub use results::{PointResult, SweepResults, summarize};
pub use statistics::{IntervalKind, Spread};

use super::trial::{self, TrialError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a sweep ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    /// The user stopped it.
    Stopped,
    /// Trials were lost again and again with their jobs or machines; why the last one was.
    Lost(String),
}

/// Runs those trials of `order` that `journal` does not have yet, and notes each as it ends. `trial` runs
/// one, given its name and its settings; `noted` hears of each record, with how many trials are left.
///
/// # Errors
/// A trial that could not even be started, and a journal that cannot be written to.
pub fn sweep(
    points: &[Point],
    order: &[Place],
    journal: &mut Journal,
    mut trial: impl FnMut(&str, &[String]) -> Result<trial::Outcome, TrialError>,
    mut noted: impl FnMut(&Journal, &Record, &[Place]),
) -> Result<End, SweepError> {
    let missing = |place: &&Place| !journal.has(**place);
    let missing: Vec<Place> = order.iter().filter(missing).copied().collect();
    for (done, place) in missing.iter().enumerate() {
        let record = match launched::run_trial(points, *place, &mut trial) {
            Ok(record) => record,
            Err(TrialError::Stopped | TrialError::OutOfTime) => return Ok(End::Stopped),
            Err(error) => return Err(SweepError::Trial(error)),
        };
        journal.append(record.clone())?;
        noted(journal, &record, &missing[done + 1..]);
    }
    Ok(End::Complete)
}

/// How long the trials at `left` will take, one after another: as those of the same point did, or else as all did in the mean.
/// `None` where none has ended.
pub fn time_left(records: &[Record], left: &[Place]) -> Option<Duration> {
    let mean = |records: &[&Record]| {
        let all: f64 = records.iter().map(|record| record.elapsed_ns as f64).sum();
        (!records.is_empty()).then(|| all / records.len() as f64)
    };
    let of_all = mean(&records.iter().collect::<Vec<_>>())?;
    let expected = left.iter().map(|place| {
        let same = |record: &&Record| record.place.point == place.point;
        mean(&records.iter().filter(same).collect::<Vec<_>>()).unwrap_or(of_all)
    });
    Some(Duration::from_nanos(expected.sum::<f64>() as u64))
}

fn now_unix_seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
#[path = "sweep/tests.rs"]
mod tests;

//! Trials of a search that a launcher starts on other machines, several at once.
//!
//! They are those of a sweep whose points are added as they are decided on, in a folder of its own. May use: `sweep`, `trial`,
//! `tuning`; `report`.

use super::sweep::{
    Journal, Launched, Launcher, Manifest, Place, Point, Record, SweepError, SweepFolder,
};
use super::trial::{Measured, Outcome, TrialError};
use super::tuning::{Trials, Underway};
use crate::report::Report;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the trials of a search by a launcher.
pub struct Elsewhere<'a> {
    folder: &'a SweepFolder,
    manifest: Manifest,
    journal: Journal,
    launched: Launched<'a>,
    points: Vec<Point>,
    at_once: usize,
    stop: Arc<AtomicBool>,
}

impl<'a> Elsewhere<'a> {
    /// Trials of `manifest`, whose points are those of the search, in `folder`, so many at once and until `stop` is set.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub fn new(
        (folder, manifest): (&'a SweepFolder, Manifest),
        launcher: &'a mut dyn Launcher,
        at_once: usize,
        stop: Arc<AtomicBool>,
    ) -> Result<Elsewhere<'a>, SweepError> {
        Ok(Elsewhere {
            journal: Journal::open(&folder.file("trials.jsonl"))?,
            launched: Launched::new(folder, launcher)?,
            folder,
            manifest,
            points: Vec::new(),
            at_once,
            stop,
        })
    }

    /// What has ended, with the machines on which it ran.
    pub fn records(&self) -> &[Record] {
        self.journal.records()
    }

    /// Ends what runs, if anything does; nothing is asked for any more.
    ///
    /// # Errors
    /// Why trials may run on.
    pub fn end(&mut self) -> Result<(), SweepError> {
        if self.launched.is_busy(&self.journal) {
            // What says so to the trials stays in the folder.
            return self.launched.stop();
        }
        self.launched.forget();
        Ok(())
    }

    /// Has trials find their settings in the folder.
    fn list(&mut self, underway: &[Underway]) -> Result<(), SweepError> {
        // They are decided on, and come here, in the order of their numbers.
        let new = underway.iter().filter(|one| one.number > self.points.len());
        let new: Vec<Vec<String>> = new.map(|one| one.sets.clone()).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.manifest.listed.extend(new);
        self.points = self.manifest.points();
        self.folder.describe(&self.manifest)
    }

    fn wait_for(&mut self, underway: &[Underway]) -> Result<(usize, Outcome), SweepError> {
        self.list(underway)?;
        let places = underway.iter().map(|one| Place {
            point: one.number - 1,
            repeat: 0,
        });
        let places: Vec<Place> = places.collect();
        loop {
            self.launched.look(&self.points, &mut self.journal)?;
            let mut ended = places.iter().enumerate();
            let ended = ended.find_map(|(at, place)| Some((at, self.journal.of(*place)?.clone())));
            if let Some((at, record)) = ended {
                return Ok((at, self.in_full(record)));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(SweepError::Trial(TrialError::Stopped));
            }
            let lost = self.launched.start(&places)?;
            let reason = || self.launched.reason.clone().unwrap_or_default();
            if self.launched.has_given_up(&places) {
                return Err(SweepError::Trial(TrialError::Elsewhere(reason())));
            }
            let lost = places.iter().position(|place| lost.contains(place));
            if let Some(at) = lost {
                let reason = format!("lost each time it was started: {}", reason());
                // One that confirms would refute what it does not measure.
                return match underway[at].confirms() {
                    true => Err(SweepError::Trial(TrialError::Elsewhere(reason))),
                    false => Ok((at, Outcome::Failed { reason })),
                };
            }
        }
    }

    /// What `record` and the report of its trial say.
    fn in_full(&mut self, record: Record) -> Outcome {
        let report = self.launched.take_report(record.place);
        record.outcome.and_then(|_| {
            let report = report.ok_or("it left no report")?;
            let report = Report::from_json(report.as_bytes());
            report.map(Measured::of).map_err(|error| error.to_string())
        })
    }
}

impl Trials for Elsewhere<'_> {
    fn at_once(&self) -> usize {
        self.at_once
    }

    fn wait(&mut self, underway: &[Underway]) -> Result<(usize, Outcome), TrialError> {
        self.wait_for(underway).map_err(|error| match error {
            SweepError::Trial(error) => error,
            error => TrialError::Elsewhere(error.to_string()),
        })
    }
}

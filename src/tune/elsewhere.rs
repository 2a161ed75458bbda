//! Trials of a search that a launcher starts on other machines, several at once.
//!
//! They are those of a sweep whose points are added as they are decided on, in a folder of its own. May use: `sweep`, `trial`,
//! `tuning`.

use super::sweep::{Journal, Launched, Launcher, Manifest, Place, Point, SweepError, SweepFolder};
use super::sweep::{Record, report_of};
use super::trial::{Measured, Outcome, TrialError};
use super::tuning::{Trials, Underway};
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
    /// Trials of `manifest`, which lists no points, in `folder`, so many at once and until `stop` is set.
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
    pub fn end(&mut self) {
        self.launched.stop().ok();
        self.launched.forget();
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
            let ended = ended.find_map(|(at, place)| Some((at, self.journal.of(*place)?)));
            if let Some((at, record)) = ended {
                return Ok((at, self.in_full(record)));
            }
            if self.stop.load(Ordering::Relaxed) {
                self.launched.stop()?;
                return Err(SweepError::Trial(TrialError::Stopped));
            }
            if let Some(reason) = self.launched.start(&places)? {
                return Ok((0, Outcome::Failed { reason }));
            }
        }
    }

    /// What the report of the trial of `record` says.
    fn in_full(&self, record: &Record) -> Outcome {
        record.outcome.clone().and_then(|_| {
            let report = report_of(self.folder, record.place);
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

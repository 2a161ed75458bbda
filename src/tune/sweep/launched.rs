//! Trials that a launcher starts on machines which share the sweep's folder, several at once.
//!
//! Each is `stallscope sweep-trial FOLDER POINT-REPEAT`. It says again and again that it runs, by a file in the folder, and leaves its
//! record there, and its report where that is wanted, which the sweep takes into its journal. So trials go on where the sweep is
//! killed, nothing that has ended is lost, and a sweep that goes on knows what still runs.
//!
//! May use: `error`, `folder`, `journal`, `launcher`, `order`, `trial`.

use super::error::SweepError;
use super::folder::{Manifest, SweepFolder, write_json};
use super::grid::Point;
use super::journal::{Figures, Journal, Node, Outcome, Record};
use super::launcher::{Ending, Launcher};
use super::order::Place;
use super::{End, now_unix_seconds};
use crate::tune::trial::{self, TrialError};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

/// The folder with what trials say: records that are not in the journal yet, and that they run.
const SAID: &str = "launched";
/// In it: asks all trials to end.
const STOP: &str = "stop";
/// Behind the place of a trial that runs.
const RUNNING: &str = "running";

/// How often a trial is started by one process that is lost with its machine or job.
const MOST_STARTS: usize = 3;

/// How long a record may take to be seen after its trial has ended well: file systems that machines share say late what is new.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same where it has ended badly, and may have left one.
const LITTLE_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked for what is new.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a trial says that it runs, and after what time without that it does not.
const SAY_EVERY: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(90);

/// What a trial leaves.
#[derive(Serialize, Deserialize)]
struct Said {
    #[serde(flatten)]
    record: Record,
    /// Its report as JSON, where the sweep keeps them.
    #[serde(default)]
    report: Option<String>,
}

/// Runs the trial at `place` of the sweep `manifest` and leaves its record in `folder`, in place of whoever started it. `trial` is
/// as for [`sweep`](super::sweep()); `stop` is set where the sweep was stopped.
///
/// # Errors
/// A place that the sweep does not have, a trial that could not be started or was stopped, and a file system that refuses the record.
pub fn run_one(
    folder: &Path,
    manifest: &Manifest,
    place: Place,
    stop: &AtomicBool,
    mut trial: impl FnMut(&str, &[String]) -> Result<trial::Outcome, TrialError>,
) -> Result<(), SweepError> {
    let points = manifest.points();
    if place.point >= points.len() {
        return Err(SweepError::NoTrial { place });
    }
    let said = folder.join(SAID);
    fs::create_dir_all(&said).map_err(SweepError::io("create", &said))?;
    let running = said.join(format!("{place}.{RUNNING}"));
    let ended = AtomicBool::new(false);
    let mut report = None;
    let trial = |name: &str, sets: &[String]| {
        let outcome = trial(name, sets)?;
        let measured = outcome.fits().filter(|_| manifest.keeps_reports);
        report = measured.map(|measured| measured.report.clone());
        Ok(outcome)
    };
    let record = thread::scope(|scope| {
        let teller = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // Where it cannot be said the trial may be started twice; it counts once.
                fs::write(&running, std::process::id().to_string()).ok();
                if said.join(STOP).exists() {
                    stop.store(true, Ordering::Relaxed);
                }
                thread::park_timeout(SAY_EVERY);
            }
        });
        let _ends = Ends(&ended, teller.thread());
        run_trial(&points, place, trial)
    });
    let node = Node::this();
    // Two that were started of the same trial do not write the same file.
    let path = said.join(format!("{place}-{}-{}.json", node.host, std::process::id()));
    let written = record.map_err(SweepError::Trial).and_then(|mut record| {
        record.node = Some(node);
        let report = report.map(|report| serde_json::to_string(&*report));
        let report = report.transpose().map_err(std::io::Error::from);
        let report = report.map_err(SweepError::io("write", &path))?;
        write_json(&path, &Said { record, report })
    });
    fs::remove_file(&running).ok();
    written
}

/// Ends the thread that says that a trial runs.
struct Ends<'a>(&'a AtomicBool, &'a Thread);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// Runs the trial at `place`.
pub(super) fn run_trial(
    points: &[Point],
    place: Place,
    mut trial: impl FnMut(&str, &[String]) -> Result<trial::Outcome, TrialError>,
) -> Result<Record, TrialError> {
    let settings = &points[place.point].settings;
    let began = Instant::now();
    let outcome = trial(&format!("trial-{place}"), settings)?;
    let outcome = outcome.and_then(|measured| Ok(Figures::of(&measured)));
    Ok(record(place, settings, began.elapsed(), outcome))
}

fn record(place: Place, settings: &[String], elapsed: Duration, outcome: Outcome) -> Record {
    Record {
        place,
        settings: settings.to_vec(),
        ended_at_unix_seconds: now_unix_seconds(),
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        outcome,
        node: None,
    }
}

/// Takes the records of trials that have ended out of `folder` into `journal`.
///
/// # Errors
/// What is no record, and whatever the file system refuses.
pub fn take_ended(
    folder: &SweepFolder,
    points: &[Point],
    journal: &mut Journal,
) -> Result<(), SweepError> {
    take_said(folder, points, journal).map(drop)
}

/// The same; returns what is new.
fn take_said(
    folder: &SweepFolder,
    points: &[Point],
    journal: &mut Journal,
) -> Result<Vec<Said>, SweepError> {
    let mut new: Vec<Said> = Vec::new();
    for path in files(folder, "json")? {
        let text = fs::read(&path).map_err(SweepError::io("read", &path))?;
        let damaged = |what: String| SweepError::Damaged {
            path: path.clone(),
            what,
        };
        let said: Said =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        let record = &said.record;
        let of = points.get(record.place.point).map(|point| &point.settings);
        if of != Some(&record.settings) {
            return Err(damaged("it is the record of another sweep".to_owned()));
        }
        if !journal.has(record.place) {
            journal.append(record.clone())?;
            new.push(said);
        }
        fs::remove_file(&path).map_err(SweepError::io("remove", &path))?;
    }
    let ended = |said: &Said| said.record.ended_at_unix_seconds;
    new.sort_by(|a, b| ended(a).total_cmp(&ended(b)));
    Ok(new)
}

/// The files of this `kind` that trials have left.
fn files(folder: &SweepFolder, kind: &str) -> Result<Vec<PathBuf>, SweepError> {
    let said = folder.file(SAID);
    let entries = match fs::read_dir(&said) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(SweepError::io("read", &said)(error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let of_kind = |path: &PathBuf| path.extension().is_some_and(|there| there == kind);
    Ok(paths.filter(of_kind).collect())
}

/// The trials that have said lately that they run.
fn running(folder: &SweepFolder) -> Result<Vec<Place>, SweepError> {
    // By the clock of the file system.
    let probe = folder.file(SAID).join("now");
    let now = fs::write(&probe, "").and_then(|()| fs::metadata(&probe)?.modified());
    let now = now.unwrap_or_else(|_| SystemTime::now());
    let lately = |path: &PathBuf| {
        let said = fs::metadata(path).and_then(|file| file.modified());
        said.is_ok_and(|said| now.duration_since(said).unwrap_or_default() < SILENCE)
    };
    let paths = files(folder, RUNNING)?.into_iter().filter(lately);
    let place = |path: PathBuf| path.file_stem()?.to_str()?.parse().ok();
    Ok(paths.filter_map(place).collect())
}

/// Has `launcher` run those trials of `order` that `journal` does not have yet, until `stop` is set. What is lost with its machine is
/// started again, up to three times in all, and is then left undone. `noted` hears of each record, of the trials that are left,
/// and how many of them run at once.
///
/// # Errors
/// A launcher that fails, and a folder or journal that cannot be written to.
pub fn launch(
    points: &[Point],
    order: &[Place],
    (folder, journal): (&SweepFolder, &mut Journal),
    launcher: &mut dyn Launcher,
    stop: &AtomicBool,
    mut noted: impl FnMut(&Journal, &Record, &[Place], usize),
) -> Result<End, SweepError> {
    let mut launched = Launched::new(folder, launcher)?;
    loop {
        let new = launched.look(points, journal)?;
        let missing = |place: &&Place| !journal.has(**place);
        let left: Vec<Place> = order.iter().filter(missing).copied().collect();
        for record in &new {
            noted(journal, record, &left, launched.at_once());
        }
        if stop.load(Ordering::Relaxed) {
            launched.stop()?;
            take_ended(folder, points, journal)?;
            return Ok(End::Stopped);
        }
        if left.is_empty() {
            launched.forget();
            return Ok(End::Complete);
        }
        let lost = launched.start(&left)?;
        if lost.len() == left.len() || launched.has_given_up(&left) {
            launched.launcher.forget();
            return Ok(End::Lost(launched.reason.unwrap_or_default()));
        }
    }
}

/// The trials that a launcher runs for the sweep in a folder.
pub struct Launched<'a> {
    folder: &'a SweepFolder,
    launcher: &'a mut dyn Launcher,
    trials: HashMap<Place, Trial>,
    /// When it was looked last who says nothing any more.
    looked: Instant,
    /// Of those that left one, until somebody takes it.
    reports: HashMap<Place, String>,
    /// Why the last one that was lost was.
    pub reason: Option<String>,
}

impl<'a> Launched<'a> {
    /// With those that an earlier process has left running.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub fn new(
        folder: &'a SweepFolder,
        launcher: &'a mut dyn Launcher,
    ) -> Result<Launched<'a>, SweepError> {
        let said = folder.file(SAID);
        fs::create_dir_all(&said).map_err(SweepError::io("create", &said))?;
        fs::remove_file(said.join(STOP)).ok();
        let mut trials: HashMap<Place, Trial> = HashMap::new();
        // Of a sweep that was killed, and that its launcher knows no more of, or does.
        for place in running(folder)? {
            trials.insert(place, Trial::underway(false));
        }
        for place in launcher.running() {
            trials.insert(place, Trial::underway(true));
        }
        Ok(Launched {
            folder,
            launcher,
            trials,
            looked: Instant::now(),
            reports: HashMap::new(),
            reason: None,
        })
    }

    /// How many run now.
    pub fn at_once(&self) -> usize {
        self.launcher.at_once()
    }

    /// Takes what has ended into `journal`; returns the records that are new.
    ///
    /// # Errors
    /// A launcher that fails, and a folder or journal that cannot be written to.
    pub fn look(
        &mut self,
        points: &[Point],
        journal: &mut Journal,
    ) -> Result<Vec<Record>, SweepError> {
        for (place, ending) in self.launcher.ended()? {
            let trials = self.trials.entry(place);
            let trial = trials.or_insert_with(|| Trial::underway(true));
            trial.state = State::Ended(Instant::now(), ending);
        }
        if self.looked.elapsed() > SAY_EVERY {
            self.looked = Instant::now();
            let running = running(self.folder)?;
            let gone = |(place, trial): &(&Place, &mut Trial)| {
                !trial.launched && trial.is_underway() && !running.contains(place)
            };
            for (_, trial) in self.trials.iter_mut().filter(gone) {
                trial.state =
                    State::Ended(Instant::now(), Ending::Lost("it says nothing".to_owned()));
            }
        }
        // After it was asked who has ended: what has left a record is not lost.
        let mut new = Vec::new();
        for said in take_said(self.folder, points, journal)? {
            self.reports
                .extend(said.report.map(|report| (said.record.place, report)));
            new.push(said.record);
        }
        for (place, trial) in &mut self.trials {
            let Some(ending) = trial.is_over().filter(|_| !journal.has(*place)) else {
                continue;
            };
            trial.state = State::Waiting;
            match ending {
                Ending::Final(outcome) => {
                    let settings = &points[place.point].settings;
                    let record = record(*place, settings, Duration::ZERO, outcome);
                    journal.append(record.clone())?;
                    new.push(record);
                }
                Ending::Lost(why) => self.reason = Some(why),
                Ending::Done => {
                    self.reason = Some("its job ended well and left no record".to_owned());
                }
            }
        }
        Ok(new)
    }

    /// Takes what the report of the trial at `place` says, as JSON, where its sweep keeps them.
    pub fn take_report(&mut self, place: Place) -> Option<String> {
        self.reports.remove(&place)
    }

    /// Starts those of `left` that may run and do not, and waits a moment. Returns those that were lost so often that they are not
    /// started again.
    ///
    /// # Errors
    /// A launcher that fails.
    pub fn start(&mut self, left: &[Place]) -> Result<Vec<Place>, SweepError> {
        let trials = &self.trials;
        let underway = |place: &Place| trials.get(place).is_some_and(|trial| !trial.is_waiting());
        let starts = |place: &Place| trials.get(place).map_or(0, |trial| trial.starts);
        // Where nobody knows on which machine one runs, none is started beside it.
        let strays = { trials.values() }.any(|trial| !trial.launched && trial.is_underway());
        let idle = left.iter().copied().filter(|place| !underway(place));
        let (lost, waiting): (Vec<Place>, Vec<Place>) =
            idle.partition(|place| starts(place) >= MOST_STARTS);
        let started = match waiting.is_empty() || strays {
            true => 0,
            false => self.launcher.start(&waiting)?,
        };
        for place in &waiting[..started] {
            let trials = self.trials.entry(*place);
            let trial = trials.or_insert_with(|| Trial::underway(true));
            trial.starts += 1;
            trial.launched = true;
            trial.state = State::Underway;
        }
        thread::sleep(LOOK_EVERY);
        Ok(lost)
    }

    /// Whether nothing of `left` runs or may yet have left its record, and nothing will be started any more.
    pub fn has_given_up(&self, left: &[Place]) -> bool {
        let mut trials = left.iter().filter_map(|place| self.trials.get(place));
        self.launcher.gives_up() && trials.all(Trial::is_waiting)
    }

    /// Whether a trial runs that `journal` does not have.
    pub fn is_busy(&self, journal: &Journal) -> bool {
        let mut trials = self.trials.iter();
        trials.any(|(place, trial)| trial.is_underway() && !journal.has(*place))
    }

    /// Ends all that run.
    ///
    /// # Errors
    /// A launcher that fails, and a folder that cannot be written to.
    pub fn stop(&mut self) -> Result<(), SweepError> {
        let said = self.folder.file(SAID);
        fs::write(said.join(STOP), "").map_err(SweepError::io("write to", &said))?;
        self.launcher.stop()
    }

    /// There is nothing left to do.
    pub fn forget(&mut self) {
        self.launcher.forget();
        fs::remove_dir_all(self.folder.file(SAID)).ok();
    }
}

/// A trial that was started at least once.
struct Trial {
    state: State,
    /// Started by this process or one that its launcher knows of.
    launched: bool,
    /// By this process.
    starts: usize,
}

enum State {
    Waiting,
    Underway,
    /// Since when it is known that it has ended, and how.
    Ended(Instant, Ending),
}

impl Trial {
    fn underway(launched: bool) -> Trial {
        Trial {
            state: State::Underway,
            launched,
            starts: 0,
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    fn is_underway(&self) -> bool {
        matches!(self.state, State::Underway)
    }

    /// How it has ended, where its record would be here by now.
    fn is_over(&self) -> Option<Ending> {
        let State::Ended(since, ending) = &self.state else {
            return None;
        };
        let patience = match ending {
            Ending::Final(_) | Ending::Lost(_) => LITTLE_PATIENCE,
            Ending::Done => PATIENCE,
        };
        (since.elapsed() >= patience).then(|| ending.clone())
    }
}

//! Trials that a launcher starts on machines which share the sweep's folder, several at once.
//!
//! Each is `stallscope sweep-trial FOLDER POINT-REPEAT`, which leaves its record in the folder; the sweep takes it from there
//! into its journal. So trials go on where the sweep is killed, and nothing that has ended is lost.
//!
//! May use: `error`, `folder`, `journal`, `launcher`, `order`, `trial`.

use super::error::SweepError;
use super::folder::{SweepFolder, write_whole};
use super::grid::Point;
use super::journal::{Figures, Journal, Node, Outcome, Record};
use super::launcher::{Ending, Launcher};
use super::order::Place;
use super::{End, now_unix_seconds};
use crate::tune::trial::{self, TrialError};
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The folder with records that are not in the journal yet.
const ENDED: &str = "ended";

/// How often a trial is started whose node or job is lost.
const MOST_STARTS: usize = 3;

/// How long a record may take to be seen after its trial has ended: file systems that machines share say late what is new.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked for ends of trials.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the trial at `place` and leaves its record in `folder`, in place of whoever started it. `trial` is as for
/// [`sweep`](super::sweep()).
///
/// # Errors
/// A trial that could not be started or was stopped, and a file system that refuses the record.
pub fn run_one(
    folder: &Path,
    points: &[Point],
    place: Place,
    trial: impl FnMut(&str, &[String]) -> Result<trial::Outcome, TrialError>,
) -> Result<(), SweepError> {
    let mut record = run_trial(points, place, trial).map_err(SweepError::Trial)?;
    record.node = Some(Node::this());
    let ended = folder.join(ENDED);
    fs::create_dir_all(&ended).map_err(SweepError::io("create", &ended))?;
    let path = ended.join(format!("{place}.json"));
    let text = serde_json::to_vec(&record).map_err(std::io::Error::from);
    text.and_then(|text| write_whole(&path, &text))
        .map_err(SweepError::io("write", &path))
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

/// Takes the records of trials that have ended out of `folder` into `journal`; returns those that are new.
///
/// # Errors
/// What is no record, and whatever the file system refuses.
pub fn take_ended(
    folder: &SweepFolder,
    points: &[Point],
    journal: &mut Journal,
) -> Result<Vec<Record>, SweepError> {
    let ended = folder.file(ENDED);
    let entries = match fs::read_dir(&ended) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(SweepError::io("read", &ended)(error)),
    };
    let mut new = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|kind| kind != "json") {
            // Not whole yet.
            continue;
        }
        let text = fs::read(&path).map_err(SweepError::io("read", &path))?;
        let damaged = |what: String| SweepError::Damaged {
            path: path.clone(),
            what,
        };
        let record: Record =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        let of = points.get(record.place.point).map(|point| &point.settings);
        if of != Some(&record.settings) {
            return Err(damaged("it is the record of another sweep".to_owned()));
        }
        if !journal.has(record.place) {
            journal.append(record.clone())?;
            new.push(record);
        }
        fs::remove_file(&path).map_err(SweepError::io("remove", &path))?;
    }
    new.sort_by(|a, b| a.ended_at_unix_seconds.total_cmp(&b.ended_at_unix_seconds));
    Ok(new)
}

/// Has `launcher` run those trials of `order` that `journal` does not have yet, until `stop` is set. What is lost with its node
/// is started again, [`MOST_STARTS`] times in all. `noted` hears of each record, of the trials that are left, and how many of them
/// run at once.
///
/// # Errors
/// A launcher that cannot start anything, and a journal that cannot be written to.
pub fn launch(
    points: &[Point],
    order: &[Place],
    (folder, journal): (&SweepFolder, &mut Journal),
    launcher: &mut dyn Launcher,
    stop: &AtomicBool,
    mut noted: impl FnMut(&Journal, &Record, &[Place], usize),
) -> Result<End, SweepError> {
    let mut underway: HashMap<Place, Started> = HashMap::new();
    let under_way_already = launcher.running();
    underway.extend(
        under_way_already
            .into_iter()
            .map(|place| (place, Started::now())),
    );
    let mut starts: HashMap<Place, usize> = HashMap::new();
    let mut lost = 0;
    loop {
        let mut new = take_ended(folder, points, journal)?;
        for (place, ending) in launcher.ended()? {
            underway.entry(place).or_insert_with(Started::now).ended =
                Some((Instant::now(), ending));
        }
        underway.retain(|place, _| !journal.has(*place));
        let over: Vec<Place> = { underway.iter() }
            .filter_map(|(place, started)| started.is_over().then_some(*place))
            .collect();
        for place in over {
            let started = underway.remove(&place);
            let Some((started, (_, ending))) = started.and_then(|it| Some((it.at, it.ended?)))
            else {
                continue;
            };
            if let Ending::Lost(reason) = &ending {
                lost += 1;
                if lost >= MOST_STARTS
                    && journal.records().iter().all(|record| record.node.is_none())
                {
                    launcher.stop();
                    let reason = reason.clone();
                    return Err(SweepError::NothingStarts { reason });
                }
            }
            let again = starts.get(&place).copied().unwrap_or(1) < MOST_STARTS;
            if let Some(outcome) = ending.outcome(again) {
                let settings = &points[place.point].settings;
                let record = record(place, settings, started.elapsed(), outcome);
                journal.append(record.clone())?;
                new.push(record);
            }
        }
        let missing = |place: &&Place| !journal.has(**place);
        let left: Vec<Place> = order.iter().filter(missing).copied().collect();
        for record in &new {
            noted(journal, record, &left, underway.len().max(1));
        }
        if stop.load(Ordering::Relaxed) {
            launcher.stop();
            take_ended(folder, points, journal)?;
            return Ok(End::Stopped);
        }
        if left.is_empty() {
            return Ok(End::Complete);
        }
        let waiting = left.iter().filter(|place| !underway.contains_key(place));
        let waiting: Vec<Place> = waiting.copied().collect();
        let started = match waiting.is_empty() {
            true => 0,
            false => launcher.start(&waiting)?,
        };
        for place in &waiting[..started] {
            *starts.entry(*place).or_default() += 1;
            underway.insert(*place, Started::now());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A trial that has been started.
struct Started {
    at: Instant,
    /// When its launcher said that it has ended, and how.
    ended: Option<(Instant, Ending)>,
}

impl Started {
    fn now() -> Started {
        Started {
            at: Instant::now(),
            ended: None,
        }
    }

    /// It has ended, and its record would be here by now.
    fn is_over(&self) -> bool {
        let since = |ended: &(Instant, Ending)| ended.0.elapsed() >= PATIENCE;
        self.ended.as_ref().is_some_and(since)
    }
}

//! What a sweep prints of its progress, on standard error. May use: `report`, `tune`.

use super::Plan;
use crate::cli::progress;
use crate::report::percent;
use crate::tune::sweep::{Journal, Outcome, Place, Record, SweepFolder, time_left};
use std::path::Path;
use std::time::Duration;

/// Says what is going to be run, and how much of it there is already.
pub(super) fn announce(plan: &Plan, path: &Path, folder: &SweepFolder, journal: &Journal) {
    let (points, repeats) = (plan.points.len(), plan.manifest.repeats);
    let all = points * repeats;
    progress::say(format!(
        "{points} points, {repeats} times each: {all} trials, kept in {}",
        path.display()
    ));
    if folder.resumed {
        let done = journal.records().len();
        progress::say(format!("resuming: {done} of {all} trials are done"));
    }
}

/// Says what became of a trial, and how long those at `left` will take, of which `at_once` run at once.
pub(super) fn show(journal: &Journal, record: &Record, left: &[Place], at_once: usize) {
    progress::say(line(journal.records(), record, left, at_once));
}

pub(super) fn line(records: &[Record], record: &Record, left: &[Place], at_once: usize) -> String {
    let (done, all) = (records.len(), records.len() + left.len());
    let width = all.to_string().len();
    let what = match &record.outcome {
        Outcome::Fits(figures) => {
            let busy = figures.device_busy_share;
            let busy = busy.map(|share| format!(", device busy {}", percent(share)));
            let rate = figures.samples_per_second;
            format!("{rate:.1} samples/s{}", busy.unwrap_or_default())
        }
        other => {
            let reason = other.failure().unwrap_or_default();
            reason.lines().next().unwrap_or_default().to_owned()
        }
    };
    let took = in_words(Duration::from_nanos(record.elapsed_ns));
    let rest = time_left(records, left).filter(|_| !left.is_empty());
    let rest = rest.map(|rest| format!(", about {} left", in_words(rest.div_f64(at_once as f64))));
    let node = record.node.as_ref();
    let node = node.map_or_else(String::new, |node| format!(" on {}", node.host));
    format!(
        "[{done:>width$}/{all}] {}: {what} (took {took}{node}{})",
        record.settings.join(" "),
        rest.unwrap_or_default()
    )
}

/// `0.8 s`, `42 s`, `3 min 20 s`, `2 h 5 min`.
pub(super) fn in_words(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

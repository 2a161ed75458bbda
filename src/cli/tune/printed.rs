//! What `stallscope tune` says: a line for each trial, the table, the answers, and the same as JSON.
//!
//! May use: `analysis`, `report`, `text`, `tune`.

use crate::report::percent;
use crate::text::{Column, Table, paragraph, shell_word};
use crate::tune::tuning::{
    Answer, Attempt, CONFIRMING, Confirmation, KNEE, Next, Objective, Purpose, Size, Tuning,
};
use crate::tune::{Outcome, of_the_knee};
use serde_json::{Value, json};
use std::path::Path;

/// Of the names before what is said.
const LABEL: usize = 10;

/// One trial in a line, as it ends.
pub(super) fn line(attempt: &Attempt) -> String {
    let result = match &attempt.outcome {
        Outcome::Fits(measured) => format!("{:.1} samples/s", measured.samples_per_second),
        outcome => word(outcome).to_owned(),
    };
    let predicted = attempt.predicted.as_ref();
    let predicted = predicted.map(|predicted| predicted.samples_per_second.value);
    let predicted = predicted.map(|rate| format!(" ({rate:.1} predicted)"));
    let changed = changed(&attempt.sets);
    format!(
        "trial {}, {changed}: {result}{}",
        attempt.number,
        predicted.unwrap_or_default()
    )
}

/// All there is to say, for a terminal of `width` columns.
pub(super) fn text(found: &Tuning, tuned: Option<&Path>, width: usize) -> String {
    let mut out = table(&found.trials).render(width);
    for attempt in &found.trials {
        out += &trouble(attempt, width);
    }
    out.push('\n');
    let mut say = |label: &str, text: &str| out += &paragraph(label, LABEL, text, width);
    say("searched", &searched(found));
    if let Some(never) = never_tried(found) {
        say("", &never);
    }
    let name = if found.stopped { "best yet" } else { "winner" };
    say(name, &answer(&found.winner, found));
    say("knee", &knee(found));
    match &found.confirmation {
        Some(confirmation) => {
            let (label, words) = confirmed(found, confirmation);
            say(label, &words);
            if confirmation.start_wins {
                say("", start_wins(confirmation));
            }
        }
        None if found.stopped => say("confirmed", "no: stopped before the second runs"),
        None if found.winner.sets.is_empty() => say("", "no trial is better than the start"),
        None => say("confirmed", "no: no trials were left for second runs"),
    }
    say("next", &next(&found.next));
    if let Some(path) = tuned {
        out += &format!("{:LABEL$}{}\n", "run it", command(path));
    }
    out
}

fn searched(found: &Tuning) -> String {
    let excluded = found.excluded;
    let left_out =
        excluded.invalid + excluded.unforecastable + excluded.memory + excluded.ruled_out;
    let forecast = found.forecast_points - left_out;
    let searched = format!("{} settings, {forecast} forecast", found.points);
    match left_out {
        0 => searched,
        _ => format!("{searched}, {}", reasons(found)),
    }
}

fn knee(found: &Tuning) -> String {
    let knee = match found.knee.sets == found.winner.sets {
        true => "the same".to_owned(),
        false if found.knee.measured => answer(&found.knee, found),
        false => format!("{}, forecast", answer(&found.knee, found)),
    };
    // Forecasts are compared with measurements that differ by as much.
    let is_sure = found.run_spread.is_some_and(|spread| spread <= KNEE);
    let what = "the settings measured or forecast";
    format!("{knee}; {}", of_the_knee(what, is_sure, found.run_spread))
}

pub(super) fn table(trials: &[Attempt]) -> Table {
    let figures = ["predicted samples/s", "measured", "error", "device busy"];
    let names = [Column::key("trial"), Column::name("changed")];
    let columns = names.into_iter().chain(figures.map(Column::figure));
    let mut table = Table::new(columns.chain([Column::words("")]));
    for attempt in trials {
        let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let predicted = attempt.predicted.as_ref().map(|predicted| {
            let rate = predicted.samples_per_second;
            format!("{:.1} [{:.1}..{:.1}]", rate.value, rate.low, rate.high)
        });
        let measured = attempt.outcome.fits();
        let rate = measured.map(|measured| format!("{:.1}", measured.samples_per_second));
        let busy = measured.and_then(|measured| measured.device_busy_share);
        let error = attempt.error_share;
        let again = match attempt.purpose {
            Purpose::Confirm => "again",
            _ => "",
        };
        table.push([
            attempt.number.to_string(),
            changed(&attempt.sets),
            cell(predicted),
            rate.unwrap_or_else(|| word(&attempt.outcome).to_owned()),
            cell(error.map(|share| format!("{:+.1} %", 100.0 * share))),
            cell(busy.map(percent)),
            again.to_owned(),
        ]);
    }
    table
}

/// Why a trial failed, or nothing can be forecast from it.
fn trouble(attempt: &Attempt, width: usize) -> String {
    let number = attempt.number;
    let mut out = String::new();
    if let Outcome::Failed { reason } = &attempt.outcome {
        out += &paragraph("", 0, &format!("trial {number} failed: {reason}"), width);
    }
    if let Some(why) = &attempt.not_learned {
        let text = format!("trial {number}: nothing can be forecast from it: {why}");
        out += &paragraph("", 0, &text, width);
    }
    out
}

/// Combinations of values that are listed at most.
const MOST_LISTED: usize = 5;

/// What had to be run before it could be forecast, and was not.
fn never_tried(found: &Tuning) -> Option<String> {
    let all = &found.never_tried;
    if all.is_empty() {
        return None;
    }
    let listed = all.iter().take(MOST_LISTED).map(|sets| sets.join(" "));
    let listed: Vec<String> = listed.collect();
    let more = match all.len().saturating_sub(MOST_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let looked = found.trials.iter();
    let looked = looked.filter(|one| one.purpose != Purpose::Confirm).count();
    let enough = looked + all.len() + CONFIRMING;
    Some(format!(
        "never tried: {}{more}; their costs are unknown until they are run; --trials {enough} has a run for each",
        listed.join(", ")
    ))
}

fn confirmed(tuning: &Tuning, found: &Confirmation) -> (&'static str, String) {
    let rates = |runs: &[crate::tune::Measured]| {
        let rates = runs
            .iter()
            .map(|run| format!("{:.1}", run.samples_per_second));
        let rates: Vec<String> = rates.collect();
        match rates.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} and {last}", others.join(", "))
            }
            _ => rates.concat(),
        }
    };
    let (start, winner) = (rates(&found.start), rates(&found.winner));
    let (word, noise) = match found.is_within_noise() {
        false => ("confirmed", ""),
        true if tuning.winner.size < tuning.start.size => {
            ("confirmed", " within the noise of the runs, and smaller")
        }
        true => ("in doubt", " is within the noise of the runs"),
    };
    let text = format!(
        "{:.2}x{noise}: {start} samples/s as it was, {winner} with {}",
        found.ratio,
        changed(&found.sets)
    );
    (word, text)
}

fn start_wins(found: &Confirmation) -> &'static str {
    match found.winner.len() {
        0 | 1 => "the second time it did not run: the start stays the best",
        _ => "run again it is no better: the start stays the best",
    }
}

fn next(next: &Next) -> String {
    let verdict = next.verdict.as_deref().unwrap_or("no verdict");
    let held = match &next.bottleneck {
        Some(bottleneck) => format!("held back by {bottleneck}"),
        None => "no resource alone holds it back".to_owned(),
    };
    match &next.suggestion {
        Some(suggestion) => format!("{verdict}; {held}; {}", suggestion.text()),
        None => format!("{verdict}; {held}"),
    }
}

/// The result as JSON.
pub(super) fn as_json(found: &Tuning, tuned: Option<&Path>) -> Value {
    let mut json = json!(found);
    json["tuned_file"] = json!(tuned.map(|path| path.display().to_string()));
    json["tuned_command"] = json!(tuned.map(command));
    json
}

/// The command that runs the configuration at `tuned`.
pub(super) fn command(tuned: &Path) -> String {
    format!(
        "stallscope run {}",
        shell_word(&tuned.display().to_string())
    )
}

fn answer(answer: &Answer, found: &Tuning) -> String {
    let rate = answer.samples_per_second;
    let ratio = rate / found.start.samples_per_second;
    let busy = match (found.objective, answer.device_busy) {
        (Objective::DeviceBusy, Some(busy)) => format!(", device busy {}", percent(busy)),
        _ => String::new(),
    };
    let Size { threads, .. } = answer.size;
    let threads = match threads {
        1 => "1 thread".to_owned(),
        _ => format!("{threads} threads"),
    };
    let changed = changed(&answer.sets);
    format!("{changed}: {rate:.1} samples/s{busy}, {ratio:.2}x the start, {threads}")
}

/// The changes of a point in words.
pub(super) fn changed(sets: &[String]) -> String {
    match sets {
        [] => "nothing changed".to_owned(),
        _ => sets.join(" "),
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Fits(_) => "fits",
        Outcome::OutOfMemory => "no memory",
        Outcome::Killed => "killed",
        Outcome::TooLargeForHost => "not run",
        Outcome::Failed { .. } => "failed",
    }
}

fn reasons(found: &Tuning) -> String {
    let excluded = found.excluded;
    let reasons = [
        (excluded.invalid, "make no sense"),
        (
            excluded.unforecastable,
            "cannot be forecast without a run of their own",
        ),
        (
            excluded.memory,
            "need more memory for the loader than allowed",
        ),
        (excluded.ruled_out, "need as much memory as what failed"),
    ];
    let given = reasons.iter().filter(|(count, _)| *count > 0);
    let given: Vec<String> = given.map(|(count, why)| format!("{count} {why}")).collect();
    given.join(", ")
}

#[cfg(test)]
#[path = "printed/tests.rs"]
mod tests;

//! What `stallscope tune` says: a line for each trial, the table, the answers, and the same as JSON.
//!
//! May use: `analysis`, `report`, `tune`.

use crate::cli::batch_size::quoted;
use crate::report::percent;
use crate::tune::tuning::{
    Answer, Attempt, CONFIRMING, Confirmation, KNEE, Next, Objective, Purpose, Size, Tuning,
};
use crate::tune::{Outcome, of_the_knee};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

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

/// All there is to say, for a terminal.
pub(super) fn print(out: &mut dyn Write, found: &Tuning, tuned: Option<&Path>) -> io::Result<()> {
    print_table(out, &found.trials)?;
    writeln!(out)?;
    let points = found.points;
    let excluded = found.excluded;
    let left_out =
        excluded.invalid + excluded.unforecastable + excluded.memory + excluded.ruled_out;
    write!(
        out,
        "searched  {points} settings, {} forecast",
        found.forecast_points - left_out
    )?;
    match left_out {
        0 => writeln!(out)?,
        _ => writeln!(out, ", {}", reasons(found))?,
    }
    print_never_tried(out, found)?;
    let name = if found.stopped { "best yet" } else { "winner" };
    writeln!(out, "{name:<9} {}", answer(&found.winner, found))?;
    let knee = match found.knee.sets == found.winner.sets {
        true => "the same".to_owned(),
        false if found.knee.measured => answer(&found.knee, found),
        false => format!("{}, forecast", answer(&found.knee, found)),
    };
    // Forecasts are held against measurements that differ by as much.
    let is_sure = found.run_spread.is_some_and(|spread| spread <= KNEE);
    let what = "the settings measured or forecast";
    writeln!(
        out,
        "knee      {knee}; {}",
        of_the_knee(what, is_sure, found.run_spread)
    )?;
    match &found.confirmation {
        Some(confirmation) => print_confirmation(out, found, confirmation)?,
        None if found.stopped => writeln!(out, "confirmed no: stopped before the second runs")?,
        None if found.winner.sets.is_empty() => writeln!(
            out,
            "          nothing that was tried is better than the start"
        )?,
        None => writeln!(out, "confirmed no: no trials were left for second runs")?,
    }
    print_next(out, &found.next)?;
    match tuned {
        Some(path) => writeln!(
            out,
            "run it    stallscope run {}",
            quoted(&path.display().to_string())
        ),
        None => Ok(()),
    }
}

fn print_table(out: &mut dyn Write, trials: &[Attempt]) -> io::Result<()> {
    let changes: Vec<String> = trials.iter().map(|one| changed(&one.sets)).collect();
    let width = changes.iter().map(|text| text.chars().count()).max();
    let width = width.unwrap_or(0).max("changed".len());
    writeln!(
        out,
        "trial  {:<width$}  {:>24}  {:>10}  {:>7}  {:>11}",
        "changed", "predicted samples/s", "measured", "error", "device busy"
    )?;
    for (attempt, changed) in trials.iter().zip(&changes) {
        let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let predicted = attempt.predicted.as_ref().map(|predicted| {
            let rate = predicted.samples_per_second;
            format!("{:.1} [{:.1}..{:.1}]", rate.value, rate.low, rate.high)
        });
        let measured = attempt.outcome.fits();
        let rate = measured.map(|measured| format!("{:.1}", measured.samples_per_second));
        let busy = measured.and_then(|measured| measured.device_busy_share);
        let error = attempt
            .error_share
            .map(|share| format!("{:+.1} %", 100.0 * share));
        let again = if attempt.purpose == Purpose::Confirm {
            " again"
        } else {
            ""
        };
        writeln!(
            out,
            "{:>5}  {changed:<width$}  {:>24}  {:>10}  {:>7}  {:>11}{again}",
            attempt.number,
            cell(predicted),
            rate.unwrap_or_else(|| word(&attempt.outcome).to_owned()),
            cell(error),
            cell(busy.map(percent)),
        )?;
    }
    for attempt in trials {
        if let Outcome::Failed { reason } = &attempt.outcome {
            writeln!(out, "trial {} failed: {reason}", attempt.number)?;
        }
        if let Some(why) = &attempt.not_learned {
            writeln!(
                out,
                "trial {}: nothing can be forecast from it: {why}",
                attempt.number
            )?;
        }
    }
    Ok(())
}

/// Combinations of values that are listed at most.
const MOST_LISTED: usize = 5;

/// What had to be run before it could be forecast, and was not.
fn print_never_tried(out: &mut dyn Write, found: &Tuning) -> io::Result<()> {
    let all = &found.never_tried;
    if all.is_empty() {
        return Ok(());
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
    writeln!(
        out,
        "never tried: {}{more}; only a run tells what they cost, and --trials {enough} has one for each",
        listed.join(", ")
    )
}

fn print_confirmation(
    out: &mut dyn Write,
    tuning: &Tuning,
    found: &Confirmation,
) -> io::Result<()> {
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
    let (word, noise) = match found.told_apart || found.start_wins {
        true => ("confirmed", ""),
        false if tuning.winner.size < tuning.start.size => {
            ("confirmed", " within the noise of the runs, and smaller")
        }
        false => ("in doubt ", " is within the noise of the runs"),
    };
    writeln!(
        out,
        "{word} {:.2}x{noise}: {start} samples/s as it was, {winner} with {}",
        found.ratio,
        changed(&found.sets)
    )?;
    if found.start_wins {
        let why = match found.winner.len() {
            0 | 1 => "the second time it did not run",
            _ => "run again it is no better",
        };
        writeln!(out, "          {why}: the start stays the best")?;
    }
    Ok(())
}

fn print_next(out: &mut dyn Write, next: &Next) -> io::Result<()> {
    let verdict = next.verdict.as_deref().unwrap_or("no verdict");
    write!(out, "next      {verdict}; ")?;
    match &next.bottleneck {
        Some(bottleneck) => write!(out, "held back by {bottleneck}")?,
        None => write!(out, "no resource alone holds it back")?,
    }
    match &next.suggestion {
        Some(suggestion) => writeln!(out, "; {}", suggestion.text()),
        None => writeln!(out),
    }
}

/// The result as JSON.
pub(super) fn as_json(found: &Tuning, tuned: Option<&Path>) -> Value {
    let mut json = json!(found);
    let path = tuned.map(|path| path.display().to_string());
    json["tuned_file"] = json!(path);
    json["tuned_command"] = json!(path.map(|path| format!("stallscope run {}", quoted(&path))));
    json
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

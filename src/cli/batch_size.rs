//! `stallscope batch-size`: the largest batch that fits the device, and the smallest that is as fast as any.
//!
//! Each size is a run in a process of its own. May use: `config`, `report`, `session`, `text`, `tune`.

use super::args::BatchSizeArgs;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::progress;
use super::run::{provide_data, trial_steps};
use crate::config::{Resolved, Settings, key_of};
use crate::machine::memory_to_fill_bytes;
use crate::report::percent;
use crate::session::{Predictor, training_samples};
use crate::text::{Column, Table, labelled, shell_word, width};
use crate::timeline::Bytes;
use crate::tune::{
    BatchSizes, Bounds, Confirmed, LimitedBy, MemoryUse, Outcome, Trial, TrialError, TrialRunner,
    batch_sizes, of_the_knee,
};
use anyhow::Context;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The largest value of `batch.size`.
const LARGEST_KEY_VALUE: usize = 1_048_576;

/// Not even the smallest size fits.
#[derive(Debug, thiserror::Error)]
#[error(
    "not even batch.size = {least} fits the memory of {device}\n  \
     try: a smaller model.kind or preprocess.size, a lower --min, or another device"
)]
pub struct NothingFits {
    least: usize,
    device: String,
}

/// Searches for the batch sizes of `args` and prints them.
///
/// # Errors
/// A configuration or data that cannot be used, a trial that failed for another reason than memory, or
/// [`NothingFits`].
pub fn batch_size(args: &BatchSizeArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let overrides = args.experiment.overrides();
    let config = Settings::load(&args.experiment.config, &overrides)?.resolve()?;
    provide_data(&config)?;
    let bounds = bounds(args, &config, training_samples(&config)?)?;
    let sets = [&overrides[..], &trial_steps(args.steps, &config)].concat();
    let folder = tempfile::tempdir().context("cannot make a folder for the trials")?;
    let runner = TrialRunner::new(&args.experiment.config, sets, folder, interrupt_switch()?)?;
    let mut predictor = None;
    let found = batch_sizes(bounds, |size| {
        if let Some(why) = predictor.as_ref().and_then(|it| too_large(it, size)) {
            progress::say(format!("batch.size = {size}: not run: {why}"));
            return Ok(Outcome::TooLargeForHost);
        }
        let outcome = runner.measure_batch_size(size)?;
        progress::say(format!("batch.size = {size}: {}", in_words(&outcome)));
        if let (None, Some(measured)) = (&predictor, outcome.fits()) {
            predictor = Predictor::from_report(&measured.report).ok();
        }
        Ok(outcome)
    });
    let found = match found {
        Err(TrialError::Stopped) => {
            eprintln!("stopped before there was an answer");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        found => found?,
    };
    let device = config.device.to_string();
    let command = |size: usize| {
        run_command(
            &args.experiment.config,
            &overrides,
            &[format!("batch.size={size}")],
        )
    };
    if args.output.json {
        print_json(out, &device, &found, &command)?;
    } else {
        write!(out, "{}", table(&found.trials).render(width()))?;
        print_answers(out, &found, &device, &command)?;
    }
    out.flush()?;
    if found.largest.is_none() {
        let least = bounds.least;
        return Err(NothingFits { least, device }.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Why this machine's memory does not hold the loader's buffers for batches of `size`, by a forecast.
fn too_large(predictor: &Predictor, size: usize) -> Option<String> {
    let needed = predictor.host_memory(&[format!("batch.size={size}")]);
    more_than_there_is(needed.ok()?, memory_to_fill_bytes()?)
}

fn more_than_there_is(needed: u64, there_is: u64) -> Option<String> {
    let why = || {
        let (needed, there_is) = (Bytes(needed), Bytes(there_is));
        format!("full buffers need {needed}, and this machine has memory for {there_is}")
    };
    (needed > there_is).then(why)
}

/// From `--min` to `--max`, as far as the data of `samples` samples and the key go.
fn bounds(args: &BatchSizeArgs, config: &Resolved, samples: usize) -> anyhow::Result<Bounds> {
    let possible = samples.min(LARGEST_KEY_VALUE);
    let most = args.max.unwrap_or(possible).min(possible);
    anyhow::ensure!(
        args.min <= most,
        "--min {} is above {most}, the largest batch size to try: the data has {samples} samples to train on, \
         and batch.size is at most {LARGEST_KEY_VALUE}",
        args.min
    );
    Ok(Bounds {
        start: config.pipeline.batch.size,
        least: args.min,
        most,
    })
}

/// What became of a size.
pub(super) fn in_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Fits(measured) => format!("fits, {:.1} samples/s", measured.samples_per_second),
        Outcome::OutOfMemory => "does not fit".to_owned(),
        other => other.failure().unwrap_or_default().to_owned(),
    }
}

fn table(trials: &[Trial]) -> Table {
    let figures = ["fits", "samples/s", "device busy", "in use", "reserved"];
    let columns = figures.map(Column::figure);
    let mut table = Table::new(std::iter::once(Column::key("batch size")).chain(columns));
    for trial in trials {
        let fits = match trial.outcome {
            Outcome::Fits(_) => "yes",
            Outcome::Killed => "killed",
            Outcome::TooLargeForHost => "not run",
            _ => "no",
        };
        let measured = trial.outcome.fits();
        let memory = measured.and_then(|measured| measured.memory);
        let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let bytes = |of: fn(MemoryUse) -> u64| cell(memory.map(|m| Bytes(of(m)).to_string()));
        let busy = measured.and_then(|measured| measured.device_busy_share);
        table.push([
            trial.batch_size.to_string(),
            fits.to_owned(),
            cell(measured.map(|measured| format!("{:.1}", measured.samples_per_second))),
            cell(busy.map(percent)),
            bytes(|memory| memory.in_use_bytes),
            bytes(|memory| memory.reserved_bytes),
        ]);
    }
    table
}

fn print_answers(
    out: &mut dyn Write,
    found: &BatchSizes,
    device: &str,
    command: &dyn Fn(usize) -> String,
) -> std::io::Result<()> {
    let (Some(largest), Some(fastest)) = (&found.largest, &found.fastest) else {
        return Ok(());
    };
    let larger = |trial: &&Trial| trial.batch_size > largest.batch_size;
    let why = match (found.limited_by, found.trials.iter().find(larger)) {
        (LimitedBy::Most, _) | (_, None) => "the largest size tried; all fit".to_owned(),
        (
            LimitedBy::Memory,
            Some(Trial {
                batch_size,
                outcome,
            }),
        ) => match outcome {
            Outcome::Killed => format!("{batch_size} takes more memory than this machine has"),
            Outcome::TooLargeForHost => {
                format!("the full buffers of {batch_size} need more memory than this machine has")
            }
            _ => format!("{batch_size} does not fit {device}"),
        },
    };
    let answer = |out: &mut dyn Write, name: &str, answer: &Confirmed, why: &str| {
        let Confirmed {
            batch_size, again, ..
        } = answer;
        writeln!(out)?;
        let (first, again) = (answer.first.samples_per_second, again.samples_per_second);
        for (label, text) in [
            (name, format!("batch.size = {batch_size} ({why})")),
            (
                "",
                format!("run twice: it fits, {first:.1} and {again:.1} samples/s"),
            ),
        ] {
            write!(out, "{}", labelled(label, &text, width()))?;
        }
        writeln!(out, "         {}", command(*batch_size))
    };
    answer(out, "largest", largest, &why)?;
    let tried = found
        .trials
        .iter()
        .filter(|trial| trial.outcome.fits().is_some());
    let tried = format!("the {} sizes tried", tried.count());
    answer(
        out,
        "fastest",
        fastest,
        &of_the_knee(&tried, found.fastest_is_sure, found.run_spread),
    )
}

fn print_json(
    out: &mut dyn Write,
    device: &str,
    found: &BatchSizes,
    command: &dyn Fn(usize) -> String,
) -> anyhow::Result<()> {
    let to_use = |answer: &Option<Confirmed>| {
        let answer = answer.as_ref();
        answer.map(|answer| command(answer.batch_size))
    };
    let json = json!({
        "device": device,
        "trials": found.trials,
        "limited_by": found.limited_by,
        "largest": found.largest,
        "largest_command": to_use(&found.largest),
        "fastest": found.fastest,
        "fastest_command": to_use(&found.fastest),
        "fastest_is_sure": found.fastest_is_sure,
        "run_spread": found.run_spread,
    });
    serde_json::to_writer_pretty(&mut *out, &json)?;
    writeln!(out)?;
    Ok(())
}

/// The command that runs the experiment `config` with the `key=value` texts `sets` and, in place of those of the same
/// keys, `changed`, for a shell.
pub(super) fn run_command(config: &Path, sets: &[String], changed: &[String]) -> String {
    let is_changed = |set: &&String| changed.iter().any(|other| key_of(other) == key_of(set));
    let sets = sets.iter().filter(|set| !is_changed(set)).chain(changed);
    let sets = sets.map(|set| format!(" --set {}", shell_word(set)));
    let config = shell_word(&config.display().to_string());
    format!("stallscope run {config}{}", sets.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_holds_is_run() {
        assert_eq!(more_than_there_is(4 << 30, 4 << 30), None);
        assert_eq!(
            more_than_there_is(12 << 30, 4 << 30).as_deref(),
            Some("full buffers need 12.0 GiB, and this machine has memory for 4.00 GiB")
        );
    }

    #[test]
    fn the_command_can_be_pasted() {
        let overrides = [
            "batch.size=8",
            "device=cuda:0",
            "preprocess.scale=[0.5, 1.0]",
        ];
        let overrides = overrides.map(str::to_owned);
        let config = Path::new("my configs/it's.toml");
        assert_eq!(
            run_command(config, &overrides, &["batch.size=96".to_owned()]),
            r"stallscope run 'my configs/it'\''s.toml' --set device=cuda:0 --set 'preprocess.scale=[0.5, 1.0]' --set batch.size=96"
        );
    }
}

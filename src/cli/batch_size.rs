//! `stallscope batch-size`: the largest batch that fits the device, and the smallest that is as fast as any.
//!
//! Each size is a run in a process of its own. May use: `config`, `session`, `tune`.

use super::args::BatchSizeArgs;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::run::{provide_data, trial_command, trial_steps};
use crate::config::{Resolved, Settings, key_of};
use crate::session::training_samples;
use crate::timeline::Bytes;
use crate::tune::{
    BatchSizes, Bounds, Confirmed, LimitedBy, MemoryUse, Trial, TrialError, TrialResult,
    TrialRunner, batch_sizes,
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
     try: a smaller model.kind or preprocess.size, a lower --least, or another device"
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
    let overrides = args.overrides();
    let config = Settings::load(&args.config, &overrides)?.resolve()?;
    provide_data(&config, args.json)?;
    let bounds = bounds(args, &config, training_samples(&config)?)?;
    let found = match search(args, &config, &overrides, bounds)? {
        Err(TrialError::Stopped) => {
            eprintln!("stopped before there was an answer");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        found => found?,
    };
    let device = config.device.to_string();
    let command = Advice {
        config: &args.config,
        overrides: &overrides,
    };
    if args.json {
        print_json(out, &device, &found, &command)?;
    } else {
        print_table(out, &found.trials)?;
        print_answers(out, &found, &device, &command)?;
    }
    out.flush()?;
    if found.largest.is_none() {
        let least = bounds.least;
        return Err(NothingFits { least, device }.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the trials, until Ctrl-C; the inner result is theirs.
fn search(
    args: &BatchSizeArgs,
    config: &Resolved,
    overrides: &[String],
    bounds: Bounds,
) -> anyhow::Result<Result<BatchSizes, TrialError>> {
    let stop = interrupt_switch()?;
    let folder = tempfile::tempdir().context("cannot make a folder for the trials")?;
    let runner = TrialRunner {
        command: trial_command(&args.config)?,
        overrides: [overrides, &trial_steps(args.steps, config)].concat(),
        folder: folder.path().to_owned(),
        stop,
        deadline: None,
    };
    Ok(batch_sizes(bounds, |size| {
        let result = runner.run_batch_size(size)?;
        eprintln!("batch.size = {size}: {}", in_words(&result));
        Ok(result)
    }))
}

/// From `--least` to `--most`, as far as the data of `samples` samples and the key go.
fn bounds(args: &BatchSizeArgs, config: &Resolved, samples: usize) -> anyhow::Result<Bounds> {
    let possible = samples.min(LARGEST_KEY_VALUE);
    let most = args.most.unwrap_or(possible).min(possible);
    anyhow::ensure!(
        args.least <= most,
        "--least {} is above {most}, the largest batch size to try: the data has {samples} samples to train on, \
         and batch.size is at most {LARGEST_KEY_VALUE}",
        args.least
    );
    Ok(Bounds {
        start: config.pipeline.batch.size,
        least: args.least,
        most,
    })
}

fn in_words(result: &TrialResult) -> String {
    match result {
        TrialResult::Fits(measured) => {
            format!("fits, {:.1} samples/s", measured.samples_per_second)
        }
        TrialResult::OutOfMemory => "does not fit".to_owned(),
        TrialResult::Killed => "killed: this machine's memory was not enough".to_owned(),
    }
}

fn print_table(out: &mut dyn Write, trials: &[Trial]) -> std::io::Result<()> {
    writeln!(
        out,
        "{:>10} {:>7} {:>12} {:>12} {:>10} {:>10}",
        "batch size", "fits", "samples/s", "device busy", "in use", "reserved"
    )?;
    for trial in trials {
        let fits = match trial.result {
            TrialResult::Fits(_) => "yes",
            TrialResult::OutOfMemory => "no",
            TrialResult::Killed => "killed",
        };
        let measured = trial.result.measured();
        let memory = measured.and_then(|measured| measured.memory);
        let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let bytes = |of: fn(MemoryUse) -> u64| cell(memory.map(|m| Bytes(of(m)).to_string()));
        let busy = measured.and_then(|measured| measured.device_busy_share);
        writeln!(
            out,
            "{:>10} {fits:>7} {:>12} {:>12} {:>10} {:>10}",
            trial.batch_size,
            cell(measured.map(|measured| format!("{:.1}", measured.samples_per_second))),
            cell(busy.map(|share| format!("{:.1} %", 100.0 * share))),
            bytes(|memory| memory.in_use_bytes),
            bytes(|memory| memory.reserved_bytes),
        )?;
    }
    Ok(())
}

fn print_answers(
    out: &mut dyn Write,
    found: &BatchSizes,
    device: &str,
    command: &Advice<'_>,
) -> std::io::Result<()> {
    let (Some(largest), Some(fastest)) = (&found.largest, &found.fastest) else {
        return Ok(());
    };
    let larger = |trial: &&Trial| trial.batch_size > largest.batch_size;
    let beyond = found.trials.iter().find(larger).map(|trial| &trial.result);
    let why = match found.limited_by {
        LimitedBy::Memory if beyond == Some(&TrialResult::Killed) => {
            "a larger one takes more memory than this machine has".to_owned()
        }
        LimitedBy::Memory => format!("a larger one does not fit {device}"),
        LimitedBy::Most => "the largest size tried; all fit".to_owned(),
    };
    let answer = |out: &mut dyn Write, name: &str, answer: &Confirmed, why: &str| {
        let Confirmed {
            batch_size, again, ..
        } = answer;
        writeln!(out, "\n{name}  batch.size = {batch_size} ({why})")?;
        let (first, again) = (answer.first.samples_per_second, again.samples_per_second);
        writeln!(
            out,
            "         run twice: it fits, {first:.1} and {again:.1} samples/s"
        )?;
        writeln!(out, "         {}", command.to_use(*batch_size))
    };
    answer(out, "largest", largest, &why)?;
    let why = "the smallest within 2 % of the most samples/s";
    answer(out, "fastest", fastest, why)
}

fn print_json(
    out: &mut dyn Write,
    device: &str,
    found: &BatchSizes,
    command: &Advice<'_>,
) -> anyhow::Result<()> {
    let to_use = |answer: &Option<Confirmed>| {
        let answer = answer.as_ref();
        answer.map(|answer| command.to_use(answer.batch_size))
    };
    let json = json!({
        "device": device,
        "trials": found.trials,
        "limited_by": found.limited_by,
        "largest": found.largest,
        "largest_command": to_use(&found.largest),
        "fastest": found.fastest,
        "fastest_command": to_use(&found.fastest),
    });
    serde_json::to_writer_pretty(&mut *out, &json)?;
    writeln!(out)?;
    Ok(())
}

/// The run to advise.
struct Advice<'a> {
    config: &'a Path,
    overrides: &'a [String],
}

impl Advice<'_> {
    /// The command that runs with `batch_size`, for a shell.
    fn to_use(&self, batch_size: usize) -> String {
        let is_size = |set: &&String| key_of(set) == "batch.size";
        let kept = self.overrides.iter().filter(|set| !is_size(set));
        let sets = kept.map(|set| format!(" --set {}", quoted(set)));
        let sets: String = sets.collect();
        let config = quoted(&self.config.display().to_string());
        format!("stallscope run {config}{sets} --set batch.size={batch_size}")
    }
}

/// `text` as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_pasted() {
        let overrides = [
            "batch.size=8",
            "device=cuda:0",
            "preprocess.scale=[0.5, 1.0]",
        ];
        let overrides = overrides.map(str::to_owned);
        let advice = Advice {
            config: Path::new("my configs/it's.toml"),
            overrides: &overrides,
        };
        assert_eq!(
            advice.to_use(96),
            r"stallscope run 'my configs/it'\''s.toml' --set device=cuda:0 --set 'preprocess.scale=[0.5, 1.0]' --set batch.size=96"
        );
    }
}
